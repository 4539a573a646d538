//! A mount of a user whose daemon is dead, as root finds it.

use super::{for_each_sandbox, options};

#[test]
fn root_mounts_over_a_dead_mount_that_its_user_has_not_shared_and_not_over_a_live_one() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "restarts=0");
        let outcome = sandbox.run(&format!(
            "somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
             ./ffrfs mount data.ffr mnt -o {options} 2>said && exit 2
             grep -q 'already mounted' said || {{ cat said >&2; exit 3; }}
             info=$(somebody cat mnt/.ffrfs/info.json) || exit 4
             kill -9 $(echo \"$info\" | grep -o '\"pid\": *[0-9]*' | grep -o '[0-9]*$')
             # The daemon is asked for this, whatever the kernel has in its caches.
             for turn in $(seq 500); do
                 somebody stat -f mnt >/dev/null 2>&1 || break
                 sleep 0.02
             done
             ./ffrfs mount data.ffr mnt -o {options} || exit 5
             cat mnt/000001 | cmp - expected || exit 6
             ./ffrfs umount mnt || exit 7
             grep -q \"$1/mnt \" /proc/self/mounts && exit 8
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}
