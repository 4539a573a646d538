//! Lists of checksums, which other programs check, too.

use super::super::paths;
use super::super::write::{deflated, stored, text, zip, zip_with_places};
use super::*;
use crate::common::{catches_sigint, is_running, wait_until};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;
use std::time::Duration;

/// Containers of every kind, with names as bad as names can be.
fn containers(directory: &TempDir) -> Vec<PathBuf> {
    let root = directory.path().join("root");
    super::super::plant(&root);
    super::super::plant_links_and_holes(&root);
    for name in ["-", " leading", "new\nline", "back\\slash", "re\rturn", "*star", "\\n"] {
        fs::write(root.join(name), name).unwrap();
    }
    for (format, archive) in [("-cSf", "../all.tar"), ("-czf", "../all.tgz")] {
        run_in(&root, "tar", &[format, archive, "."]);
    }
    let members = [stored("a", noise(1, 9000)), deflated("b\\c", text(2, 6 << 20))];
    let list = vec![
        directory.path().join("all.tar"),
        directory.path().join("all.tgz"),
        file_in(directory, "x.zip", zip(&members)),
        container_in(directory, &samples(40, 9000)),
        fixture("packed_folder.ffr"),
        fixture("features.syr"),
        fixture("jpg.beton"),
    ];
    fs::remove_dir_all(&root).unwrap();
    list
}

/// Checks that a program accepts a list in a directory; returns the number of lines that it has checked.
#[track_caller]
fn accepts(program: &str, list: &Path, directory: &Path) -> usize {
    let list = list.to_str().unwrap();
    let outcome = run_in(directory, program, &["--check", list]);
    assert_eq!(outcome.stderr, "");
    let text = outcome.text();
    assert!(text.lines().all(|line| line.ends_with(": OK")), "{text}");
    text.lines().count()
}

#[test]
fn a_list_of_any_container_is_accepted_where_it_is_mounted() {
    let directory = temp_dir();
    let list = directory.path().join("list");
    for source in containers(&directory) {
        for (program, kind) in [("sha256sum", "sha256"), ("sha512sum", "sha512")] {
            sum(&source, &["-a", kind, "-o", list.to_str().unwrap()]).ok();
            for_each_transport(|transport| {
                let mount = Mount::new(transport, &source, &["index=memory"]);
                let files = paths(&mount).len();
                assert!(files > 0);
                assert_eq!(accepts(program, &list, mount.point()), files, "{source:?}");
            });
        }
    }
}

#[test]
fn b3sum_accepts_a_list_too() {
    if !have(Need::Program("b3sum")) {
        return;
    }
    let directory = temp_dir();
    let source = container_in(&directory, &samples(20, 200_000));
    let list = directory.path().join("list");
    sum(&source, &["-a", "blake3", "-o", list.to_str().unwrap()]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        assert_eq!(accepts("b3sum", &list, mount.point()), 20);
    });
}

#[test]
fn a_list_is_the_same_for_any_number_of_threads_and_in_the_order_of_the_container() {
    let directory = temp_dir();
    let mut all = samples(3000, 2000);
    all[7] = noise(7, 6 << 20);
    let source = container_in(&directory, &all);
    for kind in ["crc32", "crc32c", "sha256"] {
        let one = sum(&source, &["-a", kind, "-j1"]).ok().text();
        assert_eq!(sum(&source, &["-a", kind, "-j7"]).ok().text(), one);
        let names: Vec<_> = one.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        assert_eq!(names, (0..3000).map(|i| format!("{i:06}")).collect::<Vec<_>>());
        if kind == "crc32" {
            for (line, sample) in one.lines().zip(&all) {
                assert!(line.starts_with(&format!("{:08x} ", crc32fast::hash(sample))), "{line}");
            }
        }
    }
}

#[test]
fn names_are_those_that_the_same_options_mount() {
    let directory = temp_dir();
    let source = container_in(&directory, &samples(5, 100));
    let view = ["--suffix", ".jpg", "--fanout", "2"];
    let text = sum(&source, &view).ok().text();
    let names: Vec<_> = text.lines().map(|line| &line[66..]).collect();
    assert_eq!(names[..3], ["000/000000.jpg", "000/000001.jpg", "001/000002.jpg"]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["suffix=.jpg", "fanout=2"]);
        let list = mount.scratch().join("list");
        fs::write(&list, &text).unwrap();
        assert_eq!(accepts("sha256sum", &list, mount.point()), 5);
    });
}

#[test]
fn a_bad_sample_is_told_and_left_out_with_exit_code_4() {
    let directory = temp_dir();
    let members = [stored("a", noise(1, 5000)), stored("large", noise(2, 5 << 20))];
    let (bytes, places) = zip_with_places(&members);
    for (bad, name) in ["a", "large"].into_iter().enumerate() {
        let source = file_in(&directory, "x.zip", &bytes);
        flip_byte(&source, places[bad] + 4000);
        let outcome = sum(&source, &[]);
        assert_eq!(outcome.code, 4, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("checksum mismatch"), "{}", outcome.stderr);
        let place = format!("x.zip: sample {bad} ({name}) at byte");
        let is_named = |line: &str| line.starts_with("ffrfs: /") && line.contains(&place);
        assert!(outcome.stderr.lines().any(is_named), "{}", outcome.stderr);
        let text = outcome.text();
        assert!(text.lines().count() == 1 && !text.contains(&format!("  {name}\n")), "{text}");
    }
}

#[test]
fn a_bad_sample_that_stands_in_a_list_twice_is_told_of_once() {
    let directory = temp_dir();
    let (bytes, places) = zip_with_places(&[stored("a", noise(1, 5000))]);
    let source = file_in(&directory, "x.zip", bytes);
    flip_byte(&source, places[0] + 4000);
    let list = file_in(&directory, "list", format!("{}  a\n", "0".repeat(64)).repeat(2));
    let outcome = sum(&source, &["--check", list.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.text()), (4, "a: FAILED: bad in its container\n".repeat(2)));
    assert_eq!(outcome.stderr.matches("checksum mismatch").count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_list_is_checked_without_a_mount() {
    let directory = temp_dir();
    let source = file_in(&directory, "x.tar", tar(&[("a\nb", b"one"), ("c", b"two"), ("d", b"3")]));
    for kind in ["sha256", "sha512", "crc32"] {
        let list = file_in(&directory, "list", sum(&source, &["-a", kind]).ok().stdout);
        let right = sum(&source, &["--check", list.to_str().unwrap()]).ok();
        assert_eq!((right.text().as_str(), &*right.stderr), ("a\nb: OK\nc: OK\nd: OK\n", ""));
        let quiet = sum(&source, &["-q", "--check", list.to_str().unwrap()]).ok();
        assert_eq!(quiet.text(), "");
    }
    for kind in ["blake3", "crc32c"] {
        let list = file_in(&directory, "list", sum(&source, &["-a", kind]).ok().stdout);
        // Checksums of this kind are as long as those of another kind.
        assert_eq!(sum(&source, &["--check", list.to_str().unwrap()]).code, 4);
        sum(&source, &["-a", kind, "--check", list.to_str().unwrap()]).ok();
    }
}

#[test]
fn what_differs_from_a_list_is_told_by_name_with_exit_code_4() {
    let directory = temp_dir();
    let source = file_in(&directory, "x.tar", tar(&[("c", b"two"), ("d", b"3")]));
    let mut text = sum(&source, &[]).ok().text().replace("  d\n", "  gone\n");
    let of_c = text.lines().next().unwrap().to_owned();
    text += &format!("{}  d\nno line\n", &of_c[..64]);
    let list = file_in(&directory, "list", &text);
    let outcome = sum(&source, &["-c", list.to_str().unwrap()]);
    assert_eq!(outcome.text(), "gone: FAILED: no such sample\nc: OK\nd: FAILED\n");
    assert_eq!(outcome.code, 4);
    for words in
        ["1 line is not a checksum", "1 listed sample does not exist", "1 checksum did not"]
    {
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
    let none = file_in(&directory, "none", "nothing\n");
    assert_words(&sum(&source, &["-c", none.to_str().unwrap()]), 1, &["none: no line of it"]);
    assert_words(&sum(&source, &["-c", "/nowhere/list"]), 2, &["/nowhere/list"]);
}

#[test]
fn a_list_comes_from_standard_input_and_a_sample_may_stand_in_it_twice() {
    let directory = temp_dir();
    let source = container_in(&directory, &samples(3, 100));
    let text = sum(&source, &[]).ok().text();
    let text = text.clone() + &text;
    let mut command = Command::new(FFRFS);
    command.args(["sum", "-c", "-"]).arg(&source).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines: Vec<_> = output.stdout.split(|&b| b == b'\n').collect();
    assert_eq!(lines[..2], [b"000000: OK", b"000000: OK"]);
    assert_eq!(lines.len(), 7);
}

#[test]
fn no_list_takes_the_place_of_a_source_and_none_is_left_half_written() {
    let directory = temp_dir();
    let source = container_in(&directory, &samples(3, 100));
    let before = fs::read(&source).unwrap();
    assert_words(&sum(&source, &["-o", source.to_str().unwrap()]), 1, &["is one of the sources"]);
    assert!(fs::read(&source).unwrap() == before);
    let nowhere = directory.path().join("nowhere/list");
    assert_words(&sum(&source, &["-o", nowhere.to_str().unwrap()]), 6, &["nowhere"]);

    // A list does not take the place of a pipe or a device either.
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (name, link) = (pipe.to_str().unwrap(), "/dev/stdout");
    for args in [&["-o", name][..], &["-o", link], &["--sidecar", "-o", name]] {
        assert_words(&sum(&source, args), 6, &["is not a regular file; it is not replaced"]);
    }
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    fs::remove_file(&pipe).unwrap();

    // A container that takes a while: an interrupted command leaves nothing.
    let large = directory.path().join("large.ffr");
    let sample = noise(1, 64 << 20);
    write_container(&large, &[&sample, &sample, &sample, &sample]);
    let list = directory.path().join("list");
    let mut command = Command::new(FFRFS);
    command.args(["sum", "-j1", "-o"]).arg(&list).arg(&large).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let listens = || catches_sigint(child.id()) || !is_running(pid.as_raw());
    wait_until("it listens", Duration::from_secs(60), listens);
    std::thread::sleep(Duration::from_millis(100));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    // On a machine so fast that the command was done, the list is whole.
    match outcome.code {
        130 => assert!(!list.exists()),
        code => assert_eq!((code, fs::read_to_string(&list).unwrap().lines().count()), (0, 4)),
    }
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.as_encoded_bytes().starts_with(b".")), "{names:?}");
}
