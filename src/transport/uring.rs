//! Requests through FUSE-over-io_uring: each CPU has a queue, whose thread is pinned to that CPU and has one ring for
//! answers and disk reads. Bytes in the page cache are read at once, all others through the ring.
//!
//! FORGET and INTERRUPT, which have no answer, still come over /dev/fuse.

use super::devfuse::Shared;
use super::queue::{AHEAD, QueueThread};
use super::support::{self, Obstacle};
use super::threads;
use crate::io::memory::heap;
use crate::io::ring::{Depth, Ring};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// How many requests of a CPU may be under way.
const DEPTH: usize = 16;
/// How many further reads of a CPU, and of all CPUs, may wait for a source, so that names are answered meanwhile. The kernel
/// gives out the slot that was used last: the memory of these reads is used only while so many wait, and given back after that.
const WAITING: usize = 512;
const MAX_WAITING: usize = 4096;
/// The payload of the largest request that we ask for, and the smallest payload that the kernel accepts.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;
const MIN_PAYLOAD_BYTES: usize = 128 << 10;

/// The address space of a thread's stack, and the number of threads of a mount besides those that serve requests.
const STACK_BYTES: usize = 2 << 20;
const OTHER_THREADS: usize = 6;

/// The queues of a mount, and their sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// For each queue the CPU to which its thread is pinned; `None` for a CPU on which this process may not run.
    queues: Vec<Option<usize>>,
    depth: usize,
    /// The slots of each queue for reads that wait for long.
    waiting: usize,
    /// The memory for one request; also the largest request to agree on with the kernel.
    pub(super) payload_bytes: usize,
}

impl Plan {
    /// The number of queues whose CPU this process may use, and of the other queues.
    fn pinned_and_spare(&self) -> (usize, usize) {
        let pinned = self.queues.iter().flatten().count();
        (pinned, self.queues.len() - pinned)
    }

    /// The memory for the payloads of all queues, without those of reads that wait.
    pub(super) fn memory_bytes(&self) -> u64 {
        let (pinned, spare) = self.pinned_and_spare();
        ((pinned * self.depth + spare) * self.payload_bytes) as u64
    }

    /// Looks whether this process may have the address space that the queues take, with all threads of a mount.
    ///
    /// # Errors
    /// The address space is too small.
    pub(super) fn check_room(&self, threads: usize) -> Result<(), Obstacle> {
        let (pinned, spare) = self.pinned_and_spare();
        let slots = pinned * (self.depth + self.waiting) + spare * (1 + self.waiting);
        let stacks = (pinned + 1 + threads + OTHER_THREADS) * STACK_BYTES;
        let bytes = slots * self.payload_bytes + stacks;
        heap::check_room_beside(bytes).map_err(|error| {
            let needed = bytes >> 20;
            Obstacle::new(
                format!("its buffers would take {needed} MiB (ulimit -v): {error}"),
                "raise that limit, or give the mount less --memory",
            )
        })
    }

    fn with_waiting_reads(self) -> Self {
        Self { waiting: WAITING.min(MAX_WAITING / self.queues.len().max(1)), ..self }
    }
}

/// Plans the queues for this host. The payloads of all queues take `memory_bytes` at most, or more where the smallest
/// payloads that the kernel accepts do not fit into that. `may_wait`: many reads of the dataset
/// may wait for long.
///
/// # Errors
/// This host does not support the transport: the error says why, and what to do, in one line.
pub(super) fn plan(memory_bytes: u64, may_wait: bool) -> Result<Plan, Obstacle> {
    support::fuse_over_io_uring()?;
    let unreadable = |what: &str| Obstacle::new(what, "check that /proc and /sys are mounted");
    let possible = possible_cpus().ok_or_else(|| unreadable("the CPUs cannot be counted"))?;
    let mine = sched_getaffinity(Pid::from_raw(0));
    let mine = mine.map_err(|e| unreadable(&format!("the CPU affinity cannot be read: {e}")))?;
    let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    let plan = plan_for(memory, possible, |cpu| mine.is_set(cpu).unwrap_or(false));
    Ok(if may_wait { plan.with_waiting_reads() } else { plan })
}

/// Describes the queues that a mount with `memory_bytes` for requests and `threads` for /dev/fuse would have on this host.
///
/// # Errors
/// This host does not support FUSE-over-io_uring, or this process has no room for it, so that `transport=auto` uses /dev/fuse.
pub fn uring_support(memory_bytes: u64, threads: usize) -> Result<String, Obstacle> {
    let plan = plan(memory_bytes, false)?;
    plan.check_room(threads)?;
    let (pinned, spare) = plan.pinned_and_spare();
    let Plan { depth, payload_bytes, .. } = plan;
    Ok(format!(
        "queues: {pinned} of {depth} requests of up to {} KiB, and {spare} for CPUs that are not \
         ours; {} MiB in all",
        payload_bytes >> 10,
        plan.memory_bytes() >> 20
    ))
}

fn plan_for(memory: usize, possible: usize, mine: impl Fn(usize) -> bool) -> Plan {
    let queues: Vec<_> = (0..possible).map(|cpu| mine(cpu).then_some(cpu)).collect();
    let pinned = queues.iter().flatten().count().max(1);
    // A queue whose CPU this process may not use has one slot.
    let budget = memory / (pinned * DEPTH + (possible - pinned.min(possible)));
    let payload_bytes = floor_power_of_two(budget).clamp(MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES);
    let depth = (memory / (pinned * payload_bytes)).clamp(1, DEPTH);
    Plan { queues, depth, waiting: 0, payload_bytes }
}

fn floor_power_of_two(number: usize) -> usize {
    number.checked_ilog2().map_or(0, |log| 1 << log)
}

/// How many CPUs the host can ever have, from a list such as `0-7` or `0,2-3`: the kernel makes a queue for each.
fn possible_cpus() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let last = text.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}

/// The threads that serve the queues.
pub(super) struct Queues {
    threads: Vec<JoinHandle<()>>,
    /// Errors of threads whose ring broke; the channel is closed once all threads have ended.
    failures: mpsc::Receiver<io::Error>,
}

impl Queues {
    /// Starts to serve `device`, whose INIT has agreed on io_uring. The kernel holds all requests back until it has
    /// all queues: if this fails, the caller must unmount.
    pub(super) fn start(shared: &Arc<Shared>, device: &impl AsFd, plan: &Plan) -> io::Result<Self> {
        // The share of each thread: its queues, the slots of each, and its CPU.
        let depth = |keeping| Depth { all: keeping + plan.waiting, keeping };
        let mut shares: Vec<(Vec<u16>, Depth, Option<usize>)> = Vec::new();
        let mut spare = Vec::new();
        for (queue, cpu) in plan.queues.iter().enumerate() {
            let queue = u16::try_from(queue).map_err(io::Error::other)?;
            match cpu {
                Some(cpu) => shares.push((vec![queue], depth(plan.depth), Some(*cpu))),
                None => spare.push(queue),
            }
        }
        if !spare.is_empty() {
            shares.push((spare, depth(1), None));
        }
        let (report, reports) = mpsc::channel();
        let (failed, failures) = mpsc::channel();
        let mut threads = Vec::new();
        for (number, (queues, depth, cpu)) in shares.into_iter().enumerate() {
            let shared = Arc::clone(shared);
            let device: OwnedFd = device.as_fd().try_clone_to_owned()?;
            let (payload_bytes, report, failed) =
                (plan.payload_bytes, report.clone(), failed.clone());
            let serve = move || {
                pin(cpu);
                // The ring belongs to the thread that makes it.
                match Ring::new(&device, &queues, depth, payload_bytes, AHEAD) {
                    Ok(ring) => {
                        let _ = report.send(Ok(()));
                        drop(report);
                        let Shared { ops, workers, interrupts, is_open, .. } = &*shared;
                        is_open.wait();
                        let (ops, workers) = (Arc::clone(ops), Arc::clone(workers));
                        let queue = QueueThread::new(ring, ops, workers, interrupts);
                        if let Err(error) = queue.serve() {
                            let _ = failed.send(error);
                        }
                    }
                    Err(e) => {
                        let _ = report.send(Err(e));
                    }
                }
            };
            threads.push(threads::spawn(format!("ffrfs-queue-{number}"), serve)?);
        }
        drop((report, failed));
        reports.into_iter().collect::<io::Result<()>>()?;
        Ok(Self { threads, failures })
    }

    /// Waits until the kernel has closed all queues.
    ///
    /// # Errors
    /// A ring broke; the other queues are still served.
    pub(super) fn join(self) -> io::Result<()> {
        if let Ok(error) = self.failures.recv() {
            return Err(error);
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("the thread of a queue panicked");
            }
        }
        Ok(())
    }
}

/// Pins this thread to a CPU. If that CPU is offline, or was taken from this process, the scheduler decides.
fn pin(cpu: Option<usize>) {
    let mut set = CpuSet::new();
    if let Some(cpu) = cpu
        && set.set(cpu).is_ok()
        && let Err(e) = sched_setaffinity(Pid::from_raw(0), &set)
    {
        tracing::debug!("the thread of CPU {cpu} is not pinned: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY_BYTES: usize = 128 << 20;

    #[test]
    fn a_small_host_has_deep_queues_of_large_requests() {
        let plan = plan_for(MEMORY_BYTES, 2, |_| true);
        assert_eq!(
            plan,
            Plan { queues: vec![Some(0), Some(1)], depth: 16, waiting: 0, payload_bytes: 1 << 20 }
        );
    }

    #[test]
    fn a_huge_host_stays_within_its_memory() {
        for (possible, mine) in [(256, 256), (1024, 8), (512, 512), (64, 64)] {
            let plan = plan_for(MEMORY_BYTES, possible, |cpu| cpu < mine);
            let spare = possible - mine;
            let bytes = (mine * plan.depth + spare) * plan.payload_bytes;
            assert!(bytes <= MEMORY_BYTES + spare * MIN_PAYLOAD_BYTES, "{possible} CPUs: {bytes}");
            assert_eq!(plan.queues.len(), possible);
        }
    }

    #[test]
    fn reads_that_wait_have_slots_of_their_own_and_a_huge_host_has_fewer_of_them() {
        let waiting = |cpus| plan_for(MEMORY_BYTES, cpus, |_| true).with_waiting_reads().waiting;
        assert_eq!([2, 8, 64, 1024].map(waiting), [512, 512, 64, 4]);
    }

    #[test]
    fn cpus_that_this_process_may_not_use_have_a_queue_too() {
        let plan = plan_for(MEMORY_BYTES, 4, |cpu| cpu == 2);
        assert_eq!(plan.queues, [None, None, Some(2), None]);
    }
}
