//! Programs that people use, on a mount: they see plain files.

use crate::common::{
    Mount, Need, Transport, fixture, for_each_transport, have, noise, python, run, samples,
};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A tree of a few hundred files of all sizes, as people have them.
fn tree(transport: Transport) -> (Mount, Vec<Vec<u8>>) {
    let mut samples = samples(300, 30_000);
    samples[7] = noise(7, 2_000_000);
    samples[8] = Vec::new();
    (Mount::with_samples(transport, &samples, &["fanout=100"]), samples)
}

fn name(number: usize) -> String {
    format!("{:03}/{number:06}", number / 100)
}

#[track_caller]
fn compare(directory: &Path, samples: &[Vec<u8>]) {
    for (number, sample) in samples.iter().enumerate() {
        assert!(fs::read(directory.join(name(number))).unwrap() == *sample, "{number}");
    }
}

#[test]
fn cp_copies_everything_with_its_attributes() {
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let copy = mount.scratch().join("copy");
        run(Command::new("cp").arg("-a").arg(mount.point()).arg(&copy)).ok();
        compare(&copy, &samples);
        let (from, to) = (fs::metadata(mount.path(name(7))), fs::metadata(copy.join(name(7))));
        let (from, to) = (from.unwrap(), to.unwrap());
        assert_eq!((from.mode(), from.mtime()), (to.mode(), to.mtime()));
        // Directories must be writable for them to be removed.
        run(Command::new("chmod").args(["-R", "u+w"]).arg(&copy)).ok();
        fs::remove_dir_all(&copy).unwrap();
    });
}

#[test]
fn control_files_are_copied_and_read_like_any_others() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(3, 1000), &[]);
        let control = mount.path(".ffrfs");
        let listed: Vec<_> = fs::read_dir(&control).unwrap().map(Result::unwrap).collect();
        assert_eq!(listed.len(), 6);
        for entry in listed {
            let path = entry.path();
            let number = || fs::metadata(&path).unwrap().ino();
            assert_eq!([number(), number()], [entry.ino(); 2], "{}", path.display());
            for program in ["cat", "tail"] {
                run(Command::new(program).arg(&path)).ok();
            }
            let copy = mount.scratch().join(entry.file_name());
            run(Command::new("cp").arg(&path).arg(&copy)).ok();
            assert!(copy.exists(), "{}", path.display());
        }
        let copied = fs::read(mount.scratch().join("info.json")).unwrap();
        let info: serde_json::Value = serde_json::from_slice(&copied).unwrap();
        assert_eq!(info["samples"], 3);
        if have(Need::Program("rsync")) {
            let copies = mount.scratch().join("copies");
            run(Command::new("rsync").arg("-r").arg(control.join("")).arg(&copies)).ok();
            assert_eq!(fs::read_dir(copies).unwrap().count(), 6);
        }
    });
}

#[test]
fn find_sees_every_file_and_directory_once() {
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let count = |args: &[&str]| {
            let found = run(Command::new("find").arg(mount.point()).args(args)).ok().text();
            found.lines().count()
        };
        assert_eq!(count(&["-type", "f"]), samples.len());
        assert_eq!(count(&["-type", "d"]), 4);
        assert_eq!(count(&["-name", ".ffrfs*"]), 0);
        assert_eq!(count(&["-empty"]), samples.iter().filter(|sample| sample.is_empty()).count());
        assert_eq!(count(&["-size", "+1000000c"]), 1);
    });
}

#[test]
fn du_adds_up_true_sizes() {
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let du = |args: &[&str]| -> u64 {
            let said = run(Command::new("du").args(args).arg(mount.point())).ok().text();
            said.split('\t').next().unwrap().parse().unwrap()
        };
        let bytes: u64 = samples.iter().map(|sample| sample.len() as u64).sum();
        let blocks: u64 = samples.iter().map(|sample| sample.len().div_ceil(512) as u64).sum();
        let directories = 4 * 4096;
        assert_eq!(du(&["-sb"]), bytes + directories);
        assert_eq!(du(&["-s", "-B512"]), blocks + directories / 512);
    });
}

#[test]
fn tar_packs_a_mount_and_unpacks_the_same_bytes() {
    if !have(Need::Program("tar")) {
        return;
    }
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let (archive, copy) = (mount.scratch().join("all.tar"), mount.scratch().join("copy"));
        fs::create_dir(&copy).unwrap();
        let tar = |mode: &str, directory: &Path| {
            let mut command = Command::new("tar");
            command.arg(mode).arg(&archive).arg("-C").arg(directory);
            command
        };
        run(tar("-cf", mount.point()).arg(".")).ok();
        run(tar("-xf", &copy).args(["--no-same-permissions", "--delay-directory-restore"])).ok();
        compare(&copy, &samples);
        run(tar("-df", mount.point()).arg(".")).ok();
        run(Command::new("chmod").args(["-R", "u+w"]).arg(&copy)).ok();
    });
}

#[test]
fn sha256sum_agrees_with_the_hash_of_the_bytes() {
    use sha2::{Digest, Sha256};
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let paths = (0..samples.len()).map(|number| mount.path(name(number)));
        let said = run(Command::new("sha256sum").args(paths)).ok().text();
        for (line, sample) in said.lines().zip(&samples) {
            let hash =
                Sha256::digest(sample).iter().map(|b| format!("{b:02x}")).collect::<String>();
            assert!(line.starts_with(&hash), "{line}");
        }
        assert_eq!(said.lines().count(), samples.len());
    });
}

#[test]
fn dd_reads_odd_blocks_from_odd_offsets() {
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let path = mount.path(name(7));
        for (block, skip, count) in
            [(333, 7, 100), (1, 99_999, 77), (65_537, 3, 5), (4_095, 1, 400)]
        {
            let args = [
                format!("if={}", path.display()),
                format!("bs={block}"),
                format!("skip={skip}"),
                format!("count={count}"),
            ];
            let read = run(Command::new("dd").args(args)).ok().stdout;
            let end = (block * (skip + count)).min(samples[7].len());
            assert!(read == samples[7][block * skip..end], "{count} blocks of {block} from {skip}");
        }
    });
}

fn cat_all(mount: &Mount, first: usize, count: usize) -> Child {
    let paths = (0..count).map(|step| mount.path(name((first + step) % count)));
    Command::new("cat").args(paths).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn cat_of_64_processes_while_another_stats_the_whole_directory() {
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let children: Vec<_> =
            (0..64).map(|number| cat_all(&mount, number * 4, samples.len())).collect();
        std::thread::scope(|scope| {
            let find = scope.spawn(|| {
                let mut lines = 0;
                for _ in 0..5 {
                    let said = run(Command::new("find").arg(mount.point()).arg("-ls")).ok();
                    lines += said.text().lines().count();
                }
                lines
            });
            let check = |(number, child): (usize, Child)| {
                let output = child.wait_with_output().unwrap();
                assert!(output.status.success());
                let places = (0..samples.len()).map(|step| (number * 4 + step) % samples.len());
                let mut rest = &output.stdout[..];
                for place in places {
                    let found = rest.split_off(..samples[place].len()).expect("all of it");
                    assert!(found == samples[place], "{place}");
                }
                assert!(rest.is_empty());
            };
            // Checks all at once: a pipe without a reader would hold its `cat` up.
            for child in children.into_iter().enumerate() {
                scope.spawn(move || check(child));
            }
            assert_eq!(find.join().unwrap(), 5 * (samples.len() + 4));
        });
    });
}

#[test]
fn python_reads_a_mount_with_forked_workers() {
    if !have(Need::Python("multiprocessing")) {
        return;
    }
    const WORKERS: &str = "
import multiprocessing, os, sys, zlib
def crc(path):
    with open(path, 'rb') as file:
        return zlib.crc32(file.read())
root = sys.argv[1]
# The parent has used the mount before it forks, as a data loader has.
paths = sorted(os.path.join(directory, name) for directory, _, names in os.walk(root) for name in names)
assert crc(paths[0]) == crc(paths[0])
with multiprocessing.get_context('fork').Pool(8) as pool:
    for _ in range(2):
        print(*pool.map(crc, paths, chunksize=5))
";
    for_each_transport(|transport| {
        let (mount, samples) = tree(transport);
        let said = python(WORKERS, &[mount.point()]).ok().text();
        let sums: Vec<_> = samples.iter().map(|s| crc32fast::hash(s).to_string()).collect();
        let expected = sums.join(" ");
        assert_eq!(said.lines().collect::<Vec<_>>(), [&expected, &expected]);
    });
}

#[test]
fn a_program_that_asks_for_a_terminal_leaves_the_log_quiet() {
    if !have(Need::Python("os")) {
        return;
    }
    // Python's open() asks of every file whether it is a terminal.
    const OPEN: &str = "
import os, sys
for number in range(200):
    assert not os.isatty(open(sys.argv[1], 'rb').fileno())
";
    for_each_transport(|transport| {
        let (mount, _) = tree(transport);
        python(OPEN, &[mount.path(name(1))]).ok();
        let log = mount.log();
        assert!(
            log.lines().count() < 10,
            "{} lines, such as {:?}",
            log.lines().count(),
            log.lines().last()
        );
    });
}

#[test]
fn numpy_maps_and_reads_arrays() {
    if !have(Need::Python("numpy")) {
        return;
    }
    const WRITE: &str = "
import numpy, sys
array = numpy.random.default_rng(1).random((500, 300))
numpy.save(sys.argv[1], array)
array.tofile(sys.argv[2])
";
    const READ: &str = "
import numpy, sys
saved = numpy.load(sys.argv[1])
for mode in ('r', 'c'):
    mapped = numpy.load(sys.argv[1], mmap_mode=mode)
    assert mapped.shape == (500, 300) and (mapped == saved).all()
    assert (mapped[499] == saved[499]).all()
assert (numpy.fromfile(sys.argv[2]).reshape(500, 300) == saved).all()
raw = numpy.memmap(sys.argv[2], dtype='float64', mode='r', shape=(500, 300))
assert (raw[::-7] == saved[::-7]).all()
assert (numpy.fromfile(sys.argv[2], count=10, offset=8 * 1234) == saved.reshape(-1)[1234:1244]).all()
";
    for_each_transport(|transport| {
        let directory = crate::common::temp_dir();
        let files = ["a.npy", "a.raw"].map(|name| directory.path().join(name));
        python(WRITE, &files).ok();
        let samples = files.map(|file| fs::read(file).unwrap());
        let mount = Mount::with_samples(transport, &samples, &["suffix=auto"]);
        python(READ, &[mount.path("000000.npy"), mount.path("000001")]).ok();
        // In a mount of its own, the files are mapped before any was read.
        let mount = Mount::with_samples(transport, &samples, &[]);
        python(READ, &[mount.path("000000"), mount.path("000001")]).ok();
    });
}

#[test]
fn pillow_opens_images() {
    if !have(Need::Python("PIL")) {
        return;
    }
    const WRITE: &str = "
import sys
from PIL import Image
for number, kind in enumerate(('png', 'jpeg', 'webp')):
    image = Image.effect_noise((200 + number, 100), 50).convert('RGB')
    image.save(f'{sys.argv[1]}/{number}', kind)
";
    const READ: &str = "
import os, sys
from PIL import Image
for name in sorted(os.listdir(sys.argv[1])):
    with Image.open(os.path.join(sys.argv[1], name)) as image:
        image.load()
        print(name, image.format, image.size)
";
    for_each_transport(|transport| {
        let directory = crate::common::temp_dir();
        python(WRITE, &[directory.path()]).ok();
        let samples = ["0", "1", "2"].map(|name| fs::read(directory.path().join(name)).unwrap());
        let mount = Mount::with_samples(transport, &samples, &["suffix=auto"]);
        let expected = [
            "000000.png PNG (200, 100)",
            "000001.jpg JPEG (201, 100)",
            "000002.webp WEBP (202, 100)",
        ];
        let said = python(READ, &[mount.point()]).ok().text();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    });
}

#[test]
fn names_with_any_letters_go_through_a_shell() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[]);
        let script = "cd \"$1\" && cat train/*/*.jpg | wc -c && ls -R | wc -l";
        let said =
            run(Command::new("sh").args(["-c", script, "sh"]).arg(mount.point())).ok().text();
        let numbers: Vec<_> = said.split_whitespace().collect();
        assert_eq!(numbers[0], (5_000 + 1 + 777).to_string());
    });
}
