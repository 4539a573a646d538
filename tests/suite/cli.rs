//! The command line: exit codes and messages.

mod names;
mod options;
mod reading;
#[cfg(feature = "remote")]
mod urls;

use super::common::{
    FFRFS, Outcome, TempDir, container_in, ffrfs, fixture, flip_byte, for_each_transport,
    mount_command, run, temp_dir, write_container,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A packed directory that is listed as it was packed.
fn packed(directory: &TempDir, files: &[&str]) -> PathBuf {
    let tree = directory.path().join("tree");
    for file in files {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    let out = directory.path().join("packed.ffr");
    ffrfs(&[OsStr::new("pack"), tree.as_os_str(), out.as_os_str()]).ok();
    out
}

/// Runs a sub-command on a source with more arguments.
fn on(command: &str, source: &Path, args: &[&str]) -> Outcome {
    run(Command::new(FFRFS).arg(command).arg(source).args(args))
}

/// The names that `ls` prints.
fn listed(source: &Path, args: &[&str]) -> Vec<String> {
    on("ls", source, args).ok().text().lines().map(str::to_owned).collect()
}

/// Checks that a command was refused with this exit code, and that its message is one line of ffrfs with all of `says`.
#[track_caller]
fn refused(outcome: &Outcome, code: i32, says: &[&str]) {
    assert_eq!(outcome.code, code, "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty(), "nothing on stdout");
    let text = &outcome.stderr;
    assert!(text.starts_with("ffrfs: ") && text.lines().count() == 1, "one line: {text}");
    for part in says {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

// ---- exit codes and messages ---------------------------------------------------------------------

#[test]
fn help_goes_to_stdout_and_documents_the_exit_codes() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let help = ffrfs(args).ok().text();
        for line in ["0  success", "1  wrong usage", "2  ", "3  ", "4  ", "5  ", "6  ", "130  "] {
            assert!(help.contains(line), "{args:?} has no {line:?}: {help}");
        }
        for command in
            ["mount", "umount", "info", "ls", "cat", "verify", "warmup", "pack", "completions"]
        {
            assert!(help.contains(&format!("\n  {command} ")), "{command}");
        }
    }
    let version = ffrfs(&["--version"]).ok().text();
    assert_eq!(version, format!("ffrfs {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_help_of_mount_names_every_option() {
    let help = ffrfs(&["mount", "--help"]).ok().text();
    for option in [
        "allow-other",
        "allow-root",
        "default-permissions",
        "ro",
        "nosuid",
        "nodev",
        "noexec",
        "fsname",
        "uid",
        "gid",
        "fmask",
        "dmask",
        "control",
        "readdirplus",
        "verify",
        "cache-size",
        "threads",
        "suffix",
        "fanout",
        "names",
        "flat",
        "allow-damaged",
        "log-level",
        "log-file",
        "foreground",
        "options",
    ] {
        assert!(help.contains(&format!("--{option}")), "{option}");
    }
}

#[test]
fn wrong_usage_is_exit_code_1_and_says_what_is_wrong() {
    let basic = fixture("basic.ffr");
    let basic = basic.to_str().unwrap();
    for (args, says) in [
        (&[][..], "Usage"),
        (&["frobnicate"], "frobnicate"),
        (&["ls"], "SOURCE"),
        (&["ls", basic, "--frobnicate"], "--frobnicate"),
        (&["ls", basic, "--fanout", "0"], "--fanout"),
        (&["ls", basic, "--fanout", "x"], "--fanout"),
        (&["ls", basic, "--fanout", "-3"], "--fanout -3: it must be at least 1"),
        (&["ls", basic, "--suffix", "a/b"], "--suffix \"a/b\": cannot end the name of a file"),
        (&["ls", basic, "--path", "nowhere/at/all"], "nowhere/at/all"),
        (&["ls", basic, "--flat", "--names", "x"], "--names"),
        (&["ls", basic, "--fanout", "3", "--names", "x"], "--names"),
        (&["ls", basic, basic, "--index", "x"], "--index-dir"),
        (&["cat", basic], "NAME"),
        (&["cat", basic, "999999"], "999999"),
        (&["cat", "-s", basic], "NAME"),
        (&["mount", "."], "MOUNTPOINT"),
        (&["mount"], "MOUNTPOINT"),
        (&["umount"], "MOUNTPOINT"),
        (&["verify", basic, "-j", "0"], "--jobs"),
        (&["verify", basic, "--sample", "9-3"], "--sample"),
        (&["pack", basic], "OUT.ffr"),
        (&["pack", basic, "out.ffr"], "not a directory"),
        (&["pack", ".", "out.ffr", "--parts", "0"], "--parts"),
    ] {
        let outcome = ffrfs(args);
        assert_eq!(outcome.code, 1, "{args:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(says),
            "{args:?} does not say {says:?}: {}",
            outcome.stderr
        );
        assert!(outcome.stdout.is_empty());
    }
}

#[test]
fn names_of_a_config_file_are_refused_as_options_of_the_command_line() {
    for option in ["--mountpoint=/m", "--source=/b.zip"] {
        refused(&ffrfs(&["mount", "/a.zip", option]), 1, &["are for the lines of a --config file"]);
    }
}

#[test]
fn a_source_that_cannot_be_read_is_exit_code_2_and_named() {
    let directory = temp_dir();
    let bracket = ffrfs(&["info", "/nowhere/a[b.zip"]);
    refused(&bracket, 2, &["/nowhere/a[b.zip: No such file or directory\n"]);
    let empty = directory.path().join("no containers");
    fs::create_dir(&empty).unwrap();
    for command in ["info", "ls", "verify"] {
        let nowhere = directory.path().join("nowhere.ffr");
        refused(&on(command, &nowhere, &[]), 2, &["nowhere.ffr", "No such file"]);
        refused(&on(command, &empty, &[]), 2, &["no containers", "*.ffr"]);
        refused(&on(command, Path::new("/dev/null"), &[]), 2, &["/dev/null", "not a regular file"]);
        let below_a_file = fixture("basic.ffr").join("x.ffr");
        refused(&on(command, &below_a_file, &[]), 2, &["basic.ffr/x.ffr"]);
    }
    refused(&on("cat", &directory.path().join("nowhere.ffr"), &["0"]), 2, &["nowhere.ffr"]);
    let names = directory.path().join("nowhere.txt");
    let outcome = on("ls", &fixture("basic.ffr"), &["--names", names.to_str().unwrap()]);
    refused(&outcome, 2, &["nowhere.txt"]);
}

#[test]
fn a_pipe_as_source_is_refused_and_not_waited_for() {
    let directory = temp_dir();
    let pipe = directory.path().join("pipe.ffr");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let mut child = Command::new(FFRFS)
        .args(["info".as_ref(), pipe.as_os_str()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > Duration::from_secs(30) => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(status.and_then(|status| status.code()), Some(2));
}

#[test]
fn a_file_that_is_no_container_is_exit_code_3_with_file_byte_and_remedy() {
    let directory = temp_dir();
    let text = directory.path().join("readme.txt");
    fs::write(&text, "no container at all, but long enough for a header").unwrap();
    let other = directory.path().join("other.bin");
    fs::write(&other, [7; 49]).unwrap();
    let short = directory.path().join("short.ffr");
    fs::write(&short, "short").unwrap();
    for command in ["info", "ls", "verify"] {
        refused(&on(command, &text, &[]), 3, &["readme.txt", "a text file", "name the container"]);
        refused(&on(command, &other, &[]), 3, &["other.bin", "byte 0", "FFRecord", "49 bytes"]);
        refused(&on(command, &short, &[]), 3, &["short.ffr", "byte 5", "12 bytes"]);
        let cut = fixture("truncated_data.ffr");
        let says = ["truncated_data.ffr", "byte 620", "expected", "found", "--allow-damaged"];
        refused(&on(command, &cut, &[]), 3, &says);
        let cut = fixture("truncated_index.ffr");
        refused(&on(command, &cut, &[]), 3, &["truncated_index.ffr", "byte 4", "60 samples"]);
    }
    // Of several containers, the message names the bad one.
    let args = ["ls".into(), fixture("basic.ffr"), fixture("truncated_index.ffr")];
    refused(&ffrfs(&args), 3, &["truncated_index.ffr"]);
}

#[test]
fn a_header_that_fails_its_checksum_is_exit_code_4_with_both_values_and_a_remedy() {
    for command in ["info", "ls", "verify"] {
        let says = ["bad_header.ffr", "byte 0", "expected 0x", "found 0x", "again"];
        refused(&on(command, &fixture("bad_header.ffr"), &[]), 4, &says);
    }
}

#[test]
fn names_that_fail_their_checksum_are_exit_code_4_and_flat_goes_on() {
    let directory = temp_dir();
    let source = packed(&directory, &["a", "b/c"]);
    let last = fs::metadata(&source).unwrap().len() - 1;
    flip_byte(&source, last);
    refused(&on("ls", &source, &[]), 4, &["sample 2", "names", "--flat"]);
    assert_eq!(listed(&source, &["--flat"]), ["000000", "000001", "000002"]);
    let forgiving = on("ls", &source, &["--allow-damaged"]).ok();
    assert_eq!(forgiving.text(), "000000\n000001\n000002\n");
    assert!(forgiving.stderr.contains("numbered"), "{}", forgiving.stderr);
}

#[test]
fn a_mount_point_that_cannot_be_used_is_exit_code_5() {
    let directory = temp_dir();
    let basic = fixture("basic.ffr");
    let nowhere = directory.path().join("nowhere");
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (point, says) in [(&nowhere, "mkdir -p"), (&file, "Not a directory")] {
        let outcome = run(Command::new(FFRFS).arg("mount").arg(&basic).arg(point));
        refused(&outcome, 5, &[point.to_str().unwrap(), says]);
        refused(&on("umount", point, &[]), 5, &[point.to_str().unwrap()]);
    }
    // Source and mount point in the wrong order; no container is looked for in the directory.
    let swapped = run(Command::new(FFRFS).arg("mount").arg(directory.path()).arg(&basic));
    refused(&swapped, 5, &["mount point: Not a directory; it stands last", "SOURCE… MOUNTPOINT"]);
    refused(&on("umount", directory.path(), &[]), 5, &["nothing is mounted there"]);
    refused(&on("umount", Path::new("/proc"), &[]), 5, &["/proc", "not of ffrfs"]);
    let both = run(Command::new(FFRFS).arg("umount").arg(&nowhere).arg(directory.path()));
    assert_eq!((both.code, both.stderr.lines().count()), (5, 2), "each is reported");
}

#[test]
fn the_exit_code_of_a_failed_mount_reaches_the_caller() {
    for_each_transport(|transport| {
        for foreground in [false, true] {
            for (source, code) in [
                (PathBuf::from("/nowhere.ffr"), 2),
                (fixture("truncated_index.ffr"), 3),
                (fixture("bad_header.ffr"), 4),
            ] {
                let directory = temp_dir();
                let mut command = mount_command(transport, &[&source], directory.path(), &[]);
                let outcome = run(command.args(foreground.then_some("-f")));
                refused(&outcome, code, &[source.to_str().unwrap()]);
            }
            let directory = temp_dir();
            let basic = fixture("basic.ffr");
            let options = ["log_file=/nowhere/log"];
            let mut command = mount_command(transport, &[&basic], directory.path(), &options);
            let outcome = run(command.args(foreground.then_some("-f")));
            refused(&outcome, 6, &["/nowhere/log"]);
        }
    });
}

#[test]
fn commands_that_write_say_what_is_missing_of_their_arguments() {
    for (args, says) in [
        (&["extract"][..], "missing: SOURCE… OUTDIR (ffrfs extract --help)"),
        (
            &["extract", "a.zip"],
            "the directory to write to is missing: ffrfs extract SOURCE… OUTDIR",
        ),
        (&["convert"], "missing: IN… OUT (ffrfs convert --help)"),
        (&["convert", "a.zip"], "the output is missing: ffrfs convert IN… OUT"),
    ] {
        let outcome = run(Command::new(FFRFS).args(args));
        assert_eq!((outcome.code, outcome.stderr), (1, format!("ffrfs: {says}\n")), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_exit_code_6() {
    let basic = fixture("basic.ffr");
    let bad = fixture("bad_sample.ffr");
    for args in [
        &["ls", basic.to_str().unwrap(), "-l"][..],
        &["info", basic.to_str().unwrap(), "--json"],
        &["cat", basic.to_str().unwrap(), "000003"],
        &["verify", bad.to_str().unwrap(), "-j2"],
        &["help"],
        &["mount", "--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let child = Command::new(FFRFS).args(args).stdout(full).stderr(Stdio::piped()).output();
        let outcome = Outcome::from(child.unwrap());
        assert_eq!(outcome.code, 6, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("No space left"), "{}", outcome.stderr);
    }
    let (directory, file) = (temp_dir(), fixture("jpg.beton"));
    let out = directory.path().join("out");
    fs::write(&out, "").unwrap();
    let onto = run(Command::new(FFRFS).arg("extract").args([&file, &out]));
    refused(&onto, 6, &["out: not a directory"]);
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("x"), "").unwrap();
    for (source, out) in [(&basic, "none/o.zip"), (&basic, "none/o/"), (&tree, "none/o.zip")] {
        let out = directory.path().join(out);
        let nowhere = run(Command::new(FFRFS).arg("convert").args([source, &out]));
        let none = directory.path().join("none");
        let says = format!(
            "ffrfs: {}: there is no directory {}: make it, or name another output\n",
            out.display(),
            none.display()
        );
        refused(&nowhere, 6, &[&says]);
    }
}

#[test]
fn messages_that_nobody_can_read_do_not_change_the_exit_code() {
    let bad = fixture("bad_sample.ffr");
    for (args, code) in [
        (["ls", "/nowhere.ffr"], 2),
        (["verify", bad.to_str().unwrap()], 4),
        (["info", "--frobnicate"], 1),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = Command::new(FFRFS).args(args).stdout(Stdio::null()).stderr(full).status();
        assert_eq!(status.unwrap().code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let directory = temp_dir();
    let many = vec![vec![7u8; 20]; 100_000];
    let source = container_in(&directory, &many);
    let large = directory.path().join("large.ffr");
    write_container(&large, &[vec![1u8; 3 << 20]]);
    for args in [
        vec!["ls".into(), source.clone()],
        vec!["ls".into(), "-lR".into(), "--fanout=100".into(), source],
        vec!["cat".into(), large, "000000".into()],
    ] {
        let mut command = Command::new(FFRFS);
        let mut child =
            command.args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 7];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let outcome = Outcome::from(child.wait_with_output().unwrap());
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{args:?}");
    }
}
