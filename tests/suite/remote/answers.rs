//! A store that answers wrongly or refuses: no wrong byte, the right error number, and a message that helps.

use super::*;
use nix::libc::{EACCES, EIO, ESTALE};

/// Faults with which no request gets a right answer.
const WRONG: [Fault; 4] =
    [Fault::IgnoreRange, Fault::WrongRange, Fault::WrongTotal, Fault::ShortRange { missing: 7 }];

/// Waits: for a second, a failure is the answer to all who ask for the same bytes.
fn forget_failures() {
    std::thread::sleep(std::time::Duration::from_millis(1200));
}

#[test]
fn a_wrong_answer_is_an_error_and_never_data() {
    for_each_transport(|transport| {
        let samples = even_samples(40, 20_000);
        let remote = Remote::with_samples(&samples);
        for url in [remote.s3("data.ffr"), remote.http("data.ffr")] {
            for (number, fault) in WRONG.into_iter().enumerate() {
                let mount = remote.mount_with(transport, &[&url], &["cache=none"]);
                remote.store.rule(Rule::gets(fault.clone()));
                let read = mount.read(name(number));
                assert!(read.is_err(), "{url}, {fault:?}: {} bytes", read.unwrap().len());
                let is_other = matches!(fault, Fault::WrongTotal);
                assert_errno(read, if is_other { ESTALE } else { EIO });
                let log = mount.log();
                assert!(log.contains("data.ffr"), "{fault:?}: {log}");
                remote.store.heal();
                forget_failures();
                // A store that is mended serves on; an object of another length stays another object.
                if !is_other {
                    check(&mount, &samples, [number, 30]);
                }
                mount.unmount();
            }
        }
    });
}

#[test]
fn a_refused_request_is_eacces_and_its_message_names_url_status_and_request() {
    for_each_transport(|transport| {
        let samples = even_samples(20, 20_000);
        let remote = Remote::with_samples(&samples);
        for (url, status) in [(remote.s3("data.ffr"), 403), (remote.http("data.ffr"), 401)] {
            let mount = remote.mount_with(transport, &[&url], &["cache=none"]);
            remote.store.rule(Rule::gets(Fault::Status { status, retry_after: None }));
            assert_errno(mount.read(name(3)), EACCES);
            let log = mount.log();
            for part in [&url, &status.to_string()] {
                assert!(log.contains(part.as_str()), "{part} is not in the log:\n{log}");
            }
            assert!(!url.starts_with("s3") || log.contains("TEST0"), "no request id:\n{log}");
            remote.store.heal();
            forget_failures();
            check(&mount, &samples, [3]);
            mount.unmount();
        }
    });
}

#[test]
fn retries_that_are_used_up_are_eio() {
    // With one transport, as the test takes as long as the retries.
    if !have(Need::Fuse) {
        return;
    }
    let samples = even_samples(20, 20_000);
    let remote = Remote::with_samples(&samples);
    let mount = remote.mount_with(
        Transport::DevFuse,
        &[&remote.s3("data.ffr")],
        &["cache=none", "hedge=no"],
    );
    remote.store.forget_requests();
    remote.store.rule(Rule::gets(Fault::Status { status: 500, retry_after: None }));
    assert_errno(mount.read(name(3)), EIO);
    let gets = remote.store.summary().gets;
    // Some attempts for each request of the kernel.
    assert!((3..=40).contains(&gets), "{gets} attempts");
    remote.store.heal();
    forget_failures();
    check(&mount, &samples, 0..20);
}

#[test]
fn a_token_that_expires_is_read_again_from_its_file() {
    for_each_transport(|transport| {
        let samples = even_samples(20, 20_000);
        let remote = Remote::with_samples(&samples);
        let header = remote.cache.path().join("header");
        let token = |token: &str| {
            fs::write(&header, format!("Authorization: Bearer {token}\n")).unwrap();
            let private = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
            fs::set_permissions(&header, private).unwrap();
        };
        token("first-token");
        remote.store.require_token(Some("first-token"));
        let options = ["cache=none", &format!("header={}", header.display())];
        let mount = remote.mount_with(transport, &[&remote.http("data.ffr")], &options);
        check(&mount, &samples, [1]);
        remote.store.require_token(Some("second-token"));
        assert_errno(mount.read(name(2)), EACCES);
        token("second-token");
        forget_failures();
        check(&mount, &samples, [2]);
        assert!(!mount.log().contains("-token"), "a secret is in the log");
    });
}
