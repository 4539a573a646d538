//! Archives with several passwords, nested ones with another one, and links that are encrypted.

use super::winzip::{aes, aes_with};
use super::{PASSWORD, file_in, with_password, write};
use crate::common::{
    FFRFS, Mount, Need, assert_errno, for_each_transport, have, noise, run, temp_dir,
};
use crate::formats::run_in;
use crate::formats::write::stored;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn members_with_another_password_are_named_and_called_encrypted_with_the_exit_code_of_passwords() {
    let directory = temp_dir();
    // The large member is decrypted step by step.
    let members = [
        aes(stored("one", noise(3, 5000))),
        aes_with("another", stored("other", noise(4, 5000))),
        aes_with("another", stored("large", noise(5, 20 << 20))),
    ];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    let out = directory.path().join("out");
    let on = |command: &str, more: &[&OsStr]| {
        let args = [&[OsStr::new(command), archive.as_os_str()], more].concat();
        with_password(&directory, &args, PASSWORD)
    };
    let said = "wrong password: encrypted with another one than was given, or damaged";
    for outcome in [on("verify", &[]), on("extract", &[out.as_os_str()]), on("sum", &[])] {
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        let text = format!("{}{}", outcome.text(), outcome.stderr);
        assert_eq!(text.matches(said).count(), 2, "{text}");
        assert!(text.contains("other") && text.contains("large"), "{text}");
        assert!(!text.contains("give --password-file"), "{text}");
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    let json = on("verify", &["--json".as_ref()]).text();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["encrypted"], &json["other_password"]), (&0.into(), &2.into()));
    let reason = "encrypted with another password, or damaged";
    let bad = json["bad"].as_array().unwrap();
    assert!(bad.len() == 2 && bad.iter().all(|bad| bad["reason"] == reason), "{bad:?}");
    let option = super::password_file(&directory, PASSWORD);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[&option]);
        assert_eq!(mount.read("one").unwrap(), noise(3, 5000));
        for name in ["other", "large"] {
            assert_errno(mount.read(name), libc::EIO);
        }
        let bad = mount.bad();
        let is_said = |row: &Vec<String>| row[1].starts_with("encrypted with another password");
        assert!(bad.len() == 2 && bad.iter().all(is_said), "{bad:?}");
        assert!(mount.log().contains("wrong password"), "{}", mount.log());
    });
}

#[test]
fn each_password_of_an_archive_mounts_it_and_opens_its_members() {
    let directory = temp_dir();
    let members = [aes(stored("one", noise(3, 500))), aes_with("another", stored("two", "2"))];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    let option = super::password_file(&directory, "another");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[&option]);
        assert_eq!(mount.read("two").unwrap(), b"2");
        assert_errno(mount.read("one"), libc::EIO);
        let bad = mount.bad();
        assert!(bad.len() == 1 && bad[0][1].starts_with("encrypted with another"), "{bad:?}");
    });
    if !have(Need::Program("zip")) {
        return;
    }
    for (name, password) in [("one", "secret"), ("two", "another")] {
        fs::write(directory.path().join(name), name).unwrap();
        run_in(directory.path(), "zip", &["-q", "-P", password, "old.zip", name]);
    }
    let archive = directory.path().join("old.zip");
    for (name, password) in [("one", "secret"), ("two", "another")] {
        let cat = ["cat".as_ref(), archive.as_os_str(), name.as_ref()];
        assert_eq!(with_password(&directory, &cat, password).ok().text(), name);
    }
}

#[test]
fn a_warm_up_of_what_cannot_be_decrypted_fails_with_the_exit_code_of_passwords() {
    let directory = temp_dir();
    let members = [
        stored("clear", "for all"),
        aes(stored("one", noise(3, 5000))),
        aes_with("another", stored("two", noise(4, 5000))),
    ];
    let archive = file_in(&directory, "x.zip", write::zip(&members));
    let option = super::password_file(&directory, PASSWORD);
    let other = "1 sample is encrypted with another password, or damaged: mount with that one \
                 (--password-file FILE)";
    for_each_transport(|transport| {
        for (options, count, said) in [
            (&[][..], 2, "2 samples are encrypted: mount with the password (--password-file FILE)"),
            (&[option.as_str()][..], 1, other),
        ] {
            let mount = Mount::new(transport, &archive, options);
            // Open files, so that the kernel keeps their inodes, and is given their bytes, which are decrypted for it.
            let open = |name| fs::File::open(mount.point().join(name)).unwrap();
            let _held = ["clear", "one", "two"].map(open);
            // The second warmup knows the encrypted members already.
            for _ in 0..2 {
                let outcome = run(Command::new(FFRFS).arg("warmup").arg(mount.point()));
                assert_eq!(outcome.code, 9, "{}", outcome.stderr);
                let warm = outcome.stderr.starts_with(&format!("{} sample", 3 - count));
                assert!(warm && outcome.stderr.ends_with(&format!("\n{said}\n")), "{outcome:?}");
            }
            assert_eq!(mount.bad().len(), count);
        }
    });
}

#[test]
fn a_link_that_is_encrypted_counts_as_encrypted_and_the_other_files_are_extracted() {
    if !have(Need::Program("zip")) {
        return;
    }
    let directory = temp_dir();
    fs::write(directory.path().join("clear"), "for all").unwrap();
    std::os::unix::fs::symlink("clear", directory.path().join("link")).unwrap();
    run_in(directory.path(), "zip", &["-q", "x.zip", "clear"]);
    run_in(directory.path(), "zip", &["-q", "-y", "-P", "secret", "x.zip", "link"]);
    let archive = directory.path().join("x.zip");
    let out = directory.path().join("out");
    let extracted = run(Command::new(FFRFS).arg("extract").arg(&archive).arg(&out));
    assert_eq!(extracted.code, 9, "{}", extracted.stderr);
    assert!(extracted.stderr.contains("1 file is encrypted"), "{}", extracted.stderr);
    assert_eq!(fs::read(out.join("clear")).unwrap(), b"for all");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        assert!(fs::symlink_metadata(mount.path("link")).unwrap().is_symlink());
        assert_errno(fs::read_link(mount.path("link")), libc::EIO);
        let bad = mount.bad();
        assert!(bad.len() == 1 && bad[0][..2] == ["link", "encrypted"], "{bad:?}");
        assert_eq!(mount.read("clear").unwrap(), b"for all", "the container is as good as before");
    });
    let with = directory.path().join("with");
    let args = ["extract".as_ref(), archive.as_os_str(), with.as_os_str()];
    with_password(&directory, &args, "secret").ok();
    assert_eq!(fs::read_link(with.join("link")).unwrap(), Path::new("clear"));
}

#[test]
fn a_wrong_password_of_a_nested_container_is_refused_by_its_name_unless_damage_is_allowed() {
    let directory = temp_dir();
    let inner = write::zip(&[aes(stored("secret", noise(1, 9000))), stored("clear", "clear")]);
    for (name, member) in [
        ("stored.zip", stored("in.zip", &inner)),
        ("deflated.zip", write::deflated("in.zip", &inner)),
    ] {
        let outer = file_in(&directory, name, write::zip(&[stored("plain", "plain"), member]));
        let verify = ["verify".as_ref(), "--nested=1".as_ref(), outer.as_os_str()];
        let refused = with_password(&directory, &verify, "wrong horse");
        assert_eq!(refused.code, 9, "{}", refused.stderr);
        for says in ["--allow-damaged", &format!("{name}/in.zip: wrong password")] {
            assert!(refused.stderr.contains(says), "{}", refused.stderr);
        }
        with_password(&directory, &verify, PASSWORD).ok();
        let option = super::password_file(&directory, "wrong horse");
        for_each_transport(|transport| {
            let options = ["nested=1", "allow_damaged", &option];
            let mount = Mount::new(transport, &outer, &options);
            assert_eq!(mount.read("in.zip/clear").unwrap(), b"clear");
            assert_errno(mount.read("in.zip/secret"), libc::EIO);
        });
    }
}

#[test]
fn of_nested_containers_with_passwords_of_their_own_those_that_one_opens_are_shown() {
    if !have(Need::Program("zip")) {
        return;
    }
    let directory = temp_dir();
    let zip = directory.path().join("a.zip");
    let members = [("a.txt", "one"), ("b.txt", "two")];
    let mut outer = Vec::new();
    for (name, password) in members {
        fs::write(directory.path().join(name), name).unwrap();
        let _ = fs::remove_file(&zip);
        run_in(directory.path(), "zip", &["-q", "-P", password, "a.zip", name]);
        outer.push(stored(format!("{password}.zip"), fs::read(&zip).unwrap()));
    }
    let outer = file_in(&directory, "outer.zip", write::zip(&outer));
    let list = ["ls".as_ref(), "-R".as_ref(), "--nested=1".as_ref(), outer.as_os_str()];
    for (password, shown) in [("one", "one.zip/a.txt"), ("two", "two.zip/b.txt")] {
        let listed = with_password(&directory, &list, password).ok();
        assert!(listed.text().lines().any(|line| line == shown), "{}", listed.text());
        assert!(listed.stderr.contains("shown as a file"), "{}", listed.stderr);
    }
    assert_eq!(with_password(&directory, &list, "three").code, 9);
}
