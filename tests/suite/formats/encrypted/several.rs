//! Archives with several passwords, and with links that are encrypted.

use super::{assert_errno, by_zip, for_each_transport, have, with_password};
use crate::common::{FFRFS, Mount, Need, noise, run, temp_dir};
use crate::formats::run_in;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn members_with_another_password_count_as_encrypted_and_not_as_damaged() {
    let Some((directory, archive)) = by_zip(&["one"]) else { return };
    // A large one is decrypted step by step.
    for (file, bytes) in [("other", 5000), ("large", 20 << 20)] {
        fs::write(directory.path().join(file), noise(bytes, bytes as usize)).unwrap();
        run_in(directory.path(), "zip", &["-q", "-0", "-P", "another", "x.zip", file]);
    }
    let out = directory.path().join("out");
    let on = |command: &str, more: &[&OsStr]| {
        let args = [&[OsStr::new(command), archive.as_os_str()], more].concat();
        with_password(&directory, &args, "secret")
    };
    let verified = on("verify", &[]);
    assert_eq!(verified.code, 9, "{}", verified.stderr);
    for said in ["1 sample checked", "0 bad", "2 samples are encrypted: give --password-file"] {
        assert!(verified.stderr.contains(said), "{said}: {}", verified.stderr);
    }
    let extracted = on("extract", &[out.as_os_str()]);
    assert_eq!(extracted.code, 9, "{}", extracted.stderr);
    assert!(!extracted.stderr.contains("damaged"), "{}", extracted.stderr);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    let option = format!("password_file={}", directory.path().join("password").display());
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[&option]);
        assert_eq!(mount.read("one").unwrap(), noise(3, 5000));
        for name in ["other", "large"] {
            assert_errno(mount.read(name), libc::EIO);
        }
        let bad = mount.bad();
        assert!(bad.len() == 2 && bad.iter().all(|row| row[1] == "encrypted"), "{bad:?}");
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
