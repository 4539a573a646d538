//! Helpers that all tests share: containers, mounts that unmount themselves, skipping.
#![allow(dead_code, reason = "not every test module needs everything")]

mod disk;
mod guard;
mod loose;
mod mount;
mod namespace;
mod need;
mod pages;
#[cfg(feature = "remote")]
mod servers;
mod source;
#[path = "../store/mod.rs"]
mod store;

pub(crate) use disk::*;
pub(crate) use loose::*;
pub(crate) use mount::*;
pub(crate) use namespace::*;
pub(crate) use need::*;
pub(crate) use pages::*;
#[cfg(feature = "remote")]
pub(crate) use servers::*;
pub(crate) use source::*;
pub(crate) use store::{Fault, Rule, Store};
pub(crate) use tempfile::TempDir;

use ffrfs::format::ffrecord::Writer;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) const FFRFS: &str = env!("CARGO_BIN_EXE_ffrfs");

/// The transports that can carry requests. Every test that mounts runs with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// /dev/fuse.
    DevFuse,
    /// FUSE-over-io_uring; only where the host has switched it on.
    Uring,
}

impl Transport {
    const ALL: &[Transport] = &[Transport::DevFuse, Transport::Uring];

    /// The mount option that chooses the transport.
    pub(crate) fn option(self) -> Option<&'static str> {
        match self {
            Transport::DevFuse => Some("transport=devfuse"),
            Transport::Uring => Some("transport=uring"),
        }
    }

    fn can_run(self) -> bool {
        match self {
            Transport::DevFuse => have(Need::Fuse),
            Transport::Uring => ffrfs::io::ring::is_enabled().unwrap_or(false) && have(Need::Fuse),
        }
    }
}

/// Runs a test that mounts, once for each transport that this machine has.
pub(crate) fn for_each_transport(test: impl Fn(Transport)) {
    for &transport in Transport::ALL {
        if transport.can_run() {
            test(transport);
        }
    }
}

// ---- containers ----------------------------------------------------------------------------------

/// A temporary directory, removed with the value; if the test is killed, its mounts are unmounted and it is removed, too.
pub(crate) fn temp_dir() -> TempDir {
    let directory = tempfile::Builder::new().prefix("ffrfs-test-").tempdir();
    guard::guarded(directory.expect("a temporary directory"))
}

/// As [`temp_dir`], in memory if possible: a cache of objects leaves a part of its file system free, which a disk for
/// builds may not have.
pub(crate) fn temp_dir_in_memory() -> TempDir {
    let memory = tempfile::Builder::new().prefix("ffrfs-test-").tempdir_in("/dev/shm");
    memory.map_or_else(|_| temp_dir(), guard::guarded)
}

/// The path of a file in tests/fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Bytes that look random, the same for the same `seed`.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// `count` samples of differing sizes of up to `max_bytes` bytes.
pub(crate) fn samples(count: usize, max_bytes: usize) -> Vec<Vec<u8>> {
    let size = |i: usize| (i * 7919 + 13) % (max_bytes + 1);
    (0..count).map(|i| noise(i as u64, size(i))).collect()
}

/// Writes a container.
pub(crate) fn write_container(path: &Path, samples: &[impl AsRef<[u8]>]) {
    let file = BufWriter::new(File::create(path).expect("create a container"));
    let mut writer = Writer::new(file, samples.len() as u64).expect("begin a container");
    for sample in samples {
        writer.write_sample(&mut sample.as_ref()).expect("write a sample");
    }
    writer.finish().expect("finish a container");
}

/// Writes a container called `data.ffr` into `directory`.
pub(crate) fn container_in(directory: &TempDir, samples: &[impl AsRef<[u8]>]) -> PathBuf {
    let path = directory.path().join("data.ffr");
    write_container(&path, samples);
    path
}

/// The offset of each sample in a container of these samples, and the end of the last one.
pub(crate) fn offsets(samples: &[impl AsRef<[u8]>]) -> Vec<u64> {
    let mut next = ffrfs::format::ffrecord::header_bytes(samples.len() as u64);
    let mut offsets = vec![next];
    for sample in samples {
        next += sample.as_ref().len() as u64;
        offsets.push(next);
    }
    offsets
}

/// Panics unless a call failed with this errno.
#[track_caller]
pub(crate) fn assert_errno<T: std::fmt::Debug>(result: io::Result<T>, errno: i32) {
    let error = result.expect_err("it must fail");
    assert_eq!(error.raw_os_error(), Some(errno), "{error}");
}

/// The most memory that a process ever had, in bytes; without the pages of its program, which all mounts share: an
/// unoptimised program has twenty megabytes of them.
pub(crate) fn peak_memory_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let figure = |name| {
        let text = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        text.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    figure("VmHWM:") - figure("RssFile:")
}

/// Makes the kernel forget the pages of a file, so that the next read asks again.
pub(crate) fn drop_cached(file: &File) {
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("fadvise");
}

/// Changes one byte of a file in place, and leaves its modification time as it was.
pub(crate) fn flip_byte(path: &Path, offset: u64) {
    use std::os::unix::fs::FileExt;
    let file = File::options().read(true).write(true).open(path).expect("open a container");
    let modified = file.metadata().and_then(|m| m.modified()).expect("its modification time");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read the byte");
    file.write_all_at(&[byte[0] ^ 0x55], offset).expect("write the byte");
    file.set_modified(modified).expect("set the modification time");
}

// ---- programs ------------------------------------------------------------------------------------

/// No arguments.
pub(crate) const NOTHING: &[&str] = &[];

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code; 128 + the signal that killed it.
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Panics unless the program succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "it failed: {}", self.stderr);
        self
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let signal = || output.status.signal().map_or(-1, |signal| 128 + signal);
        Self {
            code: output.status.code().unwrap_or_else(signal),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            stdout: output.stdout,
        }
    }
}

/// Runs a program to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|e| panic!("{command:?} does not start: {e}")).into()
}

/// Runs `ffrfs` with these arguments.
#[track_caller]
pub(crate) fn ffrfs(args: &[impl AsRef<OsStr>]) -> Outcome {
    run(Command::new(FFRFS).args(args))
}

/// Runs Python code with `sys.argv[1:]`.
#[track_caller]
pub(crate) fn python(code: &str, args: &[impl AsRef<OsStr>]) -> Outcome {
    run(Command::new("python3").arg("-c").arg(code).args(args))
}

/// Waits until `what` holds. The last look comes after the limit: this process, too, may have waited for a CPU meanwhile.
#[track_caller]
pub(crate) fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        let is_last = start.elapsed() >= limit;
        if holds() {
            return;
        }
        assert!(!is_last, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Tries up to five times: an attempt that the machine has spoiled, as it gave no CPU for too long, returns the words that
/// show this. An attempt that has failed for another reason panics.
#[track_caller]
pub(crate) fn up_to_five_times<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut spoiled = Vec::new();
    while spoiled.len() < 5 {
        match attempt() {
            Ok(done) => return done,
            Err(shown) => spoiled.push(shown),
        }
    }
    panic!("all attempts were spoiled:\n{}", spoiled.join("\n"))
}

/// Waits until a program has ended; returns its exit code, and its stderr.
pub(crate) fn wait_for_end(child: &mut Child, limit: Duration) -> (i32, String) {
    let mut status = None;
    wait_until("it ends", limit, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (status.and_then(|status| status.code()).unwrap_or(-1), stderr)
}

/// Whether a process runs (a process that has ended without being waited for does not).
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The process that has started another one.
pub(crate) fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Whether a process has a handler for Ctrl-C.
pub(crate) fn catches_sigint(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    caught.is_some_and(|bits| bits & 1 << (libc::SIGINT - 1) != 0)
}
