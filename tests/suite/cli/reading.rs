//! The commands that only read: `info`, `ls`, `cat`; and names from a file.

use super::super::common::{
    FFRFS, Mount, NOTHING, Need, Transport, container_in, ffrfs, fixture, flip_byte, have, noise,
    offsets, run, samples, temp_dir, write_container,
};
use super::{listed, on, packed, refused};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

// ---- info ----------------------------------------------------------------------------------------

#[test]
fn info_describes_a_container_in_a_few_lines() {
    let text = on("info", &fixture("basic.ffr"), &[]).ok().text();
    for part in ["basic.ffr: FFRecord, 60 files", "index checksum ok", "1 empty", "numbered"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = on("info", &fixture("packed_folder.ffr"), &[]).ok().text();
    assert!(text.contains("stored: 6 files in 8 directories"), "{text}");
    let text = on("info", &fixture("pickled.ffr"), &[]).ok().text();
    assert!(text.contains("Python pickle (20)") && text.contains("image reader"), "{text}");
    let text = on("info", &fixture("no_header_checksum.ffr"), &[]).ok().text();
    assert!(text.contains("no index checksum") && text.contains("warning:"), "{text}");
    let text = on("info", &fixture("empty.ffr"), &[]).ok().text();
    assert!(text.contains("files:      0"), "{text}");
    let text = on("info", &fixture("truncated_data.ffr"), &["--allow-damaged"]).ok().text();
    assert!(text.contains("15 files are not whole"), "{text}");
}

#[test]
fn info_as_json_has_every_figure() {
    let directory = temp_dir();
    let all = [&b"\xff\xd8\xff\xe0 jpeg"[..], b"", b"\x89PNG\r\n\x1a\n....", b"text"];
    let source = container_in(&directory, &all);
    let parts = directory.path().join("more.ffr");
    write_container(&parts, &[b"GIF89a"]);
    let args = ["info".into(), "--json".into(), source.clone(), parts];
    let info: Value = serde_json::from_slice(&ffrfs(&args).ok().stdout).unwrap();
    let bytes: usize = all.iter().map(|sample| sample.len()).sum();
    assert_eq!(info["ffrfs_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&info["samples"], &info["named_samples"]), (&5.into(), &5.into()));
    assert_eq!((&info["folders"], &info["names"]), (&1.into(), &"numbered".into()));
    assert_eq!(info["bytes"], bytes + 6);
    let first = &info["containers"][0];
    assert_eq!(Path::new(first["path"].as_str().unwrap()), source.canonicalize().unwrap());
    assert_eq!((&first["format"], &first["samples"]), (&"FFRecord".into(), &4.into()));
    assert_eq!((&first["bytes"], &first["index_checksum"]), (&bytes.into(), &"ok".into()));
    assert_eq!(first["warnings"], Value::Array(Vec::new()));
    assert_eq!(info["containers"][1]["samples"], 1);
    let sizes = &info["sample_bytes"];
    assert_eq!((&sizes["min"], &sizes["max"]), (&0.into(), &12.into()));
    assert_eq!((&sizes["empty"], &sizes["damaged"]), (&1.into(), &0.into()));
    let kinds = &info["looks_like"];
    assert_eq!((&kinds["JPEG image"], &kinds["PNG image"]), (&1.into(), &1.into()));
    assert_eq!((&kinds["GIF image"], &kinds["unknown"]), (&1.into(), &1.into()));
    let tree = on("info", &fixture("packed_folder.ffr"), &["--json"]).ok();
    let tree: Value = serde_json::from_slice(&tree.stdout).unwrap();
    assert_eq!((&tree["names"], &tree["named_samples"]), (&"tree".into(), &6.into()));
    let old = on("info", &fixture("no_header_checksum.ffr"), &["--json"]).ok();
    let old: Value = serde_json::from_slice(&old.stdout).unwrap();
    assert_eq!(old["containers"][0]["index_checksum"], "absent");
    assert_eq!(old["containers"][0]["warnings"].as_array().unwrap().len(), 1);
}

// ---- ls ------------------------------------------------------------------------------------------

#[test]
fn ls_lists_what_a_mount_would_show() {
    let directory = temp_dir();
    let source = container_in(&directory, &[&b"GIF89a"[..], b"GIF89a", b"GIF89a"]);
    assert_eq!(listed(&source, &[]), ["000000", "000001", "000002"]);
    assert_eq!(listed(&source, &["--suffix", "jpg"])[2], "000002.jpg");
    assert_eq!(listed(&source, &["--suffix=.tar.gz"])[2], "000002.tar.gz");
    assert_eq!(listed(&source, &["--suffix=auto"])[2], "000002.gif");
    assert_eq!(listed(&source, &["--fanout", "2"]), ["000/", "001/"]);
    let recursive = listed(&source, &["--fanout=2", "--suffix=auto", "-R"]);
    let expected = ["000/", "001/", "000/000000.gif", "000/000001.gif", "001/000002.gif"];
    assert_eq!(recursive, expected);
    assert_eq!(listed(&source, &["--fanout=2", "--path", "001"]), ["000002"]);
    assert_eq!(listed(&source, &["--path", "000001"]), ["000001"]);
    let both = ["ls".into(), source.clone(), source];
    assert_eq!(ffrfs(&both).ok().text().lines().last(), Some("000005"));
    assert_eq!(listed(&fixture("empty.ffr"), &[]), NOTHING);
    assert_eq!(listed(&fixture("parts"), &[]).len(), 24);
}

#[test]
fn ls_shows_a_packed_folder_as_its_tree() {
    let directory = temp_dir();
    let source = packed(&directory, &["b", "a dir/x", "a dir/in/y", "é"]);
    assert_eq!(listed(&source, &[]), ["a dir/", "b", "é"]);
    let recursive = listed(&source, &["-R"]);
    assert_eq!(recursive, ["a dir/", "b", "é", "a dir/in/", "a dir/x", "a dir/in/y"]);
    // Other tools take names of members as arguments.
    refused(&on("ls", &source, &["a dir"]), 2, &["a dir: No such file", "--path PATH lists"]);
    assert_eq!(listed(&source, &["--path", "a dir"]), ["in/", "x"]);
    assert_eq!(listed(&source, &["--path", "./a dir//in/", "-R"]), ["y"]);
    assert_eq!(listed(&source, &["--flat"]), ["000000", "000001", "000002", "000003", "000004"]);
    assert_eq!(listed(&source, &["--flat", "--suffix=x"])[0], "000000.x");
    for view in ["--suffix=x", "--fanout=3"] {
        refused(&on("ls", &source, &[view]), 1, &["stored names", "--flat"]);
    }
}

#[test]
fn ls_long_tells_size_offset_and_checksum() {
    let directory = temp_dir();
    let all = samples(5, 100);
    let source = container_in(&directory, &all);
    let lines = listed(&source, &["-l"]);
    for (i, (line, offset)) in lines.iter().zip(offsets(&all)).enumerate() {
        let fields: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let (size, crc) = (all[i].len().to_string(), crc32fast::hash(&all[i]));
        assert_eq!(fields, [size, offset.to_string(), format!("{crc:08x}"), format!("{i:06}")]);
    }
    let cut = listed(&fixture("truncated_data.ffr"), &["-l", "--allow-damaged"]);
    assert!(cut[45].contains("damaged") && !cut[44].contains("damaged"));
    let directories = listed(&fixture("packed_folder.ffr"), &["--long"]);
    assert!(directories.iter().any(|line| line.ends_with(" train/") && line.contains(" - ")));
}

#[test]
fn ls_as_json_tells_of_each_sample_where_it_lies_and_in_which_container() {
    let directory = temp_dir();
    let all = samples(5, 100);
    let source = container_in(&directory, &all);
    let more = directory.path().join("more.ffr");
    write_container(&more, &[b"more"]);
    let args = ["ls".into(), "--json".into(), source.clone(), more.clone()];
    let lines = ffrfs(&args).ok().text();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    let expected = serde_json::json!({
        "path": "000003", "is_directory": false, "sample": 3, "size": all[3].len(),
        "container": source.canonicalize().unwrap(), "offset": offsets(&all)[3],
        "length": all[3].len(), "checksum": format!("crc32:{:08x}", crc32fast::hash(&all[3])),
        "is_damaged": false, "is_encrypted": false,
    });
    assert_eq!(lines[3], expected);
    let more = more.canonicalize().unwrap();
    assert_eq!(lines[5]["container"], more.to_str().unwrap(), "offsets are those in this one");
    let directory = on("ls", &fixture("packed_folder.ffr"), &["--json"]).ok().text();
    assert!(directory.contains(r#"{"path":"train","is_directory":true}"#), "{directory}");
    refused(&on("ls", &source, &["--json", "-l"]), 1, &["--json cannot be used with --long"]);
}

// ---- cat -----------------------------------------------------------------------------------------

#[test]
fn cat_writes_samples_in_the_order_asked_for() {
    let directory = temp_dir();
    let all = samples(6, 3000);
    let source = container_in(&directory, &all);
    let more = directory.path().join("more.ffr");
    write_container(&more, &[b"seventh"]);
    let out = on("cat", &source, &["000004", "000000", "000004"]).ok();
    assert_eq!(out.stdout, [&all[4][..], &all[0], &all[4]].concat());
    let source = source.to_str().unwrap();
    let out =
        ffrfs(&["cat", "-s", source, "-s", more.to_str().unwrap(), "000006", "./000001"]).ok();
    assert_eq!(out.stdout, [&b"seventh"[..], &all[1]].concat());
    let out = ffrfs(&["cat", source, "--fanout=4", "--suffix=.x", "001/000005.x"]).ok();
    assert_eq!(out.stdout, all[5]);
    let tree = packed(&directory, &["d/é", "x"]);
    assert_eq!(on("cat", &tree, &["d/é", "x"]).ok().text(), "d/éx");
    assert_eq!(on("cat", &tree, &["--flat", "000001"]).ok().text(), "x");
}

#[test]
fn cat_of_a_large_sample_is_whole_and_checked_before_its_first_byte() {
    let directory = temp_dir();
    let large = noise(5, (9 << 20) + 17);
    let source = container_in(&directory, std::slice::from_ref(&large));
    assert!(on("cat", &source, &["000000"]).ok().stdout == large);
    // The last byte is wrong, so that not even the first byte is given out.
    flip_byte(&source, fs::metadata(&source).unwrap().len() - 1);
    let outcome = on("cat", &source, &["000000"]);
    assert_eq!((outcome.code, outcome.stdout.len()), (4, 0));
}

#[test]
fn cat_leaves_out_a_bad_sample_names_it_and_goes_on() {
    let directory = temp_dir();
    let all = samples(4, 5000);
    let source = container_in(&directory, &all);
    let bad = offsets(&all)[2];
    flip_byte(&source, bad);
    let outcome = on("cat", &source, &["000001", "000002", "000003"]);
    assert_eq!(outcome.code, 4);
    assert_eq!(outcome.stdout, [&all[1][..], &all[3]].concat());
    let source = source.canonicalize().unwrap();
    let start = format!("ffrfs: {}: ", source.display());
    assert!(outcome.stderr.starts_with(&start), "{}", outcome.stderr);
    let place = format!("sample 2 (000002) at byte {bad}:");
    for part in [source.to_str().unwrap(), &place, "expected 0x", "found 0x"] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    let cut = on("cat", &fixture("truncated_data.ffr"), &["--allow-damaged", "000045"]);
    assert_eq!((cut.code, cut.stdout.len()), (4, 0));
}

#[test]
fn cat_of_a_name_that_is_not_there_writes_nothing_at_all() {
    let tree = fixture("packed_folder.ffr");
    for absent in ["nowhere", "a.txt/x", "000000", ".ffrfs", "../a.txt"] {
        refused(&on("cat", &tree, &["a.txt", absent]), 1, &["no such sample"]);
    }
    for directory in ["train", "train/cat", "/"] {
        refused(&on("cat", &tree, &["a.txt", directory]), 1, &[directory, "is a directory"]);
    }
}

// ---- --names -------------------------------------------------------------------------------------

/// The output of `ls` for three samples with this file of names, or the error behind the file's own name.
fn said_of(lines: impl AsRef<[u8]>) -> String {
    let directory = temp_dir();
    let source = container_in(&directory, &[b"0", b"1", b"2"]);
    let names = directory.path().join("names.txt");
    fs::write(&names, lines).unwrap();
    let names = names.to_str().unwrap();
    let outcome = on("ls", &source, &["-R", "--names", names]);
    if outcome.code == 0 {
        return outcome.text();
    }
    refused(&outcome, 1, &[names]);
    outcome.stderr.split(names).nth(1).unwrap_or_default().trim_end().to_owned()
}

#[test]
fn names_may_have_blanks_carriage_returns_and_any_bytes() {
    assert_eq!(said_of("b\nd/a\nd/ c \n"), "b\nd/\nd/ c \nd/a\n");
    assert_eq!(said_of("b\r\na\r\nc"), "a\nb\nc\n");
    let directory = temp_dir();
    let source = container_in(&directory, &[b"0"]);
    let odd = OsString::from_vec(b"\xff\xfe.jpg".to_vec());
    let names = directory.path().join("names");
    fs::write(&names, odd.as_bytes()).unwrap();
    let args = ["cat".as_ref(), source.as_os_str(), "--names".as_ref(), names.as_os_str(), &odd];
    assert_eq!(ffrfs(&args).ok().stdout, b"0");
}

#[test]
fn names_that_make_no_tree_are_refused_with_their_line() {
    for (lines, says) in [
        ("a\n/b\nc", ", line 2: \"/b\": an absolute path"),
        ("a\nb\n../c", ", line 3: \"../c\""),
        ("a\nb/./c\nd", ", line 2: \"b/./c\""),
        ("a\n\nc", ", line 2: \"\": an empty name"),
        ("a\nb\n\n", ", line 3: \"\": an empty name"),
        ("a//b\nb\nc", ", line 1: \"a//b\": an empty name"),
        ("a\nb\0\nc", ", line 2: "),
    ] {
        let said = said_of(lines);
        assert!(said.starts_with(says), "{lines:?}: {said}");
    }
    let long = format!("a\nb\n{}", "x".repeat(256));
    assert!(said_of(long).contains("line 3") && said_of("x".repeat(256)).contains("255 bytes"));
}

#[test]
fn too_few_and_too_many_names_are_refused_with_both_counts() {
    for (lines, count) in [("", "0"), ("a\nb", "2"), ("a\nb\n", "2"), ("a\nb\nc\nd\ne\n", "5")] {
        let said = said_of(lines);
        assert!(said.contains(&format!("{count} names for 3 samples")), "{lines:?}: {said}");
    }
}

#[test]
fn a_name_given_twice_is_refused_with_its_path_and_line() {
    for (lines, says) in [
        ("a\nb\na", ", line 3: \"a\""),
        ("d/x\nd/x\nb", ", line 2: \"d/x\""),
        ("d\nd/x\nb", ", line 2: \"d/x\""),
        ("d/x\nb\nd", ", line 3: \"d\""),
    ] {
        let said = said_of(lines);
        assert!(said.starts_with(says), "{lines:?}: {said}");
    }
}

#[test]
fn names_come_from_a_pipe_as_well() {
    if !have(Need::Program("bash")) {
        return;
    }
    let directory = temp_dir();
    let source = container_in(&directory, &[b"0", b"1"]);
    let script = "exec \"$0\" ls \"$1\" --names <(printf 'x\\ny\\n')";
    let mut bash = Command::new("bash");
    let outcome = run(bash.args(["-c", script, FFRFS]).arg(&source)).ok();
    assert_eq!(outcome.text(), "x\ny\n");
}

#[test]
fn control_characters_of_names_do_not_reach_a_terminal() {
    if !have(Need::Program("script")) {
        return;
    }
    let directory = temp_dir();
    let source = packed(&directory, &["\x1b[31mred\x07", "plain"]);
    assert_eq!(listed(&source, &[]), ["\x1b[31mred\x07", "plain"], "a pipe gets the names");
    let ls = format!("{FFRFS} ls {}", source.display());
    let shown = run(Command::new("script").args(["-qec", &ls, "/dev/null"])).ok().text();
    assert!(shown.contains(r"\x1b[31mred\x07") && !shown.contains('\x1b'), "{shown:?}");
    let tree = directory.path().join("tree");
    let bench = format!("{FFRFS} bench {} --rounds 1 --seconds 1", tree.join("\x1b").display());
    fs::create_dir(tree.join("\x1b")).unwrap();
    fs::write(tree.join("\x1b/x"), "x").unwrap();
    let shown = run(Command::new("script").args(["-qec", &bench, "/dev/null"])).ok().text();
    assert!(shown.contains(r"\x1b") && !shown.contains('\x1b'), "{shown:?}");
    let missing = on("cat", &source, &["no\x1b[2J"]);
    refused(&missing, 1, &[r"no\x1b[2J: no such sample"]);
}

#[test]
fn info_counts_records_and_files_apart_and_no_hidden_index() {
    let text = on("info", &fixture("jpg.beton"), &[]).ok().text();
    for part in ["jpg.beton: FFCV, 24 records", "records:    24\n", "files:      168 ("] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = |name: &str| -> Value {
        let info = on("info", &fixture(name), &["--json"]).ok();
        serde_json::from_slice(&info.stdout).unwrap()
    };
    let records = json("jpg.beton");
    assert_eq!((&records["records"], &records["files"]), (&24.into(), &168.into()));
    let text = on("info", &fixture("mixed.tfrecord"), &[]).ok().text();
    for part in ["mixed.tfrecord: TFRecord, 6 records", "records:    6\n", "files:      31 ("] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = on("info", &fixture("packed_folder.ffr"), &[]).ok().text();
    for part in ["FFRecord, 6 files", "files:      6 (", "6 files are checked"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let bytes = text.lines().find_map(|line| line.strip_prefix("files:      6 ("));
    let bytes = bytes.and_then(|rest| rest.strip_suffix(" in all)")).unwrap();
    assert!(text.lines().next().unwrap().contains(&format!(" {bytes}, ")), "{text}");
    let kinds = text.lines().find(|line| line.starts_with("looks like: ")).unwrap();
    let counts = kinds.split(['(', ')']).filter_map(|word| word.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 5, "one is empty: {text}");
    let packed = json("packed_folder.ffr");
    assert_eq!((&packed["records"], &packed["files"]), (&0.into(), &6.into()));
    assert_eq!(packed["samples"], 7, "one of them holds the names of the others");
    assert!(packed["file_bytes"].as_u64() < packed["bytes"].as_u64());
}

#[test]
fn an_argument_that_must_be_text_and_is_not_is_named() {
    let directory = temp_dir();
    let source =
        OsString::from_vec([directory.path().as_os_str().as_bytes(), b"/\xff.ffr"].concat());
    fs::rename(container_in(&directory, &["x"]), &source).unwrap();
    let wrong = OsString::from_vec(b"\xff*".to_vec());
    let joined = OsString::from_vec(b"--exclude=\xff*".to_vec());
    for (args, says) in [
        (&[&OsString::from("--exclude"), &wrong][..], "--exclude \u{fffd}*: this must be UTF-8"),
        (&[&joined], "--exclude=\u{fffd}*: this must be UTF-8"),
        (&[&OsString::from("--encoding"), &wrong], "--encoding \u{fffd}*: this must be UTF-8"),
    ] {
        refused(&run(Command::new(FFRFS).arg("ls").arg(&source).args(args)), 1, &[says]);
    }
    run(Command::new(FFRFS).arg("ls").arg(&source).args(["--include", "??????"])).ok();
}

#[test]
fn the_limit_of_open_files_is_named_where_containers_cannot_be_read_for_it() {
    if !have(Need::Program("prlimit")) {
        return;
    }
    let directory = temp_dir();
    let source = container_in(&directory, &["x"; 3]);
    for number in 0..40 {
        fs::copy(&source, directory.path().join(format!("{number}.ffr"))).unwrap();
    }
    let mut limited = 0;
    for most in 4..24 {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={most}:{most}")).args([FFRFS, "info"]).arg(directory.path());
        let outcome = run(&mut command);
        if outcome.stderr.contains("Too many open files") {
            limited += 1;
            let said = &outcome.stderr;
            assert!(said.contains("may not open more files (ulimit -n)"), "{most}: {said}");
            assert_eq!(said.matches("Too many open files").count(), 1, "{most}: {said}");
        }
    }
    assert!(limited > 0, "no limit was met");
}

#[test]
fn a_command_that_is_given_a_mount_in_place_of_a_container_names_the_container() {
    let mount = Mount::with_samples(Transport::DevFuse, &[b"a"], &[]);
    for command in ["info", "verify"] {
        refused(&on(command, mount.point(), &[]), 2, &["is mounted there: name that container"]);
    }
}
