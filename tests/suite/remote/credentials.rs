//! Credentials that a program of the user prints.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// Makes a pipe, which no confined process can, and says that it was run. Its credentials have expired, so that it is run
/// for each request.
const PROGRAM: &str = r#"#!/bin/sh
set -e
mkfifo "$0.$$"
echo run >>"$0.log"
printf '{"Version":1,"AccessKeyId":"id","SecretAccessKey":"s","Expiration":"2001-01-01T00:00:00Z"}'
"#;

#[test]
fn the_program_for_credentials_may_need_anything_and_the_daemon_is_confined_all_the_same() {
    for_each_transport(|transport| {
        let samples = even_samples(20, 2_000_000);
        let remote = Remote::with_samples(&samples);
        let home = temp_dir();
        let (program, config) = (home.path().join("program"), home.path().join("config"));
        fs::write(&program, PROGRAM).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let profile = format!("[default]\ncredential_process = {}\n", program.display());
        fs::write(&config, profile).unwrap();
        let endpoint = format!("endpoint={}", remote.store.endpoint());
        let cache = format!("cache-dir={}", remote.cache().display());
        let options = [&*endpoint, &*cache, "region=us-east-1", "restarts=5"];
        let url = remote.s3("data.ffr");
        let mount = Mount::started(transport, &[Path::new(&url)], &options, |mut command| {
            command.env("AWS_CONFIG_FILE", &config).env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
            command
        });
        let runs = || fs::read_to_string(home.path().join("program.log")).unwrap().lines().count();
        let before = runs();
        check(&mount, &samples, 0..samples.len());
        assert!(runs() > before, "it was run while the daemon was confined: {}", mount.log());
        let local = Mount::with_samples(transport, &samples, &[]);
        assert_eq!(mount.info()["sandbox"], local.info()["sandbox"]);
        mount.unmount();
    });
}
