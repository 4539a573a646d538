//! Both transports over a part whose store answers late, out of order, short, or not at all.

use super::{MountOptions, Mounted, ServeError, Target, Transport};
use crate::catalog::{Dataset, Numbered, Suffix};
use crate::format::OpenOptions;
use crate::format::ffrecord::Writer;
use crate::io::mount::mounts;
use crate::io::testing::skip;
use crate::store::Store;
use crate::store::testing::{Faraway, Fate, LONG_PATIENCE};
use crate::vfs::{Options, Verify, Vfs};
use std::fs;
use std::io::Cursor;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SAMPLES: usize = 40;
const SAMPLE_BYTES: usize = 100_000;
/// The patience in a test that waits for the deadline.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a silent request waits if the clock must not decide whether other answers arrive.
const SILENCE: Duration = Duration::from_millis(100);

fn content(sample: usize) -> Vec<u8> {
    (0..SAMPLE_BYTES).map(|at| (at * 7 + at / 251 + sample * 13) as u8).collect()
}

/// Every kind of bad sample among good ones.
fn fate_of(sample: usize) -> Fate {
    match sample {
        sample if sample % 8 == 5 => Fate::Silent,
        9 => Fate::Short,
        14 => Fate::Refused,
        20 => Fate::Dropped,
        sample if sample % 6 == 4 => Fate::Unkept,
        sample if sample % 3 == 0 => Fate::Late,
        sample if sample % 7 == 1 => Fate::Flaky,
        _ => Fate::Prompt,
    }
}

/// A mount in this process; it is unmounted when this value is dropped.
struct Mount {
    directory: tempfile::TempDir,
    serving: Option<JoinHandle<Result<(), ServeError>>>,
    store: Arc<Faraway>,
    /// A process that unmounts if this process is killed.
    guard: Child,
}

/// A process in a group of its own that unmounts `directory` when this process ends, however it does.
fn guard(directory: &Path) -> Child {
    let script = r#"read _; umount -l "$1" || fusermount3 -u -z "$1"; rmdir "$1""#;
    let mut guard = Command::new("sh");
    guard.args(["-c", script, "sh"]).arg(directory).process_group(0);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Mount {
    /// Mounts the part; `None` if the host does not have this transport.
    fn new(transport: Transport, patience: Duration) -> Option<Self> {
        if transport == Transport::Uring && super::uring_support(16 << 20, 1).is_err() {
            skip("the host has no FUSE over io_uring");
            return None;
        }
        let mut writer = Writer::new(Cursor::new(Vec::new()), SAMPLES as u64).unwrap();
        for sample in 0..SAMPLES {
            writer.write_sample(&mut &content(sample)[..]).unwrap();
        }
        let bytes = writer.finish().unwrap().into_inner();
        let memory = crate::format::MemorySource::new("t.ffr", bytes.clone());
        let located = crate::format::open(Arc::new(memory), &OpenOptions::default()).unwrap();
        let fates: Vec<_> = (0..SAMPLES)
            .map(|sample| (located.sample(sample as u64).unwrap().extent(), fate_of(sample)))
            .collect();
        let (part, store) = Faraway::part(patience, bytes, &fates);
        // The container is the one in memory: on a busy machine a short patience may be over before another is open.
        let dataset = Dataset::new(vec![located]);
        let names = Numbered::new(dataset.len(), None, Suffix::Fixed(String::new()));
        let options = Options { verify: Verify::Always, concurrency: 4, ..Options::default() };
        let vfs =
            Arc::new(Vfs::new(dataset, names.into(), Store::new(vec![Arc::new(part)]), options));
        let directory = tempfile::tempdir().unwrap();
        let target = Target::Directory(directory.path().to_owned());
        let options = MountOptions {
            xattrs: true,
            source: "seam".to_owned(),
            read_only: true,
            transport,
            request_bytes: 16 << 20,
            threads: 2,
            workers: 2,
            ..MountOptions::default()
        };
        let guard = guard(directory.path());
        let mounted = Mounted::new(vfs, &target, options).unwrap();
        let serving = Some(thread::spawn(move || mounted.serve()));
        Some(Self { directory, serving, store, guard })
    }

    fn path(&self, sample: usize) -> PathBuf {
        self.directory.path().join(format!("{sample:06}"))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.store.give_up();
        let _ = mounts::unmount(self.directory.path(), true);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

fn check(path: &Path, sample: usize) {
    match (fs::read(path), fate_of(sample).is_good()) {
        (Ok(bytes), true) => assert!(bytes == content(sample), "sample {sample}: wrong bytes"),
        (Err(error), false) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{sample}"),
        (found, _) => {
            let found = found.map(|bytes| bytes.len());
            let bad = fs::read_to_string(path.with_file_name(".ffrfs/bad"));
            panic!("sample {sample}, {:?}: {found:?}: {bad:?}", fate_of(sample))
        }
    }
}

/// Runs `work`, and ends the silent requests of `store` again and again meanwhile.
fn with_silence_ending(store: &Faraway, work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            thread::sleep(SILENCE);
            store.drop_unanswered();
        }
    });
}

fn every_sample_is_right_or_eio(transport: Transport) {
    let Some(mount) = Mount::new(transport, LONG_PATIENCE) else { return };
    let mount = &mount;
    with_silence_ending(&mount.store, || {
        thread::scope(|scope| {
            for first in 0..4 {
                scope.spawn(move || {
                    for sample in (first..SAMPLES).step_by(4) {
                        check(&mount.path(sample), sample);
                    }
                });
            }
        });
        // Evicted bytes come again; no zeros of the cache file are shown.
        mount.store.evict();
        let demands = mount.store.demands();
        for sample in (SAMPLES / 2..SAMPLES).rev().filter(|s| fate_of(*s) != Fate::Silent) {
            check(&mount.path(sample), sample);
        }
        assert!(mount.store.demands() >= demands);
    });
}

fn a_read_without_an_answer_fails_at_the_deadline(transport: Transport) {
    let Some(mount) = Mount::new(transport, SHORT_PATIENCE) else { return };
    let silent = (0..SAMPLES).find(|sample| fate_of(*sample) == Fate::Silent).unwrap();
    check(&mount.path(silent), silent);
}

fn a_store_that_hangs_keeps_nobody_else_waiting(transport: Transport) {
    let Some(mount) = Mount::new(transport, LONG_PATIENCE) else { return };
    // More readers than there are threads and workers to serve them.
    let silent = (0..SAMPLES).filter(|sample| fate_of(*sample) == Fate::Silent);
    let stuck: Vec<_> = silent
        .map(|sample| {
            let path = mount.path(sample);
            thread::spawn(move || fs::read(path).unwrap_err().raw_os_error())
        })
        .collect();
    assert!(stuck.len() > 4);
    thread::sleep(Duration::from_millis(50));
    for sample in (10..SAMPLES).filter(|sample| fate_of(*sample).is_good()).take(10) {
        check(&mount.path(sample), sample);
    }
    assert!(stuck.iter().all(|reader| !reader.is_finished()), "they wait still");
    mount.store.give_up();
    for reader in stuck {
        assert_eq!(reader.join().unwrap(), Some(libc::EIO));
    }
}

/// A program's read goes through the page cache: it waits for a page there, and a signal that kills the program ends the wait.
fn a_killed_program_goes_away_while_the_store_hangs(transport: Transport) {
    let Some(mount) = Mount::new(transport, LONG_PATIENCE) else { return };
    let silent = (0..SAMPLES).find(|sample| fate_of(*sample) == Fate::Silent).unwrap();
    let path = mount.path(silent);
    let mut program = Command::new("cat").arg(path).stdout(Stdio::null()).spawn().unwrap();
    while mount.store.unanswered() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    program.kill().unwrap();
    assert_eq!(program.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(mount.store.unanswered() > 0, "the store hangs still");
}

/// With `O_DIRECT` the kernel waits for the answer in any case, and does not tell the daemon of the signal.
fn a_killed_program_that_reads_directly_goes_away_while_the_store_hangs(transport: Transport) {
    let mut times = Vec::new();
    // Other processes may use the CPUs: the best of several times counts, and of more if all are long.
    for _ in 0..4 {
        let Some(mount) = Mount::new(transport, LONG_PATIENCE) else { return };
        times.extend(times_to_go_away(&mount));
        if times.iter().min() < Some(&Duration::from_secs(1)) {
            return;
        }
    }
    panic!("{times:?}");
}

/// How long programs live on after they are killed while they read silent samples directly.
fn times_to_go_away(mount: &Mount) -> Vec<Duration> {
    let silent = (0..SAMPLES).filter(|sample| fate_of(*sample) == Fate::Silent);
    let mut times = Vec::new();
    for (number, sample) in silent.enumerate() {
        let input = format!("if={}", mount.path(sample).display());
        let arguments = [&input, "of=/dev/null", "bs=64K", "iflag=direct"];
        let mut program = Command::new("dd").args(arguments).stderr(Stdio::null()).spawn().unwrap();
        while mount.store.unanswered() <= number {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(SILENCE);
        assert!(program.try_wait().unwrap().is_none(), "it waits");
        let killed = Instant::now();
        program.kill().unwrap();
        assert_eq!(program.wait().unwrap().signal(), Some(libc::SIGKILL));
        times.push(killed.elapsed());
    }
    assert!(mount.store.unanswered() > 0, "the store hangs still");
    times
}

#[test]
fn a_killed_program_that_reads_directly_goes_away_while_the_store_hangs_through_dev_fuse() {
    a_killed_program_that_reads_directly_goes_away_while_the_store_hangs(Transport::DevFuse);
}

#[test]
fn a_killed_program_that_reads_directly_goes_away_while_the_store_hangs_through_io_uring() {
    a_killed_program_that_reads_directly_goes_away_while_the_store_hangs(Transport::Uring);
}

#[test]
fn a_killed_program_goes_away_while_the_store_hangs_through_dev_fuse() {
    a_killed_program_goes_away_while_the_store_hangs(Transport::DevFuse);
}

#[test]
fn a_killed_program_goes_away_while_the_store_hangs_through_io_uring() {
    a_killed_program_goes_away_while_the_store_hangs(Transport::Uring);
}

#[test]
fn samples_of_an_unreliable_store_are_right_or_eio_through_dev_fuse() {
    every_sample_is_right_or_eio(Transport::DevFuse);
}

#[test]
fn samples_of_an_unreliable_store_are_right_or_eio_through_io_uring() {
    every_sample_is_right_or_eio(Transport::Uring);
}

#[test]
fn a_store_that_hangs_keeps_nobody_else_waiting_through_dev_fuse() {
    a_store_that_hangs_keeps_nobody_else_waiting(Transport::DevFuse);
}

#[test]
fn a_store_that_hangs_keeps_nobody_else_waiting_through_io_uring() {
    a_store_that_hangs_keeps_nobody_else_waiting(Transport::Uring);
}

#[test]
fn a_read_without_an_answer_fails_at_the_deadline_through_dev_fuse() {
    a_read_without_an_answer_fails_at_the_deadline(Transport::DevFuse);
}

#[test]
fn a_read_without_an_answer_fails_at_the_deadline_through_io_uring() {
    a_read_without_an_answer_fails_at_the_deadline(Transport::Uring);
}
