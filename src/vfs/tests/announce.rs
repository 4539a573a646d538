//! Announcements: from bytes written to the order that is queued.

use super::*;
use crate::catalog::TreeBuilder;
use crate::io::ControlRequest;
use crate::vfs::Operation;
use std::time::Instant;

/// Ten samples with numbers for names.
fn world() -> World {
    World::new(&[vec![b"some bytes".to_vec(); 10]], Options::default())
}

/// Opens the control file for a new writer.
fn open(vfs: &Vfs) -> u64 {
    let Ok(Lookup::Found(directory)) = vfs.lookup(1, b".ffrfs") else {
        panic!("no control directory")
    };
    match vfs.lookup(directory.ino, b"prefetch") {
        Ok(Lookup::Passing(attr)) => attr.ino,
        other => panic!("{other:?}"),
    }
}

fn later() -> Instant {
    Instant::now() + Duration::from_millis(150)
}

#[test]
fn numbers_and_paths_are_queued_in_the_order_in_which_they_are_written() {
    let World { vfs, .. } = world();
    let writer = open(&vfs);
    vfs.write(writer, 1, b"7\n000003\n./00000").unwrap();
    vfs.write(writer, 1, b"5\n/000009\n0\n").unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [7, 3, 5, 9, 0]);
    let figures = vfs.prefetch_figures();
    assert_eq!((figures.announced, figures.waiting), (5, 5));
}

#[test]
fn raw_numbers_may_be_cut_between_two_writes() {
    let World { vfs, .. } = world();
    let writer = open(&vfs);
    let bytes: Vec<u8> = [8u64, 2, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
    vfs.write(writer, 1, &bytes[..8]).unwrap();
    vfs.write(writer, 1, &bytes[8..13]).unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [8]);
    vfs.write(writer, 1, &bytes[13..]).unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [8, 2, 4]);
}

#[test]
fn a_last_line_without_newline_counts_when_the_writer_is_forgotten() {
    let World { vfs, .. } = world();
    let writer = open(&vfs);
    vfs.write(writer, 1, b"1\n2").unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [1]);
    vfs.forget(writer, 1);
    assert_eq!(vfs.prefetch().announced_order(), [1, 2]);
    assert_eq!(vfs.write(writer, 1, b"3\n"), Err(Errno::ESTALE), "it is gone");
}

#[test]
fn a_last_line_without_newline_counts_after_100_ms_of_silence() {
    let World { vfs, .. } = world();
    let (writer, other) = (open(&vfs), open(&vfs));
    let before = Instant::now();
    vfs.write(writer, 1, b"1\n2").unwrap();
    vfs.write(other, 1, &5u64.to_le_bytes()).unwrap();
    vfs.write(other, 1, &[6, 0]).unwrap();
    vfs.control().tick_at(before + Duration::from_millis(99));
    assert_eq!(vfs.prefetch().announced_order(), [1, 5], "it may go on yet");
    vfs.control().tick_at(later());
    assert_eq!(vfs.prefetch().announced_order(), [1, 5, 2], "a part of a number is none");
    vfs.control().tick_at(later());
    vfs.write(other, 1, &[0; 6]).unwrap();
    vfs.forget(writer, 1);
    assert_eq!(vfs.prefetch().announced_order(), [1, 5, 2, 6]);
}

#[test]
fn behind_a_write_that_looks_like_a_full_buffer_the_rest_of_a_line_may_take_long() {
    let World { vfs, .. } = world();
    let (by_length, by_place) = (open(&vfs), open(&vfs));
    let soon = later();
    let full: Vec<u8> = b"000003\n".iter().copied().cycle().take(4096).collect();
    vfs.write(by_length, 100, &full).unwrap();
    vfs.write(by_place, 4090, b"1\n0000").unwrap();
    let whole = 4096 / 7;
    vfs.control().tick_at(soon);
    assert_eq!(vfs.prefetch().announced_order().len(), whole + 1);
    vfs.write(by_place, 4096, b"02\n").unwrap();
    assert_eq!(vfs.prefetch().announced_order()[whole..], [1, 2]);
    vfs.control().tick_at(later() + Duration::from_secs(10));
    assert_eq!(
        vfs.prefetch().announced_order()[whole..],
        [1, 2, 0],
        "in the end a line's beginning is a line"
    );
}

#[test]
fn writers_do_not_mix() {
    let World { vfs, .. } = world();
    let (one, two) = (open(&vfs), open(&vfs));
    vfs.write(one, 1, b"00000").unwrap();
    vfs.write(two, 1, b"4\n").unwrap();
    vfs.write(one, 1, b"1\n").unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [4, 1]);
}

#[test]
fn what_is_before_a_bad_line_is_announced_and_the_write_fails() {
    let World { vfs, .. } = world();
    for (text, errno) in [
        (&b"1\n10\n2\n"[..], Errno::EINVAL),
        (b"1\n000010\n2\n", Errno::EINVAL),
        (b"1\ncat.jpg\n2\n", Errno::ENOENT),
        (b"1\n/\n2\n", Errno::EISDIR),
        (b"1\n.ffrfs/bad\n2\n", Errno::ENOENT),
        (b"1\n../000003\n2\n", Errno::ENOENT),
        (b"1\n000003/x\n2\n", Errno::ENOENT),
    ] {
        let before = vfs.prefetch().announced_order().len();
        assert_eq!(vfs.write(open(&vfs), 1, text), Err(errno), "{text:?}");
        assert_eq!(vfs.prefetch().announced_order()[before..], [1], "{text:?}");
    }
    let before = vfs.prefetch().announced_order().len();
    let raw = [3, 10, 4].map(u64::to_le_bytes).concat();
    assert_eq!(vfs.write(open(&vfs), 1, &raw), Err(Errno::EINVAL));
    assert_eq!(vfs.prefetch().announced_order()[before..], [3]);
}

#[test]
fn when_too_many_wait_nothing_of_a_write_is_taken_and_it_can_be_repeated() {
    let World { vfs, .. } = world();
    let writer = open(&vfs);
    vfs.write(writer, 1, b"00000").unwrap();
    let room = vfs.prefetch().announced_capacity();
    vfs.announce(&vec![0; room - 1]).unwrap();
    assert_eq!(vfs.write(writer, 1, b"1\n2\n"), Err(Errno::ENOSPC));
    assert_eq!(vfs.prefetch().announced_order().len(), room - 1);
    vfs.write(writer, 1, b"1\n00000").unwrap();
    assert_eq!(vfs.prefetch().announced_order()[room - 1], 1, "the line's beginning was not lost");
    vfs.control().tick_at(later());
    assert_eq!(vfs.prefetch_figures().announced, room as u64);
}

#[test]
fn a_line_of_digits_is_a_number_and_with_a_dot_and_a_slash_a_path() {
    let mut tree = TreeBuilder::default();
    for (name, sample) in [(&b"1/2"[..], 7), (b"2", 8), (b"a", 1), (b"b", 2)] {
        tree.add(name, sample).unwrap();
    }
    let samples = vec![b"some bytes".to_vec(); 10];
    let tree = |_| tree.build().unwrap().into();
    let World { vfs, .. } = World::named(&[samples], Options::default(), 0, tree);
    vfs.write(open(&vfs), 1, b"2\n./2\n1/2\n1\n").unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [2, 8, 7, 1]);
}

#[test]
fn announced_samples_that_have_no_name_are_skipped() {
    // A directory takes the number of a sample.
    let mut tree = TreeBuilder::default();
    tree.add(b"a/b", 0).unwrap();
    tree.add(b"c", 9).unwrap();
    let samples = vec![b"some bytes".to_vec(); 10];
    let tree = |_| tree.build().unwrap().into();
    let World { vfs, .. } = World::named(&[samples], Options::default(), 0, tree);
    let writer = open(&vfs);
    vfs.write(writer, 1, b"0\n1\n8\n9\n").unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [0, 9]);
    let numbers: Vec<u8> = [5u64, 9].iter().flat_map(|n| n.to_le_bytes()).collect();
    vfs.take_ioctl(writer, ControlRequest::WarmUp, &numbers).unwrap();
    let figures = vfs.prefetch_figures();
    assert_eq!((figures.announced, figures.waiting), (6, 3));
    assert_eq!((figures.skipped, figures.done), (3, 3));
    assert_eq!(vfs.write(writer, 1, b"10\n"), Err(Errno::EINVAL));
    let absent = 10u64.to_le_bytes();
    assert_eq!(vfs.take_ioctl(writer, ControlRequest::WarmUp, &absent), Err(Errno::EINVAL));
}

#[test]
fn a_sample_without_a_name_is_skipped_though_there_are_as_many_names_as_samples() {
    // Two names of one sample, as of a hard link.
    let mut tree = TreeBuilder::default();
    tree.add(b"a", 0).unwrap();
    tree.add(b"b", 0).unwrap();
    let samples = vec![b"some bytes".to_vec(); 2];
    let tree = |_| tree.build().unwrap().into();
    let World { vfs, .. } = World::named(&[samples], Options::default(), 0, tree);
    let writer = open(&vfs);
    vfs.write(writer, 1, b"1\n0\n").unwrap();
    assert_eq!(vfs.prefetch().announced_order(), [0]);
    let figures = vfs.prefetch_figures();
    assert_eq!((figures.announced, figures.skipped), (2, 1));
}

#[test]
fn hidden_samples_alone_find_room_where_there_is_none() {
    let mut tree = TreeBuilder::default();
    tree.add(b"a", 0).unwrap();
    let samples = vec![b"some bytes".to_vec(); 2];
    let tree = |_| tree.build().unwrap().into();
    let World { vfs, .. } = World::named(&[samples], Options::default(), 0, tree);
    let writers = [1u64, 2].map(|order| {
        let writer = open(&vfs);
        vfs.take_ioctl(writer, ControlRequest::BeginOrder, &order.to_le_bytes()).unwrap();
        writer
    });
    // Two orders take turns, until a sample is refused because a further order could not be told from the others.
    let announce = |writer, sample: u64| vfs.write(writer, 1, format!("{sample}\n").as_bytes());
    let mut turns = writers.into_iter().cycle();
    let refused = turns.find(|&writer| announce(writer, 0) == Err(Errno::ENOSPC)).unwrap();
    let before = vfs.prefetch_figures();
    announce(refused, 1).unwrap();
    let figures = vfs.prefetch_figures();
    assert_eq!((figures.waiting, figures.skipped), (before.waiting, before.skipped + 1));
}

#[test]
fn nothing_else_can_be_written() {
    let World { vfs, .. } = world();
    let Ok(Lookup::Found(directory)) = vfs.lookup(1, b".ffrfs") else { panic!() };
    let Ok(Lookup::Passing(bad)) = vfs.lookup(directory.ino, b"bad") else { panic!() };
    // The last inode may be of a process that has died: the kernel then looks the name up again.
    let refused = [1, ino_of(0), ino_of(99), directory.ino, bad.ino].map(|ino| (ino, Errno::EROFS));
    for (ino, error) in refused.into_iter().chain([(u64::MAX, Errno::ESTALE)]) {
        assert_eq!(vfs.write(ino, 1, b"1\n"), Err(error), "{ino}");
        assert_eq!(vfs.open_for_writing(ino), Err(error), "{ino}");
        assert_eq!(vfs.set_size(ino), Err(error), "{ino}");
    }
    let writer = open(&vfs);
    assert_eq!(vfs.open_for_writing(writer), Ok(()));
    assert_eq!(vfs.set_size(writer).unwrap().mode, 0o666);
    assert_eq!(vfs.getattr(bad.ino).unwrap().mode, 0o444);
}

#[test]
fn without_permission_to_write_it_is_a_file_to_read() {
    let options = Options { prefetch_mode: 0o444, ..Options::default() };
    let World { vfs, .. } = World::new(&[vec![b"x".to_vec()]], options);
    let writer = open(&vfs);
    assert_eq!(vfs.getattr(writer).unwrap().mode, 0o444);
    assert_eq!(vfs.write(writer, 1, b"0\n"), Err(Errno::EROFS));
    assert!(vfs.prefetch().announced_order().is_empty());
    vfs.take_ioctl(writer, ControlRequest::Write, b"0\n").unwrap();
    assert_eq!(vfs.take_ioctl(writer, ControlRequest::Write, b"1\n"), Err(Errno::EINVAL));
    assert_eq!(vfs.prefetch().announced_order(), [0]);
    // The last inode may have been opened at another process.
    for (ino, error) in [(1, Errno::ENOTTY), (ino_of(0), Errno::ENOTTY), (u64::MAX, Errno::ESTALE)]
    {
        assert_eq!(vfs.take_ioctl(ino, ControlRequest::Write, b"0\n"), Err(error));
    }
}

#[test]
fn what_arrived_and_was_asked_for_is_not_listed_for_ever() {
    let world = World::of(&vec![b"some bytes".to_vec(); 10], Options::default());
    let vfs = &world.vfs;
    // Samples that the kernel knows are fetched one by one, not as blocks.
    for name in 0..10 {
        vfs.lookup(1, format!("{name:06}").as_bytes()).unwrap();
    }
    for _ in 0..3000 {
        let writer = open(vfs);
        vfs.write(writer, 1, b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
        vfs.forget(writer, 1);
        while let Some(mut fetch) = vfs.next_fetch() {
            world.fetch(fetch.span());
            drop(vfs.land(fetch, Ok(())));
        }
        for sample in 0..10 {
            assert_eq!(world.read(sample, 0, 10).unwrap(), b"some bytes");
        }
    }
    let (listed, arrived) = vfs.prefetch().arrivals();
    assert!(listed <= 4200 && arrived > 20_000, "{listed} of {arrived}");
}

#[test]
fn what_a_reader_is_fetching_is_not_read_with_its_neighbours() {
    const BYTES: usize = 120_000;
    let world = World::of(&vec![vec![7; BYTES]; 5], options(Verify::Always, 64 << 20));
    let vfs = &world.vfs;
    let Step::Read(task) = vfs.read(ino_of(2), 0, 10) else { panic!("nothing is cached") };
    let writer = open(vfs);
    vfs.write(writer, 1, b"0\n1\n2\n3\n4\n").unwrap();
    vfs.forget(writer, 1);
    let mut lengths = Vec::new();
    while let Some(mut fetch) = vfs.next_fetch() {
        lengths.push((fetch.span().range().end - fetch.span().range().start) as usize);
        world.fetch(fetch.span());
        drop(vfs.land(fetch, Ok(())));
    }
    assert_eq!(lengths, [2 * BYTES, 2 * BYTES]);
    assert_eq!(world.drive(Step::Read(task)).unwrap(), [7; 10]);
    assert_eq!(vfs.prefetch().figures().done, 5);
}

#[test]
fn what_was_looked_up_and_read_before_a_pattern_has_it_fetched_is_not_fetched_again() {
    const BYTES: usize = 120_000;
    let world = World::of(&vec![vec![7; BYTES]; 300], options(Verify::Always, 64 << 20));
    let vfs = &world.vfs;
    let mut looked_up = 0;
    // No thread takes the foreseen samples, as when the prefetch thread waits for its turn.
    for sample in 0..200 {
        vfs.stats().request(Operation::Lookup, false, std::time::Instant::now());
        if let Some(mut fetch) = vfs.looked_up(ino_of(sample), |_| true) {
            world.fetch(fetch.span());
            drop(vfs.land(fetch, Ok(())));
            looked_up += 1;
        }
        assert!(world.read(sample, 0, BYTES as u64).unwrap() == vec![7; BYTES]);
    }
    let figures = vfs.prefetch_figures();
    assert!(looked_up > 100 && figures.foreseen > 100, "{looked_up}, {figures:?}");
    while let Some(mut fetch) = vfs.next_fetch() {
        let first = fetch.span().range().start / BYTES as u64;
        assert!(first >= 199, "sample {first} was read already");
        world.fetch(fetch.span());
        drop(vfs.land(fetch, Ok(())));
    }
}

#[test]
fn an_order_that_is_begun_anew_drops_what_is_left_of_it_and_not_of_others() {
    const BYTES: usize = 120_000;
    let world = World::of(&vec![vec![7; BYTES]; 40], options(Verify::Always, 4 << 20));
    let vfs = &world.vfs;
    let announce = |order: u64, samples: &[u64]| {
        let writer = open(vfs);
        vfs.take_ioctl(writer, ControlRequest::BeginOrder, &order.to_le_bytes()).unwrap();
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        vfs.take_ioctl(writer, ControlRequest::Write, &bytes).unwrap();
        vfs.forget(writer, 1);
    };
    let fetch_all = || {
        let mut fetched = 0;
        while let Some(mut fetch) = vfs.next_fetch() {
            fetched += 1;
            world.fetch(fetch.span());
            drop(vfs.land(fetch, Ok(())));
        }
        fetched
    };
    let stale: Vec<u64> = (0..20).collect();
    announce(7, &stale);
    announce(9, &[38, 39]);
    assert!(fetch_all() > 0);
    let before = vfs.prefetch_figures();
    assert!(before.is_full && before.waiting > 2, "{before:?}");
    // Order 7 is not read: its fetched samples hold all the room, unless the next epoch drops them.
    announce(7, &[35, 33, 31]);
    let order = vfs.prefetch().announced_order();
    assert_eq!(order, [38, 39, 35, 33, 31]);
    assert!(fetch_all() > 0);
    let after = vfs.prefetch_figures();
    assert_eq!((after.waiting, after.done - before.done), (0, 5), "{after:?}");
    // The rest of all orders is dropped with that of an unnamed order.
    announce(7, &stale);
    let zero = 0u64.to_le_bytes();
    vfs.take_ioctl(open(vfs), ControlRequest::BeginOrder, &zero).unwrap();
    assert_eq!((vfs.prefetch_figures().waiting, fetch_all()), (0, 0));
    for wrong in [&[][..], &[1; 7], &[1; 9]] {
        let refused = vfs.take_ioctl(open(vfs), ControlRequest::BeginOrder, wrong);
        assert_eq!(refused, Err(Errno::EINVAL));
    }
}
