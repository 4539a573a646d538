//! A test process that is killed cannot clean up after itself: another process does it then.

use super::TempDir;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Takes directories, one a line, until the test process has ended. Then unmounts what is mounted in them, and removes
/// them, if they are still there.
const GUARD: &str = r#"
while read -r directory; do [ -d "$directory" ] && set -- "$@" "$directory"; done
for directory; do
    [ -d "$directory" ] || continue
    # A daemon that a test has stopped would not end.
    grep -lsF "$directory/" /proc/[0-9]*/cmdline | while IFS=/ read -r _ _ process _; do kill -CONT "$process"; done
    while read -r _ point _; do
        point=$(printf '%b' "$point")
        case $point in
        "$directory" | "$directory"/*) umount -l "$point" || fusermount3 -u -z "$point" || continue 2 ;;
        esac
    done </proc/self/mounts
    rm -rf --one-file-system "$directory"
done
"#;

static DIRECTORIES: LazyLock<Mutex<Option<ChildStdin>>> = LazyLock::new(|| {
    let mut guard = Command::new("sh");
    // In a group of its own, as that of the test is killed whole.
    guard.args(["-c", GUARD]).current_dir("/").process_group(0);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Mutex::new(guard.spawn().ok().and_then(|guard| guard.stdin))
});

/// Has the directory cleared and removed if this process is killed.
pub(super) fn guarded(directory: TempDir) -> TempDir {
    let mut directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(directories) = &mut *directories {
        let _ = writeln!(directories, "{}", directory.path().display());
    }
    directory
}
