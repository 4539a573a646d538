//! Containers of records, values and pickles together with the features of all containers: nesting and compression,
//! sidecars, names, announced orders, shards.

use super::write::{deflated, stored, tar, zip};
use super::{file_in, tree};
use crate::common::{
    FFRFS, Mount, TempDir, Transport, fixture, for_each_transport, run, temp_dir, wait_until,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Containers of each of these formats, and the options that each needs to show its files.
const CONTAINERS: [(&str, &[&str]); 9] = [
    ("alike.tfrecord", &[]),
    ("mixed.tfrecord", &[]),
    ("images.rec", &[]),
    ("mds/shard.00000.mds", &[]),
    ("data.mdb", &[]),
    ("padded-latest.h5", &[]),
    ("rows.parquet", &[]),
    ("tensors.safetensors", &[]),
    ("pickled.ffr", &["pickles"]),
];

fn shown(transport: Transport, name: &str, options: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let options = [options, &["index=none"]].concat();
    tree(Mount::new(transport, fixture(name), &options).point())
}

fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap()
}

#[test]
fn each_is_the_same_directory_in_an_archive() {
    let directory = temp_dir();
    let all: Vec<_> = CONTAINERS
        .iter()
        .map(|(name, _)| (format!("in/{}", last(name)), fs::read(fixture(name)).unwrap()))
        .collect();
    let members: Vec<_> = all.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
    let as_stored: Vec<_> = all.iter().map(|(name, bytes)| stored(name, bytes)).collect();
    let as_deflated: Vec<_> = all.iter().map(|(name, bytes)| deflated(name, bytes)).collect();
    let archives = [
        file_in(&directory, "x.tar", tar(&members)),
        file_in(&directory, "stored.zip", zip(&as_stored)),
        file_in(&directory, "deflated.zip", zip(&as_deflated)),
    ];
    for_each_transport(|transport| {
        for archive in &archives {
            let mount = Mount::new(transport, archive, &["nested=1", "pickles", "index=none"]);
            for (name, options) in CONTAINERS {
                let found = tree(&mount.path(format!("in/{}", last(name))));
                let same = found == shown(transport, name, options);
                assert!(same, "{name} in {}: {:?}", archive.display(), found.keys());
            }
            assert!(mount.bad().is_empty());
        }
    });
}

#[test]
fn each_can_be_compressed_and_is_a_directory_if_it_is_asked_for() {
    let directory = temp_dir();
    for_each_transport(|transport| {
        for (name, options) in CONTAINERS {
            let bytes = fs::read(fixture(name)).unwrap();
            let packed = zstd::encode_all(&bytes[..], 3).unwrap();
            let source = file_in(&directory, &format!("{}.zst", last(name)), packed);
            let options = [options, &["nested=1", "index=none"]].concat();
            let mount = Mount::new(transport, &source, &options);
            let found = tree(mount.point());
            let expected = shown(transport, name, &options[..options.len() - 2]);
            // Containers that a forward pass finds are shown without a directory of their own name.
            let below = mount.path(last(name));
            let found = if below.is_dir() { tree(&below) } else { found };
            assert!(found == expected, "{name}: {:?}", found.keys());
        }
    });
}

fn tool(command: &str, options: &[&str], source: &Path) -> String {
    let mut tool = Command::new(FFRFS);
    tool.arg(command).args(options).arg(source);
    let outcome = run(&mut tool).ok();
    outcome.text() + &outcome.stderr
}

#[test]
fn a_sidecar_makes_each_verifiable() {
    for (name, options) in CONTAINERS {
        let directory = temp_dir();
        let source = file_in(&directory, last(name), fs::read(fixture(name)).unwrap());
        let options: Vec<_> = options.iter().map(|option| format!("--{option}")).collect();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        tool("sum", &[&options[..], &["--sidecar"]].concat(), &source);
        let said = tool("verify", &options, &source);
        assert!(!said.contains("not verifiable") && said.contains("0 bad"), "{name}: {said}");
    }
}

#[test]
fn what_is_announced_is_read_in_that_order_and_right() {
    for_each_transport(|transport| {
        for (name, options) in CONTAINERS {
            let expected = shown(transport, name, options);
            let options = [options, &["rw", "index=none"]].concat();
            let mount = Mount::new(transport, fixture(name), &options);
            let order: String = expected.keys().rev().map(|path| format!("{path}\n")).collect();
            let mut file =
                File::options().append(true).open(mount.path(".ffrfs/prefetch")).unwrap();
            file.write_all(order.as_bytes()).unwrap();
            drop(file);
            let announced = || mount.stats()["prefetch"]["announced"].as_u64().unwrap();
            let all = expected.len() as u64;
            wait_until("all is announced", Duration::from_secs(30), || announced() >= all);
            for (path, bytes) in expected.iter().rev() {
                assert!(mount.read(path).unwrap() == *bytes, "{name}: {path}");
            }
            assert!(mount.bad().is_empty(), "{name}");
        }
    });
}

#[test]
fn shards_of_records_can_be_in_directories_of_so_many_and_be_named() {
    let directory = temp_dir();
    for number in 0..3 {
        let shard = directory.path().join(format!("train-{number:05}-of-01024.tfrecord"));
        fs::copy(fixture("alike.tfrecord"), shard).unwrap();
    }
    let source = directory.path().join("train-*-of-01024.tfrecord");
    let names: String =
        (0..18).map(|number| format!("class-{}/{number}.pb\n", number % 2)).collect();
    let names = file_in(&directory, "names.txt", names);
    for_each_transport(|transport| {
        let plain = Mount::new(transport, &source, &["index=none"]);
        let fanned = Mount::new(transport, &source, &["index=none", "fanout=10"]);
        let label = plain.read("000013/label.npy").unwrap();
        assert_eq!(fanned.read("001/000013/label.npy").unwrap(), label);
        assert_eq!(fanned.list("").len(), 2);
        let raw = Mount::new(transport, &source, &["index=none", "view=raw"]);
        let named = format!("names={}", names.display());
        let named = Mount::new(transport, &source, &["index=none", "view=raw", &named]);
        assert_eq!(named.read("class-1/13.pb").unwrap(), raw.read("000013").unwrap());
        assert_eq!(named.list("class-0").len(), 9);
    });
}

#[test]
fn a_shard_of_mds_beside_its_compressed_copy_is_shown_once() {
    let directory = temp_dir();
    for number in 0..2 {
        let name = format!("mds/shard.{number:05}.mds");
        let bytes = fs::read(fixture(&name)).unwrap();
        file_in(&directory, last(&name), &bytes);
        let packed = zstd::encode_all(&bytes[..], 3).unwrap();
        file_in(&directory, &format!("{}.zstd", last(&name)), packed);
    }
    fs::remove_file(directory.path().join("shard.00001.mds")).unwrap();
    for_each_transport(|transport| {
        let once = Mount::new(transport, directory.path(), &["index=none"]);
        assert_eq!(once.list("").len(), 8, "4 samples of one, 4 of a copy that stands alone");
        assert!(once.bad().is_empty());
    });
}

#[test]
fn a_container_without_a_checksum_over_its_index_is_not_called_right_with_pickles() {
    let directory: TempDir = temp_dir();
    for (name, word) in [("pickled.ffr", "ok"), ("no_header_checksum.ffr", "absent")] {
        let source = file_in(&directory, name, fs::read(fixture(name)).unwrap());
        for _ in 0..2 {
            let said = tool("info", &["--pickles", "--json", "--index", "auto"], &source);
            let said: serde_json::Value = serde_json::from_str(said.lines().next().unwrap_or(""))
                .or_else(|_| serde_json::from_str(&said))
                .unwrap();
            assert_eq!(said["containers"][0]["index_checksum"], word, "{name}");
        }
    }
}
