//! Intervals that were decoded ahead. They are held beside the entries that readers leave over, so that used intervals do
//! not push out those that will be used: until a reader asks for them, or until they are given up.

use super::*;

impl SampleCache {
    /// Makes the caller the leader of an interval to decode ahead, unless it is cached or in flight.
    pub(in crate::vfs) fn lead_ahead(self: &Arc<Self>, key: CacheKey) -> Option<Leader> {
        // Looked up and led under one lock, as in `get_or_lead`.
        let mut shard = self.shard(key);
        (!shard.has(key)).then(|| self.lead_in(&mut shard, key, false))
    }

    /// Room for bytes that are fetched or decoded ahead: for an interval, or for a read of samples, with the first one's `key`.
    /// Blocks and left-over entries make room, if that is enough; other samples and intervals ahead do not.
    pub(in crate::vfs) fn room_ahead(&self, key: CacheKey, bytes: u64) -> Option<Reservation> {
        let room = self.budget.reserve(bytes);
        room.or_else(|| {
            self.can_make_room(bytes).then(|| self.reserve(key.spread(), bytes)).flatten()
        })
    }

    /// Whether evicting makes room for `bytes` bytes: holders other than blocks and entries keep their memory.
    fn can_make_room(&self, bytes: u64) -> bool {
        let evictable = self.evictable.all.load(Ordering::Relaxed) + self.blocks.held_bytes();
        let kept = self.budget.held_bytes().saturating_sub(evictable);
        kept.saturating_add(bytes) <= self.budget.cap_bytes()
    }

    /// Whether no read need fetch a key.
    pub(in crate::vfs) fn has(&self, key: CacheKey) -> bool {
        self.shard(key).has(key)
    }

    /// Moves an interval that was decoded ahead, of which `bytes` are read now, to the entries that readers leave over.
    pub(super) fn take_ahead(
        &self,
        shard: &mut Shard,
        key: CacheKey,
        bytes: u64,
    ) -> Option<Cached> {
        let DecodedAhead { verified, rights: (reservation, _) } = shard.ahead.remove(&key)?;
        let is_used_up = bytes >= verified.bytes().len() as u64;
        let cached = Cached::Whole(verified);
        if !is_used_up {
            let entry = self.entry(cached.clone(), bytes, reservation);
            shard.cached.put(key, entry);
        }
        Some(cached)
    }

    /// Drops an interval that was decoded ahead, if no reader has asked for it.
    pub(in crate::vfs) fn give_up(&self, key: CacheKey) {
        let unused = self.shard(key).ahead.remove(&key);
        self.ahead_unused.fetch_add(u64::from(unused.is_some()), Ordering::Relaxed);
    }

    /// Drops any interval that was decoded ahead; false if there is none.
    pub(super) fn give_up_any(&self) -> bool {
        let any = self.shards.iter().find_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.ahead.keys().next().copied()
        });
        any.map(|key| self.give_up(key)).is_some()
    }

    /// Room for bytes that were asked for: intervals that were decoded ahead make it.
    pub(super) fn reserve_of_ahead(&self, bytes: u64) -> Option<Reservation> {
        if bytes > self.budget.cap_bytes() {
            return None;
        }
        loop {
            match self.budget.reserve(bytes) {
                None if self.give_up_any() => {}
                reserved => return reserved,
            }
        }
    }
}

impl Leader {
    /// Holds an interval that was decoded ahead. The read is still in flight: it ends when the leader is dropped.
    pub(in crate::vfs) fn hold(&self, verified: Arc<Verified>, rights: Rights) {
        self.cache.shard(self.key).ahead.insert(self.key, DecodedAhead { verified, rights });
    }
}
