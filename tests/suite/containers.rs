//! Mounts as in containers: the caller has made them, and hands them over as `/dev/fd/N`; and user namespaces.

use crate::common::{
    FFRFS, Need, TempDir, Transport, clean_up, container_in, for_each_transport, have,
    is_mount_point, is_running, mounts_at, noise, skip_forced, temp_dir, unmount_soon, wait_until,
};
use crate::user::{Sandbox, have_sandbox, options};
use libc::{ECANCELED, ECONNABORTED, ENOTCONN};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const IN_TIME: Duration = Duration::from_secs(20);
const SOMEBODY: u32 = 65_534;

fn samples() -> Vec<Vec<u8>> {
    vec![noise(1, 1_000), noise(2, 3_000_000)]
}

/// A mount that the test makes and unmounts itself, as a container's runtime does.
struct Runtime {
    directory: TempDir,
    connection: Option<File>,
    daemon: i32,
}

impl Runtime {
    fn new(user: u32) -> Self {
        let directory = temp_dir();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let container = container_in(&directory, &samples());
        fs::set_permissions(container, Permissions::from_mode(0o644)).unwrap();
        fs::copy(FFRFS, directory.path().join("ffrfs")).unwrap();
        let mut runtime = Self { directory, connection: None, daemon: 0 };
        fs::create_dir(runtime.point()).unwrap();
        let connection = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!(
            "fd={},rootmode=40000,user_id={user},group_id={user},default_permissions,allow_other",
            connection.as_raw_fd()
        );
        let (source, kind) = (Some("handed"), Some("fuse.ffrfs"));
        let point = runtime.point();
        mount(source, &point, kind, MsFlags::MS_RDONLY, Some(data.as_str())).unwrap();
        runtime.connection = Some(connection);
        runtime
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// `ffrfs mount` on the connection, as the caller's descriptor 7. From now on no other process has the connection.
    fn command(&mut self, transport: Transport, more: &[&str]) -> Command {
        let script = r#"program=$1; container=$2; shift 2
            exec "$program" mount "$container" /dev/fd/7 "$@" 7<&0 0</dev/null"#;
        let mut command = Command::new("sh");
        let path = |name: &str| self.directory.path().join(name);
        command.args(["-c", script, "sh"]).arg(path("ffrfs")).arg(path("data.ffr"));
        command.args(transport.option().into_iter().flat_map(|option| ["-o", option])).args(more);
        command.stdin(self.connection.take().expect("the connection is handed over once"));
        command
    }

    #[track_caller]
    fn serve(&mut self, transport: Transport, more: &[&str]) {
        self.serve_as(transport, more, |command| command);
    }

    #[track_caller]
    fn serve_as(
        &mut self,
        transport: Transport,
        more: &[&str],
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) {
        let mut command = self.command(transport, more);
        let output = change(&mut command).output().unwrap();
        // The command has a copy of the connection, which would keep it alive.
        drop(command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let info: serde_json::Value =
            serde_json::from_slice(&fs::read(self.point().join(".ffrfs/info.json")).unwrap())
                .unwrap();
        self.daemon = info["pid"].as_i64().unwrap() as i32;
        let engine = if transport == Transport::Uring { "uring" } else { "devfuse" };
        assert_eq!(info["transport"], engine);
    }

    #[track_caller]
    fn check(&self) {
        for (number, sample) in samples().iter().enumerate() {
            let read = fs::read(self.point().join(format!("{number:06}"))).unwrap();
            assert!(read == *sample, "sample {number} differs");
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        clean_up(&self.point(), self.daemon);
    }
}

fn have_runtime() -> bool {
    have(Need::Root)
}

#[test]
fn a_connection_that_was_handed_over_is_served_until_its_maker_unmounts() {
    if !have_runtime() {
        return;
    }
    for_each_transport(|transport| {
        let mut runtime = Runtime::new(0);
        runtime.serve(transport, &[]);
        runtime.check();
        let table = mounts_at(&runtime.point());
        assert_eq!((table.len(), table[0].0.as_str()), (1, "handed"), "no mount of its own");
        unmount_soon(&runtime.point());
        wait_until("the daemon ends", IN_TIME, || !is_running(runtime.daemon));
    });
}

#[test]
fn a_daemon_that_is_told_to_end_leaves_the_mount_to_its_maker() {
    if !have_runtime() {
        return;
    }
    for_each_transport(|transport| {
        let mut runtime = Runtime::new(0);
        runtime.serve(transport, &[]);
        runtime.check();
        kill(Pid::from_raw(runtime.daemon), Signal::SIGTERM).unwrap();
        wait_until("the daemon ends", IN_TIME, || !is_running(runtime.daemon));
        assert!(is_mount_point(&runtime.point()));
        let error = fs::metadata(runtime.point().join("000009")).unwrap_err().raw_os_error();
        assert!(matches!(error, Some(ENOTCONN | ECONNABORTED | ECANCELED)), "{error:?}");
    });
}

#[test]
fn a_user_without_any_rights_serves_a_connection_in_the_foreground() {
    if !have_runtime() {
        return;
    }
    for_each_transport(|transport| {
        let mut runtime = Runtime::new(SOMEBODY);
        let mut command = runtime.command(transport, &["-f"]);
        let mut child: Child =
            command.uid(SOMEBODY).gid(SOMEBODY).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        runtime.daemon = child.id() as i32;
        runtime.check();
        // The files belong to the daemon's user, and the daemon hears only from the kernel, which lets root in.
        unmount_soon(&runtime.point());
        let ended = child.wait().unwrap();
        assert!(ended.success(), "{ended}");
    });
}

#[test]
fn options_that_are_for_who_mounts_are_named_in_a_warning() {
    if !have_runtime() {
        return;
    }
    for_each_transport(|transport| {
        let mut runtime = Runtime::new(0);
        let log = runtime.directory.path().join("log");
        let log_file = format!("log_file={}", log.display());
        runtime.serve(transport, &["-o", "allow_other,fsname=x", "-o", &log_file]);
        runtime.check();
        let said = fs::read_to_string(log).unwrap();
        assert!(said.contains("allow_other") && said.contains("fsname"), "{said}");
        assert!(!said.contains("noexec"), "{said}");
    });
}

#[test]
fn a_descriptor_that_cannot_be_served_is_refused() {
    let directory = temp_dir();
    let container = container_in(&directory, &samples());
    let mount = |stdin: Stdio, point: &str| {
        let mut command = Command::new(FFRFS);
        let output = command.arg("mount").arg(&container).arg(point).stdin(stdin).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = mount(Stdio::null(), "/dev/fd/0");
    assert!(
        code == Some(5) && said.contains("/dev/fd/0") && said.contains("not /dev/fuse"),
        "{said}"
    );
    let (code, said) = mount(Stdio::null(), "/dev/fd/777");
    assert!(code == Some(5) && said.contains("/dev/fd/777"), "{said}");
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else { return };
    let (code, said) = mount(device.into(), "/dev/fd/0");
    assert!(code == Some(5) && said.contains("must mount it first"), "{said}");
}

#[test]
fn root_of_a_user_namespace_mounts_reads_and_unmounts() {
    if !have_sandbox() {
        return;
    }
    let works = Sandbox::new("").run("somebody unshare -Urm true; code=$?").code == 0;
    if !works {
        return skip_forced("users may not make user namespaces");
    }
    for_each_transport(|transport| {
        let options = options(transport, "");
        let outcome = Sandbox::new("").run(&format!(
            "cat >inside <<'END'
                 ./ffrfs mount data.ffr mnt -o {options} || exit 1
                 cmp mnt/000001 expected || exit 2
                 [ \"$(stat -c %u:%g mnt/000000)\" = 0:0 ] || exit 3
                 ./ffrfs umount mnt || exit 4
                 ./ffrfs mount data.ffr mnt -o {options},allow_other,ro || exit 5
                 cmp mnt/000001 expected || exit 6
                 umount mnt || exit 7
END
             somebody unshare -Urm sh inside; code=$?"
        ));
        assert_eq!(outcome.code, 0, "{transport:?}: {}", outcome.stderr);
    });
}

#[test]
fn a_shared_mount_shows_in_a_namespace_that_was_there_before() {
    if !have_sandbox() {
        return;
    }
    // A sidecar mounts with propagation to the host, and another container sees it.
    for_each_transport(|transport| {
        let options = options(transport, "allow_other");
        let outcome = Sandbox::new("").run(&format!(
            r#"mkdir shared && mount -t tmpfs none shared && mount --make-rshared shared && mkdir shared/ds
               unshare --mount --propagation slave sleep 60 & user=$!
               while [ "$(readlink /proc/$user/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
               unshare --mount --propagation shared ./ffrfs mount data.ffr shared/ds -o {options} || exit 1
               see() {{ nsenter --mount=/proc/$user/ns/mnt "$@"; }}
               see cmp "$1/shared/ds/000001" "$1/expected" || exit 2
               umount shared/ds || exit 3
               see test -e "$1/shared/ds/000001" && exit 4
               kill $user
               code=0"#
        ));
        assert_eq!(outcome.code, 0, "{transport:?}: {}", outcome.stderr);
    });
}
