//! Records the requests that a mount answers: reads `/.ffrfs/trace`, and hands each request to a [`Sink`].

mod chrome;
mod follow;
mod sink;

pub(crate) use chrome::Chrome;
pub(crate) use follow::Follow;
pub(crate) use sink::{Sink, outcome};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::vfs::TraceEvent;
use std::time::{Duration, Instant};

/// The pause between two pages of a mount that answers few requests.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives `sink` the requests that are `wanted`, until the time is over or the user interrupts. Returns how many requests were
/// not recorded, because they came too fast.
///
/// # Errors
/// The mount has gone: the sink is finished all the same. Or the sink cannot be written.
pub(crate) fn record(
    mut follow: Follow,
    mut sink: Box<dyn Sink>,
    wanted: impl Fn(&TraceEvent) -> bool,
    time: Option<Duration>,
) -> (u64, Result<(), Failure>) {
    let interrupt = Interrupt::listen();
    let until = time.map(|time| Instant::now() + time);
    let mut lost = 0;
    let ended = loop {
        // Checked before the page is read: requests that ended until then are still recorded.
        let is_last = interrupt.requested() || until.is_some_and(|until| Instant::now() >= until);
        let page = match follow.next() {
            Ok(page) => page,
            Err(failure) => break Err(failure),
        };
        lost += page.head.lost;
        let events = page.events.iter().filter(|event| wanted(event));
        let taken = events.map(|event| sink.take(event, page.head.epoch_unix_ns));
        if let Err(failure) = taken.collect::<Result<(), _>>().and_then(|()| sink.flush()) {
            return (lost, Err(failure));
        }
        if is_last {
            break Ok(());
        }
        if !page.head.has_more {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            std::thread::sleep(left.map_or(PAUSE, |left| left.min(PAUSE)));
        }
    };
    // The trace of a mount that went away is whole all the same.
    (lost, sink.finish().and(ended))
}
