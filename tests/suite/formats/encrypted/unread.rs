//! Encrypted members that are not decrypted: without a password, and in ways that no password helps with.

use super::winzip::aes;
use super::{PASSWORD, file_in, with_password, write};
use crate::common::{
    FFRFS, Mount, Need, Outcome, TempDir, assert_errno, for_each_transport, have, noise, run,
    temp_dir,
};
use crate::formats::write::{Member, stored};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn on(command: &str, archive: &Path, more: &[&OsStr]) -> Outcome {
    run(Command::new(FFRFS).arg(command).arg(archive).args(more))
}

/// An archive with a clear member, `clear`, and `strong`, which PKWARE's strong encryption hides.
fn strong() -> (TempDir, PathBuf) {
    let directory = temp_dir();
    let strong = Member { flags: 0x41, ..stored("strong", noise(1, 500)) };
    let archive = file_in(&directory, "x.zip", write::zip(&[stored("clear", "for all"), strong]));
    (directory, archive)
}

#[test]
fn ls_calls_encrypted_members_encrypted_and_not_damaged() {
    let directory = temp_dir();
    let secret = aes(stored("secret", noise(1, 900)));
    let archive = file_in(&directory, "x.zip", write::zip(&[stored("clear", "for all"), secret]));
    let check = |archive: &Path| {
        let long = on("ls", archive, &["-l".as_ref()]).ok().text();
        let lines: Vec<_> = long.lines().collect();
        assert!(lines.len() == 2 && !lines[0].contains("encrypted"), "{long}");
        assert!(lines[1].contains(" encrypted ") && !long.contains("damaged"), "{long}");
        let json = on("ls", archive, &["--json".as_ref()]).ok().text();
        for (line, is_encrypted) in json.lines().zip([false, true]) {
            let line: Value = serde_json::from_str(line).unwrap();
            let found = (&line["is_encrypted"], &line["is_damaged"]);
            assert_eq!(found, (&Value::from(is_encrypted), &Value::from(false)));
        }
    };
    check(&archive);
    let (_directory, strong) = strong();
    check(&strong);
    let ls = ["ls".as_ref(), "-l".as_ref(), archive.as_os_str()];
    let long = with_password(&directory, &ls, PASSWORD).ok().text();
    assert!(!long.contains("encrypted"), "{long}");
}

#[test]
fn an_encryption_that_is_not_read_counts_as_encrypted_and_never_as_damage() {
    let (directory, archive) = strong();
    let said = "encrypted in a way that ffrfs does not read (PKWARE's strong encryption)";
    let out = directory.path().join("out");
    let outcomes = [
        on("verify", &archive, &[]),
        on("extract", &archive, &[out.as_os_str()]),
        on("sum", &archive, &[]),
        on("cat", &archive, &["strong".as_ref()]),
        // No password helps.
        with_password(&directory, &["verify".as_ref(), archive.as_os_str()], PASSWORD),
    ];
    for outcome in &outcomes {
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
        for never in ["damaged", "give --password-file", "bad sample"] {
            assert!(!outcome.stderr.contains(never), "{}", outcome.stderr);
        }
    }
    let error = outcomes[3].stderr.lines().last().unwrap();
    let place = ["ffrfs: /", "/x.zip: sample 1 (strong) at byte"];
    assert!(error.starts_with(place[0]) && error.contains(place[1]), "{error}");
    let info = on("info", &archive, &[]).ok().text();
    assert!(info.contains("encrypted:  1 file; ") && info.contains(said), "{info}");
    assert!(!info.contains("not whole"), "{info}");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        assert_eq!(mount.read("clear").unwrap(), b"for all");
        assert_errno(mount.read("strong"), libc::EIO);
        let bad = mount.bad();
        let reason = "encrypted in a way that ffrfs does not read";
        assert!(bad.len() == 1 && bad[0][1].starts_with(reason), "{bad:?}");
    });
}

#[test]
fn bench_says_that_files_are_encrypted_with_the_exit_code_of_passwords() {
    if !have(Need::Fuse) {
        return;
    }
    let directory = temp_dir();
    let secret = aes(stored("secret", noise(1, 900)));
    let quick = ["--rounds=1", "--epochs=1", "--mode=sequential", "-Oro"].map(OsStr::new);
    for (members, says) in [
        (vec![secret.clone()], "x.zip: 1 file read, and all are encrypted: "),
        (vec![stored("clear", "for all"), secret], "x.zip: 1 file is encrypted: "),
    ] {
        let archive = file_in(&directory, "x.zip", write::zip(&members));
        let outcome = on("bench", &archive, &quick);
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("-O password-file=FILE"), "{}", outcome.stderr);
    }
}

#[test]
fn a_byte_order_mark_before_the_password_is_none_of_it() {
    let directory = temp_dir();
    let data = noise(1, 900);
    let archive = file_in(&directory, "x.zip", write::zip(&[aes(stored("secret", &data))]));
    let cat = ["cat".as_ref(), archive.as_os_str(), "secret".as_ref()];
    let outcome = with_password(&directory, &cat, &format!("\u{feff}{PASSWORD}\r\n"));
    assert!(outcome.ok().stdout == data);
}
