//! Encrypted members that are not decrypted: without a password, and in ways that no password helps with.

use super::winzip::{aes, aes_with};
use super::{PASSWORD, file_in, password_file, with_password, write};
use crate::common::{
    FFRFS, Mount, Need, Outcome, TempDir, assert_errno, flip_byte, for_each_transport, have, noise,
    run, temp_dir,
};
use crate::formats::write::{Member, stored, zip_with_places};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn on(command: &str, archive: &Path, more: &[&OsStr]) -> Outcome {
    run(Command::new(FFRFS).arg(command).arg(archive).args(more))
}

/// A member that PKWARE's strong encryption hides.
fn strong_member() -> Member {
    Member { flags: 0x41, ..stored("strong", noise(1, 500)) }
}

/// An archive with a clear member, `clear`, and `strong`.
fn strong() -> (TempDir, PathBuf) {
    let directory = temp_dir();
    let members = [stored("clear", "for all"), strong_member()];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
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
    let (secret, strong) = (aes(stored("secret", noise(1, 900))), strong_member());
    let clear = stored("clear", "for all");
    let quick = ["--rounds=1", "--epochs=1", "--mode=sequential", "-Oro"].map(OsStr::new);
    let give = "mount with the password (-O password-file=FILE)";
    let decrypt = "no password helps: decrypt the archive with the program that made it";
    for (members, says, advice) in [
        (vec![secret.clone()], "1 file read, and all are encrypted: ", &[give][..]),
        (vec![clear.clone(), secret.clone()], "1 file is encrypted: ", &[give]),
        (vec![strong.clone()], "1 file read, and all are encrypted: ", &[decrypt]),
        (vec![clear, secret, strong], "1 file is encrypted: ", &[give, decrypt]),
    ] {
        let archive = file_in(&directory, "x.zip", write::zip(&members));
        let outcome = on("bench", &archive, &quick);
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        for all in [give, decrypt] {
            let is_said = outcome.stderr.contains(&format!("x.zip: {says}{all}"));
            assert_eq!(is_said, advice.contains(&all), "{}", outcome.stderr);
        }
    }
}

#[test]
fn bench_tells_what_another_password_opens_from_what_none_does() {
    if !have(Need::Fuse) {
        return;
    }
    let directory = temp_dir();
    let (secret, strong) = (aes(stored("secret", noise(1, 900))), strong_member());
    let other = aes_with("another", stored("other", noise(2, 900)));
    let bench = |members: &[Member], options: &str| {
        let archive = file_in(&directory, "x.zip", write::zip(members));
        let args = ["--rounds=1", "--epochs=1", "--mode=sequential", "-O", options];
        let outcome = on("bench", &archive, &args.map(OsStr::new));
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        outcome.stderr
    };
    let option = format!("ro,{}", password_file(&directory, PASSWORD));
    let said = bench(&[secret.clone(), other, strong.clone()], &option);
    for sentence in [
        "x.zip: 1 file is encrypted with another password, or damaged: mount with that one \
         (-O password-file=FILE)\n",
        "x.zip: 1 file is encrypted: no password helps: ",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
    assert!(!said.contains("mount with the password"), "{said}");
    let said = bench(&[secret, strong], "ro");
    let both = "x.zip: 2 files read, and all are encrypted: 1 file is encrypted: mount with the \
                password (-O password-file=FILE); 1 file is encrypted: no password helps: ";
    assert!(said.contains(both), "{said}");
}

#[test]
fn what_a_dataset_itself_calls_bad_is_not_taken_for_what_its_mount_could_not_read() {
    if !have(Need::Fuse) {
        return;
    }
    let directory = temp_dir();
    let members = [stored(".ffrfs/bad", "x\tencrypted\tx.zip\t1\n"), stored("x", noise(1, 5000))];
    let (bytes, places) = zip_with_places(&members);
    let archive = file_in(&directory, "x.zip", bytes);
    flip_byte(&archive, places[1] + 40);
    let args = ["--rounds=1", "--epochs=1", "--mode=sequential", "-Oro,no_control"];
    let outcome = on("bench", &archive, &args.map(OsStr::new));
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("1 read failed"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("encrypted"), "{}", outcome.stderr);
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
