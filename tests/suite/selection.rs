//! The names that are shown: patterns, one directory, names cut off, files that systems leave beside people's own, and
//! members of one name.

mod left_out;

use crate::common::{
    FFRFS, Mount, Need, Outcome, TempDir, ffrfs, fixture, for_each_transport, have, mount_command,
    own_namespace, run, temp_dir, wait_until, write_container,
};
use ffrfs::format::ffrecord::{PACKED_DIRECTORY_MAGIC, pickle};
use ffrfs::format::{Directory, Entry};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FILES: [&str; 7] = [
    "train/cat/1.jpg",
    "train/cat/1.json",
    "train/dog/2.jpg",
    "val/3.jpg",
    "__MACOSX/train/._cat",
    "train/.DS_Store",
    "train/dog/._2.jpg",
];

/// A directory of files that hold their paths, and a container of it.
fn packed(files: &[&str], name: &str) -> (TempDir, PathBuf) {
    let directory = temp_dir();
    let container = directory.path().join(name);
    pack(&directory.path().join("tree"), files, &container);
    (directory, container)
}

fn pack(tree: &Path, files: &[&str], container: &Path) {
    for file in files {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    ffrfs(&["convert".as_ref(), tree.as_os_str(), container.as_os_str()]).ok();
}

fn on(command: &str, source: &Path, args: &[&str]) -> Outcome {
    run(Command::new(FFRFS).arg(command).arg(source).args(args))
}

/// The files that `ls -R` prints.
fn files(source: &Path, args: &[&str]) -> Vec<String> {
    let text = on("ls", source, &[&["-R"], args].concat()).ok().text();
    let mut files: Vec<_> =
        text.lines().filter(|line| !line.ends_with('/')).map(str::to_owned).collect();
    files.sort();
    files
}

#[test]
fn only_names_that_are_included_and_not_excluded_are_listed() {
    for name in ["x.zip", "x.tar", "x.tar.gz", "x.ffr"] {
        let name = if name == "x.tar.gz" { "x.tar" } else { name };
        let (_directory, source) = packed(&FILES, name);
        for (args, expected) in [
            (&["--include", "*.jpg"][..], &["train/cat/1.jpg", "train/dog/2.jpg", "val/3.jpg"][..]),
            (&["--include", "cat"], &["train/cat/1.jpg", "train/cat/1.json"]),
            (&["--include", "*.jpg", "--exclude", "val"], &["train/cat/1.jpg", "train/dog/2.jpg"]),
            (&["--include", "*.json", "--include", "val/*"], &["train/cat/1.json", "val/3.jpg"]),
            (&["--exclude", "/train"], &["val/3.jpg"]),
            (&["--exclude", "./train/*"], &["val/3.jpg"]),
            (&["--include", "./train/*/*.json"], &["train/cat/1.json"]),
            (&["--subdir", "train/cat"], &["1.jpg", "1.json"]),
            (&["--subdir", "train", "--include", "dog/*"], &["dog/2.jpg"]),
            (&["--strip", "1", "--exclude", "dog"], &["3.jpg", "cat/1.jpg", "cat/1.json"]),
        ] {
            assert_eq!(files(&source, args), expected, "{name}: {args:?}");
        }
    }
}

#[test]
fn numbered_samples_can_be_selected_too() {
    let shown = files(&fixture("basic.ffr"), &["--include", "00000[0-2]", "--exclude", "000001"]);
    assert_eq!(shown, ["000000", "000002"]);
    let shown = files(&fixture("features.syr"), &["--subdir", "000000"]);
    assert!(!shown.is_empty() && shown.iter().all(|name| !name.contains('/')), "{shown:?}");
}

#[test]
fn files_that_fall_together_when_names_are_cut_off_are_numbered() {
    let (_directory, source) = packed(&["a/x.jpg", "b/x.jpg", "y"], "x.zip");
    assert_eq!(files(&source, &["--strip", "1"]), ["x (1).jpg", "x.jpg"]);
    assert_eq!(files(&source, &["--strip", "1", "--dup", "first"]), ["x.jpg"]);
    let refused = on("ls", &source, &["--strip", "1", "--dup", "error"]);
    assert_eq!(refused.code, 3);
    let both =
        format!("{0}: \"a/x.jpg\" and {0}: \"b/x.jpg\" are both \"x.jpg\"", source.display());
    for part in [both.as_str(), "with --strip 1, which --dup error refuses"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
}

#[test]
fn a_selection_of_nothing_is_refused_and_so_is_a_directory_that_is_none() {
    let (_directory, source) = packed(&FILES, "x.zip");
    for (args, says) in [
        (&["--include", "*.png"][..], "--include *.png: selects no sample"),
        (&["--exclude", "*"], "--exclude *: leaves no sample"),
        (&["--subdir", "test"], "x.zip: --subdir test: no such directory"),
        (&["--subdir", "val/3.jpg"], "--subdir val/3.jpg: is a file"),
        (&["--include", "a["], "unclosed character class"),
    ] {
        let refused = on("ls", &source, args);
        assert_eq!(refused.code, 1, "{args:?}");
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}

#[test]
fn the_tools_take_the_same_selection() {
    let (directory, source) = packed(&FILES, "x.tar");
    let selection = ["--subdir", "train", "--include", "*.jpg"];
    let out = directory.path().join("out");
    let extract = ["extract".as_ref(), source.as_os_str(), out.as_os_str()];
    run(Command::new(FFRFS).args(extract).args(selection)).ok();
    assert_eq!(fs::read(out.join("cat/1.jpg")).unwrap(), b"train/cat/1.jpg");
    assert!(!out.join("cat/1.json").exists() && !out.join("train").exists());
    let smaller = directory.path().join("smaller.zip");
    let convert = ["convert".as_ref(), source.as_os_str(), smaller.as_os_str()];
    run(Command::new(FFRFS).args(convert).args(selection)).ok();
    assert_eq!(files(&smaller, &[]), ["cat/1.jpg", "dog/2.jpg"]);
    let sums = on("sum", &source, &selection).ok().text();
    assert_eq!(sums.lines().count(), 2, "{sums}");
    let verified = on("verify", &smaller, &["--include", "cat", "--json"]).ok();
    let verified: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&verified["samples"], &verified["complete"]), (&1.into(), &true.into()));
    let refused = on("sum", &source, &["--sidecar", "--exclude", "*.json"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
}

#[test]
fn a_directory_is_converted_without_what_is_excluded() {
    let directory = temp_dir();
    let (tree, out) = (directory.path().join("tree"), directory.path().join("out.zip"));
    pack(&tree, &FILES[..4], &directory.path().join("all.zip"));
    let args = ["convert".as_ref(), tree.as_os_str(), out.as_os_str()];
    run(Command::new(FFRFS).args(args).args(["--include", "cat", "--exclude", "./*/*/*.json"]))
        .ok();
    assert_eq!(on("ls", &out, &["-R"]).ok().text(), "train/\ntrain/cat/\ntrain/cat/1.jpg\n");
}

#[test]
fn a_mount_shows_what_is_selected_with_the_modes_of_directories() {
    let directory = temp_dir();
    let (tree, source) = (directory.path().join("tree"), directory.path().join("x.tar"));
    fs::create_dir_all(tree.join("train/cat")).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(tree.join("train/cat"), fs::Permissions::from_mode(0o750)).unwrap();
    pack(&tree, &FILES, &source);
    for_each_transport(|transport| {
        // Twice: the second time the names come from the kept index.
        for _ in 0..2 {
            let options = ["include=*.jpg", "include=*.json", "exclude=dog", "subdir=train"];
            let mount = Mount::new(transport, &source, &options);
            assert_eq!(mount.list(""), ["cat"]);
            let mut cats = mount.list("cat");
            cats.sort();
            assert_eq!(cats, ["1.jpg", "1.json"]);
            assert_eq!(mount.read("cat/1.jpg").unwrap(), b"train/cat/1.jpg");
            let mode = fs::metadata(mount.path("cat")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o750);
            assert_eq!(mount.info()["named_samples"], 2);
            let stats = ffrfs(&["stats".as_ref(), mount.point().as_os_str()]).ok().text();
            assert!(
                stats.contains("7 samples, ") && stats.contains("; 2 files shown\n"),
                "{stats}"
            );
            let given = mount.info()["options"].to_string();
            assert!(given.contains("include=*.jpg") && given.contains("include=*.json"), "{given}");
        }
    });
}

#[test]
fn what_macos_and_windows_leave_is_counted_and_shown_only_if_it_is_asked_for() {
    for name in ["x.zip", "x.tar", "x.ffr"] {
        let (directory, source) = packed(&FILES, name);
        assert_eq!(
            files(&source, &[]),
            ["train/cat/1.jpg", "train/cat/1.json", "train/dog/2.jpg", "val/3.jpg"]
        );
        assert_eq!(files(&source, &["--all"]).len(), FILES.len(), "{name}");
        let info = on("info", &source, &[]).ok().text();
        assert!(info.contains("3 left out") && info.contains("--all"), "{info}");
        let info = on("info", &source, &["--json"]).ok();
        let info: Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!(info["renamed"]["left_out"], 3);
        assert_eq!((&info["named_samples"], &info["files"]), (&4.into(), &4.into()), "{name}");
        let shown = ["train/cat/1.jpg", "train/cat/1.json", "train/dog/2.jpg", "val/3.jpg"];
        assert_eq!(info["file_bytes"], shown.concat().len(), "{name}");
        let kinds = info["looks_like"].as_object().unwrap().values();
        assert_eq!(kinds.filter_map(Value::as_u64).sum::<u64>(), 4, "{name}: {info}");
        // Files that are left out are verified all the same: they are in the container.
        let verified = on("verify", &source, &["--json"]).ok();
        let verified: Value = serde_json::from_slice(&verified.stdout).unwrap();
        assert!(verified["samples"].as_u64().unwrap() >= FILES.len() as u64, "{name}");
        drop(directory);
    }
}

#[test]
fn a_mount_that_shows_nothing_as_all_is_left_by_systems_says_so() {
    let (_directory, source) = packed(&[".DS_Store", "__MACOSX/x/._y"], "x.zip");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        let log = mount.log();
        assert!(log.contains("the mount is empty") && log.contains("--all shows them"), "{log}");
    });
}

#[test]
fn a_warning_of_changed_names_says_where_they_are_shown() {
    let (_directory, source) = packed(&["a/x.jpg", "b/x.jpg"], "x.zip");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["strip=1"]);
        let says = "`renamed` in .ffrfs/info.json of the mount has examples";
        assert!(mount.log().contains(says), "{}", mount.log());
        let info: Value = serde_json::from_slice(&mount.read(".ffrfs/info.json").unwrap()).unwrap();
        assert!(!info["renamed"]["examples"].as_array().unwrap().is_empty(), "{info}");
    });
}

#[test]
fn names_that_only_look_like_those_are_shown() {
    let names = ["._", "._/x", "a.DS_Store", "x__MACOSX"];
    let (_directory, source) = packed(&names[1..], "x.zip");
    assert_eq!(files(&source, &[]), ["._/x", "a.DS_Store", "x__MACOSX"]);
}

#[test]
fn without_control_there_is_no_control_directory_and_a_sample_may_have_its_name() {
    own_namespace();
    // The container's files in that directory are not taken for control files.
    let controls = [".ffrfs/info.json", ".ffrfs/stats.json", ".ffrfs/settings", ".ffrfs/prefetch"];
    let (_directory, source) = packed(&[&controls[..], &[".ffrfs/mine", "x"]].concat(), "x.zip");
    for_each_transport(|transport| {
        let point = temp_dir();
        let mount = |options: &[&str]| {
            run(&mut mount_command(transport, &[&source], point.path(), options)).ok()
        };
        let unmount = || {
            ffrfs(&["umount".as_ref(), point.path().as_os_str()]).ok();
        };
        let mounted = mount(&["rw", "no_control"]);
        let warning = "ffrfs: warning: --rw (control=rw, -w) is of no use with --no-control";
        assert_eq!(mounted.stderr.matches(warning).count(), 1, "{mounted:?}");
        let mut names: Vec<_> =
            fs::read_dir(point.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".ffrfs", "x"]);
        assert_eq!(fs::read(point.path().join(".ffrfs/mine")).unwrap(), b".ffrfs/mine");
        let missing = fs::metadata(point.path().join(".ffrfs/bad"));
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        for command in ["stats", "set", "trace"] {
            let outcome = ffrfs(&[command.as_ref(), point.path().as_os_str()]);
            assert_eq!(outcome.code, 5);
            let why = "mounted without its control directory (--no-control): it has no figures";
            assert!(outcome.stderr.contains(why), "{command}: {}", outcome.stderr);
        }
        let warmup = ffrfs(&["warmup".as_ref(), point.path().as_os_str()]);
        assert_eq!(warmup.code, 5);
        assert!(warmup.stderr.contains("with --no-control"), "{}", warmup.stderr);
        let doctor = ffrfs(&["doctor".as_ref(), point.path().as_os_str()]).ok().text();
        assert!(doctor.contains("its daemon answers; --no-control hides"), "{doctor}");
        let listed = ffrfs(&["list"]).ok().text();
        let place = point.path().to_str().unwrap();
        let line = listed.lines().find(|line| line.contains(place)).unwrap_or_default();
        assert!(line.contains("no control directory"), "{listed}");
        unmount();
        wait_until("it is unmounted", Duration::from_secs(20), || !point.path().join("x").exists());
    });
}

#[test]
fn what_only_a_mount_hides_is_listed_summed_and_extracted_without_a_warning() {
    let (directory, source) = packed(&[".ffrfs/mine", "x"], "x.zip");
    let listed = on("ls", &source, &["-R"]).ok();
    assert!(listed.text().contains(".ffrfs/mine") && listed.stderr.is_empty(), "{}", listed.stderr);
    let out = directory.path().join("out");
    let extracted = on("extract", &source, &[out.to_str().unwrap()]).ok();
    let sums = on("sum", &source, &[]).ok();
    assert!(sums.text().contains("  .ffrfs/mine\n") && sums.stderr.is_empty(), "{}", sums.stderr);
    assert!(out.join(".ffrfs/mine").exists() && !extracted.stderr.contains("not shown"));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        assert!(!mount.path(".ffrfs/mine").exists());
        assert!(mount.log().contains("--no-control shows it"), "{}", mount.log());
    });
}

#[test]
fn info_counts_the_files_that_a_mount_shows() {
    let (directory, inner) = packed(&["a", "b", "c"], "in.zip");
    let outer = directory.path().join("outer");
    fs::create_dir(&outer).unwrap();
    fs::rename(inner, outer.join("in.zip")).unwrap();
    let container = directory.path().join("outer.tar");
    pack(&outer, &["x"], &container);
    let info = |args: &[&str]| on("info", &container, args).ok().text();
    assert!(info(&[]).contains("files:      2 ("), "{}", info(&[]));
    assert!(
        info(&["--nested", "1"]).contains("files:      4 (4 B in all)"),
        "{}",
        info(&["--nested", "1"])
    );
}

#[test]
fn info_of_containers_of_several_formats_counts_what_a_mount_shows_of_each() {
    let (_directory, zip) = packed(&["a/one", "two"], "x.zip");
    let info = |first: &str, second: &Path| {
        run(Command::new(FFRFS).arg("info").args([&fixture(first), second])).ok()
    };
    let listed = |first: &str, second: &Path| {
        run(Command::new(FFRFS).args(["ls", "-R"]).args([&fixture(first), second])).ok()
    };
    // Records stay records, though the zip brings names.
    let text = info("images.parquet", &zip).text();
    let alone = on("info", &fixture("images.parquet"), &[]).ok().text();
    let records = alone.lines().find(|line| line.starts_with("records:")).unwrap();
    assert!(text.contains(records), "{text}");
    let first = |text: &str| text.lines().next().unwrap().to_owned();
    assert_eq!(first(&text), first(&alone));
    // Each container brings names for all of its files: one tree, without the sample that holds names.
    let text = info("packed_folder.ffr", &zip).text();
    for part in ["FFRecord, 6 files", "files:      8 (", "stored: 8 files"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mixed = listed("packed_folder.ffr", &zip);
    let files = mixed.text().lines().filter(|line| !line.ends_with('/')).count();
    assert_eq!((files, mixed.stderr.as_str()), (8, ""), "{}", mixed.text());
    assert!(mixed.text().contains("a/one\n") && mixed.text().contains("two\n"));
}

#[test]
fn info_counts_no_samples_that_the_names_of_a_packed_directory_leave_out() {
    let work = temp_dir();
    let source = work.path().join("x.ffr");
    let mut names = PACKED_DIRECTORY_MAGIC.to_vec();
    let root = Directory { entries: vec![(b"only".as_slice().into(), Entry::File(3))] };
    pickle::encode(&root, &mut names).unwrap();
    let samples = [&b"a"[..], b"bb", b"ccc", b"dddd", b"eeeee", &names];
    write_container(&source, &samples.map(<[u8]>::to_vec));
    assert_eq!(files(&source, &[]), ["only"]);
    let text = on("info", &source, &[]).ok().text();
    for part in ["files:      1 (4 B in all)", "checksums:  1 file is"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn samples_without_names_beside_a_packed_directory_make_all_numbered_and_that_is_explained() {
    let [packed_directory, numbered] = ["packed_folder.ffr", "basic.ffr"].map(fixture);
    let of =
        |command: &str, files: &[PathBuf]| run(Command::new(FFRFS).arg(command).args(files)).ok();
    let (_directory, zip) = packed(&["one"], "x.zip");
    let with_zip = [numbered, packed_directory, zip];
    let said = of("ls", &with_zip).stderr;
    for part in [
        "samples are numbered: ",
        "packed_folder.ffr stores names and ",
        "basic.ffr does not",
        "--layout shards",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("last sample"), "{said}");
    let text = of("info", &with_zip).text();
    assert!(text.contains("FFRecord, 7 files") && text.contains("names:      numbered"), "{text}");
    // Containers that are indexed together need be no dataset.
    let indexed = run(Command::new(FFRFS).args(["index", "--index", "none"]).args(&with_zip)).ok();
    assert!(!indexed.stderr.contains("numbered"), "{}", indexed.stderr);
}

#[test]
fn names_that_are_not_used_are_told_also_where_other_containers_have_names() {
    let work = temp_dir();
    let refused = work.path().join("refused.ffr");
    write_container(&refused, &[b"one".to_vec(), b"piouhjgbr no pickle".to_vec()]);
    let (_directory, zip) = packed(&["one"], "x.zip");
    let listed = |files: &[&PathBuf]| run(Command::new(FFRFS).arg("ls").args(files)).ok();
    for files in [&[&refused, &zip][..], &[&zip, &refused], &[&refused]] {
        let found = listed(files);
        let text = found.text();
        // Numbers go on from one container to the next.
        assert_eq!(text.matches("00000").count(), 2, "{text}");
        assert_eq!(text.contains("one\n"), files.len() > 1, "{text}");
        let said = "refused.ffr: the last sample looks like stored names";
        assert!(found.stderr.contains(said), "{}", found.stderr);
        assert_eq!(found.stderr.lines().count(), 1, "{}", found.stderr);
    }
    // Beside a container whose names would be used all samples are numbered; the message says whose names are not used.
    let said = listed(&[&fixture("packed_folder.ffr"), &refused]).stderr;
    assert!(
        said.contains(", and those of ") && said.contains("refused.ffr are not used"),
        "{said}"
    );
}

/// A zip file as Windows programs write it that know no slashes.
fn from_windows(host: u8) -> (TempDir, PathBuf) {
    let (directory, source) = packed(&["a/b/one.txt", "a/two.txt"], "x.zip");
    let mut bytes = fs::read(&source).unwrap();
    for (name, other) in [("a/b/one.txt", r"a\b\one.txt"), ("a/two.txt", r"a\two.txt")] {
        while let Some(at) = bytes.windows(name.len()).position(|window| window == name.as_bytes())
        {
            // The file's content may be the same text, and is replaced with the names: no test reads it.
            bytes[at..at + name.len()].copy_from_slice(other.as_bytes());
        }
    }
    let rows: Vec<_> =
        (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect();
    rows.into_iter().for_each(|row| bytes[row + 5] = host);
    fs::write(&source, bytes).unwrap();
    (directory, source)
}

#[test]
fn backslashes_are_slashes_where_the_system_of_a_zip_is_one_that_writes_them() {
    for host in [0, 10, 11, 14] {
        let (_directory, source) = from_windows(host);
        assert_eq!(files(&source, &[]), ["a/b/one.txt", "a/two.txt"], "{host}");
        let info = on("info", &source, &[]).ok().text();
        assert!(info.contains("names have backslashes"), "{info}");
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &source, &[]);
            assert_eq!(mount.list("a/b"), ["one.txt"]);
        });
    }
    let (_directory, source) = from_windows(3);
    let shown = files(&source, &[]);
    assert!(shown.contains(&r"a\b\one.txt".to_owned()), "a name on Unix: {shown:?}");
}

#[test]
fn of_members_of_one_name_tar_shows_the_last_and_zip_all() {
    if !have(Need::Program("tar")) {
        return;
    }
    let (directory, source) = packed(&["a/x", "y"], "x.tar");
    let tree = directory.path().join("tree");
    fs::write(tree.join("a/x"), "appended").unwrap();
    let append = |archive: &Path| {
        let tar =
            ["-C".as_ref(), tree.as_os_str(), "-rf".as_ref(), archive.as_os_str(), "a/x".as_ref()];
        run(Command::new("tar").args(tar)).ok();
    };
    append(&source);
    let text =
        |source: &Path, args: &[&str]| on("cat", source, &[&["a/x"], args].concat()).ok().text();
    assert_eq!(text(&source, &[]), "appended");
    assert_eq!(files(&source, &[]), ["a/x", "y"]);
    assert_eq!(files(&source, &["--dup", "number"]), ["a/x", "a/x (1)", "y"]);
    assert_eq!(text(&source, &["--dup", "first"]), "a/x");
    let info = on("info", &source, &[]).ok().text();
    assert!(info.contains("1 hidden by others of the same name"), "{info}");
    let gz = directory.path().join("x.tar.gz");
    let gzip = run(Command::new("gzip").arg("-c").arg(&source)).ok();
    fs::write(&gz, gzip.stdout).unwrap();
    assert_eq!(text(&gz, &[]), "appended");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        assert_eq!(mount.read("a/x").unwrap(), b"appended");
    });
    // With two shards no member counts as appended: all are shown.
    let other = directory.path().join("z.tar");
    fs::copy(&source, &other).unwrap();
    let both = [FFRFS.as_ref(), source.as_os_str(), other.as_os_str()];
    let listed = run(Command::new(both[0]).args(["ls", "-R"]).args(&both[1..])).ok().text();
    assert!(listed.contains("a/x\n") && listed.contains("a/x (1)\n"), "{listed}");
    assert!(!listed.contains("(2)"), "{listed}");
}

#[test]
fn members_of_one_name_that_are_refused_are_named_with_their_containers() {
    let (directory, one) = packed(&["a/x"], "one.zip");
    let two = directory.path().join("two.zip");
    fs::copy(&one, &two).unwrap();
    let args =
        ["ls".as_ref(), "--dup".as_ref(), "error".as_ref(), one.as_os_str(), two.as_os_str()];
    let refused = ffrfs(&args);
    assert_eq!(refused.code, 3);
    for part in ["one.zip", "two.zip", "\"a/x\"", "--dup number"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
}
