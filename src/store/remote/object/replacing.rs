//! Evicting blocks of a full cache for others that announced reads need more. Imports the order and the cache.

use super::order::{BlockId, Eviction, Order};
use crate::store::Place;
use crate::store::cache::{BLOCK_BYTES, Entry, Freed};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// The pause after an attempt that has evicted no block.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause if no block was found that may be evicted.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// How long an object of which no block could be evicted is left alone: it is pinned, another process has it open, or a read of
/// it takes long.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// The announced reads of all cached objects of a process.
#[derive(Default)]
pub(in crate::store::remote) struct Replacing {
    state: Mutex<State>,
    objects: AtomicU64,
    /// Held while blocks are evicted for others, until those are being fetched: one thread at a time waits for readers.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    order: Order,
    entries: HashMap<u64, Weak<Entry>>,
    /// No attempt is made before this time.
    paused_until: Option<Instant>,
    /// The objects of which no block could be evicted, and when.
    refused: HashMap<u64, Instant>,
}

/// The announced reads of one object.
pub(in crate::store::remote) struct ReplacingObject {
    all: Arc<Replacing>,
    number: u64,
    length_bytes: u64,
}

/// Blocks for which others were evicted, in order, and their room.
pub(super) struct Replaced<'a> {
    pub(super) blocks: Vec<u64>,
    pub(super) freed: Freed,
    /// To be held until the blocks are claimed.
    pub(super) turn: tokio::sync::MutexGuard<'a, ()>,
}

/// Blocks that are to take the place of others.
struct Plan {
    all: Arc<Replacing>,
    blocks: Vec<u64>,
    victims: HashMap<u64, (Arc<Entry>, Vec<u64>)>,
}

impl Replacing {
    /// The announced reads of an object with this entry.
    pub(in crate::store::remote) fn object(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
    ) -> ReplacingObject {
        let number = self.objects.fetch_add(1, Ordering::Relaxed);
        self.lock().entries.insert(number, Arc::downgrade(entry));
        let (all, length_bytes) = (Arc::clone(self), entry.length_bytes());
        ReplacingObject { all, number, length_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }

    fn pause(&mut self, time: Duration) {
        self.paused_until = Some(Instant::now() + time);
    }

    fn is_refused(&self, object: u64) -> bool {
        self.refused.get(&object).is_some_and(|since| since.elapsed() < LEFT_ALONE)
    }
}

/// The entry of a block that the cache is known to hold.
fn cached(entries: &HashMap<u64, Weak<Entry>>, id: BlockId) -> Option<Arc<Entry>> {
    entries.get(&id.object)?.upgrade().filter(|entry| entry.is_known(id.block))
}

impl ReplacingObject {
    /// Notes that a range will be read.
    pub(super) fn announce(&self, range: &Range<u64>, place: Place) {
        self.all.lock().order.announce(self.number, range, place);
    }

    /// Notes that reads with lower numbers have been made, of all objects.
    pub(super) fn advance(&self, number: u64) {
        let State { order, entries, .. } = &mut *self.all.lock();
        order.advance(number, |id| cached(entries, id).is_some());
    }

    /// Notes that the announced reads that have not begun will not come, of all objects.
    pub(super) fn forget_reads(&self) {
        self.all.lock().order.forget_reads();
    }

    fn bytes_of(&self, block: u64) -> u64 {
        BLOCK_BYTES.min(self.length_bytes.saturating_sub(block * BLOCK_BYTES))
    }

    /// Makes room for those blocks `around` a read that are worth the places of others, if one of the `needed` blocks is.
    pub(super) async fn replace(
        &self,
        needed: Range<u64>,
        around: Range<u64>,
        is_absent: impl Fn(u64) -> bool,
    ) -> Option<Replaced<'_>> {
        let others = around.filter(|block| !needed.contains(block));
        let mut worthy = self.worthy(needed.clone().chain(others).collect());
        if worthy.is_empty() {
            return None;
        }
        // One at a time: other reads of these blocks join the fetch.
        let turn = self.all.turn.lock().await;
        worthy.retain(|block| is_absent(*block));
        if !worthy.first().is_some_and(|block| needed.contains(block)) {
            return None;
        }
        let plan = self.plan(&worthy)?;
        let (blocks, freed) = spawn_blocking(move || plan.carry_out()).await.ok().flatten()?;
        Some(Replaced { blocks, freed, turn })
    }

    /// The blocks that may be worth the places of others. Empty if the first one is not.
    fn worthy(&self, mut blocks: Vec<u64>) -> Vec<u64> {
        let state = self.all.lock();
        let is_worthy = |block: &u64| {
            let id = BlockId { object: self.number, block: *block };
            state.order.is_worthy(id, self.bytes_of(*block))
        };
        if state.is_paused() || !blocks.first().is_some_and(is_worthy) {
            return Vec::new();
        }
        blocks.retain(is_worthy);
        blocks
    }

    /// Finds a block to evict for each of these.
    fn plan(&self, blocks: &[u64]) -> Option<Plan> {
        let mut state = self.all.lock();
        if state.is_paused() {
            return None;
        }
        let (all, victims) = (Arc::clone(&self.all), HashMap::new());
        let mut plan = Plan { all, blocks: Vec::new(), victims };
        for &block in blocks {
            let mut order = std::mem::take(&mut state.order);
            let id = BlockId { object: self.number, block };
            let eviction = |victim: BlockId| {
                let is_planned = |(_, blocks): &(_, Vec<u64>)| blocks.contains(&victim.block);
                match cached(&state.entries, victim) {
                    None => Eviction::Absent,
                    // The last block of an object may be too short to make room.
                    Some(entry) if entry.length_bytes() / BLOCK_BYTES <= victim.block => {
                        Eviction::NotNow
                    }
                    Some(_) if state.is_refused(victim.object) => Eviction::NotNow,
                    Some(_) if plan.victims.get(&victim.object).is_some_and(is_planned) => {
                        Eviction::NotNow
                    }
                    Some(_) => Eviction::Possible,
                }
            };
            let victim = order.victim(id, self.bytes_of(block), eviction);
            state.order = order;
            let Some(victim) = victim else { break };
            let Some(entry) = cached(&state.entries, victim) else { continue };
            plan.blocks.push(block);
            let victims = plan.victims.entry(victim.object).or_insert((entry, Vec::new()));
            victims.1.push(victim.block);
        }
        if plan.blocks.is_empty() {
            state.pause(SHORT_PAUSE);
            return None;
        }
        Some(plan)
    }
}

impl Drop for ReplacingObject {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.order.forget(self.number);
        state.entries.remove(&self.number);
        state.refused.remove(&self.number);
    }
}

impl Plan {
    /// Evicts as planned. Returns the blocks for which there is room now, in order, and their room. May block.
    fn carry_out(self) -> Option<(Vec<u64>, Freed)> {
        let Self { all, mut blocks, victims } = self;
        let freed = victims.into_iter().filter_map(|(object, (entry, blocks))| {
            let freed = entry.replace(&blocks);
            if freed.is_none() {
                all.lock().refused.insert(object, Instant::now());
            }
            freed
        });
        let freed = freed.reduce(|mut sum, more| {
            sum.add(more);
            sum
        });
        let Some(freed) = freed else {
            all.lock().pause(PAUSE);
            return None;
        };
        blocks.truncate((freed.bytes() / BLOCK_BYTES) as usize);
        blocks.sort_unstable();
        Some((blocks, freed))
    }
}
