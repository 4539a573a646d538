//! Large encoded samples: checkpoints of an earlier mount are loaded, or all of the sample is decoded to record
//! checkpoints; if it can have none, it is decoded to the spool.

use super::Reader;
use super::interval_decode::IntervalSource;
use super::task::{Load, Spooling, State, Step, Task, take_guarded};
use crate::catalog::Located;
use crate::format::Fault;
use crate::vfs::checkpoints::decode::{FullDecode, Stop};
use crate::vfs::checkpoints::spool::Spool;
use crate::vfs::checkpoints::{
    CheckpointKey, CheckpointStore, Checkpoints, INTERVAL_BYTES, MAX_INTERVAL_BYTES,
    SPOOLED_INTERVAL_BYTES, STEP_BYTES,
};
use crate::vfs::memory::cache::Cached;
use std::sync::Arc;

/// The stored bytes that are read at a time to decode all of a sample.
const READ_BYTES: u64 = 1 << 20;
/// The most memory that a checkpoint takes, in bytes.
const CHECKPOINT_BYTES: u64 = 32 << 10;
const NO_CHECKPOINTS: &str = "more than 64 MiB without a place to begin at: its encoding cannot be read in the \
     middle";

impl Reader {
    /// Whether an encoding cannot be undone step by step, and the sample fits in memory all the same.
    pub(super) fn must_decode_at_once(&self, located: &Located) -> bool {
        let container = self.samples.container(located);
        located.sample.working_bytes() <= self.memory.budget().cap_bytes() / 2
            && matches!(container.decoder(located.index, None), Ok(None))
    }

    /// Begins to load the checkpoints of a sample, or to decode all of it.
    pub(super) fn begin_decode(&self, task: Task) -> Step {
        let Some(store) = self.store_for(&task.located) else { return self.decode_all(task) };
        let (store, key) = (Arc::clone(store), key_of(&task.located));
        task.block_on(State::Load(Box::new(Load { store, key, found: None })))
    }

    /// Takes the checkpoints of an earlier mount, if there are any.
    pub(super) fn after_load(&self, mut task: Task, load: Load) -> Step {
        let found = load.found.and_then(|bytes| Checkpoints::read(&bytes, &task.located.sample));
        let fits = |found: &Checkpoints| found.memory_bytes() <= self.checkpoint_bytes / 4;
        let Some(found) = found.filter(fits) else { return self.decode_all(task) };
        let found = Arc::new(found);
        if let Some(leader) = task.leader.take() {
            leader.end_with(Cached::Checkpoints(Arc::clone(&found)), 0);
        }
        self.read_intervals(task, &IntervalSource::Sample(found))
    }

    fn decode_all(&self, task: Task) -> Step {
        match self.full_decode(&task.located, None) {
            Ok(decode) => self.fetch_to_decode(task, Box::new(decode), 0),
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Fetches the next bytes to decode, from byte `start` of the stored bytes.
    fn fetch_to_decode(&self, task: Task, decode: Box<FullDecode>, start: u64) -> Step {
        let end = (start + READ_BYTES).min(task.located.sample.length_bytes);
        let range = task.in_container(start, end);
        task.fetch(State::Decode(decode), range)
    }

    fn full_decode(&self, located: &Located, spool: Option<Spool>) -> Result<FullDecode, Fault> {
        let at = located.sample;
        let decoder = self.samples.container(located).decoder(located.index, None);
        let decoder = decoder.map_err(Fault::from)?;
        let decoder = decoder.ok_or_else(|| too_large(at.working_bytes()))?;
        // So that checkpoints take an eighth of the memory at most.
        let eighth = self.memory.budget().cap_bytes() / 8;
        let checkpoints = (eighth / CHECKPOINT_BYTES).max(1);
        let interval_bytes = match spool {
            Some(_) => SPOOLED_INTERVAL_BYTES,
            None => INTERVAL_BYTES
                .min(eighth)
                .max(at.size_bytes() / checkpoints)
                .clamp(STEP_BYTES as u64, MAX_INTERVAL_BYTES),
        };
        Ok(FullDecode::new(decoder, at.size_bytes(), interval_bytes, spool, at.checksum))
    }

    /// Decodes the fetched bytes; as file I/O if the decoded bytes go to the spool.
    pub(super) fn after_decode(&self, task: Task, mut decode: Box<FullDecode>) -> Step {
        if decode.is_spooled() {
            let spooling = Spooling { decode, taken: Ok(0) };
            return task.block_on(State::Spool(Box::new(spooling)));
        }
        let is_last = task.span.range().end == task.located.sample.end_bytes();
        let taken = take_guarded(&mut decode, task.span.bytes(), is_last);
        self.after_decoded(task, decode, taken)
    }

    /// Goes on behind the bytes that were decoded.
    pub(super) fn after_decoded(
        &self,
        mut task: Task,
        decode: Box<FullDecode>,
        taken: Result<usize, Stop>,
    ) -> Step {
        let at = task.located.sample;
        let done = match taken {
            Ok(taken) => task.span.range().start + taken as u64,
            Err(Stop::NoCheckpoints) => return self.decode_to_spool(task),
            Err(Stop::Fault(fault)) => return self.decode_again_or_fail(task, fault),
        };
        if done < at.end_bytes() && !decode.is_ended() {
            return self.fetch_to_decode(task, decode, done - at.offset_bytes);
        }
        let must_check = self.samples.must_check(task.sample, &task.located);
        let checkpoints = decode.finish(must_check);
        let checkpoints = match checkpoints {
            Ok(checkpoints) => Arc::new(checkpoints),
            Err(fault) => return self.decode_again_or_fail(task, fault),
        };
        self.keep(&task.located, &checkpoints, must_check);
        if must_check {
            self.samples.stats().verified();
            self.samples.set_verified(task.sample);
        }
        if let Some(leader) = task.leader.take() {
            leader.end_with(Cached::Checkpoints(Arc::clone(&checkpoints)), 0);
        }
        self.read_intervals(task, &IntervalSource::Sample(checkpoints))
    }

    /// Decodes from the start again if the bytes may have come out of a cache, and another attempt may help.
    fn decode_again_or_fail(&self, mut task: Task, fault: Fault) -> Step {
        match fault.is_permanent() && self.distrusts_sample(&mut task) {
            true => self.decode_all(task),
            false => self.fail(task, fault),
        }
    }

    /// Decodes from the start again, to the spool.
    fn decode_to_spool(&self, task: Task) -> Step {
        let container = self.samples.container(&task.located);
        if !container.may_keep_checkpoints(task.located.index) {
            let why = format!(
                "{NO_CHECKPOINTS}. It is encrypted: no --spool writes it to disk decrypted"
            );
            return self.fail(task, Fault::Structure(why));
        }
        let Some(directory) = self.spool.get() else {
            let why = format!("{NO_CHECKPOINTS}. --spool DIR decodes it to disk");
            return self.fail(task, Fault::Structure(why));
        };
        match self.full_decode(&task.located, Some(Spool::new(directory))) {
            Ok(decode) => self.fetch_to_decode(task, Box::new(decode), 0),
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Keeps checkpoints for the next mount, unless the sample has a checksum and was not checked.
    fn keep(&self, located: &Located, checkpoints: &Checkpoints, was_checked: bool) {
        let store = self.store_for(located).filter(|_| checkpoints.spool().is_none());
        if let Some(store) = store.filter(|_| was_checked || located.sample.checksum.is_none()) {
            store.keep(&key_of(located), checkpoints.write());
        }
    }

    fn store_for(&self, located: &Located) -> Option<&Arc<dyn CheckpointStore>> {
        let store = self.checkpoints.get()?;
        self.samples.container(located).may_keep_checkpoints(located.index).then_some(store)
    }
}

/// The fault of a sample that must be decoded at once, which takes `bytes` bytes of memory.
fn too_large(bytes: u64) -> Fault {
    let (takes, cache) = (bytes.div_ceil(1 << 20), bytes.saturating_mul(2).div_ceil(1 << 20));
    Fault::Lacking(format!(
        "its encoding cannot be undone step by step, and takes {takes} MiB at once, more than half of the cache: \
         --cache-size {cache}M (with so much --memory) reads it"
    ))
}

fn key_of(located: &Located) -> CheckpointKey {
    let at = located.sample;
    CheckpointKey {
        file: located.part,
        offset_bytes: at.offset_bytes,
        stored_bytes: at.length_bytes,
        decoded_bytes: at.size_bytes(),
        checksum: at.checksum,
    }
}
