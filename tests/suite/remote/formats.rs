//! Each format reads the same out of a store as from a file.

use super::*;
use std::time::{Duration, UNIX_EPOCH};

/// Writes one directory as zip and tar, plain and compressed.
const PACK: &str = "
import random, sys, tarfile, zipfile
folder, = sys.argv[1:]
files = {f'{group}/{i:03}.{ext}': random.Random(i).randbytes(i * 977 % 9000) if i % 3 else b'text ' * i * 50
         for i, group in enumerate('abc' * 40) for ext in ('jpg', 'json')}
for name, method in (('plain.zip', zipfile.ZIP_STORED), ('deflated.zip', zipfile.ZIP_DEFLATED)):
    with zipfile.ZipFile(f'{folder}/{name}', 'w', method) as out:
        for path, data in files.items():
            out.writestr(path, data)
import io
for name, mode in (('plain.tar', 'w'), ('gzip.tar.gz', 'w:gz'), ('xz.tar.xz', 'w:xz')):
    with tarfile.open(f'{folder}/{name}', mode) as out:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
";

/// Copies the fixtures of these names to a directory.
fn copied(directory: &TempDir, names: &[&str]) -> Vec<PathBuf> {
    let copy = |name: &&str| {
        let copy = directory.path().join(name.rsplit('/').next().unwrap());
        fs::copy(fixture(name), &copy).unwrap();
        copy
    };
    names.iter().map(copy).collect()
}

/// Mounts each container from a file and from stores, with and without a cache.
fn assert_the_same_from_stores(containers: &[PathBuf]) {
    for path in containers {
        // Stores give times in seconds.
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    }
    for_each_transport(|transport| {
        let remote = Remote::new();
        for container in containers {
            let key = container.file_name().unwrap().to_str().unwrap();
            remote.store.put_file(&format!("{BUCKET}/{key}"), container);
            let more = if key == "pickled.ffr" { &["pickles"][..] } else { &[] };
            let local = Mount::new(transport, container, &[&["index=memory"][..], more].concat());
            let wanted = loose(local.point());
            assert!(wanted.len() > 1, "{key}");
            for url in [remote.s3(key), remote.http(key)] {
                for cache in ["disk", "none"] {
                    let mount = match cache {
                        "none" => {
                            let options = [&["cache=none"][..], more].concat();
                            remote.mount_with(transport, &[&url], &options)
                        }
                        _ => remote.mount(transport, &[&url], more),
                    };
                    let found = loose(mount.point());
                    for (path, what) in &wanted {
                        let is_control = path.starts_with(".ffrfs");
                        let same = is_control || found.get(path) == Some(what);
                        assert!(same, "{url}, cache {cache}: {}", path.display());
                    }
                    assert_eq!(found.len(), wanted.len(), "{url}, cache {cache}");
                    mount.unmount();
                }
            }
        }
    });
}

#[test]
fn ffrecord_syrah_and_ffcv_read_the_same_from_a_store_as_from_a_file() {
    let directory = temp_dir();
    let names = ["basic.ffr", "packed_folder.ffr", "features.syr", "mixed.syr", "jpg.beton"];
    let mut containers = copied(&directory, &names);
    containers.extend(copied(&directory, &["raw.beton", "pickled.ffr"]));
    containers.push(container_in(&directory, &samples(300, 40_000)));
    assert_the_same_from_stores(&containers);
}

#[test]
fn formats_of_records_read_the_same_from_a_store_as_from_a_file() {
    let directory = temp_dir();
    let names = ["alike.tfrecord", "mixed.tfrecord", "images.rec", "mds/shard.00000.mds"];
    let mut containers = copied(&directory, &names);
    containers.extend(copied(&directory, &["data.mdb", "rows.parquet", "nulls.parquet"]));
    assert_the_same_from_stores(&containers);
}

#[test]
fn formats_of_arrays_read_the_same_from_a_store_as_from_a_file() {
    let directory = temp_dir();
    let names = ["tensors.safetensors", "earliest.h5", "padded-latest.h5"];
    assert_the_same_from_stores(&copied(&directory, &names));
}

#[test]
fn archives_read_the_same_from_a_store_as_from_a_file() {
    if !have(Need::Program("python3")) {
        return;
    }
    let directory = temp_dir();
    python(PACK, &[directory.path()]).ok();
    let names = ["plain.zip", "deflated.zip", "plain.tar", "gzip.tar.gz", "xz.tar.xz"];
    assert_the_same_from_stores(&names.map(|name| directory.path().join(name)));
}

#[test]
fn commands_take_urls_as_they_take_paths() {
    let remote = Remote::new();
    let samples = samples(100, 5000);
    remote.put_samples(&samples);
    let (url, cache) = (remote.s3("data.ffr"), remote.cache());
    let endpoint = remote.store.endpoint();
    let flags = ["--endpoint", &endpoint, "--anonymous", "--region", "us-east-1", "--cache-dir"];
    let command = |command: &str, rest: &[&str]| {
        let mut args = vec![command, &url];
        args.extend(rest);
        args.extend(flags);
        args.push(cache.to_str().unwrap());
        ffrfs(&args).ok()
    };
    assert!(command("info", &[]).text().contains("100"));
    assert!(command("ls", &[]).text().contains("000042"));
    assert!(command("cat", &["000042"]).stdout == samples[42]);
    command("verify", &[]);
    let target = remote.cache.path().join("extracted");
    command("extract", &[target.to_str().unwrap()]);
    for (number, sample) in samples.iter().enumerate() {
        assert!(fs::read(target.join(name(number))).unwrap() == *sample, "{number}");
    }
}

#[test]
fn a_container_is_opened_with_few_requests() {
    for_each_transport(|transport| {
        let samples = samples(2000, 3000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &[]);
        let summary = remote.store.summary();
        // For the object's version, its index, and files that may lie beside it: a kept index and a sidecar.
        let requests = summary.heads + summary.gets;
        assert!(requests <= 6, "{:#?}", remote.store.requests());
        check(&mount, &samples, [0, 1999, 700]);
    });
}

#[test]
fn an_object_and_its_sidecar_are_asked_for_at_the_same_time() {
    let remote = Remote::new();
    let endpoint = remote.store.endpoint();
    let url = remote.s3("missing.ffr");
    let flags = ["--endpoint", &endpoint, "--anonymous", "--region", "us-east-1"];
    assert_ne!(ffrfs(&[&["info", &url], &flags[..]].concat()).code, 0);
    // The request for the sidecar has not waited for the answer about the object.
    assert_eq!(remote.store.summary().heads, 2, "{:#?}", remote.store.requests());
}
