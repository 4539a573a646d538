//! The cache file of an object whose bytes on disk are no longer those that were written, while the store has the right ones.

use super::cache::is_data;
use super::*;
use std::os::unix::fs::FileExt;

#[test]
fn rotten_bytes_of_a_stored_sample_are_fetched_again_before_they_are_an_error() {
    for_each_transport(|transport| {
        let samples = even_samples(60, 50_000);
        let remote = Remote::new();
        let length = remote.put_samples(&samples);
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..60);
        mount.unmount();
        rot(&remote, length, &[offsets(&samples)[20] + 1000]);
        remote.store.forget_requests();
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..60);
        assert!(remote.store.summary().gets >= 1);
    });
}

/// The cache file with the bytes of the object of this length.
fn cached_data(remote: &Remote, length: u64) -> fs::File {
    let files = walkdir::WalkDir::new(remote.cache()).into_iter().flatten();
    let is_as_long = |entry: &walkdir::DirEntry| entry.metadata().unwrap().len() == length;
    let mut data = files.filter(|entry| is_data(entry.path()) && is_as_long(entry));
    let path = data.next().expect("a file with data").into_path();
    assert!(data.next().is_none(), "one object has two files");
    fs::File::options().read(true).write(true).open(path).unwrap()
}

/// Flips a byte of the cached object of this length at each of these places.
#[track_caller]
fn rot(remote: &Remote, length: u64, places: &[u64]) {
    let data = cached_data(remote, length);
    for &place in places {
        let mut byte = [0];
        data.read_exact_at(&mut byte, place).unwrap();
        data.write_all_at(&[!byte[0]], place).unwrap();
    }
}

/// Writes the same members, large and small, as tar.gz and as zip.
const PACK: &str = "
import io, random, sys, tarfile, zipfile
folder, = sys.argv[1:]
files = {f'{i}.txt': random.Random(i).randbytes(size).hex().encode()
         for i, size in enumerate((4_500_000, 100_000, 3_000_000))}
with zipfile.ZipFile(f'{folder}/members.zip', 'w', zipfile.ZIP_DEFLATED) as out:
    for path, data in files.items():
        out.writestr(path, data)
with tarfile.open(f'{folder}/members.tar.gz', 'w:gz') as out:
    for path, data in files.items():
        info = tarfile.TarInfo(path)
        info.size = len(data)
        out.addfile(info, io.BytesIO(data))
";

/// Reads all of a container through the cache, flips these bytes of the cache file, and reads the container again.
#[track_caller]
fn reads_the_same_out_of_a_rotten_cache(container: &Path, places: &[u64], options: &[&str]) {
    let key = container.file_name().unwrap().to_str().unwrap();
    for_each_transport(|transport| {
        let remote = Remote::new();
        remote.store.put_file(&format!("{BUCKET}/{key}"), container);
        let sums = format!("{key}.ffrsum");
        if let Ok(bytes) = fs::read(container.with_file_name(&sums)) {
            remote.store.put(&format!("{BUCKET}/{sums}"), bytes);
        }
        let mount = || remote.mount(transport, &[&remote.s3(key)], options);
        let files = |mount: &Mount| {
            let mut files = loose(mount.point());
            files.retain(|path, _| !path.starts_with(".ffrfs"));
            files
        };
        let first = mount();
        let wanted = files(&first);
        assert!(wanted.len() > 1, "{key}");
        first.unmount();
        rot(&remote, fs::metadata(container).unwrap().len(), places);
        remote.store.forget_requests();
        let second = mount();
        let found = files(&second);
        assert!(found == wanted, "{key}: other bytes");
        assert!(remote.store.summary().gets >= 1, "{key}: nothing was fetched again");
        assert_eq!(second.bad(), Vec::<Vec<String>>::new());
    });
}

#[test]
fn rotten_bytes_that_are_decoded_are_fetched_again_before_they_are_an_error() {
    if !have(Need::Program("python3")) {
        return;
    }
    let directory = temp_dir();
    python(PACK, &[directory.path()]).ok();
    for (name, options) in [
        ("members.tar.gz", &[][..]),
        // All of the archive is read to open it.
        ("members.tar.gz", &["index=none"]),
        // Reads by the checkpoints that the first mount kept, and without any.
        ("members.zip", &[]),
        ("members.zip", &["index=none"]),
    ] {
        let path = directory.path().join(name);
        let length = fs::metadata(&path).unwrap().len();
        let places: Vec<_> = (1..15).map(|part| length * part / 16).collect();
        reads_the_same_out_of_a_rotten_cache(&path, &places, options);
    }
}

#[test]
fn rotten_bytes_by_which_a_container_is_opened_are_fetched_again() {
    if !have(Need::Program("python3")) {
        return;
    }
    let directory = temp_dir();
    python(PACK, &[directory.path()]).ok();
    let path = directory.path().join("members.zip");
    let bytes = fs::read(&path).unwrap();
    // The end of the directory; a name in it, which has no checksum; and the offset of a member.
    let name = bytes.windows(5).rposition(|found| found == b"2.txt").unwrap() as u64;
    for place in [bytes.len() as u64 - 20, name, name - 3] {
        reads_the_same_out_of_a_rotten_cache(&path, &[place], &[]);
    }
    let path = directory.path().join("data.ffr");
    write_container(&path, &even_samples(3, 50_000));
    // The checksum of the header, the number of samples, and the offset of one.
    for place in [0, 5, 40] {
        reads_the_same_out_of_a_rotten_cache(&path, &[place], &[]);
    }
}

#[test]
fn rotten_bytes_that_only_a_sidecar_shows_are_fetched_again_before_they_are_an_error() {
    let directory = temp_dir();
    let path = directory.path().join("rows.parquet");
    fs::copy(fixture("rows.parquet"), &path).unwrap();
    ffrfs(&["sum".as_ref(), "--sidecar".as_ref(), path.as_os_str()]).ok();
    for verify in ["verify=always", "verify=once"] {
        // A letter of a caption in a page without a checksum: it can still be decompressed.
        reads_the_same_out_of_a_rotten_cache(&path, &[454], &[verify]);
    }
}
