//! The error of a system call, for code that runs in a signal handler. Imports nothing of ours.

/// The error of the last system call of this thread.
pub(super) fn errno() -> i32 {
    // SAFETY: the pointer is to a variable of this thread.
    unsafe { *libc::__errno_location() }
}
