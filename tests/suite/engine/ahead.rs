//! Samples that are fetched before they are asked for: where that helps, and nowhere else.

use super::{Data, assert_at_rest, figure, have_direct, middling, name, small};
use crate::common::{drop_cached, for_each_transport, undisturbed};
use std::fs;

#[test]
fn samples_read_in_order_are_foreseen_and_used() {
    if !have_direct() {
        return;
    }
    let data = Data::new(middling(300), 2);
    for_each_transport(|transport| {
        for (io, readers) in [("io=direct", 1), ("io=auto", 1), ("io=direct", 4)] {
            undisturbed(|| {
                let mount = data.mount(transport, &[io]);
                data.read(&mount, readers, &data.in_order());
                assert_at_rest(&mount);
                let (foreseen, used) =
                    (figure(&mount, "prefetch.foreseen"), figure(&mount, "prefetch.used"));
                // Of several readers, one often asks for a sample before its foreseen fetch has begun.
                let least = if readers == 1 { 150 } else { 30 };
                assert!(foreseen > 150 && used > least, "{io}, {readers}: {foreseen}, {used}");
                let fetched = figure(&mount, "bytes_fetched");
                assert!(fetched <= data.bytes() * 6 / 5, "{io}, {readers}: {fetched}");
            });
        }
    });
}

#[test]
fn a_second_pass_in_order_is_foreseen_as_the_first_one_was() {
    if !have_direct() {
        return;
    }
    let data = Data::new(middling(300), 2);
    for_each_transport(|transport| {
        let mount = data.mount(transport, &["io=direct"]);
        let mut before = 0;
        for pass in 0..3 {
            data.read(&mount, 1, &data.in_order());
            assert_at_rest(&mount);
            let foreseen = figure(&mount, "prefetch.foreseen");
            assert!(foreseen - before > 150, "pass {pass}: {} of 300", foreseen - before);
            before = foreseen;
            for number in data.in_order() {
                drop_cached(&fs::File::open(mount.path(name(number))).unwrap());
            }
        }
    });
}

#[test]
fn samples_read_backwards_or_by_rank_are_foreseen_and_used() {
    if !have_direct() {
        return;
    }
    let data = Data::new(middling(320), 1);
    for_each_transport(|transport| {
        let backwards: Vec<usize> = (0..320).rev().collect();
        let by_rank: Vec<usize> = (0..320).map(|i| i % 40 * 8 + i / 40).collect();
        for order in [backwards, by_rank] {
            let mount = data.mount(transport, &["io=direct"]);
            data.read(&mount, 1, &order);
            assert_at_rest(&mount);
            let used = figure(&mount, "prefetch.used");
            assert!(used > 100, "{used}, {}", mount.stats()["prefetch"]);
        }
    });
}

#[test]
fn small_samples_read_in_order_come_in_blocks_that_are_foreseen() {
    if !have_direct() {
        return;
    }
    let data = Data::new(small(6000), 1);
    for_each_transport(|transport| {
        for io in ["io=direct", "io=auto"] {
            let mount = data.mount(transport, &[io]);
            data.read(&mount, 1, &data.in_order());
            assert_at_rest(&mount);
            let (foreseen, hits) =
                (figure(&mount, "prefetch.foreseen"), figure(&mount, "blocks.hits"));
            assert!(foreseen > 0 && hits > 5000, "{io}: {foreseen}, {hits}");
        }
    });
}

// Among a few hundred samples chance makes many short patterns.
#[test]
fn random_reads_waste_at_most_a_twentieth() {
    if !have_direct() {
        return;
    }
    for (samples, options) in [(middling(1500), &["io=direct"][..]), (small(4000), &["io=direct"])]
    {
        let data = Data::new(samples, 2);
        for_each_transport(|transport| {
            for readers in [1, 16] {
                undisturbed(|| {
                    let mount = data.mount(transport, options);
                    data.read(&mount, readers, &data.shuffled(readers as u64));
                    assert_at_rest(&mount);
                    let unused = figure(&mount, "prefetch.unused_bytes");
                    let served = figure(&mount, "bytes_served");
                    // The kernel asks again for a page that it evicts before its reader has run, which happens to few pages.
                    let (all, again) = (data.bytes(), served.saturating_sub(data.bytes()));
                    assert!(served >= all && again * 100 <= all, "{readers}: {served} of {all}");
                    assert!(unused * 20 <= all, "{readers}: {unused} of {all}");
                    // Bytes that are held and will never be asked for are wasted, too.
                    let fetched = figure(&mount, "bytes_fetched");
                    assert!(fetched <= all * 105 / 100, "{readers}: {fetched} for {all}");
                });
            }
        });
    }
}

#[test]
fn a_random_epoch_of_small_samples_that_fit_the_cache_reads_them_once() {
    if !have_direct() {
        return;
    }
    let data = Data::new(small(5000), 3);
    for_each_transport(|transport| {
        for readers in [1, 4, 64] {
            // A sample that the kernel asks for twice counts twice: its block goes before all other samples of it were read.
            undisturbed(|| {
                let mount = data.mount(transport, &["io=direct"]);
                data.read(&mount, readers, &data.shuffled(99));
                assert_at_rest(&mount);
                let (fetched, blocks) =
                    (figure(&mount, "bytes_fetched"), figure(&mount, "blocks.fetched"));
                let (all, served) = (data.bytes(), figure(&mount, "bytes_served"));
                assert!(fetched <= all * 11 / 10, "{fetched} of {all}, {served} served");
                assert!(blocks > 0 && blocks < 500, "{blocks} reads for 5000 samples");
            });
        }
    });
}

#[test]
fn looking_at_everything_reads_nothing() {
    for samples in [small(3000), middling(300)] {
        let data = Data::new(samples, 2);
        for_each_transport(|transport| {
            let mount = data.mount(transport, &[]);
            for number in data.in_order() {
                let length = fs::metadata(mount.path(name(number))).unwrap().len();
                assert_eq!(length, data.samples[number].len() as u64);
            }
            let ls =
                crate::common::run(std::process::Command::new("ls").arg("-l").arg(mount.point()));
            assert_eq!(ls.ok().text().lines().count(), 1 + data.samples.len());
            assert_at_rest(&mount);
            for what in ["bytes_fetched", "prefetch.looked_up", "prefetch.foreseen"] {
                assert_eq!(figure(&mount, what), 0, "{what}");
            }
        });
    }
}

#[test]
fn who_looks_after_others_have_read_starts_few_reads() {
    if !have_direct() {
        return;
    }
    let data = Data::new(middling(600), 1);
    for_each_transport(|transport| {
        let mount = data.mount(transport, &["io=direct"]);
        let order = data.shuffled(3);
        let (read, looked_at) = order.split_at(200);
        data.read(&mount, 1, read);
        assert_at_rest(&mount);
        let before = mount.stats();
        for &number in looked_at {
            fs::metadata(mount.path(name(number))).unwrap();
        }
        assert_at_rest(&mount);
        let begun = figure(&mount, "prefetch.looked_up")
            - before["prefetch"]["looked_up"].as_u64().unwrap();
        // Each queue learns this by itself, from 64 lookups; some of those that it counts together may come from reads.
        let queues = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        assert!(begun <= (128 * queues).min(350), "{begun} reads for 400 that were only looked at");
    });
}
