//! A container that is truncated, replaced or rewritten while it is mounted: EIO, never mixed bytes, and the
//! daemon lives.

use crate::common::{
    Held, Mount, assert_errno, for_each_transport, noise, offsets, wait_until, write_container,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A number of samples whose index (12 bytes each) is mapped rather than copied.
const MANY: usize = 40_000;

fn many() -> Vec<Vec<u8>> {
    (0..MANY).map(|number| noise(number as u64, 1 + number % 40)).collect()
}

/// How often the thread that looks at the containers has waited; `None` if it has not named itself yet.
fn looks(mount: &Mount) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{}/task", mount.pid())).unwrap().flatten();
    let mut statuses = threads.filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
    let status = statuses.find(|status| status.starts_with("Name:\tffrfs-watch\n"))?;
    let waited = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Some(waited.unwrap().trim().parse().unwrap())
}

/// Changes the container of a mount in which one sample was read, and checks the reads that follow.
fn change(says: &str, change: impl Fn(&Path, &[Vec<u8>])) {
    let samples = many();
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &[]);
        let known = mount.read("000100").unwrap();
        assert_eq!(known, samples[100]);
        let held = Held::new(&mount.path("000100"));
        // Waits until a look has shown that the attributes that the kernel has are right.
        let looks = || looks(&mount);
        wait_until("it looks", Duration::from_secs(20), || looks().is_some());
        let before = looks().unwrap();
        fs::metadata(mount.path("000200")).unwrap();
        wait_until("it has looked", Duration::from_secs(20), || looks() >= Some(before + 2));
        change(&mount.container(), &samples);
        mount.wait_until_change_is_noticed("000002");
        // The kernel keeps the bytes that it has.
        assert_eq!(mount.read("000100").unwrap(), known);
        for number in [0, 1, 101, MANY / 2, MANY - 1] {
            let name = format!("{number:06}");
            // A wrong size is as bad as a wrong byte: programs do not read a file that seems empty.
            match fs::metadata(mount.path(&name)) {
                Ok(stat) => assert_eq!(stat.len(), samples[number].len() as u64, "{name}"),
                Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}"),
            }
            assert_eio(mount.read(&name));
        }
        // The listing is right or not, but it ends.
        let _ = fs::read_dir(mount.point()).map(|entries| entries.take(MANY + 1).count());
        assert!(mount.is_served(), "the daemon died: {}", mount.log());
        assert!(fs::metadata(mount.point()).unwrap().is_dir());
        assert!(fs::metadata(mount.path("x")).is_err());
        let bad = mount.bad();
        let container = mount.container().canonicalize().unwrap().display().to_string();
        let line = bad.iter().find(|line| line[0] == "-" && line[2] == container);
        let line = line.unwrap_or_else(|| panic!("{container} is not in {bad:?}"));
        assert!(line[1].contains(says), "{line:?}");
        // What is shown as bad is logged after that.
        wait_until("it is logged", Duration::from_secs(20), || mount.log().contains(says));
        let log = mount.log();
        assert_eq!(log.lines().filter(|line| line.contains(says)).count(), 1, "{log}");
        drop(held);
        mount.unmount();
    });
}

#[track_caller]
fn assert_eio(result: io::Result<Vec<u8>>) {
    assert_errno(result, libc::EIO);
}

fn open(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

#[test]
fn a_container_cut_in_its_data_gives_eio() {
    change("truncated", |path, samples| open(path).set_len(offsets(samples)[MANY - 10]).unwrap());
}

#[test]
fn a_container_cut_in_its_index_gives_eio_and_no_sigbus() {
    change("truncated", |path, _| open(path).set_len(10_000).unwrap());
}

#[test]
fn a_container_cut_to_nothing_gives_eio() {
    change("truncated", |path, _| open(path).set_len(0).unwrap());
}

#[test]
fn a_container_that_grew_gives_eio() {
    change("rewritten", |path, _| {
        let file = open(path);
        file.set_len(file.metadata().unwrap().len() + 1).unwrap();
    });
}

#[test]
fn a_container_replaced_by_another_gives_eio() {
    change("replaced", |path, samples| {
        let other = path.with_extension("new");
        let reversed: Vec<_> = samples.iter().rev().collect();
        write_container(&other, &reversed);
        fs::rename(&other, path).unwrap();
    });
}

#[test]
fn a_container_rewritten_in_place_gives_eio() {
    change("rewritten", |path, samples| {
        let size = fs::metadata(path).unwrap().len();
        let reversed: Vec<_> = samples.iter().rev().collect();
        let other = path.with_extension("new");
        write_container(&other, &reversed);
        assert_eq!(fs::metadata(&other).unwrap().len(), size);
        open(path).write_all_at(&fs::read(&other).unwrap(), 0).unwrap();
    });
}

#[test]
fn before_a_rewritten_container_is_noticed_readers_see_old_bytes_or_eio() {
    let samples = many();
    let reversed: Vec<_> = samples.iter().rev().collect();
    for_each_transport(|transport| {
        for option in ["verify=always", "verify=off"] {
            let mount = Mount::with_samples(transport, &samples, &[option]);
            let other = mount.container().with_extension("new");
            write_container(&other, &reversed);
            let bytes = fs::read(&other).unwrap();
            // These samples are in memory then, with those that lie beside them.
            for number in (0..MANY).step_by(1000) {
                assert_eq!(mount.read(format!("{number:06}")).unwrap(), samples[number]);
            }
            open(&mount.container()).write_all_at(&bytes, 0).unwrap();
            for number in (1..MANY).step_by(500) {
                match mount.read(format!("{number:06}")) {
                    Ok(bytes) => assert!(bytes == samples[number], "{option}: {number}"),
                    Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}"),
                }
            }
            assert!(mount.is_served());
        }
    });
}

#[test]
fn attributes_told_before_a_rewritten_container_is_noticed_do_not_stay() {
    let samples = many();
    let reversed: Vec<_> = samples.iter().rev().collect();
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &[]);
        let other = mount.container().with_extension("new");
        write_container(&other, &reversed);
        let bytes = fs::read(&other).unwrap();
        let size =
            |number: usize| fs::metadata(mount.path(format!("{number:06}"))).map(|f| f.len());
        // The daemon has just looked, and looks again a quarter of a second later.
        size(MANY - 1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        open(&mount.container()).write_all_at(&bytes, 0).unwrap();
        let told: Vec<_> = (0..500).map(size).collect();
        let is_wrong = |number: usize, size: &io::Result<u64>| {
            size.as_ref().is_ok_and(|&size| size != samples[number].len() as u64)
        };
        let wrong = told.iter().enumerate().filter(|(number, size)| is_wrong(*number, size));
        println!("{transport:?}: {} wrong sizes were told", wrong.count());
        wait_until("no wrong size is left", Duration::from_secs(30), || {
            (0..500).all(|number| !is_wrong(number, &size(number)))
        });
    });
}

#[test]
fn an_empty_file_of_a_rewritten_container_is_no_file_at_all() {
    let full: Vec<_> = (0..MANY).map(|number| noise(number as u64, 20)).collect();
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &full, &[]);
        assert_eq!(mount.read("000100").unwrap(), full[100]);
        let size = fs::metadata(mount.container()).unwrap().len() as usize;
        let mut empty = full.clone();
        empty[7].clear();
        empty[8] = noise(8, 40);
        let other = mount.container().with_extension("new");
        write_container(&other, &empty);
        let bytes = fs::read(&other).unwrap();
        assert_eq!(bytes.len(), size);
        open(&mount.container()).write_all_at(&bytes, 0).unwrap();
        assert_errno(fs::metadata(mount.path("000007")), libc::EIO);
    });
}

#[test]
fn one_changed_container_of_several_leaves_the_others_alone() {
    for_each_transport(|transport| {
        let directory = crate::common::temp_dir();
        let paths = ["a.ffr", "b.ffr"].map(|name| directory.path().join(name));
        for path in &paths {
            write_container(path, &[noise(1, 1_000), noise(2, 1_000)]);
        }
        let mount = Mount::new(transport, directory.path(), &[]);
        open(&paths[0]).set_len(100).unwrap();
        assert_eio(mount.read("000000"));
        assert_eio(mount.read("000001"));
        assert_eq!(mount.read("000002").unwrap(), noise(1, 1_000));
        assert_eq!(mount.read("000003").unwrap(), noise(2, 1_000));
    });
}

#[test]
fn a_moved_container_is_still_the_same_one() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &[noise(1, 1_000)], &[]);
        fs::rename(mount.container(), mount.container().with_extension("moved")).unwrap();
        assert_eq!(mount.read("000000").unwrap(), noise(1, 1_000));
    });
}

#[test]
fn readers_see_the_old_bytes_or_eio_while_a_container_is_rewritten() {
    let samples: Vec<_> = (0..400).map(|number| noise(number, 20_000)).collect();
    for_each_transport(|transport| {
        for option in ["verify=always", "verify=off"] {
            let mount = Mount::with_samples(transport, &samples, &[option]);
            let rewriting = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let read = |first: usize| {
                    for step in 0..400 {
                        let number = (first + step) % 400;
                        match mount.read(format!("{number:06}")) {
                            Ok(bytes) => assert!(bytes == samples[number], "{number}"),
                            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{e}"),
                        }
                        rewriting.store(true, Ordering::Relaxed);
                    }
                };
                for reader in 0..4 {
                    scope.spawn(move || read(reader * 100));
                }
                let begun = || rewriting.load(Ordering::Relaxed);
                wait_until("a reader reads", Duration::from_secs(30), begun);
                let file = open(&mount.container());
                for number in 0..400 {
                    let place = offsets(&samples)[number];
                    file.write_all_at(&noise(9_999, 20_000), place).unwrap();
                }
            });
            assert!(mount.is_served());
        }
    });
}
