//! Programs that print credentials, which the user has named. A confined process may start no program: a process that was
//! started before, and stays outside, runs them; it is started again when it dies or hangs. Imports the helper of `io`.

use crate::io::LastingHelper;
use crate::store::remote::clients::answer;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the process outside may take: a moment longer than a program. Then it counts as hung.
const ANSWER: Duration = Duration::from_secs(65);
/// The first byte of an answer of the process outside: the program's output follows, or the reason of a failure.
const PRINTED: u8 = 0;
const FAILED: u8 = 1;

static OUTSIDE: OnceLock<Mutex<LastingHelper>> = OnceLock::new();

/// Starts a process that runs programs for this one, if it is asked for command lines that `is_wanted`. No process can be made
/// once threads are running.
pub(in crate::store::remote) fn start_outside(is_wanted: impl Fn(&str) -> bool) {
    let started = LastingHelper::start(patience(), move |line| {
        let line = String::from_utf8_lossy(line);
        let ran = match is_wanted(&line) {
            true => run_here(&line),
            // The profile's file has changed meanwhile; or a container has taken over the daemon.
            false => Err("it is not the program of the profile".to_owned()),
        };
        match ran {
            Ok(printed) => [&[PRINTED][..], &printed].concat(),
            Err(why) => [&[FAILED][..], why.as_bytes()].concat(),
        }
    });
    match started {
        Ok(Some(helper)) => drop(OUTSIDE.set(Mutex::new(helper))),
        Ok(None) => {}
        Err(e) => tracing::warn!("no process can be made that runs credential_process: {e}"),
    }
}

/// Whether another process runs programs for this one.
pub(in crate::store::remote) fn run_outside() -> bool {
    OUTSIDE.get().is_some()
}

/// Runs a program by its command line, waits for its end, and returns its output.
///
/// # Errors
/// The program cannot be started, takes too long, or fails.
pub(super) fn run(line: &str) -> Result<Vec<u8>, String> {
    let Some(helper) = OUTSIDE.get() else { return run_here(line) };
    let mut helper = helper.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = helper.ask(line.as_bytes()).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::TimedOut => {
                "hung, and was started again: look whether the files in ~/.aws can be read, and whether it was stopped"
            }
            io::ErrorKind::Interrupted => {
                "was killed each time, and was started again: look whether there is enough memory, and what the program does \
                 when it is called by hand"
            }
            io::ErrorKind::BrokenPipe => {
                "was killed, and the one that starts it again, too: unmount the dataset, and mount it again"
            }
            _ => return format!("the process that runs credential_process: {error}"),
        };
        format!("the process that runs credential_process {why}")
    })?;
    match answer.split_first() {
        Some((&PRINTED, printed)) => Ok(printed.to_vec()),
        Some((_, why)) => Err(String::from_utf8_lossy(why).into_owned()),
        None => Err("the process that runs credential_process gives no answer".to_owned()),
    }
}

/// How long the process outside may take. With the feature `test-hooks`, a variable says how long, for tests of a process that
/// hangs.
fn patience() -> Duration {
    #[cfg(feature = "test-hooks")]
    if let Some(millis) = std::env::var("FFRFS_TEST_PROGRAM_MS").ok().and_then(|it| it.parse().ok())
    {
        return Duration::from_millis(millis);
    }
    ANSWER
}

fn run_here(line: &str) -> Result<Vec<u8>, String> {
    let said = |error: io::Error| format!("credential_process: {error}");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a group of its own, so that all processes that it has started can be ended.
    let child = command.process_group(0).spawn().map_err(said)?;
    let group = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let (sender, ended) = mpsc::channel();
    let wait = move || sender.send(child.wait_with_output());
    let started = std::thread::Builder::new().spawn(wait);
    if let Err(error) = started {
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        return Err(said(error));
    }
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        return Err("credential_process takes too long".to_owned());
    };
    let Output { status, stdout, stderr } = output.map_err(said)?;
    if !status.success() {
        let said = answer::shortened(&String::from_utf8_lossy(&stderr), 300);
        return Err(format!("credential_process fails ({status}): {said}"));
    }
    Ok(stdout)
}
