//! Containers in servers that others wrote, as their users see them: every byte, and no byte of another version.

use crate::common::*;
use std::path::Path;
use std::time::Duration;

/// Samples of one size, so that containers of different seeds have one layout. Some MiB in all.
fn equal_samples(seed: u64) -> Vec<Vec<u8>> {
    (0..SAMPLES as u64).map(|number| noise(seed * 1000 + number, 60_000)).collect()
}

const SAMPLES: usize = 80;

/// All sample numbers, in an order in which none follows the one before it.
fn scattered() -> impl Iterator<Item = usize> {
    (0..SAMPLES).map(|number| number * 37 % SAMPLES)
}

/// A mount of one container of a server.
struct Remote<'a> {
    server: &'a Server,
    /// The key by which the server's `put` stores the container.
    key: &'a str,
    url: String,
    environment: Vec<(String, String)>,
}

impl Remote<'_> {
    fn mount(&self, transport: Transport, options: &[&str]) -> Mount {
        Mount::started(transport, &[Path::new(&self.url)], options, |mut command| {
            command.envs(self.environment.iter().cloned());
            command
        })
    }

    /// Mounts with each transport, with a cache on disk that the second mount finds filled, and without one.
    fn gives_every_byte(&self) {
        let samples = equal_samples(1);
        self.server.put(self.key, &samples);
        let directory = temp_dir();
        let cached = format!("cache-dir={}", directory.path().display());
        for_each_transport(|transport| {
            for cache in ["cache=none", &cached] {
                let mount = self.mount(transport, &[cache]);
                assert_eq!(mount.list("").len(), SAMPLES);
                for number in scattered() {
                    let read = mount.read(name(number)).unwrap();
                    assert!(read == samples[number], "{number} with {cache}");
                }
                mount.unmount();
            }
        });
    }

    /// Puts another container in place of a mounted one: reads give bytes of the old one or fail, and before long all reads
    /// fail.
    fn never_mixes_versions(&self) {
        let (old, new) = (equal_samples(1), equal_samples(2));
        for_each_transport(|transport| {
            self.server.put(self.key, &old);
            let mount = self.mount(transport, &["cache=none"]);
            let mut numbers = scattered();
            for number in numbers.by_ref().take(10) {
                assert!(mount.read(name(number)).unwrap() == old[number]);
            }
            // nginx tells versions apart by their lengths and times in seconds.
            std::thread::sleep(Duration::from_millis(1100));
            self.server.put(self.key, &new);
            // A change may stay unseen for a second.
            std::thread::sleep(Duration::from_millis(1100));
            let mut stale = 0;
            for number in numbers {
                match mount.read(name(number)) {
                    Ok(read) => assert!(read == old[number] && stale == 0, "{number}"),
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                        stale += 1;
                    }
                }
            }
            assert!(stale > 0, "the change was not seen");
            mount.unmount();
        });
    }
}

fn name(number: usize) -> String {
    format!("{number:06}")
}

fn nginx<'a>(server: &'a Server, place: &str) -> Remote<'a> {
    let url = format!("{}/{place}/d/data.ffr", server.setting("URL"));
    Remote { server, key: "d/data.ffr", url, environment: Vec::new() }
}

#[test]
fn a_container_behind_nginx_gives_every_byte() {
    let Some(server) = Server::start("http") else { return };
    nginx(&server, "open").gives_every_byte();
}

#[test]
fn a_container_behind_a_password_is_read_with_the_one_in_netrc() {
    let Some(server) = Server::start("http") else { return };
    let home = temp_dir();
    let netrc = home.path().join(".netrc");
    let (user, password) = (server.setting("HTTP_USER"), server.setting("HTTP_PASSWORD"));
    let line = format!("machine 127.0.0.1 login {user} password {password}\n");
    std::fs::write(&netrc, line).unwrap();
    let mut remote = nginx(&server, "closed");
    let refused = ffrfs(&["info", &remote.url]);
    assert!(refused.code != 0 && refused.stderr.contains("401"), "{}", refused.stderr);
    remote.environment = vec![("NETRC".to_owned(), netrc.display().to_string())];
    remote.gives_every_byte();
}

#[test]
fn a_container_that_is_replaced_behind_nginx_is_never_mixed() {
    let Some(server) = Server::start("http") else { return };
    nginx(&server, "open").never_mixes_versions();
}

fn s3<'a>(server: &'a Server, key: &'a str) -> Remote<'a> {
    let environment = server.environment("AWS_");
    Remote { server, key, url: format!("s3://{key}"), environment }
}

#[test]
fn a_container_in_s3_gives_every_byte() {
    let Some(server) = Server::start("s3") else { return };
    s3(&server, "data/d/data.ffr").gives_every_byte();
}

#[test]
fn a_container_that_is_replaced_in_s3_is_never_mixed() {
    let Some(server) = Server::start("s3") else { return };
    s3(&server, "data/d/data.ffr").never_mixes_versions();
}

#[test]
fn a_bucket_that_keeps_versions_gives_the_one_that_was_mounted() {
    let Some(server) = Server::start("s3") else { return };
    let remote = s3(&server, "versions/data.ffr");
    let (old, new) = (equal_samples(1), equal_samples(2));
    for_each_transport(|transport| {
        server.put(remote.key, &old);
        let mount = remote.mount(transport, &["cache=none"]);
        assert!(mount.read(name(0)).unwrap() == old[0]);
        server.put(remote.key, &new);
        std::thread::sleep(Duration::from_millis(1100));
        for number in scattered() {
            assert!(mount.read(name(number)).unwrap() == old[number], "{number}");
        }
        mount.unmount();
    });
}

fn gcs(server: &Server) -> Remote<'_> {
    let environment = server.environment("STORAGE_");
    let (key, url) = ("data/d/data.ffr", "gs://data/d/data.ffr".to_owned());
    Remote { server, key, url, environment }
}

#[test]
fn a_container_in_google_cloud_storage_gives_every_byte() {
    let Some(server) = Server::start("gcs") else { return };
    gcs(&server).gives_every_byte();
}

#[test]
fn a_container_that_is_replaced_in_google_cloud_storage_is_never_mixed() {
    let Some(server) = Server::start("gcs") else { return };
    gcs(&server).never_mixes_versions();
}

#[test]
fn a_prefix_in_google_cloud_storage_is_listed() {
    let Some(server) = Server::start("gcs") else { return };
    let samples = equal_samples(1);
    for shard in 0..3 {
        let part = &samples[shard * 20..shard * 20 + 20];
        server.put(&format!("data/shards/part-{shard}+é.ffr"), part);
    }
    let url = "gs://data/shards/".to_owned();
    let environment = server.environment("STORAGE_");
    let mount = Remote { server: &server, key: "", url, environment }
        .mount(Transport::DevFuse, &["cache=none"]);
    assert_eq!(mount.list("").len(), 60);
    assert!((0..60).all(|number| mount.read(name(number)).unwrap() == samples[number]));
}

fn azure(server: &Server) -> Remote<'_> {
    let environment = server.environment("AZURE_");
    let (key, url) = ("data/d/data.ffr", "az://data/d/data.ffr".to_owned());
    Remote { server, key, url, environment }
}

#[test]
#[ignore = "Azurite is large: scripts/test --full"]
fn a_container_in_azure_gives_every_byte_and_is_never_mixed() {
    let Some(server) = Server::start("azure") else { return };
    azure(&server).gives_every_byte();
    azure(&server).never_mixes_versions();
}

fn hdfs<'a>(server: &'a Server, authority: &str) -> Remote<'a> {
    let environment = server.environment("HADOOP_CONF_DIR");
    let url = format!("hdfs://{authority}/d/data.ffr");
    Remote { server, key: "d/data.ffr", url, environment }
}

/// The URL has a name service whose first NameNode is dead.
#[test]
#[ignore = "Hadoop is large: scripts/test --full"]
fn a_container_in_hdfs_gives_every_byte_and_is_never_mixed() {
    let Some(server) = Server::start("hdfs") else { return };
    hdfs(&server, "tests").gives_every_byte();
    hdfs(&server, "tests").never_mixes_versions();
}

/// A server with this protection of connections gives every byte to clients with a ticket or a keytab, and to no others.
fn hdfs_with_kerberos(protection: &str) {
    let Some(server) = Server::start(&format!("hdfs-{protection}")) else { return };
    let mut remote = hdfs(&server, "tests");
    remote.environment.push(("KRB5_CONFIG".into(), server.setting("KRB5_CONFIG").into()));
    let tickets = server.setting("KRB5CCNAME").to_owned();
    let keytab = server.setting("KEYTAB").to_owned();
    let none = format!("{keytab}-none");
    let asked = |tickets: &str, more: &[&str]| {
        let mut command = std::process::Command::new(FFRFS);
        command.args(["info", &remote.url, "--cache=none"]).args(more);
        run(command.envs(remote.environment.iter().cloned()).env("KRB5CCNAME", tickets))
    };
    server.put(remote.key, &equal_samples(1));
    assert_eq!(asked(&tickets, &[]).code, 0);
    assert_eq!(asked(&none, &["--credentials", &keytab]).code, 0);
    let refused = asked(&none, &[]);
    assert_eq!(refused.code, 7, "{}", refused.stderr);
    assert!(refused.stderr.contains("run kinit, or name a keytab"), "{}", refused.stderr);
    remote.environment.push(("KRB5CCNAME".into(), tickets));
    let mount = remote.mount(Transport::DevFuse, &["cache=none"]);
    let samples = equal_samples(1);
    assert!(scattered().all(|number| mount.read(name(number)).unwrap() == samples[number]));
    mount.unmount();
}

#[test]
#[ignore = "Hadoop is large: scripts/test --full"]
fn a_container_in_hdfs_with_kerberos_gives_every_byte() {
    hdfs_with_kerberos("authentication");
}

#[test]
#[ignore = "Hadoop is large: scripts/test --full"]
fn a_container_in_hdfs_with_kerberos_and_integrity_gives_every_byte() {
    hdfs_with_kerberos("integrity");
}

#[test]
#[ignore = "Hadoop is large: scripts/test --full"]
fn a_container_in_hdfs_with_kerberos_and_privacy_gives_every_byte() {
    hdfs_with_kerberos("privacy");
}

/// The token service and the store are one server of moto, as with MinIO.
#[test]
fn a_container_in_s3_is_read_with_an_assumed_role() {
    let Some(server) = Server::start("s3") else { return };
    let home = temp_dir();
    let config = home.path().join("config");
    let text = "[profile reader]\nrole_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = source\n\
        [profile web]\nrole_arn = arn:aws:iam::123456789012:role/web\nweb_identity_token_file = TOKEN\n\
        [profile source]\naws_access_key_id = key\naws_secret_access_key = secret\n";
    let token = home.path().join("token");
    std::fs::write(&token, "token").unwrap();
    std::fs::write(&config, text.replace("TOKEN", &token.display().to_string())).unwrap();
    let mut remote = s3(&server, "data/d/data.ffr");
    remote.environment.retain(|(name, _)| !name.contains("KEY"));
    remote.environment.push(("AWS_CONFIG_FILE".into(), config.display().to_string()));
    server.put(remote.key, &equal_samples(1));
    for profile in ["reader", "web"] {
        let profile = format!("profile={profile}");
        let mount = remote.mount(Transport::DevFuse, &["cache=none", "sandbox=auto", &profile]);
        let samples = equal_samples(1);
        assert!(scattered().all(|number| mount.read(name(number)).unwrap() == samples[number]));
        mount.unmount();
    }
}

#[test]
#[ignore = "Hadoop is large: scripts/test --full"]
fn datanodes_may_hang_and_die_while_a_container_in_hdfs_is_read() {
    let Some(server) = Server::start("hdfs") else { return };
    let samples = equal_samples(1);
    server.put("d/data.ffr", &samples);
    for_each_transport(|transport| {
        // The URL means the default file system.
        let mount = hdfs(&server, "").mount(transport, &["cache=none", "timeout=3"]);
        let mut numbers = scattered();
        let mut read_some = |why: &str| {
            for number in numbers.by_ref().take(SAMPLES / 4) {
                let read = mount.read(name(number)).unwrap_or_else(|e| panic!("{why}: {e}"));
                assert!(read == samples[number], "{why}: {number}");
            }
        };
        read_some("at first");
        server.tell("hang 1");
        read_some("while a DataNode hangs");
        server.tell("go-on 1");
        server.tell("kill 2");
        read_some("after the other one was killed");
        server.tell("start 2");
        read_some("after it came back");
        mount.unmount();
    });
}
