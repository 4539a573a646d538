//! mount(8), umount(8) and fstab: the program as their helper, really called by them.

use crate::common::{Need, Outcome, Transport, for_each_transport, have, run};
use crate::user::{Sandbox, have_sandbox, options};
use std::process::Command;

/// The helper in /sbin, an fstab, and the notes of mount(8), all for the time of the script only.
const PREPARE: &str = r#"
set -e
mkdir sbin
for name in mount.ffrfs mount.fuse.ffrfs; do ln -s "$1/ffrfs" "sbin/$name"; done
mount --bind sbin "$(realpath /sbin)"
mount -t tmpfs none /run
: >fstab
chmod 644 fstab
mount --bind fstab /etc/fstab
set +e
trap 'umount -a -l -t fuse.ffrfs' EXIT
is_mounted() { grep -qF " $1 fuse.ffrfs " /proc/self/mounts; }
"#;

/// Runs a script with each transport, whose mount options the script has in `$options`.
#[track_caller]
pub(crate) fn with_mount8(script: &str) {
    if !have_sandbox() || !["mount", "umount", "findmnt"].map(Need::Program).into_iter().all(have) {
        return;
    }
    for_each_transport(|transport| {
        let outcome = try_with_mount8(transport, script);
        assert_eq!(outcome.code, 0, "{transport:?}: {}\n{}", outcome.text(), outcome.stderr);
    });
}

#[track_caller]
fn try_with_mount8(transport: Transport, script: &str) -> Outcome {
    let options = options(transport, "");
    Sandbox::new("").run(&format!("{PREPARE}options={options}\n{script}\ncode=0"))
}

#[test]
fn mount_finds_the_helper_by_type_and_umount_unmounts() {
    with_mount8(
        r#"
        for type in ffrfs fuse.ffrfs; do
            mount -t $type data.ffr mnt -o "allow_other,$options" || exit 1
            cmp mnt/000001 expected || exit 2
            other cmp mnt/000001 expected || exit 3
            findmnt -n -o SOURCE,FSTYPE --mountpoint "$1/mnt" >found
            [ "$(cat found)" = "$1/data.ffr fuse.ffrfs" ] || exit 4
            umount mnt || exit 5
            is_mounted "$1/mnt" && exit 6
        done
        mount -t ffrfs data.ffr mnt -o "$options" && umount "$1/data.ffr" || exit 7
        "#,
    );
}

#[test]
fn umount_waits_for_the_end_of_a_daemon_that_the_helper_has_started() {
    with_mount8(
        r#"
        for more in restarts=5 restarts=0; do
            mount -t ffrfs data.ffr mnt -o "$more,$options" || exit 1
            pid=$(grep -o '"pid": *[0-9]*' mnt/.ffrfs/info.json | grep -o '[0-9]*$')
            [ "$(cat /proc/$pid/comm)" = ffrfs ] || exit 2
            "$1/ffrfs" umount mnt || exit 3
            grep -q '^State:.*[RSD] ' /proc/$pid/status 2>/dev/null && exit 4
        done
        true
        "#,
    );
}

#[test]
fn a_line_of_fstab_mounts_with_blanks_in_all_its_fields_and_only_once() {
    with_mount8(
        r#"
        mv data.ffr "my data.ffr" && mkdir "my mnt"
        cat >fstab <<END
$1/my\040data.ffr $1/my\040mnt ffrfs ro,allow_other,nofail,x-systemd.automount,suffix=.a\040b,$options 0 0
$1/my\040data.ffr $1/mnt fuse.ffrfs noexec,_netdev,noatime,$options 0 2
END
        mount "$1/my mnt" || exit 1
        cmp "my mnt/000001.a b" expected || exit 2
        mount -a || exit 3
        mount -a || exit 4
        [ "$(grep -c " fuse.ffrfs ro,.*allow_other" /proc/self/mounts)" = 1 ] || exit 5
        [ "$(grep -c " fuse.ffrfs ro,.*noexec" /proc/self/mounts)" = 1 ] || exit 6
        cmp mnt/000001 expected || exit 7
        umount "my mnt" mnt || exit 8
        "#,
    );
}

#[test]
fn a_field_of_fstab_can_name_several_sources() {
    with_mount8(
        r#"
        mkdir more && cp data.ffr more/b.ffr && cp data.ffr more/c.ffr
        for source in "{$1/data.ffr,$1/more/b.ffr,$1/more/c.ffr}" "{data,more/b,more/c}.ffr" \
            "$1/more/*.ffr" "$1/more" more "more/{b,c}.ffr" "more/[bc].ffr"; do
            echo "$source $1/mnt ffrfs $options 0 0" >fstab
            mount mnt || exit 1
            cmp mnt/000003 expected || exit 2
            umount mnt || exit 3
        done
        "#,
    );
}

#[test]
fn a_user_mounts_and_unmounts_what_fstab_lets_users_mount() {
    with_mount8(
        r#"
        echo "$1/data.ffr $1/mnt ffrfs user,noauto,$options 0 0" >fstab
        mount_as() { setpriv --reuid $1 --regid $1 --clear-groups -- "$2" "$3"; }
        for mount in "$1/mnt" mnt "$1/data.ffr"; do
            somebody mount "$mount" || exit 1
            somebody cmp mnt/000001 expected || exit 2
            somebody findmnt -n -o OPTIONS --mountpoint "$1/mnt" | grep -q noexec.*user_id=65534 || exit 3
            other umount "$mount" 2>/dev/null && exit 4
            somebody umount "$mount" || exit 5
            is_mounted "$1/mnt" && exit 6
        done
        : >fstab
        # Without fstab, too, its own user may unmount.
        somebody ./ffrfs mount data.ffr mnt -o "$options" || exit 7
        somebody umount mnt || exit 8
        "#,
    );
}

#[test]
fn the_helper_takes_the_flags_of_mount() {
    with_mount8(
        r#"
        mount -f -v -t ffrfs data.ffr mnt -o "$options" 2>said || exit 1
        grep -q "^ffrfs: .*data.ffr on $1/mnt: checked$" said || { cat said >&2; exit 27; }
        is_mounted "$1/mnt" && exit 2
        mount -f -t ffrfs nowhere.ffr mnt -o "$options" 2>/dev/null && exit 3
        mount -f -t ffrfs data.ffr expected -o "$options" 2>/dev/null && exit 4
        mkdir tree && echo x >tree/a.jpg && ./ffrfs convert tree named.zip || exit 20
        head -c 60 named.zip >cut.zip
        printf '7z\274\257\047\034rest' >foreign.zip
        touch there && mkdir held || exit 28
        ./ffrfs mount data.ffr held -o "metrics=unix:$1/taken,$options" || exit 29
        for wrong in suffix=.jpg subdir=nosuch names=/nowhere memory=0 \
            cache_size=1G,memory=64M password_file=/nowhere log_file=/nowhere/log "log_file=$1" \
            metrics=unix:/nowhere/socket "metrics=unix:$1/there" "metrics=unix:$1/taken" \
            "restarts=3,index_dir=$1/mnt"; do
            mount -f -t ffrfs named.zip mnt -o "$wrong,$options" 2>said && { echo "$wrong" >&2; exit 21; }
            grep -q "named.zip on $1/mnt: " said || { cat said >&2; exit 22; }
        done
        for wrong in cut.zip foreign.zip; do
            mount -f -t ffrfs $wrong mnt -o "$options" 2>said && exit 23
        done
        ./ffrfs umount held || exit 30
        mount -f -t ffrfs named.zip mnt -o "$options" || exit 24
        # What a mount takes, too, and only a mount makes.
        for right in index_dir=/nowhere index=/nowhere/index "log_file=$1/there" \
            "log_file=$1/new,metrics=unix:$1/new"; do
            mount -f -t ffrfs named.zip mnt -o "$right,$options" || exit 31
            [ -e new ] && exit 32
        done
        mount -f -t ffrfs data.ffr /proc -o "$options" 2>said && exit 25
        grep -q "the system needs" said || exit 26
        mount -t ffrfs data.ffr mnt -o "frobnicate,$options" 2>said && exit 5
        grep -q frobnicate said || exit 6
        mount -s -n -v -t ffrfs data.ffr mnt -o "frobnicate=a\,b,noexec,$options,x-a=b" 2>said || exit 7
        grep -q "data.ffr on $1/mnt: mounted" said || exit 8
        grep " $1/mnt " /proc/self/mounts | grep -q noexec || exit 9
        umount mnt
        mount -r -t ffrfs data.ffr mnt -o "$options" || exit 10
        grep -q " $1/mnt fuse.ffrfs ro," /proc/self/mounts || exit 11
        umount mnt
        # mount(8) passes rw unasked; a wish has another name.
        mount -t ffrfs data.ffr mnt -o "rw,$options" || exit 14
        grep -q " $1/mnt fuse.ffrfs ro," /proc/self/mounts || exit 15
        umount mnt
        mount -t ffrfs data.ffr mnt -o "control=rw,$options" || exit 16
        echo 1 >mnt/.ffrfs/prefetch || exit 17
        umount mnt
        # As mount.fuse and people call it.
        /sbin/mount.ffrfs data.ffr mnt -wsn -t fuse.ffrfs -o ro -o "$options" || exit 12
        grep -q " $1/mnt fuse.ffrfs rw," /proc/self/mounts || exit 13
        umount mnt
        "#,
    );
}

#[test]
fn a_check_refuses_what_a_user_may_not_do() {
    with_mount8(
        r#"
        refused() {
            word=$1; shift
            somebody /sbin/mount.ffrfs data.ffr "$@" -f 2>said && exit 1
            grep -q "$word" said || { cat said >&2; exit 2; }
        }
        mkdir closed sticky && chmod 1777 sticky || exit 5
        refused user_allow_other mnt -o "allow_other,$options"
        refused user_allow_other mnt -o "allow_root,$options"
        refused "may not write" closed -o "$options"
        refused "belongs to another user" sticky -o "$options"
        somebody /sbin/mount.ffrfs data.ffr mnt -f -o "$options" || exit 3
        /sbin/mount.ffrfs data.ffr closed -f -o "allow_other,$options" || exit 4
        "#,
    );
}

#[test]
fn failures_have_the_exit_codes_of_mount() {
    with_mount8(
        r#"
        fails() {
            expected_code=$1; shift
            "$@" -o "$options" 2>said && exit 1
            [ $? = "$expected_code" ] || { cat said >&2; echo "not $expected_code: $*" >&2; exit 2; }
        }
        echo none >not.ffr
        for mount in "mount -t ffrfs" /sbin/mount.ffrfs; do
            fails 1 $mount data.ffr mnt -o unheard-of
            fails 32 $mount nowhere.ffr mnt
            fails 32 $mount not.ffr mnt
            fails 32 $mount data.ffr expected
            $mount data.ffr mnt -o "$options" || exit 3
            fails 32 $mount data.ffr mnt
            umount mnt
            $mount nowhere.ffr mnt -o "nofail,$options" || exit 4
            fails 32 $mount not.ffr mnt -o nofail
        done
        fails 1 /sbin/mount.ffrfs data.ffr
        fails 1 /sbin/mount.ffrfs data.ffr more mnt
        # A device that nobody serves.
        mknod dev/none c 10 250 && mount --bind dev/none /dev/fuse
        fails 2 mount -t ffrfs data.ffr mnt
        grep -q /dev/fuse said || exit 5
        is_mounted "$1/mnt" && exit 6
        "#,
    );
}

#[test]
fn an_interrupted_mount_leaves_nothing() {
    with_mount8(
        r#"
        mkfifo names
        # A background process of a shell does not hear SIGINT, unless it says so.
        python3 -c '
import os, signal, subprocess, sys, time
mount = subprocess.Popen(["/sbin/mount.ffrfs", "data.ffr", "mnt", "-o", "names=names," + sys.argv[1]],
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
daemons = lambda: open(f"/proc/{mount.pid}/task/{mount.pid}/children").read().split()
while not daemons(): time.sleep(0.01)
daemon = daemons()[0]
# As autofs needs it, which lets only its own group look at what is to be mounted.
assert os.getpgid(int(daemon)) == os.getpgid(mount.pid)
# Until it hears SIGINT.
caught = lambda: int(open(f"/proc/{mount.pid}/status").read().split("SigCgt:")[1].split()[0], 16)
while not caught() & 1 << signal.SIGINT - 1: time.sleep(0.01)
mount.send_signal(signal.SIGINT)
assert mount.wait(20) == 8, mount.returncode
while os.path.exists(f"/proc/{daemon}"): time.sleep(0.01)
' "$options" 2>said || { cat said >&2; exit 1; }
        grep -q interrupted said || exit 2
        is_mounted "$1/mnt" && exit 3
        "#,
    );
}

#[test]
fn remount_changes_what_can_change_and_refuses_the_rest_by_name() {
    with_mount8(
        r#"
        flags() { findmnt -n -o OPTIONS --mountpoint "$1/mnt"; }
        mount -t ffrfs data.ffr mnt -o "allow_other,uid=7,$options" || exit 1
        for list in ro,noexec rw,exec ro rw; do
            mount -o "remount,$list" mnt || exit 2
            for flag in $(echo $list | tr , ' '); do
                [ $flag = exec ] || flags "$1" | grep -qw $flag || exit 3
            done
        done
        mount -o remount,noexec mnt && mount -o remount,uid=7 mnt || exit 19
        flags "$1" | grep -qw noexec || exit 20
        mount -o remount,exec mnt || exit 21
        flags "$1" | grep -qw noexec && exit 4
        for flag in nosuid nodev noatime allow_other; do flags "$1" | grep -qw $flag || exit 5; done
        cmp mnt/000001 expected || exit 6
        # Announcements go where they may be written.
        echo 1 >mnt/.ffrfs/prefetch || exit 22
        mount -o remount,ro mnt && sh -c 'echo 1 >mnt/.ffrfs/prefetch' 2>/dev/null && exit 23
        mount -o remount,rw mnt && echo 1 >mnt/.ffrfs/prefetch || exit 24
        # What `ffrfs set` changes.
        mount -o remount,verify=once,memory=300M mnt || exit 25
        ./ffrfs set mnt | grep -qx verify=once && ./ffrfs set mnt | grep -qx memory=300M || exit 26
        mount -o remount,verify=never mnt 2>said && exit 27
        grep -q never said || exit 28
        mount -f -o remount,verify=off mnt && ./ffrfs set mnt | grep -qx verify=once || exit 29
        mount -o remount,suffix=.jpg,fanout=10 mnt 2>said && exit 7
        [ $? = 32 ] || exit 8
        grep -q "suffix=.jpg, fanout=10; unmount" said || { cat said >&2; exit 9; }
        mount -o remount,uid=7,layout=merge mnt || exit 10
        mount -o remount,frobnicate mnt 2>said && exit 11
        mount -s -o remount,frobnicate mnt || exit 12
        umount mnt
        mount -t ffrfs -o remount,ro data.ffr mnt 2>said && exit 13
        [ $? = 32 ] || exit 14
        # With a line in fstab, mount(8) passes all of its options.
        echo "$1/data.ffr $1/mnt ffrfs ro,suffix=.a\134,b,allow_root,$options 0 0" >fstab
        mount mnt || exit 15
        mount -o remount,rw,log_level=debug mnt || exit 16
        ./ffrfs set mnt | grep -qx log_level=debug || exit 30
        flags "$1" | grep -qw rw && echo 1 >mnt/.ffrfs/prefetch || exit 17
        cmp "mnt/000001.a,b" expected || exit 18
        umount mnt
        "#,
    );
}

#[test]
fn a_mount_in_another_namespace_reads_a_source_of_this_one() {
    with_mount8(
        r#"
        unshare --mount --propagation private sleep 60 & other=$!
        while [ "$(readlink /proc/$other/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
        # Hidden from the other one.
        mkdir here && mount -t tmpfs none here && cp data.ffr here
        mount -N $other -t ffrfs "$1/here/data.ffr" "$1/mnt" -o "$options" || exit 1
        is_mounted "$1/mnt" && exit 2
        nsenter --mount=/proc/$other/ns/mnt cmp "$1/mnt/000001" "$1/expected" || exit 3
        nsenter --mount=/proc/$other/ns/mnt umount "$1/mnt" || exit 4
        kill $other
        "#,
    );
}

#[test]
fn a_confined_daemon_unmounts_in_another_namespace_whose_process_has_ended() {
    with_mount8(
        r#"
        unshare --mount --propagation private sleep 60 & other=$!
        while [ "$(readlink /proc/$other/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
        exec 9</proc/$other/ns/mnt
        mount -N $other -t ffrfs "$1/data.ffr" "$1/mnt" -o "$options,sandbox=auto" || exit 1
        there() { nsenter --mount=/proc/self/fd/9 grep -qF " $1/mnt fuse.ffrfs " /proc/self/mounts; }
        there "$1" || exit 2
        kill $other
        wait $other
        pids=
        for process in /proc/[0-9]*; do
            [ "$(readlink $process/exe)" = "$1/ffrfs" ] && pids="$pids ${process#/proc/}"
        done
        [ -n "$pids" ] || exit 3
        kill $pids
        for turn in $(seq 500); do there "$1" || exit 0; sleep 0.02; done
        exit 4
        "#,
    );
}

#[test]
fn the_helper_tells_how_it_is_called() {
    let directory = crate::common::temp_dir();
    let helper = directory.path().join("mount.ffrfs");
    std::os::unix::fs::symlink(crate::common::FFRFS, &helper).unwrap();
    let help = run(Command::new(&helper).arg("--help")).ok().text();
    for word in ["mount.ffrfs", "mount(8)", "-s", "-N", "As -o control=rw", "remount", "Exit codes"]
    {
        assert!(help.contains(word), "{word:?} is not in: {help}");
    }
}
