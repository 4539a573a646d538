//! The program itself, with limited memory and time, on the containers that `super` tries in this process.

use super::super::common::{
    FFRFS, Mount, Outcome, TempDir, Transport, assert_errno, clean_up, for_each_transport,
    mount_command, run, temp_dir,
};
use super::{Files, Model, pack, raw, small};
use ffrfs::format::ffrecord::PACKED_DIRECTORY_MAGIC;
use ffrfs::vfs::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `ffrfs` with 512 MiB of address space, and 20 seconds of a CPU; a busy machine takes long to give them.
fn tame(args: &[&str], source: &Path) -> Outcome {
    let script = "ulimit -v 524288 && ulimit -t 20 && exec timeout -s KILL 300 \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    run(shell.args(["-c", script, FFRFS]).args(args).arg(source))
}

/// Checks that a program ended in one of the ways that are documented for bad containers.
#[track_caller]
fn assert_civil(outcome: &Outcome, what: &str) {
    let is_known = matches!(outcome.code, 0 | 2 | 3 | 4);
    assert!(is_known, "{what}: exit code {}: {}", outcome.code, outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{what}: {}", outcome.stderr);
    if outcome.code != 0 && outcome.stdout.is_empty() {
        assert!(outcome.stderr.starts_with("ffrfs: "), "{what}: {}", outcome.stderr);
    }
}

/// Runs all commands that only read, with and without damage allowed.
fn try_commands(source: &Path, what: &str) {
    for args in [&["info"][..], &["info", "--json"], &["ls", "-lR"], &["verify", "-j2"]] {
        for damaged in [&[][..], &["--allow-damaged"]] {
            let args = [args, damaged].concat();
            assert_civil(&tame(&args, source), &format!("{what}: {args:?}"));
        }
    }
}

/// A mount that may be refused; unmounted when it is dropped.
struct Attempt {
    directory: TempDir,
    outcome: Outcome,
    pid: i32,
}

impl Attempt {
    fn new(transport: Transport, source: &Path, options: &[&str]) -> Self {
        let directory = temp_dir();
        let outcome = run(&mut mount_command(transport, &[source], directory.path(), options));
        let mut attempt = Self { directory, outcome, pid: 0 };
        if attempt.outcome.code == 0 {
            let info = fs::read(attempt.directory.path().join(".ffrfs/info.json")).unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
            attempt.pid = info["pid"].as_i64().unwrap() as i32;
        }
        attempt
    }

    fn files(&self) -> Files {
        let mut files = Files::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(below) = pending.pop() {
            for entry in fs::read_dir(self.directory.path().join(&below)).unwrap() {
                let entry = entry.unwrap();
                let path = below.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    pending.push(path);
                } else {
                    let bytes = fs::read(entry.path());
                    let bytes = bytes.map_err(|e| Errno(e.raw_os_error().unwrap()));
                    files.insert(path.into_os_string().into_string().unwrap(), bytes);
                }
            }
        }
        files
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        clean_up(self.directory.path(), self.pid);
    }
}

/// Damage of every kind: its name, and the damaged file.
fn damages(model: &Model) -> Vec<(String, Vec<u8>)> {
    let file = &model.file;
    let tables = 12 + 12 * 5;
    let mut damages: Vec<_> = [0, 4, 12, tables - 3, tables, tables + 7, file.len() - 1]
        .map(|length| (format!("cut at {length}"), file[..length].to_vec()))
        .into();
    // The checksum, the count, checksums, offsets, a sample, the last byte; low and high bits.
    for bit in [3, 33, 38, 95, 100, 257, 261, 320, 383, 450, tables * 8 + 2, file.len() * 8 - 1] {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        damages.push((format!("bit {bit}"), damaged));
    }
    damages
}

#[test]
fn damaged_containers_do_a_mount_no_harm() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = directory.path().join("damaged.ffr");
        let mut mounted = 0;
        for (kind, model) in Model::all().iter().enumerate() {
            // Every damage meets two kinds of containers.
            for (what, bytes) in damages(model).into_iter().skip(kind / 2).step_by(2) {
                fs::write(&source, &bytes).unwrap();
                for options in [&[][..], &["allow_damaged"]] {
                    let attempt = Attempt::new(transport, &source, options);
                    assert_civil(&attempt.outcome, &what);
                    if attempt.outcome.code != 0 {
                        continue;
                    }
                    mounted += 1;
                    let files = attempt.files();
                    let may_miscount = !options.is_empty() && bytes[..4] == [0; 4];
                    model.compare(&files, may_miscount, &what);
                }
            }
        }
        assert!(mounted > 5, "some are mounted: {mounted}");
    });
}

#[test]
fn damaged_containers_do_the_commands_no_harm() {
    let directory = temp_dir();
    let source = directory.path().join("damaged.ffr");
    for (kind, model) in Model::all().iter().enumerate() {
        for (what, bytes) in damages(model).into_iter().skip(kind).step_by(4) {
            fs::write(&source, &bytes).unwrap();
            try_commands(&source, &what);
        }
    }
}

#[test]
fn giant_counts_and_offsets_take_neither_memory_nor_time() {
    let directory = temp_dir();
    let source = directory.path().join("giant.ffr");
    let most = i64::MAX;
    for (count, offsets) in [
        (most, vec![48, 49, 50]),
        (most / 12, vec![48, 49, 50]),
        (1 << 40, vec![48, 49, 50]),
        (i64::MIN, vec![48, 49, 50]),
        (3, vec![48, most - 1, most]),
        (3, vec![most, most, most]),
        (3, vec![48, 49, 1 << 62]),
        (3, vec![48, 1 << 40, 1 << 41]),
    ] {
        for crc in [None, Some(0)] {
            fs::write(&source, raw(crc, count, &[1, 2, 3], &offsets, b"data")).unwrap();
            let what = format!("count {count}, offsets {offsets:?}");
            try_commands(&source, &what);
            let outcome = tame(&["cat", "--allow-damaged", "000002", "-s"], &source);
            assert!(outcome.code != 0 && outcome.stdout.is_empty());
            assert_civil(&outcome, &what);
        }
    }
}

#[test]
fn giant_samples_that_are_not_there_can_be_mounted_and_give_eio() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = directory.path().join("giant.ffr");
        let most = i64::MAX;
        for offsets in [[48, 50, most], [48, most - 1, most], [most, most, most], [48, 50, 1 << 62]]
        {
            let crcs = [crc32fast::hash(b"ab"), 2, 3];
            fs::write(&source, raw(None, 3, &crcs, &offsets, b"ab")).unwrap();
            let mount = Mount::new(transport, &source, &["allow_damaged"]);
            assert_eq!(mount.list("").len(), 3);
            for name in ["000000", "000001", "000002"] {
                let mut bytes = [0; 5];
                let read = File::open(mount.path(name)).unwrap().read_at(&mut bytes, 0);
                if offsets[1] == 50 && name == "000000" {
                    assert_eq!((read.unwrap(), &bytes[..2]), (2, &b"ab"[..]));
                } else {
                    assert_errno(read, nix::libc::EIO);
                }
            }
            assert!(peak_memory(&mount) < 64 << 20);
        }
    });
}

/// The most memory that the daemon ever had, in bytes.
fn peak_memory(mount: &Mount) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mount.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Pickles that would harm a reader that trusts them; `file` is the file that one of them would create.
fn bombs(file: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let touch = format!("(S'touch {}'\ntR.", file.display());
    let repeat = |bytes: &[u8], times: usize, end: &[u8]| [&bytes.repeat(times)[..], end].concat();
    let mut laughs = b"}q\0".to_vec();
    for level in 1..40u8 {
        // Each level holds the level before twice.
        laughs.extend_from_slice(&[b'}', b'q', level, b'(']);
        for name in [b'a', b'b'] {
            laughs.extend_from_slice(&[0x8c, 1, name, b'h', level - 1]);
        }
        laughs.push(b'u');
    }
    laughs.push(b'.');
    let mut wide = [&b"}(\x8c\xff"[..], &[b'n'; 255], b"q\0}"].concat();
    for directory in 0..50_000u32 {
        let name = directory.to_string();
        wide.extend_from_slice(
            &[&[0x8c, name.len() as u8][..], name.as_bytes(), b"}h\0}s"].concat(),
        );
    }
    wide.extend_from_slice(b"u.");
    vec![
        ("system", format!("cos\nsystem\n{touch}").into_bytes()),
        (
            "system, protocol 4",
            [b"\x80\x04\x8c\x05posix\x8c\x06system\x93", touch.as_bytes()].concat(),
        ),
        ("eval", b"c__builtin__\neval\n(S'open(\"x\",\"w\")'\ntR.".to_vec()),
        ("shared directories", laughs),
        ("a directory that holds itself", b"}q\0(\x8c\x01ah\0u.".to_vec()),
        ("repeated long names", wide),
        ("deep directories", repeat(b"}(\x8c\x01a", 100_000, b"}.")),
        ("marks without end", repeat(b"(", 4 << 20, b".")),
        ("values without end", repeat(b"}", 4 << 20, b".")),
        ("memo without end", repeat(b"\x94", 1 << 20, b".")),
        ("a giant string", b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec()),
        ("giant bytes", b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffx.".to_vec()),
        ("a giant frame", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.".to_vec()),
        ("a giant memo place", b"}r\xff\xff\xff\xff(\x8c\x01aK\x09u.".to_vec()),
        ("a giant integer", repeat(b"9", 1 << 20, b"\n.")),
        ("a giant long", b"\x80\x02\x8b\xff\xff\xff\x7f\x01.".to_vec()),
        (
            "a number that is too large",
            b"}(\x8c\x01a\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fu.".to_vec(),
        ),
        ("a way out", b"}(\x8c\x0a../../../xK\0u.".to_vec()),
        ("nothing", Vec::new()),
    ]
}

#[test]
fn pickle_bombs_are_samples_of_a_flat_dataset() {
    let directory = temp_dir();
    let victim = directory.path().join("victim");
    let source = directory.path().join("bomb.ffr");
    let bombs = bombs(&victim);
    for (what, bomb) in &bombs {
        let mut samples = small();
        samples.push([PACKED_DIRECTORY_MAGIC, bomb].concat());
        fs::write(&source, pack(&samples)).unwrap();
        let listed = tame(&["ls"], &source);
        assert_eq!(listed.code, 0, "{what}: {}", listed.stderr);
        let is_tree = listed.text().lines().count() != 6;
        assert!(!is_tree || *what == "repeated long names", "{what}: {}", listed.text());
        assert_eq!(tame(&["verify", "-j1"], &source).code, 0, "{what}");
    }
    for_each_transport(|transport| {
        for (what, bomb) in bombs.iter().step_by(3) {
            let mut samples = small();
            samples.push([PACKED_DIRECTORY_MAGIC, bomb].concat());
            fs::write(&source, pack(&samples)).unwrap();
            let mount = Mount::new(transport, &source, &[]);
            let mut names = mount.list("");
            names.sort();
            let numbers: Vec<_> = (0..6).map(|i| format!("{i:06}")).collect();
            assert_eq!(names, numbers, "{what}");
            assert_eq!(mount.read("000005").unwrap(), samples[5], "{what}");
            let memory = peak_memory(&mount);
            assert!(memory < 96 << 20, "{what}: {memory} bytes");
        }
    });
    assert!(!victim.exists(), "nothing was run");
}
