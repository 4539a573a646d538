//! `ffrfs cache`: cached objects are listed, removed, checked and pinned.

use crate::common::{Outcome, Store, TempDir, ffrfs, noise, temp_dir_in_memory};
use ffrfs::store::cache::{BLOCK_BYTES, Cache, Claim, Entry};
use ffrfs::store::remote::{Location, Object};
use serde_json::Value;
use std::fs;
use std::sync::Arc;

const LENGTH: u64 = 2 * BLOCK_BYTES;

fn cache(directory: &TempDir, args: &[&str]) -> Outcome {
    let place = directory.path().to_str().unwrap();
    ffrfs(&[&["cache"], args, &["--cache-dir", place]].concat())
}

/// Adds an object whose first block is cached.
fn add(cache: &Cache, url: &str) -> Arc<Entry> {
    let object = Object {
        location: Location::parse(url).unwrap().unwrap(),
        length_bytes: LENGTH,
        modified: None,
        version_id: None,
        etag: Some("\"v1\"".to_owned()),
    };
    let entry = cache.entry(&object, "").unwrap();
    if let Claim::Fetch(mut fetching) = entry.claim(0) {
        fetching.write(0, &vec![7; BLOCK_BYTES as usize]).unwrap();
        fetching.publish().unwrap();
    }
    assert!(entry.is_present(&(0..BLOCK_BYTES)));
    entry
}

fn listed(directory: &TempDir) -> Vec<Value> {
    let json = cache(directory, &["ls", "--json"]).ok().text();
    let json: Value = serde_json::from_str(&json).unwrap();
    json["objects"].as_array().unwrap().clone()
}

fn urls(directory: &TempDir) -> Vec<String> {
    listed(directory).iter().map(|object| object["url"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn cached_objects_are_listed_removed_and_pinned_by_url_prefix_and_pattern() {
    let directory = temp_dir_in_memory();
    assert!(listed(&directory).is_empty());
    let daemon = Cache::open(directory.path(), None).unwrap();
    for url in ["s3://b/a.tar", "s3://b/dir/1", "s3://b/dir/2", "https://host/x.zip"] {
        drop(add(&daemon, url));
    }
    let held = add(&daemon, "s3://b/held");
    let list = cache(&directory, &["ls"]).ok().text();
    assert!(list.ends_with("5 objects, 5.00 MiB\n"), "{list}");
    let first = &listed(&directory)[0];
    assert_eq!(first["url"], "https://host/x.zip");
    assert_eq!(first["length_bytes"], LENGTH);
    assert_eq!(first["cached_bytes"], BLOCK_BYTES);
    assert_eq!((&first["version"], &first["users"]), (&"\"v1\"".into(), &0.into()));
    let list = cache(&directory, &["ls", "s3://b/*.tar"]).ok().text();
    assert!(list.contains("s3://b/a.tar") && !list.contains("s3://b/dir"), "{list}");

    cache(&directory, &["pin", "https://host/x.zip"]).ok();
    let said = cache(&directory, &["rm", "s3://b/dir/"]).ok().stderr;
    assert_eq!(said, "2 objects removed, 2.00 MiB\n");
    let refused = cache(&directory, &["rm", "s3://b/held"]);
    assert_eq!(refused.code, 6);
    assert!(refused.stderr.contains("1 object in use: unmount first"), "{}", refused.stderr);
    cache(&directory, &["rm", "--unused"]).ok();
    assert_eq!(urls(&directory), ["https://host/x.zip", "s3://b/held"]);
    drop(held);
    cache(&directory, &["rm", "--all"]).ok();
    assert_eq!(urls(&directory), ["https://host/x.zip"]);
    cache(&directory, &["unpin", "https://host/*"]).ok();
    cache(&directory, &["rm", "--all"]).ok();
    assert!(urls(&directory).is_empty());
}

#[test]
fn add_fetches_whole_objects_and_says_what_did_not_fit() {
    let (directory, store) = (temp_dir_in_memory(), Store::new());
    for key in ["bucket/a.tar", "bucket/b.tar"] {
        store.put(key, noise(1, 9 << 20));
    }
    let endpoint = store.endpoint();
    let options = ["--endpoint", &*endpoint, "--anonymous", "--region", "us-east-1"];
    let add = |more: &[&str]| {
        cache(&directory, &[&["add", "s3://bucket/{a,b}.tar"], more, &options].concat())
    };
    let refused = add(&["--cache-max", "4M"]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("no room in the cache for"), "{}", refused.stderr);
    assert_eq!(add(&[]).ok().stderr, "2 objects, 18.00 MiB cached\n");
    assert_eq!(urls(&directory), ["s3://bucket/a.tar", "s3://bucket/b.tar"]);
    assert!(listed(&directory).iter().all(|object| object["cached_bytes"] == 9 << 20));
    cache(&directory, &["verify"]).ok();
}

#[test]
fn wrong_calls_of_cache_say_what_is_wrong() {
    let directory = temp_dir_in_memory();
    let calls: [(&[&str], i32, &str); 4] = [
        (&["rm"], 1, "--all"),
        (&["ls", "--unused"], 1, "--unused goes with rm"),
        (&["pin", "s3://b/nothing"], 2, "s3://b/nothing: nothing of it is cached"),
        (&["frobnicate"], 1, "frobnicate"),
    ];
    for (args, code, says) in calls {
        let outcome = cache(&directory, args);
        assert_eq!(outcome.code, code, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{args:?}: {}", outcome.stderr);
    }
}

#[test]
fn verify_of_the_cache_finds_damaged_blocks() {
    let directory = temp_dir_in_memory();
    let daemon = Cache::open(directory.path(), None).unwrap();
    drop(add(&daemon, "s3://b/a.tar"));
    let said = cache(&directory, &["verify"]).ok().text();
    assert_eq!(said, "1 object, 1 block checked, 0 damaged\n");
    let found = fs::read_dir(directory.path().join("objects/entries")).unwrap();
    let data = found.map(|entry| entry.unwrap().path());
    let data: Vec<_> = data.filter(|path| path.extension().unwrap() == "data").collect();
    let file = fs::File::options().write(true).open(&data[0]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"wrong", 1000).unwrap();
    let outcome = cache(&directory, &["verify", "--json"]);
    assert_eq!(outcome.code, 4);
    let json: Value = serde_json::from_str(&outcome.text()).unwrap();
    assert_eq!((&json["blocks"], &json["damaged"]), (&0.into(), &1.into()));
    cache(&directory, &["verify"]).ok();
}
