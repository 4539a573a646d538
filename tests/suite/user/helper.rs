//! Users for whom fusermount3 mounts nothing.

use super::{for_each_sandbox, options};

#[test]
fn a_user_without_the_helper_is_told_to_install_it() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "");
        // This `PATH` leads to no commands: there are only the shell's own.
        let outcome = sandbox.run(&format!(
            "mount --bind /dev/null \"$(command -v fusermount3)\"
             PATH=/nowhere $(command -v setpriv) --reuid 65534 --regid 65534 --clear-groups -- \
                 ./ffrfs mount data.ffr mnt -o {options}; code=$?"
        ));
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("fusermount3"), "{}", outcome.stderr);
    });
}

#[test]
fn a_user_whom_etc_passwd_does_not_have_is_told_so() {
    for_each_sandbox("", |transport, sandbox| {
        let options = options(transport, "");
        let outcome = sandbox.run(&format!(
            "id 4242424 2>/dev/null && exit 9
             chown 4242424 mnt
             setpriv --reuid 4242424 --regid 4242424 --clear-groups -- \
                 ./ffrfs mount data.ffr mnt -o {options}; code=$?"
        ));
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("that /etc/passwd has: add this one"),
            "{}",
            outcome.stderr
        );
    });
}
