//! An object that changes under a mount: the old version or ESTALE, never a mixture.

use super::*;
use nix::libc::ESTALE;

/// Reads one sample of a mount, and puts another object in place of the mounted one.
fn changed(remote: &Remote, mount: &Mount, old: &[Vec<u8>]) {
    check(mount, old, [0]);
    let new: Vec<_> = old
        .iter()
        .map(|sample| sample.iter().map(|byte| !byte).collect())
        .collect::<Vec<Vec<u8>>>();
    remote.put_samples(&new);
}

#[test]
fn a_changed_object_is_estale_and_nothing_of_it_is_shown() {
    for_each_transport(|transport| {
        for cache in ["cache=none", "cache=disk"] {
            for kind in ["s3", "http", "conditions ignored"] {
                let samples = even_samples(60, 30_000);
                let remote = Remote::with_samples(&samples);
                let url =
                    if kind == "http" { remote.http("data.ffr") } else { remote.s3("data.ffr") };
                if kind == "conditions ignored" {
                    remote.store.rule(Rule::all(Fault::IgnoreConditions));
                }
                let place = format!("cache-dir={}", remote.cache().display());
                let option = if cache == "cache=none" { cache } else { &place };
                let mount = remote.mount_with(transport, &[&url], &[option]);
                changed(&remote, &mount, &samples);
                let mut stale = 0;
                for (sample, wanted) in samples.iter().enumerate().skip(1) {
                    match mount.read(name(sample)) {
                        // Fetched with a neighbour before the change.
                        Ok(bytes) => {
                            assert!(bytes == *wanted, "{kind}: sample {sample} is mixed")
                        }
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(ESTALE), "{kind}: {error}");
                            stale += 1;
                        }
                    }
                }
                assert!(cache == "cache=disk" || stale > 0, "{kind}");
                let lines = mount.log().lines().filter(|line| line.contains("changed")).count();
                assert!(lines <= 1, "{kind}: {}", mount.log());
                mount.unmount();
            }
        }
    });
}

#[test]
fn an_object_that_is_gone_is_estale() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 30_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
        check(&mount, &samples, [0]);
        remote.store.remove("bucket/data.ffr");
        assert_errno(mount.read(name(50)), ESTALE);
    });
}

#[test]
fn a_server_without_etags_is_compared_by_time_and_length() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 30_000);
        let remote = Remote::with_samples(&samples);
        remote.store.rule(Rule::all(Fault::NoEtag));
        let mount = remote.mount_with(transport, &[&remote.http("data.ffr")], &["cache=none"]);
        check(&mount, &samples, [0, 20]);
        remote.put_samples(&even_samples(61, 30_000));
        assert_errno(mount.read(name(50)), ESTALE);
    });
}

#[test]
fn a_store_that_keeps_versions_shows_the_one_that_was_mounted() {
    for_each_transport(|transport| {
        let (remote, samples) = (Remote::new(), even_samples(60, 30_000));
        remote.store.keep_versions();
        remote.put_samples(&samples);
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
        changed(&remote, &mount, &samples);
        check(&mount, &samples, 0..60);
        let gets = remote.store.gets();
        let last = gets.last().unwrap();
        assert!(last.version_id.is_some() || last.if_match.is_some(), "{last:?}");
    });
}

#[test]
fn a_new_version_is_read_anew_by_the_next_mount() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 30_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..60);
        mount.unmount();
        let new: Vec<Vec<u8>> = samples.iter().rev().cloned().collect();
        remote.put_samples(&new);
        let mount = remote.data(transport, &[]);
        check(&mount, &new, 0..60);
    });
}
