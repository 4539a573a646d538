//! The destination of recorded requests.

use crate::failure::Failure;
use crate::vfs::TraceEvent;
use nix::errno::Errno;

/// Takes the requests that are recorded.
pub(crate) trait Sink {
    /// Takes a request; `epoch_unix_ns` is the time, in nanoseconds since 1970, from which its times count.
    fn take(&mut self, event: &TraceEvent, epoch_unix_ns: u64) -> Result<(), Failure>;

    /// Makes the requests so far visible.
    fn flush(&mut self) -> Result<(), Failure>;

    /// Ends the recording: no request follows.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// `ok`, or an error number's name.
pub(crate) fn outcome(errno: i32) -> String {
    match errno {
        0 => "ok".to_owned(),
        errno => format!("{:?}", Errno::from_raw(errno)),
    }
}
