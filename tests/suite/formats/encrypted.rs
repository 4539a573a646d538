//! Encrypted zip files: with the password, with a wrong one, and without; other users do not see the password.

mod several;
mod unread;
mod winzip;

use super::write::{self, stored};
use super::{file_in, run_in, tree};
use crate::common::{
    FFRFS, Mount, Need, Outcome, Store, TempDir, assert_errno, flip_byte, for_each_transport, have,
    noise, one_of, run, temp_dir, unmount_soon,
};
use ffrfs::format::{Error, OpenOptions, Secret};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use winzip::aes;

const PASSWORD: &str = "correct horse battery";

/// Archives with a clear member, `clear`, and the encrypted members `sub/secret` and `sub/text`.
fn archives() -> (TempDir, Vec<PathBuf>) {
    let directory = temp_dir();
    let members = [
        stored("clear", "for all"),
        aes(stored("sub/secret", noise(1, 90_000))),
        aes(write::deflated("sub/text", write::text(2, 50_000))),
    ];
    let mut all = vec![file_in(&directory, "aes.zip", write::zip(&members))];
    let plain = directory.path().join("plain");
    fs::create_dir_all(plain.join("sub")).unwrap();
    for member in &members {
        let name = String::from_utf8(member.name.clone()).unwrap();
        fs::write(plain.join(name), &member.data).unwrap();
    }
    if have(Need::Program("zip")) {
        let archive = directory.path().join("zipcrypto.zip");
        let target = archive.to_str().unwrap();
        run_in(&plain, "zip", &["-q", "-D", target, "clear"]);
        run_in(&plain, "zip", &["-q", "-D", "-P", PASSWORD, target, "sub/secret", "sub/text"]);
        all.push(archive);
    }
    if let Some(program) = one_of(&["7z", "7zz"]) {
        let archive = directory.path().join("7z.zip");
        let target = archive.to_str().unwrap();
        run_in(&plain, program, &["a", "-tzip", target, "clear"]);
        let password = format!("-p{PASSWORD}");
        run_in(
            &plain,
            program,
            &["a", "-tzip", "-mem=AES256", &password, target, "sub/secret", "sub/text"],
        );
        all.push(archive);
    }
    (directory, all)
}

fn password_file(directory: &TempDir, password: &str) -> String {
    let path = file_in(directory, "password", format!("{password}\nnot this line\n"));
    format!("password_file={}", path.display())
}

#[track_caller]
fn all_is_served(mount: &Mount) {
    let all = tree(mount.point());
    assert_eq!(all.keys().collect::<Vec<_>>(), ["clear", "sub/secret", "sub/text"]);
    assert!(all["clear"] == b"for all");
    assert!(all["sub/secret"] == noise(1, 90_000));
    assert!(all["sub/text"] == write::text(2, 50_000));
    assert_eq!(mount.bad(), Vec::<Vec<String>>::new());
}

#[track_caller]
fn clear_alone_is_served(mount: &Mount) {
    assert_eq!(mount.read("clear").unwrap(), b"for all");
    for (name, size) in [("sub/secret", 90_000), ("sub/text", 50_000)] {
        assert_eq!(fs::metadata(mount.path(name)).unwrap().len(), size, "{name}");
        assert_errno(mount.read(name), libc::EIO);
    }
    assert_eq!(mount.bad().len(), 2);
}

/// Checks that nothing that other users can see of the process holds the password.
#[track_caller]
fn nobody_sees(password: &str, mount: &Mount) {
    let process = Path::new("/proc").join(mount.pid().to_string());
    let seen =
        [process.join("cmdline"), process.join("environ")].map(|path| fs::read(path).unwrap());
    assert!(!seen[0].is_empty());
    let seen = [&seen[0], &seen[1], mount.log().as_bytes(), mount.info().to_string().as_bytes()]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    for text in seen {
        assert!(!text.contains(password), "{text}");
    }
}

#[test]
fn encrypted_members_are_served_with_the_password_of_a_file() {
    let (directory, archives) = archives();
    let option = password_file(&directory, PASSWORD);
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::new(transport, archive, &[&option]);
            all_is_served(&mount);
            nobody_sees(PASSWORD, &mount);
        }
    });
}

#[test]
fn encrypted_members_are_served_with_the_password_of_a_descriptor() {
    let (directory, archives) = archives();
    password_file(&directory, PASSWORD);
    let password = directory.path().join("password");
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::started(transport, &[archive], &["password_fd=7"], |command| {
                let mut shell = Command::new("sh");
                shell.args(["-c", "file=$1; shift; exec \"$@\" 7<\"$file\"", "sh"]).arg(&password);
                shell.arg(command.get_program()).args(command.get_args());
                shell
            });
            all_is_served(&mount);
            nobody_sees(PASSWORD, &mount);
        }
    });
}

/// Runs a program on a terminal, and answers its question once the terminal shows no letters.
const ANSWER: &str = r#"
import os, pty, sys, termios, time
answer, program = sys.argv[1].encode(), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(program[0], program)
said = b""
while b"Password for " not in said:
    said += os.read(terminal, 1000)
while termios.tcgetattr(terminal)[3] & termios.ECHO:
    time.sleep(0.01)
os.write(terminal, answer + b"\n")
try:
    while piece := os.read(terminal, 1000):
        said += piece
except OSError:
    pass
assert answer == b"" or answer not in said, said
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(said.decode() if status else 0)
"#;

#[test]
fn a_missing_password_is_asked_for_on_the_terminal_and_not_shown_there() {
    if !have(Need::Program("python3")) {
        return;
    }
    let (_directory, archives) = archives();
    for_each_transport(|transport| {
        let answered = |answer: &str, archive: &Path| {
            Mount::started(transport, &[archive], &[], |command| {
                let mut python = Command::new("python3");
                python.args(["-c", ANSWER, answer]).arg(command.get_program());
                python.args(command.get_args());
                python
            })
        };
        for archive in &archives {
            let mount = answered(PASSWORD, archive);
            all_is_served(&mount);
            nobody_sees(PASSWORD, &mount);
        }
        // An empty answer is no password.
        clear_alone_is_served(&answered("", &archives[0]));
    });
}

#[test]
fn the_password_of_an_archive_in_a_store_is_asked_for_too() {
    if !have(Need::Program("python3")) {
        return;
    }
    let (directory, archives) = archives();
    let store = Store::new();
    for_each_transport(|transport| {
        for archive in &archives {
            store.put("bucket/secret.zip", fs::read(archive).unwrap());
            let endpoint = format!("endpoint={}", store.endpoint());
            let cache = format!("cache-dir={}", directory.path().join("cache").display());
            let options = [&*endpoint, &cache, "anonymous", "region=us-east-1"];
            let url = Path::new("s3://bucket/secret.zip");
            let mount = Mount::started(transport, &[url], &options, |command| {
                let mut python = Command::new("python3");
                python.args(["-c", ANSWER, PASSWORD]).arg(command.get_program());
                python.args(command.get_args());
                python
            });
            all_is_served(&mount);
            nobody_sees(PASSWORD, &mount);
        }
    });
}

#[test]
fn without_a_password_the_other_members_are_served() {
    let (_directory, archives) = archives();
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::new(transport, archive, &[]);
            clear_alone_is_served(&mount);
            assert!(mount.log().contains("2 members are encrypted"), "{}", mount.log());
        }
    });
}

#[test]
fn a_wrong_password_is_refused_unless_damage_is_allowed() {
    let (directory, archives) = archives();
    let option = password_file(&directory, "wrong horse");
    for archive in &archives {
        let outcome = super::refused(archive, &[&option]);
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("wrong password"), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("wrong horse"), "{}", outcome.stderr);
        let bench = run(Command::new(FFRFS).args(["bench", "-O", &option]).arg(archive));
        assert_eq!(bench.code, 9, "{}", bench.stderr);
    }
    let password = directory.path().join("password");
    for archive in &archives {
        let on = |command: &str, more: Option<&Path>| {
            let mut ffrfs = Command::new(FFRFS);
            ffrfs.args([command, "--allow-damaged", "--password-file"]).arg(&password);
            run(ffrfs.arg(archive).args(more))
        };
        let out = directory.path().join(format!("{}.out", archive.display()));
        for outcome in [on("verify", None), on("sum", None), on("extract", Some(&out))] {
            assert_eq!(outcome.code, 9, "{}", outcome.stderr);
            for says in ["wrong password", "2 "] {
                assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
            }
            assert!(!outcome.stderr.contains("damaged"), "{}", outcome.stderr);
        }
        let info = on("info", None).ok().text();
        assert!(info.contains("encrypted:  2 files") && info.contains("wrong password"), "{info}");
        assert!(info.contains("sizes:      7 B to 87.89 KiB"), "as a mount shows them: {info}");
    }
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::new(transport, archive, &[&option, "allow_damaged"]);
            clear_alone_is_served(&mount);
            assert!(mount.log().contains("wrong password"), "{}", mount.log());
            assert!(mount.bad().iter().all(|row| row[1] == "encrypted"), "{:?}", mount.bad());
            nobody_sees("wrong horse", &mount);
        }
    });
}

#[test]
fn a_password_that_cannot_be_read_is_refused_before_anything_is_mounted() {
    let (directory, archives) = archives();
    let missing = format!("password_file={}", directory.path().join("missing").display());
    assert_eq!(super::refused(&archives[0], &[&missing]).code, 2);
    let empty = password_file(&directory, "");
    let outcome = super::refused(&archives[0], &[&empty]);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("empty"), "{}", outcome.stderr);
}

#[test]
fn cat_and_verify_take_the_password_too() {
    let (directory, archives) = archives();
    password_file(&directory, PASSWORD);
    let password = directory.path().join("password");
    for archive in &archives {
        let args = |command: &str| -> Outcome {
            let mut ffrfs = Command::new(crate::common::FFRFS);
            ffrfs.arg(command).arg("--password-file").arg(&password).arg(archive);
            run(ffrfs.args((command == "cat").then_some(OsStr::new("sub/secret"))))
        };
        assert!(args("cat").ok().stdout == noise(1, 90_000));
        args("verify").ok();
    }
}

/// More bytes than are decoded at once with this little memory.
const LARGE_BYTES: usize = 12 << 20;
const LITTLE: &str = "memory=64M";

/// Archives with large encrypted members: `stored` and `text`.
fn large() -> (TempDir, Vec<PathBuf>, [Vec<u8>; 2]) {
    let directory = temp_dir();
    let data = [noise(7, LARGE_BYTES), write::text(8, LARGE_BYTES)];
    let [noise, text] = &data;
    let members = [aes(stored("stored", noise)), aes(write::deflated("text", text))];
    let mut all = vec![file_in(&directory, "aes.zip", write::zip(&members))];
    if have(Need::Program("zip")) {
        fs::write(directory.path().join("stored"), noise).unwrap();
        fs::write(directory.path().join("text"), text).unwrap();
        let pack = ["-q", "-1", "-n", "stored", "-P", PASSWORD, "zipcrypto.zip", "stored", "text"];
        run_in(directory.path(), "zip", &pack);
        all.push(directory.path().join("zipcrypto.zip"));
    }
    (directory, all, data)
}

#[test]
fn large_encrypted_members_are_read_in_the_middle_with_little_memory_and_nothing_of_them_is_kept() {
    let (directory, archives, [noise, text]) = large();
    let option = password_file(&directory, PASSWORD);
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::new(transport, archive, &[&option, LITTLE]);
            for (name, data) in [("stored", &noise), ("text", &text)] {
                let file = fs::File::open(mount.path(name)).unwrap();
                let mut bytes = [0; 4096];
                for at in [LARGE_BYTES - 5000, 1_234_567, LARGE_BYTES / 2] {
                    file.read_exact_at(&mut bytes, at as u64).unwrap();
                    assert!(bytes == data[at..at + 4096], "{name} {at}");
                }
                assert!(&mount.read(name).unwrap() == data, "{name}");
            }
            assert_eq!(mount.bad(), Vec::<Vec<String>>::new());
            unmount_soon(mount.point());
            mount.wait_for_end();
            let index = format!("{}.ffrfs-index", archive.display());
            assert!(!Path::new(&index).exists(), "checkpoints hold what was decrypted");
        }
    });
}

#[test]
fn no_spool_writes_what_is_encrypted_to_disk() {
    let (directory, spool) = (temp_dir(), temp_dir());
    let data = vec![0; 66 << 20];
    let frame = zstd::bulk::compress(&data, 1).unwrap();
    let frame = write::Member { method: 93, stored: frame, ..stored("large", &data) };
    let archive = file_in(&directory, "x.zip", write::zip(&[aes(frame)]));
    let options =
        [password_file(&directory, PASSWORD), format!("spool={}", spool.path().display())];
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &options.each_ref().map(String::as_str));
        assert_errno(mount.read("large"), libc::EIO);
        assert!(mount.log().contains("encrypted"), "{}", mount.log());
    });
}

#[test]
fn a_large_encrypted_member_with_a_wrong_byte_gives_no_byte_at_all() {
    let (directory, archives, _) = large();
    let option = password_file(&directory, PASSWORD);
    for archive in &archives {
        // A byte in the data of `stored`, which comes first.
        flip_byte(archive, (LARGE_BYTES / 2) as u64);
    }
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::new(transport, archive, &[&option, LITTLE]);
            let file = fs::File::open(mount.path("stored")).unwrap();
            assert_errno(file.read_at(&mut [0; 100], 0), libc::EIO);
            assert_errno(file.read_at(&mut [0; 100], LARGE_BYTES as u64 - 100), libc::EIO);
            assert_eq!(mount.bad().len(), 1);
        }
    });
}

/// An archive that Info-ZIP's program encrypts, with its traditional cipher.
fn by_zip(files: &[&str]) -> Option<(TempDir, PathBuf)> {
    if !have(Need::Program("zip")) {
        return None;
    }
    let directory = temp_dir();
    for file in files {
        fs::write(directory.path().join(file), noise(file.len() as u64, 5000)).unwrap();
    }
    let mut zip = Command::new("zip");
    zip.current_dir(directory.path()).args(["-q", "-P", "secret", "x.zip"]).args(files);
    run(&mut zip).ok();
    let archive = directory.path().join("x.zip");
    Some((directory, archive))
}

/// Runs a command on an archive with a password in a file.
fn with_password(directory: &TempDir, args: &[&OsStr], password: &str) -> Outcome {
    let file = directory.path().join("password");
    fs::write(&file, password).unwrap();
    run(Command::new(FFRFS).args(args).arg("--password-file").arg(file))
}

#[test]
fn no_wrong_password_gets_through_the_one_byte_that_the_traditional_cipher_checks() {
    for files in [&["one"][..], &["one", "three", "seventeen"]] {
        let Some((directory, archive)) = by_zip(files) else { return };
        let ls = [OsStr::new("ls"), archive.as_os_str()];
        assert_eq!(
            with_password(&directory, &ls, "secret").ok().text().lines().count(),
            files.len()
        );
        // One of 256 passwords passes the check of one byte: of this many, some do.
        let options = |password: &[u8]| OpenOptions {
            password: Some(Secret::new(password)),
            ..OpenOptions::default()
        };
        for number in 0..2000 {
            let password = format!("wrong{number}");
            let source = ffrfs::io::File::open(&archive).unwrap();
            let opened = ffrfs::format::open(Arc::new(source), &options(password.as_bytes()));
            assert!(matches!(opened.err(), Some(Error::WrongPassword { .. })), "{password}");
        }
    }
}

#[test]
fn a_wrong_password_and_none_have_an_exit_code_of_their_own_and_are_never_called_damage() {
    let Some((directory, archive)) = by_zip(&["one", "three"]) else { return };
    let out = directory.path().join("out");
    let extract = [OsStr::new("extract"), archive.as_os_str(), out.as_os_str()];
    for command in ["ls", "info", "verify"] {
        let outcome = with_password(&directory, &[command.as_ref(), archive.as_os_str()], "wrong");
        assert_eq!(outcome.code, 9, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("wrong password"), "{}", outcome.stderr);
    }
    let on = |command: &str| run(Command::new(FFRFS).arg(command).arg(&archive));
    let info = on("info").ok().text();
    assert!(info.contains("encrypted:  2 files; give --password-file"), "{info}");
    let bytes = info.lines().find_map(|line| line.strip_prefix("files:      2 ("));
    let bytes = bytes.and_then(|rest| rest.strip_suffix(" in all)")).unwrap();
    assert!(info.lines().next().unwrap().contains(&format!("2 files, {bytes}, ")), "{info}");
    assert!(info.contains("2 files are encrypted, and checked only when decrypted"), "{info}");
    assert_eq!(info.matches("are checked by what the container has").count(), 0, "{info}");
    assert!(!info.contains("damaged") && !info.contains("not whole"), "{info}");
    let verify = on("verify");
    assert_eq!(verify.code, 9, "{}", verify.stderr);
    for part in ["0 samples checked", "0 bad", "2 samples are encrypted: give --password-file"] {
        assert!(verify.stderr.contains(part), "{part}: {}", verify.stderr);
    }
    let extracted = run(Command::new(FFRFS).args(extract));
    assert_eq!(extracted.code, 9, "{}", extracted.stderr);
    assert!(extracted.stderr.contains("2 files are encrypted"), "{}", extracted.stderr);
    assert!(!extracted.stderr.contains("damaged"), "{}", extracted.stderr);
    let sum = on("sum");
    assert_eq!((sum.code, sum.text()), (9, String::new()), "{}", sum.stderr);
    let said = "ffrfs: 2 samples are encrypted: give --password-file";
    assert!(sum.stderr.contains(said) && !sum.stderr.contains("bad"), "{}", sum.stderr);
    let list = file_in(&directory, "list", format!("{}  one\n", "0".repeat(64)));
    let check = run(Command::new(FFRFS).args(["sum", "--check"]).arg(list).arg(&archive));
    assert_eq!((check.code, check.text()), (9, "one: FAILED: encrypted\n".to_owned()));
    let cat = run(Command::new(FFRFS).arg("cat").arg(&archive).arg("one"));
    assert!(cat.code == 9 && cat.stderr.contains("give --password-file"), "{}", cat.stderr);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        assert_errno(mount.read("one"), libc::EIO);
        let bad = mount.bad();
        assert_eq!((bad[0][0].as_str(), bad[0][1].as_str()), ("one", "encrypted"));
    });
}

#[test]
fn encrypted_samples_have_checksums_of_their_own_and_need_no_sidecar() {
    let directory = temp_dir();
    let secret = aes(stored("secret", noise(1, 900)));
    let archive = file_in(&directory, "aes.zip", write::zip(&[stored("clear", "for all"), secret]));
    let outcome = run(Command::new(FFRFS).args(["sum", "--sidecar"]).arg(&archive)).ok();
    let said = "aes.zip: every sample has a checksum already";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    assert!(!directory.path().join("aes.zip.ffrsum").exists());
}

#[test]
fn nothing_is_kept_of_a_nested_container_with_encrypted_members() {
    let directory = temp_dir();
    let inner = write::zip(&[aes(stored("secret", noise(1, 9000))), stored("clear", "clear")]);
    let outer = file_in(&directory, "outer.zip", write::zip(&[write::deflated("in.zip", &inner)]));
    let option = password_file(&directory, PASSWORD);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &outer, &["nested=1"]);
        assert_errno(mount.read("in.zip/secret"), libc::EIO);
        assert_eq!(mount.read("in.zip/clear").unwrap(), b"clear");
        mount.unmount();
        let mount = Mount::new(transport, &outer, &["nested=1", &option]);
        assert!(mount.read("in.zip/secret").unwrap() == noise(1, 9000));
        mount.unmount();
        assert!(!directory.path().join("outer.zip.nested.ffrfs-index").exists());
    });
}
