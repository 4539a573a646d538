//! A killed test process cannot clean up after itself: another process, the guard, does it.

use super::TempDir;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Takes directories, one a line, until the test process has ended. Then unmounts the mounts in those that still exist, and
/// removes them.
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
    // The guard has a process group of its own, as that of the test is killed as a whole.
    guard.args(["-c", GUARD]).current_dir("/").process_group(0);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Mutex::new(guard.spawn().ok().and_then(|guard| guard.stdin))
});

/// Has the guard clear and remove the directory if this process is killed.
pub(super) fn guarded(directory: TempDir) -> TempDir {
    let mut directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(directories) = &mut *directories {
        let _ = writeln!(directories, "{}", directory.path().display());
    }
    directory
}
