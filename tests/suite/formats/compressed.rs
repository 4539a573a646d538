//! Compressed archives and files: the content is right, also in the middle.

mod damage;

use super::write::{self, deflated, stored, text, through, zip};
use super::{Times, compare, file_in, plant, plant_links_and_holes, run_in, tree};
use crate::common::{
    Mount, Need, TempDir, Transport, ffrfs, fixture, for_each_transport, have, noise, run, temp_dir,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;

/// Compressors: program, options, ending.
const PROGRAMS: [(&str, &[&str], &str); 4] = [
    ("gzip", &["-c"], "gz"),
    ("bzip2", &["-c"], "bz2"),
    ("xz", &["-c", "-1", "--block-size=100KiB"], "xz"),
    ("zstd", &["-c", "-q"], "zst"),
];

/// A stream in parts, as `cat` joins them and all of these formats allow.
fn in_parts(program: &str, options: &[&str], bytes: &[u8], parts: usize) -> Vec<u8> {
    let pieces = bytes.chunks(bytes.len().div_ceil(parts));
    pieces.flat_map(|piece| through(program, options, piece)).collect()
}

#[test]
fn compressed_archives_are_shown_as_the_directory_that_was_packed() {
    let (directory, archives) = (temp_dir(), temp_dir());
    plant(directory.path());
    plant_links_and_holes(directory.path());
    let tar = archives.path().join("x.tar");
    if !have(Need::Program("tar")) {
        return;
    }
    let pack = ["--format=posix", "--sparse", "-cf", tar.to_str().unwrap(), "."];
    run_in(directory.path(), "tar", &pack);
    let bytes = fs::read(&tar).unwrap();
    for (program, options, ending) in PROGRAMS {
        if !have(Need::Program(program)) {
            continue;
        }
        for parts in [1, 5] {
            let packed = in_parts(program, options, &bytes, parts);
            let archive = file_in(&archives, &format!("{parts}.tar.{ending}"), packed);
            for_each_transport(|transport| {
                let mount = Mount::new(transport, &archive, &[]);
                compare(directory.path(), &mount, Times::Nanoseconds);
            });
        }
    }
}

#[test]
fn a_compressed_file_is_shown_as_the_only_one() {
    let directory = temp_dir();
    let bytes = [text(1, 300_000), noise(2, 50_000)].concat();
    for (program, options, ending) in PROGRAMS {
        if !have(Need::Program(program)) {
            continue;
        }
        let packed = in_parts(program, options, &bytes, 3);
        let source = file_in(&directory, &format!("log.txt.{ending}"), packed);
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &source, &[]);
            assert_eq!(mount.list(""), ["log.txt"]);
            assert!(mount.read("log.txt").unwrap() == bytes, "{ending}");
        });
    }
}

#[test]
fn the_name_and_time_that_gzip_stores_are_shown() {
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let path = file_in(&directory, "first name.csv", "a,b\n");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    run(Command::new("gzip").arg("-N").arg(&path)).ok();
    let moved = directory.path().join("other.gz");
    fs::rename(directory.path().join("first name.csv.gz"), &moved).unwrap();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &moved, &[]);
        assert_eq!(mount.list(""), ["first name.csv"]);
        let shown = fs::metadata(mount.path("first name.csv")).unwrap();
        assert_eq!((shown.len(), shown.modified().unwrap()), (4, time));
    });
}

/// More bytes than are decoded at once, and than lie between two checkpoints.
const LARGE_BYTES: usize = 22 << 20;

/// Reads pieces at offsets that look random, and compares; also with `dd`.
#[track_caller]
fn read_in_the_middle(mount: &Mount, name: &str, expected: &[u8]) {
    let file = File::open(mount.path(name)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
    for (number, place) in noise(77, 8 * 40).chunks(8).enumerate() {
        let place = u64::from_le_bytes(place.try_into().unwrap()) as usize % expected.len();
        let length = [1, 4096, 100_000][number % 3].min(expected.len() - place);
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, place as u64).unwrap();
        assert!(bytes == expected[place..place + length], "{length} bytes at {place}");
    }
    let skip = expected.len() / 2 + 12_345;
    let arguments =
        [format!("skip={skip}"), "count=5000".into(), "iflag=skip_bytes,count_bytes".into()];
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", mount.path(name).display())).args(arguments).arg("status=none");
    assert!(run(&mut dd).ok().stdout == expected[skip..skip + 5000], "dd");
}

#[test]
fn reads_in_the_middle_of_a_large_deflated_member_are_right() {
    let directory = temp_dir();
    let bytes = text(5, LARGE_BYTES);
    let members = [stored("before", "x"), deflated("large.txt", &bytes), stored("after", "y")];
    let archive = file_in(&directory, "x.zip", zip(&members));
    for_each_transport(|transport| {
        for option in ["verify=always", "verify=off"] {
            let mount = Mount::new(transport, &archive, &[option]);
            read_in_the_middle(&mount, "large.txt", &bytes);
            let copy = file_in(&directory, "large.txt", &bytes);
            run(Command::new("cmp").arg(mount.path("large.txt")).arg(copy)).ok();
            assert_eq!(mount.read("after").unwrap(), b"y");
        }
    });
}

#[test]
fn many_readers_of_large_members_in_little_memory_all_get_the_right_bytes() {
    let directory = temp_dir();
    let parts = [text(11, LARGE_BYTES), text(12, LARGE_BYTES)];
    let members = [deflated("0", &parts[0]), deflated("1", &parts[1])];
    let archive = file_in(&directory, "x.zip", zip(&members));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &["memory=64M"]);
        std::thread::scope(|scope| {
            for reader in 0..8_u64 {
                let (mount, part) = (&mount, (reader % 2) as usize);
                let expected = &parts[part];
                scope.spawn(move || {
                    let file = File::open(mount.path(part.to_string())).unwrap();
                    for place in noise(reader, 8 * 20).chunks(8) {
                        let place = u64::from_le_bytes(place.try_into().unwrap()) as usize;
                        let place = place % (LARGE_BYTES - 50_000);
                        let mut bytes = vec![0; 50_000];
                        file.read_exact_at(&mut bytes, place as u64).unwrap();
                        assert!(bytes == expected[place..place + 50_000], "{part} at {place}");
                    }
                });
            }
        });
    });
}

#[test]
fn reads_in_the_middle_of_large_compressed_files_are_right() {
    let directory = temp_dir();
    let bytes = text(6, LARGE_BYTES);
    for (program, parts) in [("gzip", 1), ("bzip2", 1), ("xz", 6), ("zstd", 6)] {
        if !have(Need::Program(program)) {
            continue;
        }
        let source = file_in(&directory, program, in_parts(program, &["-c", "-1"], &bytes, parts));
        for_each_transport(|transport| {
            let mount = Mount::new(transport, &source, &[]);
            let name = mount.list("").remove(0);
            read_in_the_middle(&mount, &name, &bytes);
        });
    }
}

#[test]
fn a_large_file_in_a_compressed_archive_is_read_in_the_middle() {
    if !have(Need::Program("gzip")) {
        return;
    }
    let directory = temp_dir();
    let bytes = text(7, LARGE_BYTES);
    let tar = write::tar(&[("a", b"first"), ("large", &bytes), ("z", b"last")]);
    let archive = file_in(&directory, "x.tgz", through("gzip", &["-c", "-1"], &tar));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &[]);
        read_in_the_middle(&mount, "large", &bytes);
        assert_eq!(mount.read("z").unwrap(), b"last");
        assert_eq!(mount.read("a").unwrap(), b"first");
    });
}

/// A file of zeros in one frame, which is too large to be decoded at once; and the number of zeros.
fn one_frame(directory: &crate::common::TempDir, name: &str) -> (PathBuf, u64) {
    let zeros = vec![0; (64 << 20) + (1 << 20)];
    let packed = through("zstd", &["-c", "-q", "-1"], &zeros);
    (file_in(directory, name, packed), zeros.len() as u64)
}

#[test]
fn a_zstd_frame_too_large_to_be_decoded_at_once_is_refused_where_there_is_no_room_for_its_bytes() {
    if !have(Need::Program("zstd")) {
        return;
    }
    let directory = temp_dir();
    let (large, size) = one_frame(&directory, "large.zst");
    let small = format!("cache_dir={}", directory.path().join("small").display());
    let no_room = "small/decoded: there is room for";
    for (options, why) in [
        (&["cache=none"][..], "not decoded to a cache directory: there is none"),
        (&[&small, "cache_max=10M"], no_room),
    ] {
        let outcome = super::refused(&large, options);
        assert_eq!(outcome.code, 3, "{}", outcome.stderr);
        let reasons =
            ["large.zst", "at byte", "expected checkpoints at most 64 MiB apart", "pzstd"];
        for says in reasons.into_iter().chain([why]) {
            assert!(outcome.stderr.contains(says), "{says:?} is not in {}", outcome.stderr);
        }
    }
    // The refusal is also given where no warnings are shown, in one line.
    let mut info = Command::new(crate::common::FFRFS);
    let cache = directory.path().join("small");
    info.arg("info").arg(&large).arg("--cache-dir").arg(cache).args(["--cache-max", "10M"]);
    let info = run(&mut info);
    assert_eq!((info.code, info.stderr.lines().count()), (3, 1), "{}", info.stderr);
    assert!(info.stderr.contains(no_room), "{}", info.stderr);
    // No file is left that is decoded only in part.
    let left = fs::read_dir(directory.path().join("small/decoded")).unwrap().count();
    assert_eq!(left, 0);
    let zeros = vec![0; size as usize];
    let packed = in_parts("zstd", &["-c", "-q", "-1"], &zeros, 5);
    let frames = file_in(&directory, "frames.zst", packed);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &frames, &["cache=none"]);
        assert_eq!(fs::metadata(mount.path("frames")).unwrap().len(), size);
    });
}

/// Whether a cache in a directory may take this many bytes.
pub(super) fn has_room(directory: &std::path::Path, bytes: u64) -> bool {
    let space = nix::sys::statvfs::statvfs(directory).unwrap();
    let free = space.blocks_available().saturating_sub(space.blocks() / 20);
    free * space.fragment_size() >= bytes
}

/// A compressed tar that cannot be read in the middle, and a cache directory for its decoded bytes.
struct WholeFrame {
    directory: TempDir,
    cache: TempDir,
    /// The bytes of its member `data`; the other member is `small`.
    data: Vec<u8>,
    /// A file with the bytes of `data`.
    original: PathBuf,
    zstd: PathBuf,
    /// The mount option that names the cache.
    option: String,
}

impl WholeFrame {
    /// Makes both; says so and returns `None` if there is no room for the decoded bytes.
    fn new() -> Option<Self> {
        let (directory, cache) = (temp_dir(), temp_dir());
        if !has_room(cache.path(), 1 << 30) {
            crate::common::skip("needs 1 GiB beside the 5 % of the file system that stay free");
            return None;
        }
        let data = [vec![0; 65 << 20], text(8, 100_000)].concat();
        let original = file_in(&directory, "original", &data);
        let tar = write::tar(&[("data", &data), ("small", b"s")]);
        let zstd = file_in(&directory, "x.tar.zst", through("zstd", &["-c", "-q", "-1"], &tar));
        let option = format!("cache_dir={}", cache.path().display());
        Some(Self { directory, cache, data, original, zstd, option })
    }
}

#[test]
fn what_cannot_be_read_in_the_middle_is_decoded_once_to_the_cache_directory() {
    if !have(Need::Program("zstd")) || !have(Need::Program("xz")) {
        return;
    }
    let Some(WholeFrame { directory, cache, data, original, zstd, option }) = WholeFrame::new()
    else {
        return;
    };
    let xz = file_in(&directory, "data.xz", through("xz", &["-c", "-0", "-T1"], &data));
    let decoded = cache.path().join("decoded");
    let files = || {
        let entries = fs::read_dir(&decoded).into_iter().flatten().flatten();
        let mut found: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().ino())).collect();
        found.sort();
        found
    };
    let says = "cannot be read in the middle: it is decoded to";
    for_each_transport(|transport| {
        for source in [&zstd, &xz] {
            let known = files().len();
            let mount = Mount::new(transport, source, &[&option]);
            run(Command::new("cmp").arg(mount.path("data")).arg(&original)).ok();
            // The first mount has decoded the source, and says so; the mounts that follow find the decoded file.
            assert_eq!(mount.log().contains(says), files().len() > known, "{}", mount.log());
            let again = Mount::new(transport, source, &[&option]);
            assert!(!again.log().contains(says), "{}", again.log());
            // A further use of the decoded file is no change for the mounts that use it.
            assert_eq!(again.list(""), mount.list(""));
            assert!(mount.bad().is_empty());
        }
        assert_eq!(files().len(), 2);
    });
    let before = files();
    let listed = run(Command::new(crate::common::FFRFS)
        .arg("ls")
        .arg(&zstd)
        .args(["--cache-dir", cache.path().to_str().unwrap()]));
    assert_eq!((listed.code, listed.text()), (0, "data\nsmall\n".to_owned()), "{listed:?}");
    assert_eq!(files(), before, "it is used, and not written again");
    let again = temp_dir();
    let listed = run(Command::new(crate::common::FFRFS)
        .arg("ls")
        .arg(&zstd)
        .env_clear()
        .args(["--cache-dir", again.path().to_str().unwrap()]));
    assert!(listed.stderr.contains("for this command alone"), "{listed:?}");
    // Another version of the source is another decoded file.
    fs::write(&zstd, through("zstd", &["-c", "-q", "-1"], &write::tar(&[("new", &data)]))).unwrap();
    for_each_transport(|transport| {
        assert_eq!(Mount::new(transport, &zstd, &[&option]).list(""), ["new"]);
    });
    assert_eq!(files().len(), before.len() + 1);
    let on_cache = |action: &[&str]| {
        let mut command = Command::new(crate::common::FFRFS);
        command.arg("cache").args(action).arg("--cache-dir").arg(cache.path());
        run(&mut command).ok()
    };
    let held = Mount::new(Transport::DevFuse, &zstd, &[&option]);
    let listed = on_cache(&["ls"]).text();
    assert_eq!(listed.lines().skip_while(|line| !line.contains("DECODED COPY")).count(), 4);
    let json: serde_json::Value =
        serde_json::from_str(&on_cache(&["ls", "--json"]).text()).unwrap();
    let used = json["decoded"].as_array().unwrap().iter().filter(|copy| copy["is_used"] == true);
    assert_eq!(used.count(), 1, "{json}");
    let said = on_cache(&["rm", "--unused"]).stderr;
    assert!(said.contains("2 decoded copies removed"), "{said}");
    assert!(said.contains("1 decoded copy in use: unmount first"), "{said}");
    drop(held);
    on_cache(&["rm", "--all"]);
    assert!(files().is_empty());
}

#[test]
fn a_decoded_file_that_somebody_removes_is_served_as_long_as_its_mount_lives() {
    if !have(Need::Program("zstd")) {
        return;
    }
    let Some(WholeFrame { directory: _directory, cache, original, zstd, option, .. }) =
        WholeFrame::new()
    else {
        return;
    };
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &zstd, &[&option]);
        fs::remove_dir_all(cache.path().join("decoded")).unwrap();
        run(Command::new("cmp").arg(mount.path("data")).arg(&original)).ok();
        assert!(mount.bad().is_empty(), "{:?}", mount.bad());
    });
}

#[test]
fn what_cannot_be_read_in_the_middle_is_decoded_to_the_directory_that_spool_names() {
    if !have(Need::Program("zstd")) {
        return;
    }
    let (directory, spool) = (temp_dir(), temp_dir());
    let data = [vec![0; 65 << 20], text(8, 100_000)].concat();
    let tar = write::tar(&[("large", &data), ("small", b"s")]);
    let one_frame = |bytes: &[u8]| through("zstd", &["-c", "-q", "-1"], bytes);
    let plain = file_in(&directory, "data.bin.zst", one_frame(&data));
    let archive = file_in(&directory, "data.tar.zst", one_frame(&tar));
    let original = file_in(&directory, "original", &data);
    let option = format!("spool={}", spool.path().display());
    for_each_transport(|transport| {
        for (source, name, index) in [
            (&plain, "data.bin", "index=auto"),
            (&archive, "large", "index=auto"),
            (&plain, "data.bin", "index=none"),
        ] {
            let mount = Mount::new(transport, source, &[&option, index]);
            run(Command::new("cmp").arg(mount.path(name)).arg(&original)).ok();
            // The spool has no name, and goes with the mount.
            assert_eq!(fs::read_dir(spool.path()).unwrap().count(), 0);
        }
        assert_eq!(Mount::new(transport, &archive, &[&option]).read("small").unwrap(), b"s");
    });
    let missing = format!("spool={}", directory.path().join("missing").display());
    let outcome = super::refused(&plain, &[&missing]);
    assert!(outcome.code == 6 && outcome.stderr.contains("missing"), "{}", outcome.stderr);
}

#[test]
fn a_compressed_container_that_is_shown_as_a_file_is_named_and_nested_shows_what_is_in_it() {
    let directory = temp_dir();
    let fixtures = [
        ("HDF5", "latest.h5"),
        ("Parquet", "rows.parquet"),
        ("safetensors", "tensors.safetensors"),
        ("LMDB", "data.mdb"),
    ];
    for (program, options, ending) in PROGRAMS {
        if !have(Need::Program(program)) {
            continue;
        }
        for (format, name) in fixtures {
            let bytes = fs::read(fixture(name)).unwrap();
            let packed = through(program, options, &bytes);
            let source = file_in(&directory, &format!("{name}.{ending}"), packed);
            let said = ffrfs(&["info".as_ref(), source.as_os_str()]).ok();
            let said = format!("{}{}", said.text(), said.stderr);
            let words = [&format!("it is compressed {format}"), "--nested 1", name];
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
            for_each_transport(|transport| {
                let mount = Mount::new(transport, &source, &[]);
                assert!(mount.read(name).unwrap() == bytes, "{name}.{ending}");
                drop(mount);
                let expected = tree(Mount::new(transport, fixture(name), &["index=none"]).point());
                let mount = Mount::new(transport, &source, &["nested=1"]);
                assert!(tree(&mount.path(name)) == expected, "{name}.{ending}");
            });
        }
    }
    // For a compressed file that is no container, `info` does not speak of nested ones.
    let packed = through("gzip", &["-c"], &text(3, 1000));
    let source = file_in(&directory, "words.txt.gz", packed);
    let said = ffrfs(&["info".as_ref(), source.as_os_str()]).ok();
    assert!(!said.text().contains("nested"), "{}", said.text());
}
