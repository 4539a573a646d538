//! Users: their access to a mount, and mounting without being root (through fusermount3).

mod dead;
mod helper;

use crate::common::{
    FFRFS, Mount, Need, Outcome, TempDir, Transport, container_in, for_each_transport, have,
    in_own_namespace, noise, run, skip_forced, temp_dir,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A user who is not root; `ELSE` is another one.
const SOMEBODY: u32 = 65_534;
const ELSE: u32 = 65_533;

fn samples() -> Vec<Vec<u8>> {
    vec![noise(1, 1_000), noise(2, 300_000)]
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// `cat` as another user.
fn cat_as(user: u32, path: &Path) -> Outcome {
    run(Command::new("cat").arg(path).uid(user).gid(user))
}

/// A mount by root, in a directory that all users may enter.
fn mount_as_root(transport: Transport, options: &[&str]) -> Mount {
    let mount = Mount::with_samples(transport, &samples(), options);
    open_to_all(mount.scratch());
    mount
}

#[test]
fn other_users_are_kept_out_unless_they_are_allowed() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let mount = mount_as_root(transport, &[]);
        assert_eq!(mount.read("000000").unwrap(), samples()[0]);
        let refused = cat_as(SOMEBODY, &mount.path("000000"));
        assert!(refused.code != 0 && refused.stdout.is_empty(), "{refused:?}");
        assert!(refused.stderr.contains("Permission denied"), "{}", refused.stderr);
        let mount = mount_as_root(transport, &["allow_other"]);
        assert_eq!(cat_as(SOMEBODY, &mount.path("000000")).ok().stdout, samples()[0]);
    });
}

#[test]
fn masks_keep_others_out_of_a_mount_that_is_open_to_them() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let options = ["allow_other", "uid=65534", "gid=65534", "fmask=0377"];
        let mount = mount_as_root(transport, &options);
        assert_eq!(cat_as(SOMEBODY, &mount.path("000001")).ok().stdout, samples()[1]);
        assert!(cat_as(ELSE, &mount.path("000001")).code != 0, "also what the kernel knows by now");
        assert!(cat_as(ELSE, &mount.path("000000")).code != 0);
        let options = ["allow_other", "uid=65534", "gid=65534", "dmask=077"];
        let mount = mount_as_root(transport, &options);
        assert_eq!(cat_as(SOMEBODY, &mount.path("000000")).ok().stdout, samples()[0]);
        assert!(cat_as(ELSE, &mount.path("000000")).code != 0);
    });
}

// ---- mounting as an ordinary user ----------------------------------------------------------------

/// A place with a mount namespace of its own, where /dev/fuse is open to all users and /etc/fuse.conf has the
/// test's text; all mounts in it go with the script that runs there.
pub(crate) struct Sandbox {
    directory: TempDir,
}

const PREPARE: &str = r#"
set -e
cd "$1"
mkdir dev
mount -t tmpfs none dev
mknod dev/fuse c 10 229
chmod 666 dev/fuse
mount --bind dev/fuse /dev/fuse
mount --bind fuse.conf /etc/fuse.conf
set +e
somebody() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
other() { setpriv --reuid 65533 --regid 65533 --clear-groups -- "$@"; }
"#;

/// Whether this machine can have a [`Sandbox`].
pub(crate) fn have_sandbox() -> bool {
    let programs = ["unshare", "setpriv", "fusermount3"].map(Need::Program);
    if !have(Need::Root) || !programs.into_iter().all(have) {
        return false;
    }
    let works = Path::new("/etc/fuse.conf").exists()
        && Path::new("/dev/fuse").exists()
        && run(Command::new("unshare").args(["--mount", "true"])).code == 0;
    if !works {
        skip_forced("needs a mount namespace, /dev/fuse and /etc/fuse.conf");
    }
    works
}

impl Sandbox {
    /// A place with `data.ffr`, the program, and an empty `mnt` that belongs to [`SOMEBODY`].
    pub(crate) fn new(fuse_conf: &str) -> Self {
        let directory = temp_dir();
        let path = |name: &str| directory.path().join(name);
        open_to_all(directory.path());
        let container = container_in(&directory, &samples());
        fs::set_permissions(container, Permissions::from_mode(0o644)).unwrap();
        fs::write(path("expected"), &samples()[1]).unwrap();
        fs::set_permissions(path("expected"), Permissions::from_mode(0o644)).unwrap();
        // Other users may not enter the directory where the program was built. A process that another test starts would hold a
        // copy by this process open for writing, and no process could run it.
        run(Command::new("cp").arg(FFRFS).arg(path("ffrfs"))).ok();
        open_to_all(&path("ffrfs"));
        fs::write(path("fuse.conf"), fuse_conf).unwrap();
        fs::set_permissions(path("fuse.conf"), Permissions::from_mode(0o644)).unwrap();
        fs::create_dir(path("mnt")).unwrap();
        std::os::unix::fs::chown(path("mnt"), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        Self { directory }
    }

    /// Runs a script there, as root; `somebody` and `other` run a command as those users. The script's mount is
    /// unmounted at its end.
    pub(crate) fn run(&self, script: &str) -> Outcome {
        let script = format!("{PREPARE}{script}\numount -l mnt 2>/dev/null; exit $code");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(self.directory.path());
        in_own_namespace(|| run(&mut command))
    }
}

/// Runs a test in a new sandbox for each transport, if this machine can have one.
fn for_each_sandbox(fuse_conf: &str, test: impl Fn(Transport, Sandbox)) {
    if have_sandbox() {
        for_each_transport(|transport| test(transport, Sandbox::new(fuse_conf)));
    }
}

/// The mount options of a transport, as a list for `-o`.
pub(crate) fn options(transport: Transport, more: &str) -> String {
    let options = [transport.option().unwrap_or("defaults"), more];
    options.into_iter().filter(|option| !option.is_empty()).collect::<Vec<_>>().join(",")
}

#[test]
fn a_user_mounts_reads_and_unmounts() {
    for_each_sandbox("", |transport, sandbox| {
        let mount = format!("somebody ./ffrfs mount data.ffr mnt -o {}", options(transport, ""));
        let outcome = sandbox.run(&format!(
            "{mount} || exit 1
             somebody cat mnt/000001 | cmp - expected || exit 2
             grep -q \"$1/data.ffr $1/mnt fuse.ffrfs \" /proc/self/mounts || exit 3
             somebody stat -c '%u %g' mnt/000000 | grep -qx '65534 65534' || exit 4
             other cat mnt/000000 && exit 5
             other ./ffrfs list | grep -q \"$1/mnt \" && exit 13
             somebody sh -c 'exec ./ffrfs umount mnt 3<mnt/000000'; [ $? = 5 ] || exit 6
             somebody ./ffrfs umount -z mnt || exit 7
             grep -q \"$1/mnt\" /proc/self/mounts && exit 8
             {mount} || exit 9
             somebody sleep 0.1
             somebody ./ffrfs umount mnt || exit 10
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        for word in ["busy", "-z"] {
            assert!(outcome.stderr.contains(word), "{word:?} is not in: {}", outcome.stderr);
        }
    });
}

#[test]
fn root_sees_the_figures_of_a_mount_that_its_user_has_not_shared_and_others_are_told_who_may() {
    for_each_sandbox("", |transport, sandbox| {
        let mount = format!("somebody ./ffrfs mount data.ffr mnt -o {}", options(transport, ""));
        let outcome = sandbox.run(&format!(
            "{mount} || exit 1
             cat mnt/000000 2>/dev/null && exit 2
             ./ffrfs list | grep \"$1/mnt \" | grep -Eq 'devfuse|uring' || exit 3
             ./ffrfs stats mnt --json | grep -q '\"samples\": 2' || exit 4
             ./ffrfs set mnt verify=once || exit 5
             somebody ./ffrfs set mnt | grep -qx verify=once || exit 6
             ./ffrfs doctor mnt | grep -q 'its daemon does not answer' && exit 7
             ./ffrfs trace mnt --seconds 0.1 || exit 12
             other ./ffrfs stats mnt; [ $? = 5 ] || exit 8
             other ./ffrfs doctor mnt | grep '^note  *mnt: ' >&2 || exit 13
             chmod 700 .
             ./ffrfs list | grep \"$1/mnt \" | grep -q \"its user's alone\" || exit 9
             ./ffrfs stats mnt; [ $? = 5 ] || exit 10
             ./ffrfs doctor mnt | grep '^note  *mnt: ' >&2 || exit 14
             chmod 755 .
             ./ffrfs warmup mnt; [ $? = 5 ] || exit 15
             other ./ffrfs warmup mnt; [ $? = 5 ] || exit 16
             ./ffrfs umount mnt || exit 11
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let has_mounted =
            "mnt: Permission denied: the user nobody has mounted it without allow_other";
        assert_eq!(outcome.stderr.matches(has_mounted).count(), 6, "{}", outcome.stderr);
        let warmup = "warm it up as that user: sudo -u '#65534' ffrfs warmup";
        for said in ["only that user and root may look into it", "which is refused here", warmup] {
            assert_eq!(outcome.stderr.matches(said).count(), 2, "{said}: {}", outcome.stderr);
        }
        assert!(!outcome.stderr.contains("does not answer"), "{}", outcome.stderr);
    });
}

#[test]
fn a_user_neither_looks_into_the_process_of_root_that_asks_as_that_user_nor_hides_a_mount() {
    if !Path::new("/proc/thread-self/children").exists() {
        skip_forced("needs /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)");
        return;
    }
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "restarts=0");
        let outcome = sandbox.run(&format!(
            "asking() {{
                 for turn in $(seq 100); do
                     for child in $(cat /proc/$1/task/$1/children); do
                         grep -q '^Uid:.65534' /proc/$child/status && echo $child && return
                     done
                     sleep 0.04
                 done
             }}
             somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
             info=$(somebody cat mnt/.ffrfs/info.json) || exit 2
             daemon=$(echo \"$info\" | grep -o '\"pid\": *[0-9]*' | grep -o '[0-9]*$')
             trap \"kill -CONT $daemon\" EXIT
             kill -STOP $daemon || exit 3
             for command in list 'doctor mnt'; do
                 for turn in $(seq 20); do
                     ./ffrfs $command >out & root=$!
                     child=$(asking $root)
                     [ -n \"$child\" ] && break
                     wait $root
                 done
                 [ -n \"$child\" ] || exit 4
                 somebody cat /proc/$child/environ && exit 5
                 # It may have ended by now: root waits for 5 s.
                 somebody kill -9 $child
                 wait $root
                 grep -E \"problem +mnt|$1/mnt \" out | grep -Eq 'stopped|hangs|was killed' || exit 6
             done
             kill -CONT $daemon
             for turn in $(seq 100); do somebody ./ffrfs umount mnt && break; sleep 0.1; done
             grep -q \"$1/mnt \" /proc/self/mounts && exit 7
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn root_looks_into_a_mount_that_root_has_made_as_a_member_of_another_group() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "");
        let outcome = sandbox.run(&format!(
            "as_member() {{ setpriv --regid 65534 --clear-groups -- \"$@\"; }}
             as_member ./ffrfs mount data.ffr mnt -o {options} || exit 1
             cat mnt/000000 2>/dev/null && exit 2
             ./ffrfs stats mnt --json | grep -q '\"samples\": 2' || exit 3
             ./ffrfs list | grep \"$1/mnt \" | grep -Eq 'devfuse|uring' || exit 4
             as_member ./ffrfs umount mnt || exit 5
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn root_of_a_user_namespace_looks_into_a_mount_of_its_own_with_a_number_of_somebody_else() {
    if !have_sandbox() {
        return;
    }
    let mut unshare = Command::new("unshare");
    if run(unshare.args(["--user", "true"]).uid(SOMEBODY).gid(SOMEBODY)).code != 0 {
        skip_forced("needs a user namespace");
        return;
    }
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "");
        // In that namespace, root is the user who has mounted, and the user ID in the mount table is another user's.
        let outcome = sandbox.run(&format!(
            "inside() {{
                 exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \
                     unshare --user -- sh -c 'read go <go; exec \"$@\"' sh \"$@\"
             }}
             somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
             mkfifo -m 666 go
             inside sh -c './ffrfs stats mnt --json && ./ffrfs list' >out & inner=$!
             trap \"kill $inner 2>/dev/null\" EXIT
             own=$(readlink /proc/self/ns/user)
             for turn in $(seq 1500); do
                 now=$(readlink /proc/$inner/ns/user)
                 [ -n \"$now\" ] && [ \"$now\" != \"$own\" ] && break
                 sleep 0.02
             done
             [ -n \"$now\" ] && [ \"$now\" != \"$own\" ] || exit 2
             for map in uid_map gid_map; do
                 printf '0 65534 1\\n65534 20000 1\\n' >/proc/$inner/$map || exit 77
             done
             echo >go
             wait $inner || exit 3
             grep -q '\"samples\": 2' out || exit 4
             grep \"$1/mnt \" out | grep -Eq 'devfuse|uring' || exit 5
             somebody ./ffrfs umount mnt || exit 6
             code=0"
        ));
        match outcome.code {
            77 => skip_forced("needs uid maps of user namespaces"),
            code => assert_eq!(code, 0, "{}", outcome.stderr),
        }
    });
}

#[test]
fn who_may_unmount_what_another_user_has_mounted_is_said() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "allow_other");
        let outcome = sandbox.run(&format!(
            "./ffrfs mount data.ffr mnt -o {options} || exit 1
             for how in '' -z --force; do
                 somebody ./ffrfs umount $how mnt; [ $? = 5 ] || exit 2
             done
             ./ffrfs umount mnt || exit 3
             somebody ./ffrfs mount data.ffr mnt -o {mine} || exit 4
             other ./ffrfs umount -z mnt; [ $? = 5 ] || exit 5
             somebody ./ffrfs umount mnt || exit 6
             code=0",
            mine = self::options(transport, ""),
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let roots = "mnt: root has mounted it, and only root may unmount it: sudo ffrfs umount ";
        assert_eq!(outcome.stderr.matches(roots).count(), 3, "{}", outcome.stderr);
        let users = "mnt: the user nobody has mounted it, and only that user and root";
        assert_eq!(outcome.stderr.matches(users).count(), 1, "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("fusermount"), "{}", outcome.stderr);
    });
}

#[test]
fn a_remount_that_only_root_may_make_changes_nothing() {
    for_each_sandbox("", |transport, sandbox| {
        let outcome = sandbox.run(&format!(
            "ln -s ffrfs mount.ffrfs && somebody ./ffrfs mount data.ffr mnt -o {} || exit 1
             somebody ./mount.ffrfs data.ffr mnt -o remount,rw,memory=300M; [ $? = 32 ] || exit 2
             somebody ./ffrfs set mnt | grep -qx memory=300M && exit 3
             somebody ./mount.ffrfs data.ffr mnt -o remount,memory=300M || exit 4
             somebody ./ffrfs set mnt | grep -qx memory=300M && code=0",
            options(transport, "")
        ));
        assert_eq!((outcome.code, outcome.stderr.matches("only root may change").count()), (0, 1));
    });
}

#[test]
fn a_daemon_that_ends_leaves_the_next_mount_of_its_user_alone() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "");
        let outcome = sandbox.run(&format!(
            "cat >again <<'END'
                 ./ffrfs mount data.ffr mnt -o {options} || exit 1
                 exec 3<mnt/000000
                 first=$(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' mnt/.ffrfs/info.json)
                 supervisor=$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$first/stat)
                 lives() {{ grep -qs ') [^ZX] ' /proc/$first/stat /proc/$supervisor/stat; }}
                 lives || exit 6
                 ./ffrfs umount -z mnt || exit 2
                 ./ffrfs mount data.ffr mnt -o {options} 3<&- || exit 3
                 # Now the first daemon has nothing left to serve.
                 exec 3<&-
                 for turn in $(seq 1500); do lives || break; sleep 0.02; done
                 lives && exit 7
                 cat mnt/000001 | cmp - expected || exit 4
                 ./ffrfs umount -z mnt || exit 5
END
             somebody sh again; code=$?"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn a_user_who_may_not_share_is_told_what_that_needs() {
    if !have_sandbox() {
        return;
    }
    for_each_transport(|transport| {
        for option in ["allow_other", "allow_root"] {
            let options = options(transport, option);
            let sandbox = Sandbox::new("# user_allow_other\n");
            let script = format!("somebody ./ffrfs mount data.ffr mnt -o {options}; code=$?");
            let outcome = sandbox.run(&script);
            assert_eq!(outcome.code, 5, "{}", outcome.stderr);
            for word in ["user_allow_other", "/etc/fuse.conf"] {
                assert!(outcome.stderr.contains(word), "{word:?} is not in: {}", outcome.stderr);
            }
        }
    });
}

#[test]
fn a_user_shares_a_mount_where_that_is_allowed() {
    for_each_sandbox("user_allow_other\n", |transport, sandbox| {
        let options = options(transport, "allow_other");
        let outcome = sandbox.run(&format!(
            "somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
             cat mnt/000001 | cmp - expected || exit 2
             other cat mnt/000001 | cmp - expected || exit 3
             kill $(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' mnt/.ffrfs/info.json) || exit 4
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn allow_root_lets_root_in_and_nobody_else() {
    for_each_sandbox("user_allow_other\n", |transport, sandbox| {
        let options = options(transport, "allow_root");
        let outcome = sandbox.run(&format!(
            "somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
             somebody cat mnt/000000 >/dev/null || exit 2
             cat mnt/000001 | cmp - expected || exit 3
             other cat mnt/000000 && exit 4
             other cat mnt/000001 && exit 5
             other ls mnt && exit 6
             somebody ./ffrfs umount -z mnt || exit 7
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn a_user_who_may_not_write_to_the_mount_point_is_told_so() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "");
        let outcome = sandbox.run(&format!(
            "mkdir closed; somebody ./ffrfs mount data.ffr closed -o {options}; code=$?"
        ));
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("write"), "{}", outcome.stderr);
    });
}

#[test]
fn root_without_the_right_to_mount_is_told_which_one() {
    if !have_sandbox() {
        return;
    }
    for_each_transport(|transport| {
        let options = options(transport, "");
        for path in ["$PATH", "/nowhere"] {
            let outcome = Sandbox::new("").run(&format!(
                "PATH={path} $(command -v setpriv) --bounding-set -sys_admin --inh-caps -sys_admin -- \
                     ./ffrfs mount data.ffr mnt -o {options}; code=$?"
            ));
            assert_eq!(outcome.code, 5, "{}", outcome.stderr);
            assert!(outcome.stderr.contains("CAP_SYS_ADMIN"), "{}", outcome.stderr);
        }
    });
}

#[test]
fn a_user_mounts_where_names_hold_blanks_commas_and_backslashes() {
    if !have_sandbox() {
        return;
    }
    for_each_transport(|transport| {
        for name in ["a b", "a,b", "a\\b", "a\\,b\\", "ä ñ 数据"] {
            let sandbox = Sandbox::new("");
            let options = options(transport, "");
            let outcome = sandbox.run(&format!(
                "name='{name}'
                 mkdir \"$name\"; chmod 755 \"$name\"; mv mnt data.ffr \"$name\"; cd \"$name\"
                 somebody ../ffrfs mount data.ffr mnt -o {options} || exit 1
                 somebody cat mnt/000001 | cmp - ../expected || exit 2
                 somebody sh -c 'findmnt -n -o SOURCE,FSTYPE --mountpoint mnt 2>/dev/null'
                 somebody ../ffrfs umount -z mnt || exit 3
                 code=0"
            ));
            assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
            let said = outcome.text();
            let expected = format!("{name}/data.ffr fuse.ffrfs");
            assert!(said.is_empty() || said.trim().ends_with(&expected), "{name}: {said}");
        }
    });
}
