//! Confines all threads that run. Landlock and capabilities belong to a thread; the kernel can set them for a whole process
//! only in part, and only in newer versions. So each thread is sent a signal, in whose handler it confines itself, as the C
//! library does it for setuid(2).

use super::errno::errno;
use super::rights;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(20);

/// The outcome of each part, with the first error of any thread.
pub(super) struct Confined {
    pub(super) files: io::Result<()>,
    pub(super) capabilities: io::Result<()>,
    pub(super) privileges: io::Result<()>,
}

/// The orders for the handler: a descriptor of rules or -1, and the capabilities to keep.
static RULESET: AtomicI32 = AtomicI32::new(-1);
static KEPT: AtomicU64 = AtomicU64::new(0);
/// The first error of any thread in each part.
static FILES: AtomicI32 = AtomicI32::new(0);
static CAPABILITIES: AtomicI32 = AtomicI32::new(0);
static PRIVILEGES: AtomicI32 = AtomicI32::new(0);
/// The thread that has answered last.
static ANSWERED: AtomicI32 = AtomicI32::new(0);
/// Held while threads are confined: one call at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Confines all threads of this process: those that run, and by inheritance those that they start.
pub(super) fn confine_all(ruleset: Option<&OwnedFd>, kept: u64) -> Confined {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    RULESET.store(ruleset.map_or(-1, AsRawFd::as_raw_fd), Ordering::SeqCst);
    KEPT.store(kept, Ordering::SeqCst);
    for error in [&FILES, &CAPABILITIES, &PRIVILEGES] {
        error.store(0, Ordering::SeqCst);
    }
    let others = confine_others();
    confine_this();
    // A thread that handles the signal late does no harm: these rules are closed now.
    RULESET.store(-1, Ordering::SeqCst);
    let result = |error: &AtomicI32| match (error.load(Ordering::SeqCst), &others) {
        (0, Ok(())) => Ok(()),
        (0, Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
        (error, _) => Err(io::Error::from_raw_os_error(error)),
    };
    Confined {
        files: result(&FILES),
        capabilities: result(&CAPABILITIES),
        privileges: result(&PRIVILEGES),
    }
}

/// Confines the calling thread. Runs in a signal handler: it makes system calls, and takes no lock and no memory.
fn confine_this() {
    // SAFETY: the call sets a flag of the thread, and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        PRIVILEGES.store(errno(), Ordering::SeqCst);
    }
    let ruleset = RULESET.load(Ordering::SeqCst);
    // SAFETY: the call touches no memory. The owner of the descriptor waits for this thread's answer; if it has given up, the
    // number may be that of another file, which is no ruleset and gives an error.
    if ruleset >= 0 && unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) } != 0 {
        FILES.store(errno(), Ordering::SeqCst);
    }
    if let Err(error) = rights::drop_all_but(KEPT.load(Ordering::SeqCst)) {
        CAPABILITIES.store(error, Ordering::SeqCst);
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: the pointer is to a variable of this thread. The interrupted code may be about to read it.
    let saved = unsafe { *libc::__errno_location() };
    confine_this();
    ANSWERED.store(this_thread(), Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = saved };
}

/// A real-time signal that no other code uses: the C library has the first ones.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 2
}

fn confine_others() -> io::Result<()> {
    // SAFETY: all bits 0 are a valid `sigaction`, without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // System calls that the signal interrupts are restarted, as far as the kernel can.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler makes only system calls and uses atomic variables; it lasts as long as the process, and stays the
    // handler of the signal, so that a late signal is handled, too.
    if unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut confined = HashSet::from([this_thread()]);
    // Until no thread is found that was started meanwhile by a thread that was not confined yet.
    loop {
        let found: Vec<_> = running()?.filter(|thread| !confined.contains(thread)).collect();
        if found.is_empty() {
            return Ok(());
        }
        for thread in found {
            if !is_of_the_kernel(thread) {
                confine(thread)?;
            }
            confined.insert(thread);
        }
    }
}

/// Has another thread confine itself, unless it has ended.
fn confine(thread: i32) -> io::Result<()> {
    ANSWERED.store(0, Ordering::SeqCst);
    let (start, mut is_sent) = (Instant::now(), false);
    while ANSWERED.load(Ordering::SeqCst) != thread {
        match send(thread, if is_sent { 0 } else { signal() }) {
            Ok(()) => is_sent = true,
            Err(libc::ESRCH) => return Ok(()),
            // Too many signals of this user wait to be delivered.
            Err(libc::EAGAIN) => {}
            Err(error) => return Err(io::Error::from_raw_os_error(error)),
        }
        if start.elapsed() > PATIENCE {
            let why = format!("thread {thread} does not answer");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Sends a signal, or 0 to see whether the thread runs. ESRCH if the thread has ended.
fn send(thread: i32, signal: libc::c_int) -> Result<(), i32> {
    let process = nix::unistd::getpid().as_raw();
    // SAFETY: the call sends a signal that has a handler, or no signal (0), to a thread of this process.
    match unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

fn running() -> io::Result<impl Iterator<Item = i32>> {
    let tasks = std::fs::read_dir("/proc/self/task")?.flatten();
    Ok(tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()))
}

/// Threads that the kernel has made for a ring take no signals. They handle requests with the rights of the thread that makes
/// them.
fn is_of_the_kernel(thread: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    name.is_ok_and(|name| name.starts_with("iou-"))
}

fn this_thread() -> i32 {
    nix::unistd::gettid().as_raw()
}
