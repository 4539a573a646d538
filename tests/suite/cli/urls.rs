//! URLs as sources: refusals, messages, and files beside an object.

use super::*;
use crate::common::{Fault, Rule, Store, noise};
use std::os::unix::fs::symlink;

/// Runs `ffrfs` against a store, with a cache of its own.
fn remote(store: &Store, directory: &TempDir, args: &[&str]) -> Outcome {
    let cache = directory.path().join("cache");
    let mut command = Command::new(FFRFS);
    command.args(args).args(["--endpoint", &store.endpoint(), "--region", "us-east-1"]);
    command.arg("--anonymous").arg("--cache-dir").arg(cache);
    run(command.env("XDG_CACHE_HOME", directory.path()).env("HOME", directory.path()))
}

/// A tar of `files` files, written by tar(1) with its defaults.
fn tar_of(directory: &TempDir, files: usize) -> PathBuf {
    let tree = directory.path().join("tree");
    fs::create_dir_all(&tree).unwrap();
    for number in 0..files {
        fs::write(tree.join(format!("{number:03}.bin")), noise(number as u64, 5000)).unwrap();
    }
    let tar = directory.path().join("train.tar");
    let mut command = Command::new("tar");
    run(command.arg("-cf").arg(&tar).arg("-C").arg(&tree).arg(".")).ok();
    tar
}

#[test]
fn a_url_is_a_source_and_no_target() {
    let directory = temp_dir();
    for args in [
        &["convert", "a.zip", "s3://bucket/out.tar"][..],
        &["extract", "a.zip", "s3://bucket/out/"],
        &["mount", "a.zip", "s3://bucket/mnt"],
        &["pack", ".", "s3://bucket/out.ffr"],
        &["sum", "a.zip", "-o", "s3://bucket/SUMS"],
        &["bench", "a.zip", "--svg", "s3://bucket/a.svg"],
        &["trace", "mnt", "--chrome", "s3://bucket/a.json"],
    ] {
        let outcome = run(Command::new(FFRFS).args(args).current_dir(directory.path()));
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.stderr.contains("nothing is written to a store"), "{outcome:?}");
    }
}

#[test]
fn a_secret_in_an_option_or_a_url_is_refused_with_what_to_do_instead() {
    for option in [
        "secret_access_key=x",
        "password=x",
        "token=x",
        "aws_session_token=x",
        "azure_client_secret=x",
    ] {
        let outcome = ffrfs(&["mount", "s3://bucket/a.zip", "/mnt", "-o", option]);
        let name = option.split('=').next().unwrap().replace('_', "-");
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.stderr.contains(&format!("{name} is a secret")), "{outcome:?}");
        assert!(outcome.stderr.contains("credentials=FILE"), "{outcome:?}");
    }
    let header = "header=Authorization: Bearer hunter2";
    let outcome = ffrfs(&["mount", "https://host/a.zip", "/mnt", "-o", header]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(!outcome.stderr.contains("hunter2"), "{outcome:?}");
    assert!(outcome.stderr.contains("header=FILE names a file"), "{outcome:?}");
    let outcome = ffrfs(&["info", "https://user:hunter2@host/a.zip"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(!outcome.stderr.contains("hunter2") && outcome.stderr.contains("netrc"), "{outcome:?}");
}

#[test]
fn the_exit_code_tells_a_missing_object_from_a_denial_and_a_store_that_is_away() {
    let (store, directory) = (Store::new(), temp_dir());
    store.put("bucket/a.zip", noise(1, 1000));
    let missing = remote(&store, &directory, &["info", "s3://bucket/b.zip"]);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(missing.stderr.contains("s3://bucket/b.zip: status 404"), "{missing:?}");
    let pattern = remote(&store, &directory, &["info", "s3://bucket/c*.zip"]);
    assert!(pattern.code == 2 && pattern.stderr.contains("no object matches"), "{pattern:?}");
    store.rule(Rule::all(Fault::Status { status: 403, retry_after: None }));
    for command in ["info", "doctor"] {
        let denied = remote(&store, &directory, &[command, "s3://bucket/a.zip"]);
        assert_eq!(denied.code, 7, "{denied:?}");
    }
    let args = ["info", "http://127.0.0.1:1/a.zip", "--timeout", "1"];
    let away = ffrfs(&args);
    assert_eq!(away.code, 8, "{away:?}");
    assert!(away.stderr.contains("no connection to 127.0.0.1:1: "), "{away:?}");
    assert!(away.stderr.contains("; given up after 9 attempts in "), "{away:?}");
    // If an endpoint was given, the message names the endpoint.
    let args = ["info", "s3://bucket/a.zip", "--endpoint=http://127.0.0.1:1", "--anonymous"];
    let away = ffrfs(&[&args[..], &["--cache=none"]].concat());
    assert!(away.stderr.contains("s3://bucket/a.zip: no connection to 127.0.0.1:1"), "{away:?}");
    store.heal();
    store.rule(Rule::all(Fault::Status { status: 403, retry_after: None }));
    let denied = remote(&store, &directory, &["info", "s3://bucket/a.zip"]);
    let said = "s3://bucket/a.zip: status 403: AccessDenied: Access Denied (request TEST";
    assert!(denied.stderr.contains(said), "{denied:?}");
}

#[test]
fn with_nofail_nothing_is_mounted_of_an_object_that_is_missing_and_that_is_said_once() {
    let (store, directory) = (Store::new(), temp_dir());
    let helper = directory.path().join("mount.ffrfs");
    symlink(FFRFS, &helper).unwrap();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    for restarts in [5, 0] {
        let mut command = Command::new(&helper);
        command.arg("s3://bucket/b.zip").arg(&point).args(["-v", "-o"]);
        let store = format!("endpoint={},region=us-east-1,anonymous,cache=none", store.endpoint());
        command.arg(format!("nofail,restarts={restarts},{store}"));
        let outcome = run(&mut command);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let said = [outcome.text(), outcome.stderr.clone()].concat();
        assert_eq!(said.matches("the source is missing").count(), 1, "{outcome:?}");
        assert!(!said.contains(": mounted") && !said.contains("mounted\n"), "{outcome:?}");
    }
}

#[test]
fn doctor_tries_a_store_and_says_what_a_mount_would_use() {
    let (store, directory) = (Store::new(), temp_dir());
    store.put("bucket/a.ffr", fs::read(fixture("basic.ffr")).unwrap());
    let outcome = remote(&store, &directory, &["doctor", "s3://bucket/a.ffr"]);
    let text = outcome.text();
    for said in [
        "1 object,",
        "credentials: none",
        "clock: as the store's",
        "latency",
        "32 requests",
        ": cache: ",
        "room for",
        "at most 256 at a time",
        "60 samples, opened in",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn doctor_says_where_credentials_were_found_and_that_a_clock_is_wrong() {
    let (store, directory) = (Store::new(), temp_dir());
    store.put("bucket/a.ffr", fs::read(fixture("basic.ffr")).unwrap());
    store.rule(Rule::all(Fault::ClockAhead { seconds: 3600 }));
    let doctor = |variables: &[(&str, &str)]| {
        let mut command = Command::new(FFRFS);
        command.args(["doctor", "s3://bucket/a.ffr", "--cache=none", "--region=us-east-1"]);
        command.args(["--endpoint", &store.endpoint()]).envs(variables.iter().copied());
        run(command.env("HOME", directory.path()).env_remove("AWS_PROFILE"))
    };
    let keys = [("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE12345"), ("AWS_SECRET_ACCESS_KEY", "verysecret")];
    let outcome = doctor(&keys);
    let text = outcome.text();
    assert!(
        text.contains("credentials: AWS_ACCESS_KEY_ID in the environment, key AKIAEXAM…"),
        "{text}"
    );
    assert!(!text.contains("verysecret") && !text.contains("AKIAEXAMPLE12345"), "{text}");
    let late = text.lines().find(|line| line.contains(": clock: ")).unwrap();
    assert!(late.starts_with("problem") && late.contains("behind the store's"), "{late}");
    assert!(late.contains("signed"), "{late}");
    // If the store refuses a read, the output also names the credentials, and compares the clocks.
    fs::create_dir(directory.path().join(".aws")).unwrap();
    let profile = "[default]\naws_access_key_id = PROFILEKEY\naws_secret_access_key = s\n";
    fs::write(directory.path().join(".aws/credentials"), profile).unwrap();
    store.rule(Rule::all(Fault::Status { status: 403, retry_after: None }));
    let refused = doctor(&[]);
    assert_eq!(refused.code, 7, "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(text.contains("profile default in") && text.contains(".aws/credentials"), "{text}");
    assert!(text.contains("status 403") && text.contains(": clock: "), "{text}");
}

#[test]
fn an_index_beside_an_object_opens_a_tar_without_reading_it() {
    let (store, directory) = (Store::new(), temp_dir());
    let tar = tar_of(&directory, 2000);
    ffrfs(&["index".as_ref(), tar.as_os_str()]).ok();
    let index = fs::read(directory.path().join("train.tar.ffrfs-index")).unwrap();
    store.put_file("bucket/train.tar", &tar);
    store.put("bucket/train.tar.ffrfs-index", index);
    // `info` would also look into samples.
    let list = || remote(&store, &directory, &["ls", "s3://bucket/train.tar", "--index=memory"]);
    let with = list().ok();
    assert!(with.text().contains("1999.bin"), "{with:?}");
    let length = fs::metadata(&tar).unwrap().len();
    let sent = store.summary().sent_bytes;
    assert!(sent < length / 2, "{sent} of {length} bytes were fetched");
    // An index of another container is not used.
    let other = fs::read(&tar).unwrap();
    store.put("bucket/train.tar", other[..other.len() - 512].to_vec());
    let without = list().ok();
    assert_eq!(with.text(), without.text());
    assert!(store.summary().sent_bytes > length, "the index of another container was used");
}

#[test]
fn a_sidecar_beside_an_object_is_found_and_one_is_written_to_a_file_only() {
    let (store, directory) = (Store::new(), temp_dir());
    store.put_file("bucket/train.tar", &tar_of(&directory, 20));
    let refused = remote(&store, &directory, &["sum", "--sidecar", "s3://bucket/train.tar"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("upload it as s3://bucket/train.tar.ffrsum"), "{refused:?}");
    let sidecar = directory.path().join("train.ffrsum");
    let output = sidecar.to_str().unwrap();
    remote(&store, &directory, &["sum", "--sidecar", "s3://bucket/train.tar", "-o", output]).ok();
    store.put_file("bucket/train.tar.ffrsum", &sidecar);
    let checked = ["verify", "s3://bucket/", "--require-checksums"];
    remote(&store, &directory, &checked).ok();
    store.remove("bucket/train.tar.ffrsum");
    assert_ne!(remote(&store, &directory, &checked).code, 0);
}

#[test]
fn what_is_cached_is_read_by_every_command() {
    let (store, directory) = (Store::new(), temp_dir());
    store.put_file("bucket/train.tar", &tar_of(&directory, 50));
    for round in 0..3 {
        let verified = remote(&store, &directory, &["verify", "s3://bucket/train.tar"]);
        assert_eq!(verified.code, 0, "round {round}: {verified:?}");
        let cat = remote(&store, &directory, &["cat", "s3://bucket/train.tar", "007.bin"]);
        assert!(cat.stdout == noise(7, 5000), "round {round}: {cat:?}");
    }
}

#[test]
fn the_signature_in_a_url_is_not_shown() {
    let (store, directory) = (Store::new(), temp_dir());
    store.put("bucket/a.ffr", fs::read(fixture("basic.ffr")).unwrap());
    let url = format!("{}?X-Amz-Signature=hunter2", store.http("bucket/a.ffr"));
    let info = remote(&store, &directory, &["info", &url]).ok();
    assert!(!info.text().contains("hunter2") && info.text().contains("60 files"), "{info:?}");
    let missing = remote(&store, &directory, &["info", &url.replace("a.ffr", "b.ffr")]);
    assert!(missing.code == 2 && !missing.stderr.contains("hunter2"), "{missing:?}");
}
