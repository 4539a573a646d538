//! The requests that are recorded, and the programs to which they are shown.

use super::*;

fn read(trace: &Trace, ino: u64) {
    let traced = trace.begin(Operation::Read, ino, 1, Instant::now());
    trace.end(traced, Ok(7));
}

fn inodes(page: &Page) -> Vec<u64> {
    let ino = |event: &Event| match event.subject {
        Subject::Inode(ino) => ino,
        _ => panic!("a read"),
    };
    page.events.iter().map(|(_, event)| ino(event)).collect()
}

#[test]
fn nothing_is_recorded_until_somebody_reads() {
    let trace = Trace::default();
    read(&trace, 1);
    assert!(!trace.is_on() && trace.page(b"").events.is_empty());
    trace.was_read(b"", 0);
    read(&trace, 2);
    assert_eq!(inodes(&trace.page(b"")), [2]);
}

#[test]
fn every_reader_gets_every_event_once_and_again_if_it_has_not_read_it() {
    let trace = Trace::default();
    trace.was_read(b"a", 0);
    trace.was_read(b"b", 0);
    read(&trace, 1);
    for reader in [&b"a"[..], b"a", b"b"] {
        assert_eq!(inodes(&trace.page(reader)), [1]);
    }
    trace.was_read(b"a", trace.page(b"a").last);
    read(&trace, 2);
    assert_eq!(inodes(&trace.page(b"a")), [2]);
    assert_eq!(inodes(&trace.page(b"b")), [1, 2]);
    assert!(trace.page(b"new").events.is_empty());
}

#[test]
fn what_was_not_read_in_time_is_lost_and_counted() {
    let trace = Trace::default();
    trace.was_read(b"", 0);
    let all = SHARD_EVENTS as u64 + 10;
    (1..=all).for_each(|ino| read(&trace, ino));
    let (mut seen, mut lost) = (Vec::new(), 0);
    loop {
        let page = trace.page(b"");
        seen.extend(inodes(&page));
        lost += page.lost;
        trace.was_read(b"", page.last);
        if !page.has_more {
            break;
        }
    }
    assert_eq!((seen, lost), ((11..=all).collect(), 10));
}

#[test]
fn events_of_all_threads_come_in_the_order_in_which_they_ended() {
    let trace = Trace::default();
    trace.was_read(b"", 0);
    std::thread::scope(|scope| {
        for thread in 0..20 {
            let trace = &trace;
            scope.spawn(move || (0..50).for_each(|_| read(trace, thread)));
        }
    });
    let page = trace.page(b"");
    assert_eq!((page.events.len(), page.lost), (1000, 0));
    assert!(page.events.is_sorted_by_key(|(number, _)| *number));
}

#[test]
fn it_is_off_some_time_after_the_last_read_and_keeps_nothing() {
    let trace = Trace::default();
    trace.was_read(b"", 0);
    read(&trace, 1);
    trace.until_ms.store(1, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(3));
    assert!(!trace.is_on());
    assert!(trace.lock_readers().is_empty());
    assert_eq!(trace.shards.iter().map(|shard| lock(shard).len()).sum::<usize>(), 0);
}

#[test]
fn phases_follow_one_another_within_the_request() {
    let trace = Trace::default();
    trace.was_read(b"", 0);
    let came = Instant::now();
    let traced = trace.begin(Operation::Read, 4, 1, Instant::now()).range(5, 6);
    let mut traced = traced.arrived(Some(came));
    for phase in [Phase::Cache, Phase::Disk, Phase::Disk, Phase::Verify, Phase::Reply] {
        traced.enter(phase);
        if phase == Phase::Cache {
            traced.cancel();
        }
    }
    trace.end(traced, Err(Errno::EIO));
    let page = trace.page(b"");
    let event = &page.events[0].1;
    assert_eq!((event.start, event.answer), (came, Err(Errno::EIO)));
    assert_eq!((event.offset_bytes, event.length_bytes), (5, 6));
    let names: Vec<_> = event.phases.iter().map(|(phase, ..)| phase.name()).collect();
    assert_eq!(names, ["queue", "disk", "verify", "reply"]);
    let times = event.phases.iter().flat_map(|(_, start, end)| [*start, *end]);
    let times: Vec<_> = [event.start].into_iter().chain(times).chain([event.end]).collect();
    assert!(times.is_sorted());
}
