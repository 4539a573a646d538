//! Stored names that cannot be shown as they are, and samples that cannot be verified: commands and mounts say so.

use super::super::common::{Mount, ffrfs, fixture, for_each_transport, temp_dir};
use super::{listed, on, refused};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A tar archive (V7) of files that hold their own names.
fn tar(path: &Path, names: &[&str]) -> PathBuf {
    let mut archive = Vec::new();
    for name in names {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", name.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(name.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    fs::write(path, archive).unwrap();
    path.to_owned()
}

/// Eight names, of which two are escaped, and two are those of a later member.
const ODD: &[&str] = &["../up", "/etc/passwd", "a.jpg", "a.jpg", "b/c", "./b//d", "a.jpg", "..."];

#[test]
fn info_lists_names_that_are_shown_as_others_also_from_a_kept_index() {
    let directory = temp_dir();
    let source = tar(&directory.path().join("odd.tar"), ODD);
    let expected = json!({
        "escaped": 2, "numbered": 0, "hidden": 2, "left_out": 0,
        "examples": [
            "\"../up\" as \"%2E%2E/up\"",
            "\"/etc/passwd\" as \"etc/passwd\"",
            "another \"a.jpg\" is not shown",
            "another \"a.jpg\" is not shown",
        ],
    });
    for is_kept in [false, true] {
        if is_kept {
            on("index", &source, &[]).ok();
            assert!(directory.path().join("odd.tar.ffrfs-index").exists());
        }
        let info: Value = serde_json::from_slice(&on("info", &source, &["--json"]).ok().stdout)
            .expect("info is JSON");
        assert_eq!(info["renamed"], expected, "kept: {is_kept}");
        assert_eq!(info["files"], ODD.len() - 2, "what a mount shows");
        let text = on("info", &source, &[]).ok().text();
        let parts = ["2 escaped", "2 hidden", r#""../up" as "%2E%2E/up""#];
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("numbered:"), "{text}");
    }
}

#[test]
fn commands_that_take_the_last_of_several_members_say_how_many_they_do_not_take() {
    let directory = temp_dir();
    let source = tar(&directory.path().join("odd.tar"), ODD);
    let out = directory.path().join("out.zip");
    let says = "2 hidden by others of the same name (--dup number shows them)";
    for (command, args, more) in [
        ("convert", &[out.to_str().unwrap()][..], "\n"),
        ("sum", &[], "\n"),
        ("verify", &[], "; verify counts them, too\n"),
    ] {
        let said = on(command, &source, args).ok().stderr;
        assert!(said.ends_with(&format!("{says}{more}")), "{command} {args:?}: {said}");
    }
    for (command, args) in [("sum", ["--dup", "number"]), ("verify", ["--include", "*"])] {
        let said = on(command, &source, &args).ok().stderr;
        assert!(!said.contains("hidden"), "{command}: {said}");
    }
}

#[test]
fn the_json_of_verify_counts_what_is_not_shown_unless_only_a_part_is_checked() {
    let directory = temp_dir();
    let source = tar(&directory.path().join("odd.tar"), ODD);
    let renamed = |command: &str, args: &[&str]| {
        let json = on(command, &source, &[&["--json"][..], args].concat()).ok().text();
        serde_json::from_str::<Value>(&json).expect("JSON")["renamed"].clone()
    };
    assert_eq!(renamed("verify", &[])["hidden"], 2);
    assert_eq!(renamed("verify", &[]), renamed("info", &[]));
    assert_eq!(renamed("verify", &["--dup", "number"])["numbered"], 2);
    for part in [["--include", "*"], ["--sample", "0-1"]] {
        assert_eq!(renamed("verify", &part), Value::Null, "{part:?}");
    }
}

#[test]
fn members_that_are_hidden_are_named_with_their_directories() {
    let directory = temp_dir();
    let names = ["d/e/y.txt", "d/a", "e/y.txt", "d/e/y.txt", "a"];
    let source = tar(&directory.path().join("dup.tar"), &names);
    let hidden = r#"another "d/e/y.txt" is not shown"#;
    let info = on("info", &source, &[]).ok().text();
    assert!(info.contains(hidden), "{info}");
    let first = on("verify", &source, &["--json", "--dup", "first"]).ok().text();
    let first: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(first["renamed"]["examples"], json!([hidden]));
    let twice = on("ls", &source, &["--dup", "error"]);
    refused(&twice, 3, &[r#"two members are named "d/e/y.txt""#]);
}

#[test]
fn info_says_nothing_of_names_that_are_shown_as_they_are() {
    let directory = temp_dir();
    let source = tar(&directory.path().join("plain.tar"), &["a", "./b", "c//d", "..."]);
    let text = on("info", &source, &[]).ok().text();
    assert!(text.contains("stored: 4 files") && !text.contains("changed"), "{text}");
}

#[test]
fn a_mount_warns_of_names_that_it_does_not_show_as_they_are_stored() {
    let directory = temp_dir();
    let source = tar(&directory.path().join("odd.tar"), ODD);
    for_each_transport(|transport| {
        // The second mount has its names from the kept index.
        for _ in 0..2 {
            let mount = Mount::new(transport, &source, &[]);
            let log = fs::read_to_string(mount.scratch().join("log")).unwrap();
            let line = log.lines().find(|line| line.contains("2 escaped")).expect("a warning");
            assert!(line.contains("WARN") && line.contains("2 hidden"), "{line}");
            assert_eq!(mount.info()["renamed"]["hidden"], 2);
            assert_eq!(fs::read(mount.path("%2E%2E/up")).unwrap(), b"../up");
            assert_eq!(fs::read(mount.path("etc/passwd")).unwrap(), b"/etc/passwd");
        }
        let mount = Mount::new(transport, &source, &["dup=number"]);
        assert_eq!(mount.info()["renamed"]["numbered"], 2);
    });
}

#[test]
fn a_name_that_stands_twice_is_refused_if_that_is_asked_for() {
    let directory = temp_dir();
    let source = tar(&directory.path().join("odd.tar"), ODD);
    refused(
        &on("ls", &source, &["--dup", "error"]),
        3,
        &["a.jpg", "two members are named", "--dup number"],
    );
    let source = tar(&directory.path().join("plain.tar"), &["a", "b/c", "b/d"]);
    assert_eq!(listed(&source, &["--dup", "error"]), ["a", "b/"]);
}

/// Whether a text has nothing that a terminal obeys but line breaks.
fn is_tame(text: &str) -> bool {
    let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}');
    !text.chars().any(|c| c != '\n' && is_obeyed(c))
}

#[test]
fn control_characters_of_names_are_written_in_one_way_and_in_json_as_it_escapes_them() {
    let directory = temp_dir();
    let name = "a\x1b[31m\u{7f}\u{9b}\u{202e}b";
    let shown = r#""a\x1b[31m\x7f\x9b\u{202e}b""#;
    let source = tar(&directory.path().join("x\n\x1bc.tar"), &[name, name]);
    let info = on("info", &source, &[]).ok().text();
    for part in [r"x\x0a\x1bc.tar: ", &format!("another {shown} is not shown\n")] {
        assert!(info.contains(part) && is_tame(&info), "{part}: {info:?}");
    }
    let twice = on("ls", &source, &["--dup", "error"]);
    refused(&twice, 3, &[r"x\x0a\x1bc.tar: ", &format!("two members are named {shown}")]);
    assert!(is_tame(&twice.stderr), "{:?}", twice.stderr);
    for command in ["info", "verify", "ls"] {
        let json = on(command, &source, &["--json"]).ok().text();
        assert!(is_tame(&json), "{command}: {json:?}");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(command != "ls" || json["path"] == name, "the same name: {json}");
    }
}

#[test]
fn messages_of_paths_with_line_breaks_and_control_characters_stay_one_line() {
    let directory = temp_dir();
    let odd = directory.path().join("m\n\x1bc\u{9b}");
    let shown = r"m\x0a\x1bc\x9b";
    fs::create_dir(&odd).unwrap();
    let missing = odd.join("missing");
    for (outcome, code) in [
        (on("info", &odd.join("missing.zip"), &[]), 2),
        (ffrfs(&[Path::new("umount"), &odd]), 5),
        (ffrfs(&[Path::new("stats"), &odd]), 5),
    ] {
        refused(&outcome, code, &[shown]);
        assert!(is_tame(&outcome.stderr), "{:?}", outcome.stderr);
    }
    let mount = ffrfs(&[Path::new("mount"), &fixture("basic.ffr"), &missing]);
    assert_ne!(mount.code, 0, "there is no mount point");
    let said = &mount.stderr;
    assert!(said.contains(shown) && is_tame(said), "{said:?}");
    assert!(said.lines().all(|line| line.starts_with("ffrfs: ")), "{said:?}");
    let damaged = directory.path().join("p\nq.zip");
    fs::write(&damaged, "no container").unwrap();
    let mount = ffrfs(&[Path::new("mount"), &damaged, &odd]);
    refused(&mount, 3, &[r"p\x0aq.zip on ", "not a usable zip"]);
}

#[test]
fn a_format_without_checksums_is_called_not_verifiable_and_never_ok() {
    for name in ["features.syr", "jpg.beton"] {
        let info = on("info", &fixture(name), &[]).ok().text();
        assert!(info.contains("index not verifiable") && !info.contains(" ok"), "{info}");
        assert!(info.contains("have none: not verifiable"), "{info}");
        assert!(info.contains("numbered records"), "{info}");
        let verify = on("verify", &fixture(name), &[]).ok().stderr;
        assert!(verify.starts_with("0 samples checked"), "{verify}");
        assert!(verify.contains("no checksum: not verifiable"), "{verify}");
        let info = ffrfs(&["info".into(), "--json".into(), fixture(name)]).ok();
        let info: Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!(
            (&info["names"], &info["not_verifiable"]),
            (&"records".into(), &info["samples"])
        );
        assert_eq!(info["containers"][0]["index_checksum"], "none");
    }
    let info = on("info", &fixture("basic.ffr"), &[]).ok().text();
    assert!(!info.contains("verifiable"), "{info}");
}
