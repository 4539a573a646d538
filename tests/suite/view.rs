//! The names that a mount shows: numbers, suffixes, directories, trees, and the control directory that it does not.

use crate::common::{
    FFRFS, Mount, Need, TempDir, clean_up, container_in, ffrfs, fixture, for_each_transport, have,
    noise, python, run, samples, temp_dir, write_container,
};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First bytes of files, which tell their types.
const JPEG: &[u8] = b"\xff\xd8\xff\xe0 a picture, more or less";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n another one";
const TEXT: &[u8] = b"just some words";

fn names(mount: &Mount, directory: &str) -> Vec<String> {
    let mut names = mount.list(directory);
    names.sort();
    names
}

fn is_absent(mount: &Mount, name: &str) -> bool {
    fs::metadata(mount.path(name)).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

#[test]
fn numbers_are_at_least_six_digits_wide_and_no_other_spelling_is_there() {
    let directory = temp_dir();
    let container = container_in(&directory, &samples(12, 100));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        assert_eq!(names(&mount, "")[..2], ["000000", "000001"]);
        assert_eq!(names(&mount, "").len(), 12);
        for absent in
            ["000012", "0", "1", "00001", "0000001", "000001.jpg", "-00001", "+00001", "x"]
        {
            assert!(is_absent(&mount, absent), "{absent}");
        }
    });
}

#[test]
fn a_directory_of_containers_is_taken_by_name_and_other_files_in_it_are_left_alone() {
    let directory = temp_dir();
    let parts = ["b.ffr", "a.ffr", "c.FFR"];
    for (number, part) in parts.iter().enumerate() {
        write_container(&directory.path().join(part), &[noise(number as u64, 50)]);
    }
    fs::write(directory.path().join("readme.txt"), "not a container").unwrap();
    fs::create_dir(directory.path().join("more.ffr")).unwrap();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, directory.path(), &[]);
        assert_eq!(names(&mount, "").len(), 3);
        for (name, number) in [("000000", 1), ("000001", 0), ("000002", 2)] {
            assert_eq!(mount.read(name).unwrap(), noise(number, 50), "{name}");
        }
    });
}

#[test]
fn flat_shows_numbers_for_a_packed_folder_and_its_index_as_a_sample() {
    for_each_transport(|transport| {
        let tree = Mount::new(transport, fixture("packed_folder.ffr"), &[]);
        let flat = Mount::new(transport, fixture("packed_folder.ffr"), &["flat"]);
        let count = tree.info()["samples"].as_u64().unwrap();
        assert_eq!(names(&flat, "").len() as u64, count);
        assert_eq!(tree.info()["named_samples"], count - 1);
        let index = flat.read(format!("{:06}", count - 1)).unwrap();
        assert!(index.starts_with(b"piouhjgbr"));
        assert_eq!(tree.info()["names"], "tree");
        assert_eq!(flat.info()["names"], "numbered");
    });
}

/// A file of names, one a line.
fn names_file(directory: &TempDir, lines: &[&str]) -> PathBuf {
    let path = directory.path().join("names.txt");
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

#[test]
fn a_file_of_names_makes_a_tree_over_a_flat_dataset() {
    let directory = temp_dir();
    let samples = samples(4, 1000);
    let container = container_in(&directory, &samples);
    let lines = ["train/cat/1.jpg", "train/dog/1 ä.jpg", "val/cat/1.jpg", "README"];
    let option = format!("names={}", names_file(&directory, &lines).display());
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[&option]);
        assert_eq!(names(&mount, ""), ["README", "train", "val"]);
        assert_eq!(names(&mount, "train"), ["cat", "dog"]);
        for (line, sample) in lines.iter().zip(&samples) {
            assert_eq!(mount.read(line).unwrap(), *sample, "{line}");
        }
        for absent in ["000000", "train/1.jpg", "train/cat/2.jpg", "tra", "train/cat/1.jp"] {
            assert!(is_absent(&mount, absent), "{absent}");
        }
    });
}

#[test]
fn names_come_from_a_program_where_the_shell_passes_its_output_as_a_descriptor() {
    if !have(Need::Program("bash")) {
        return;
    }
    let directory = temp_dir();
    let container = container_in(&directory, &samples(4, 1000));
    for_each_transport(|transport| {
        let point = temp_dir();
        let option = transport.option().unwrap_or("defaults");
        let script = r#""$0" mount "$1" "$2" -o "$3" --names <(seq -f 'n/%.0f' 4)"#;
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).arg(FFRFS).arg(&container).arg(point.path()).arg(option);
        run(&mut bash).ok();
        let names: Vec<_> = fs::read_dir(point.path().join("n")).unwrap().collect();
        clean_up(point.path(), 0);
        assert_eq!(names.len(), 4);
    });
}

#[test]
fn a_file_of_names_that_makes_no_tree_is_refused_with_its_line() {
    let directory = temp_dir();
    let container = container_in(&directory, &samples(3, 100));
    let refused = [
        (&["a", "b"][..], "2 names for 3 samples"),
        (&["a", "b", "c", "d"], "4 names for 3 samples"),
        (&["a", "../b", "c"], "line 2"),
        (&["a", "b", "/c"], "line 3"),
        (&["a", "", "c"], "line 2"),
        (&["a", "b", "a"], "line 3"),
        (&["a", "a/b", "c"], "line 2"),
    ];
    for (lines, says) in refused {
        let option = names_file(&directory, lines);
        let point = temp_dir();
        let args = [Path::new("mount"), Path::new("--names"), &option, &container, point.path()];
        let outcome = ffrfs(&args);
        assert_eq!(outcome.code, 1, "{lines:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{lines:?}: {}", outcome.stderr);
    }
}

#[test]
fn a_suffix_stands_behind_every_number() {
    let directory = temp_dir();
    let container = container_in(&directory, &samples(3, 100));
    for_each_transport(|transport| {
        for option in ["suffix=.jpg", "suffix=jpg"] {
            let mount = Mount::new(transport, &container, &[option]);
            assert_eq!(names(&mount, ""), ["000000.jpg", "000001.jpg", "000002.jpg"]);
            assert!(is_absent(&mount, "000000") && is_absent(&mount, "000000.png"));
        }
    });
}

#[test]
fn suffix_auto_finds_what_all_samples_are() {
    let directory = temp_dir();
    let container = container_in(&directory, &[JPEG; 200]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["suffix=auto"]);
        let all = names(&mount, "");
        assert_eq!(all.len(), 200);
        assert!(all.iter().all(|name| name.ends_with(".jpg")), "{all:?}");
        assert_eq!(mount.read("000199.jpg").unwrap(), JPEG);
        assert!(is_absent(&mount, "000199"));
    });
}

#[test]
fn suffix_auto_goes_sample_by_sample_where_they_differ() {
    let directory = temp_dir();
    let kinds = [JPEG, PNG, TEXT, b""];
    let samples: Vec<_> = (0..300).map(|i| kinds[i % 4]).collect();
    let container = container_in(&directory, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["suffix=auto"]);
        // Names are looked up before they are listed, as well as after.
        assert_eq!(mount.read("000000.jpg").unwrap(), JPEG);
        assert!(is_absent(&mount, "000001.jpg"));
        let all = names(&mount, "");
        let expected: Vec<_> =
            (0..300).map(|i| format!("{i:06}{}", [".jpg", ".png", "", ""][i % 4])).collect();
        assert_eq!(all, expected);
        assert_eq!(mount.read("000297.png").unwrap(), PNG);
        assert_eq!(mount.read("000298").unwrap(), TEXT);
    });
}

#[test]
fn suffix_auto_reads_no_more_than_a_few_samples_to_mount() {
    let directory = temp_dir();
    let samples: Vec<_> = (0..50).map(|i| [JPEG, &noise(i, 200_000)].concat()).collect();
    let container = container_in(&directory, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["suffix=auto"]);
        assert_eq!(mount.list("").len(), 50);
        let read = fs::read_to_string(format!("/proc/{}/io", mount.pid())).unwrap();
        let bytes = read.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        assert!(bytes.parse::<u64>().unwrap() < 1_000_000, "{read}");
    });
}

#[test]
fn fanout_puts_samples_in_directories_of_so_many() {
    let directory = temp_dir();
    let samples = samples(2500, 40);
    let container = container_in(&directory, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["fanout=1000", "suffix=.bin"]);
        assert_eq!(names(&mount, ""), ["000", "001", "002"]);
        assert_eq!(names(&mount, "001")[999], "001999.bin");
        assert_eq!(names(&mount, "002").len(), 500);
        for (number, sample) in samples.iter().enumerate().step_by(97) {
            let path = format!("{:03}/{number:06}.bin", number / 1000);
            assert_eq!(mount.read(&path).unwrap(), *sample, "{path}");
        }
        for absent in ["003", "0", "000/001000.bin", "001/000999.bin", "000000.bin", "02"] {
            assert!(is_absent(&mount, absent), "{absent}");
        }
    });
}

#[test]
fn suffix_and_fanout_are_refused_for_samples_that_have_names() {
    let point = temp_dir();
    for option in ["suffix=.jpg", "fanout=10"] {
        let container = fixture("packed_folder.ffr");
        let args =
            [Path::new("mount"), Path::new("-o"), Path::new(option), &container, point.path()];
        let outcome = ffrfs(&args);
        assert_eq!(outcome.code, 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("flat"), "{}", outcome.stderr);
    }
}

#[test]
fn more_than_a_hundred_thousand_names_are_listed_each_once() {
    let directory = temp_dir();
    let container = container_in(&directory, &vec![[7]; 120_000]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        // The second listing comes from the kernel's cache.
        for _ in 0..2 {
            let all = mount.list("");
            assert_eq!(all.len(), 120_000);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 120_000);
        }
        assert_eq!(mount.read("119999").unwrap(), [7]);
    });
}

/// Prints `ok` if every remembered place of a directory leads to the entry that followed it.
const SEEK_EVERYWHERE: &str = r#"
import ctypes, random, sys
class Entry(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]
libc = ctypes.CDLL(None)
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Entry)
libc.telldir.restype = ctypes.c_long
libc.readdir.argtypes = libc.telldir.argtypes = libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
def next_name(directory):
    entry = libc.readdir(directory)
    return entry.contents.name if entry else None
directory = libc.opendir(sys.argv[1].encode())
places = []
while True:
    place, name = libc.telldir(directory), next_name(directory)
    places.append((place, name))
    if name is None:
        break
random.seed(1)
other = libc.opendir(sys.argv[1].encode())
for place, name in random.sample(places, min(len(places), 300)) + [places[-1], places[0]]:
    for each in (directory, other):
        libc.seekdir(each, place)
        found = next_name(each)
        assert found == name, (place, found, name)
libc.rewinddir(directory)
assert next_name(directory) == places[0][1]
names = [name for _, name in places]
print("ok", len(names) - 1, len(set(names)) - 1)
"#;

#[test]
fn seekdir_leads_back_to_every_entry() {
    if !have(Need::Python("ctypes")) {
        return;
    }
    let directory = temp_dir();
    let container = container_in(&directory, &vec![[7]; 5_000]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        for _ in 0..2 {
            let outcome = python(SEEK_EVERYWHERE, &[mount.point()]).ok();
            assert_eq!(outcome.text().trim(), "ok 5002 5002");
        }
        let fanned = Mount::new(transport, &container, &["fanout=100"]);
        let outcome = python(SEEK_EVERYWHERE, &[fanned.point()]).ok();
        assert_eq!(outcome.text().trim(), "ok 52 52");
        let tree = Mount::new(transport, fixture("packed_folder.ffr"), &[]);
        let outcome = python(SEEK_EVERYWHERE, &[tree.path("train")]).ok();
        assert_eq!(outcome.text().trim(), "ok 4 4");
    });
}

/// The path and inode number of each entry below a directory, from `stat`; the listing must have the same.
fn inodes(directory: &Path) -> Vec<(PathBuf, u64)> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let ino = fs::metadata(entry.path()).unwrap().ino();
        assert_eq!(entry.ino(), ino, "{}", entry.path().display());
        found.push((entry.file_name().into(), ino));
        if entry.file_type().unwrap().is_dir() {
            let below = inodes(&entry.path()).into_iter();
            found.extend(below.map(|(path, ino)| (Path::new(&entry.file_name()).join(path), ino)));
        }
    }
    found.sort();
    found
}

#[test]
fn inode_numbers_are_unique_and_the_same_from_mount_to_mount() {
    let directory = temp_dir();
    let numbered = container_in(&directory, &samples(50, 10));
    for_each_transport(|transport| {
        for source in [fixture("packed_folder.ffr"), numbered.clone()] {
            let first = Mount::new(transport, &source, &[]);
            // Looks up a name first: another order than the second time.
            let _ = first.read("000030");
            let before = inodes(first.point());
            first.unmount();
            let second = Mount::new(transport, &source, &[]);
            assert_eq!(inodes(second.point()), before);
            let unique: BTreeSet<_> = before.iter().map(|(_, ino)| ino).collect();
            assert_eq!(unique.len(), before.len());
        }
    });
}

#[test]
fn the_control_directory_is_reachable_and_not_listed() {
    let directory = temp_dir();
    let numbered = container_in(&directory, &samples(5, 10));
    for_each_transport(|transport| {
        for (source, options) in [
            (fixture("packed_folder.ffr"), &[][..]),
            (numbered.clone(), &[]),
            (numbered.clone(), &["fanout=2"]),
        ] {
            let mount = Mount::new(transport, &source, options);
            assert!(!names(&mount, "").contains(&".ffrfs".to_owned()));
            assert!(fs::metadata(mount.path(".ffrfs")).unwrap().is_dir());
            assert_eq!(
                names(&mount, ".ffrfs"),
                ["bad", "info.json", "prefetch", "settings", "stats.json", "trace"]
            );
            for name in names(&mount, ".ffrfs") {
                let path = format!(".ffrfs/{name}");
                let size = fs::metadata(mount.path(&path)).unwrap().len();
                assert_eq!(size == 0, name == "bad", "{path}");
                mount.read(&path).unwrap();
            }
            assert!(is_absent(&mount, ".ffrfs/other") && is_absent(&mount, ".ffrf"));
            // The kernel knows the directory by now, and it is still not listed.
            assert!(!names(&mount, "").contains(&".ffrfs".to_owned()));
        }
    });
}

#[test]
fn whoever_has_a_control_file_open_sees_one_state_of_it() {
    use std::io::{Read, Seek, SeekFrom};
    let directory = temp_dir();
    let container = container_in(&directory, &samples(40, 1000));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        let mut file = fs::File::open(mount.path(".ffrfs/stats.json")).unwrap();
        let mut first = String::new();
        file.read_to_string(&mut first).unwrap();
        for name in mount.list("") {
            mount.read(name).unwrap();
        }
        let mut second = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut second).unwrap();
        assert_eq!(first, second);
        assert!(mount.stats()["requests"]["read"].as_u64().unwrap() >= 30);
    });
}

#[test]
fn a_dataset_cannot_hide_the_control_directory() {
    let directory = temp_dir();
    let container = container_in(&directory, &samples(2, 100));
    let option = format!("names={}", names_file(&directory, &[".ffrfs", "other"]).display());
    let point = temp_dir();
    let args = [Path::new("mount"), Path::new("-o"), Path::new(&option), &container, point.path()];
    for_each_transport(|transport| {
        // To refuse such names is as good.
        let refused = ffrfs(&args).code == 1;
        if !refused {
            crate::common::clean_up(point.path(), 0);
            let mount = Mount::new(transport, &container, &[&option]);
            mount.list("");
            assert_eq!(mount.info()["samples"], 2);
        }
    });
}
