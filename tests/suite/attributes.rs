//! The answers of `stat`, `statfs` and extended attributes.

use crate::common::{
    Mount, Need, container_in, fixture, flip_byte, for_each_transport, have, offsets, python,
    samples, temp_dir, write_container,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn sizes_blocks_and_links_are_those_of_plain_files() {
    let directory = temp_dir();
    let samples = [vec![], vec![1], vec![2; 512], vec![3; 513], vec![4; 300_000]];
    let container = container_in(&directory, &samples);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        for (number, sample) in samples.iter().enumerate() {
            let stat = fs::metadata(mount.path(format!("{number:06}"))).unwrap();
            assert!(stat.is_file());
            assert_eq!(stat.len(), sample.len() as u64);
            assert_eq!(stat.blocks(), stat.len().div_ceil(512));
            assert_eq!((stat.nlink(), stat.rdev()), (1, 0));
        }
        let root = fs::metadata(mount.point()).unwrap();
        assert!(root.is_dir() && root.ino() == 1);
    });
}

#[test]
fn a_directory_has_a_link_for_each_directory_in_it() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[]);
        let links = |name: &str| fs::metadata(mount.path(name)).unwrap().nlink();
        // Three directories: train, val and hollow.
        assert_eq!(links(""), 5);
        assert_eq!(links("train"), 4);
        assert_eq!(links("train/cat"), 2);
        assert_eq!(links("hollow"), 2);
    });
}

#[test]
fn samples_have_the_modification_time_of_their_container() {
    let directory = temp_dir();
    let times = [1_700_000_000_123_456_789u64, 1_600_000_000_000_000_001, 1];
    let paths = ["a.ffr", "b.ffr", "c.ffr"].map(|name| directory.path().join(name));
    for (path, nanos) in paths.iter().zip(times) {
        write_container(path, &samples(1, 100));
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(nanos)).unwrap();
    }
    for_each_transport(|transport| {
        let mount = Mount::new(transport, directory.path(), &[]);
        for (number, nanos) in times.into_iter().enumerate() {
            let stat = fs::metadata(mount.path(format!("{number:06}"))).unwrap();
            assert_eq!(stat.modified().unwrap(), UNIX_EPOCH + Duration::from_nanos(nanos));
        }
    });
}

#[test]
fn everything_is_readable_and_nothing_writable() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[]);
        let mode = |name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("a.txt"), mode("train"), mode("")), (0o444, 0o555, 0o555));
        let owner = |name: &str| {
            let stat = fs::metadata(mount.path(name)).unwrap();
            (stat.uid(), stat.gid())
        };
        let own = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        assert_eq!((owner("a.txt"), owner("train")), (own, own));
    });
}

#[test]
fn owner_group_and_masks_are_as_the_options_say() {
    for_each_transport(|transport| {
        // The user who mounts must be able to look at the mount, root or not.
        let uid = nix::unistd::geteuid().as_raw();
        let uid = if uid == 0 { 1234 } else { uid };
        let options = [format!("uid={uid}"), "gid=5678".to_owned()];
        let options = [&options[0], &options[1], "fmask=0137", "dmask=027"];
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &options);
        for (name, mode) in [("a.txt", 0o440), ("train", 0o550), ("", 0o550), (".ffrfs", 0o550)] {
            let stat = fs::metadata(mount.path(name)).unwrap();
            assert_eq!((stat.uid(), stat.gid()), (uid, 5678), "{name}");
            assert_eq!(stat.mode() & 0o7777, mode, "{name}");
        }
    });
}

#[test]
fn statfs_gives_true_sizes_and_counts() {
    let directory = temp_dir();
    let samples = samples(1000, 9000);
    let container = container_in(&directory, &samples);
    let bytes: usize = samples.iter().map(Vec::len).sum();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &["fanout=100"]);
        let stat = nix::sys::statvfs::statvfs(mount.point()).unwrap();
        let shown = stat.blocks() * stat.fragment_size();
        assert!((bytes as u64..bytes as u64 + 4096).contains(&shown), "{shown} for {bytes}");
        assert_eq!((stat.blocks_free(), stat.blocks_available(), stat.files_free()), (0, 0, 0));
        // Samples, ten directories, the root.
        assert_eq!(stat.files(), 1011);
        assert_eq!(stat.name_max(), 255);
        // A file gives the same figures as the root.
        let stat = nix::sys::statvfs::statvfs(&mount.path("000/000001")).unwrap();
        assert_eq!(stat.files(), 1011);
    });
}

#[test]
fn a_program_that_looks_for_holes_finds_none() {
    use nix::unistd::{Whence, lseek};
    let directory = temp_dir();
    let container = container_in(&directory, &[vec![0; 100_000], vec![]]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &container, &[]);
        let file = File::open(mount.path("000000")).unwrap();
        assert_eq!(lseek(&file, 0, Whence::SeekData), Ok(0));
        assert_eq!(lseek(&file, 0, Whence::SeekHole), Ok(100_000));
        assert_eq!(lseek(&file, 50_000, Whence::SeekData), Ok(50_000));
        assert_eq!(lseek(&file, 100_000, Whence::SeekData), Err(nix::errno::Errno::ENXIO));
        assert_eq!(lseek(&file, -1, Whence::SeekEnd), Ok(99_999));
        let mut byte = [1; 10];
        assert_eq!(file.read_at(&mut byte, 99_995).unwrap(), 5);
        assert_eq!(file.read_at(&mut byte, 100_000).unwrap(), 0);
        assert_eq!(file.read_at(&mut byte, 1 << 40).unwrap(), 0);
    });
}

/// Prints the extended attributes of files, a line each: `NAME=VALUE NAME=VALUE …`.
const XATTRS: &str = r#"
import errno, os, sys

def outcome(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]

for path in sys.argv[1:]:
    shown = []
    for name in ("container", "index", "offset", "length", "crc32", "verified"):
        value = outcome(os.getxattr, path, "user.ffrfs." + name)
        shown += [f"{name}={value.decode()}"] if isinstance(value, bytes) else []
    print(*shown)
    for absent in ("user.ffrfs.other", "user.ffrfs.", "user.other"):
        assert outcome(os.getxattr, path, absent) == "ENODATA", absent
    for absent in ("security.selinux", "system.posix_acl_access"):
        assert outcome(os.getxattr, path, absent) == "ENOTSUP", (path, absent, outcome(os.getxattr, path, absent))
    assert outcome(os.listxattr, path) == "ENOTSUP", path
"#;

#[test]
fn extended_attributes_say_where_a_sample_lies_and_whether_it_was_checked() {
    if !have(Need::Python("os")) {
        return;
    }
    let directory = temp_dir();
    let first = directory.path().join("first.ffr");
    let second = directory.path().join("second.ffr");
    write_container(&first, &samples(2, 500));
    let samples = samples(3, 5000);
    write_container(&second, &samples);
    let offsets = offsets(&samples);
    flip_byte(&second, offsets[2]);
    let second = second.canonicalize().unwrap();
    let line = |index: usize, verified: &str| {
        let (sample, offset) = (&samples[index], offsets[index]);
        let (length, crc) = (sample.len(), crc32fast::hash(sample));
        let container = second.display();
        format!(
            "container={container} index={index} offset={offset} length={length} \
             crc32={crc:08x} verified={verified}"
        )
    };
    for_each_transport(|transport| {
        let mount = Mount::of(transport, &[&first, &second], &[]);
        let shown = |number: usize| {
            let path = mount.path(format!("{number:06}"));
            python(XATTRS, &[path]).ok().text().trim().to_owned()
        };
        // Numbers go on from the two samples of the first container.
        assert_eq!((shown(2), shown(3), shown(4)), (line(0, "no"), line(1, "no"), line(2, "no")));
        mount.read("000003").unwrap();
        mount.read("000004").unwrap_err();
        assert_eq!((shown(2), shown(3), shown(4)), (line(0, "no"), line(1, "yes"), line(2, "bad")));
        // Directories and control files have no extended attributes.
        let outcome = python(XATTRS, &[mount.point(), &mount.path(".ffrfs/bad")]).ok();
        assert_eq!(outcome.text(), "\n\n");
    });
}

#[test]
fn getfattr_shows_an_extended_attribute_by_its_name() {
    if !have(Need::Program("getfattr")) {
        return;
    }
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[]);
        for (name, line) in
            [("length", "user.ffrfs.length=\"10\""), ("verified", "user.ffrfs.verified=\"no\"")]
        {
            let (name, path) = (format!("user.ffrfs.{name}"), mount.path("a.txt"));
            let args = [Path::new("-n"), Path::new(&name), Path::new("--absolute-names"), &path];
            let shown =
                crate::common::run(std::process::Command::new("getfattr").args(args)).ok().text();
            assert!(shown.contains(line), "{shown}");
        }
    });
}

/// Copies a directory with all attributes, and prints how many files and extended attributes the copy has.
const COPY: &str = r#"
import os, shutil, subprocess, sys
source, target, program = sys.argv[1:]
if program == "shutil":
    shutil.copytree(source, target)
elif program == "tar":
    # It warns that the file system does not list any.
    tar = ["tar", "--xattrs", "--xattrs-include=*", "-C"]
    subprocess.run(tar + [source, "-cf", target + ".tar", "."], check=True)
    os.mkdir(target)
    subprocess.run(tar + [target, "-xf", target + ".tar"], check=True)
else:
    subprocess.run({"cp": ["cp", "-a"], "rsync": ["rsync", "-aX"]}[program] + [source + "/.", target], check=True)
files = [os.path.join(root, name) for root, _, names in os.walk(target) for name in names]
ours = [name for path in files for name in os.listxattr(path) if "ffrfs" in name]
print(len(files), len(ours))
"#;

/// How many requests about extended attributes a mount has answered.
fn xattr_requests(mount: &Mount) -> u64 {
    let stats = mount.stats();
    let count = |name: &str| stats["requests"][name].as_u64().unwrap();
    count("getxattr") + count("listxattr")
}

#[test]
fn a_copy_with_all_attributes_has_all_files_and_none_of_our_attributes() {
    for (program, option) in ["cp", "rsync", "shutil", "tar"]
        .map(|p| (p, "xattr=yes"))
        .into_iter()
        .chain([("cp", "xattr=no"), ("rsync", "xattr=no"), ("tar", "xattr=no")])
    {
        if !have(Need::Python("os")) || (program != "shutil" && !have(Need::Program(program))) {
            continue;
        }
        for_each_transport(|transport| {
            let directory = temp_dir();
            let container = directory.path().join("many.ffr");
            write_container(&container, &samples(300, 100));
            let mount = Mount::of(transport, &[&container], &[option]);
            let target = directory.path().join("copy");
            let outcome = python(COPY, &[mount.point(), &target, Path::new(program)]).ok();
            assert_eq!(outcome.text(), "300 0\n", "{program}");
            // cp asks for the access control list of each file, and the kernel does not keep the answer.
            let at_most = if (program, option) == ("cp", "xattr=yes") { 320 } else { 20 };
            let requests = xattr_requests(&mount);
            assert!(requests <= at_most, "{program}: {requests}");
        });
    }
}

#[test]
fn without_extended_attributes_the_kernel_asks_once() {
    if !have(Need::Python("os")) {
        return;
    }
    const ASK: &str = r#"
import errno, os, sys
for path in sys.argv[1:] * 50:
    for name in ("user.ffrfs.index", "security.selinux"):
        try:
            os.getxattr(path, name)
        except OSError as error:
            assert error.errno == errno.EOPNOTSUPP, error
        else:
            raise AssertionError(name)
"#;
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("packed_folder.ffr"), &["xattr=no"]);
        python(ASK, &[mount.path("a.txt")]).ok();
        assert_eq!(xattr_requests(&mount), 1);
    });
}
