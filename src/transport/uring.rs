//! Requests through FUSE-over-io_uring: a queue a CPU, its thread pinned there, answers and disk reads in
//! one ring. What the page cache holds is read at once; everything else goes through the ring.
//!
//! FORGET and INTERRUPT, which have no answer, stay on fuser's session.

use super::lane::{AHEAD, Lane};
use super::offer::{self, Obstacle};
use super::ops::Ops;
use crate::io::ring::Ring;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Requests that a CPU may have under way.
const DEPTH: usize = 16;
/// The largest request, and the least that the kernel takes.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;
const MIN_PAYLOAD_BYTES: usize = 128 << 10;
/// How many queues, and how large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// A queue each; the CPU that a thread of its own can run on, or none.
    queues: Vec<Option<usize>>,
    depth: usize,
    /// Also the largest request to agree on with the kernel.
    pub(super) payload_bytes: usize,
}

impl Plan {
    /// Queues with a CPU of ours, and those without.
    fn pinned_and_spare(&self) -> (usize, usize) {
        let pinned = self.queues.iter().flatten().count();
        (pinned, self.queues.len() - pinned)
    }

    /// The payloads of all queues together.
    pub(super) fn memory_bytes(&self) -> u64 {
        let (pinned, spare) = self.pinned_and_spare();
        ((pinned * self.depth + spare) * self.payload_bytes) as u64
    }
}

/// Looks what this host offers. An error says in a line why the transport cannot be used, and what to do.
/// Payloads of all queues together take up to `memory_bytes`, if the kernel's least fits.
pub(super) fn plan(memory_bytes: u64) -> Result<Plan, Obstacle> {
    offer::uring()?;
    let unknown = |what: &str| Obstacle::new(what, "is /proc mounted, and /sys?");
    let possible = possible_cpus().ok_or_else(|| unknown("the CPUs cannot be counted"))?;
    let mine = sched_getaffinity(Pid::from_raw(0));
    let mine = mine.map_err(|e| unknown(&format!("no CPU affinity: {e}")))?;
    let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    Ok(plan_for(memory, possible, |cpu| mine.is_set(cpu).unwrap_or(false)))
}

/// What `transport=auto` would use on this host, in words, with `memory_bytes` for requests.
///
/// # Errors
/// Why it would not be io_uring.
pub fn offer(memory_bytes: u64) -> Result<String, Obstacle> {
    let plan = plan(memory_bytes)?;
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
    // Queues without a CPU of ours have one slot each.
    let budget = memory / (pinned * DEPTH + (possible - pinned.min(possible)));
    let payload_bytes = floor_power_of_two(budget).clamp(MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES);
    let depth = (memory / (pinned * payload_bytes)).clamp(1, DEPTH);
    Plan { queues, depth, payload_bytes }
}

fn floor_power_of_two(number: usize) -> usize {
    number.checked_ilog2().map_or(0, |log| 1 << log)
}

/// The kernel makes a queue for each CPU that could ever be there: `0-7` or `0,2-3`.
fn possible_cpus() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let last = text.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}

/// The threads that serve the queues.
pub(super) struct Queues {
    threads: Vec<JoinHandle<()>>,
    /// From threads whose ring broke; closed when all threads have ended.
    failures: mpsc::Receiver<io::Error>,
}

impl Queues {
    /// Starts to serve `device`, whose INIT has agreed on io_uring. From then on the kernel waits for all
    /// queues: if this fails, the mount must go.
    pub(super) fn start(ops: &Arc<Ops>, device: &impl AsFd, plan: &Plan) -> io::Result<Self> {
        let mut lanes: Vec<(Vec<u16>, usize, Option<usize>)> = Vec::new();
        let mut spare = Vec::new();
        for (queue, cpu) in plan.queues.iter().enumerate() {
            let queue = u16::try_from(queue).map_err(io::Error::other)?;
            match cpu {
                Some(cpu) => lanes.push((vec![queue], plan.depth, Some(*cpu))),
                None => spare.push(queue),
            }
        }
        if !spare.is_empty() {
            lanes.push((spare, 1, None));
        }
        let (report, reports) = mpsc::channel();
        let (failed, failures) = mpsc::channel();
        let mut threads = Vec::new();
        for (number, (queues, depth, cpu)) in lanes.into_iter().enumerate() {
            let ops = Arc::clone(ops);
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
                        if let Err(error) = Lane::new(ring, ops).serve() {
                            let _ = failed.send(error);
                        }
                    }
                    Err(e) => {
                        let _ = report.send(Err(e));
                    }
                }
            };
            let thread = std::thread::Builder::new().name(format!("ffrfs-queue-{number}"));
            threads.push(thread.spawn(serve)?);
        }
        drop((report, failed));
        reports.into_iter().collect::<io::Result<()>>()?;
        Ok(Self { threads, failures })
    }

    /// Waits until the kernel has let go of all queues.
    ///
    /// # Errors
    /// A ring broke; the other queues are still served.
    pub(super) fn join(self) -> io::Result<()> {
        if let Ok(error) = self.failures.recv() {
            return Err(error);
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a queue's thread panicked");
            }
        }
        Ok(())
    }
}

/// A CPU may be offline, or have left our set: then the scheduler decides.
fn pin(cpu: Option<usize>) {
    let mut set = CpuSet::new();
    if let Some(cpu) = cpu
        && set.set(cpu).is_ok()
        && let Err(e) = sched_setaffinity(Pid::from_raw(0), &set)
    {
        tracing::debug!("the thread of CPU {cpu} runs anywhere: {e}");
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
            Plan { queues: vec![Some(0), Some(1)], depth: 16, payload_bytes: 1 << 20 }
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
    fn cpus_that_are_not_ours_have_a_queue_all_the_same() {
        let plan = plan_for(MEMORY_BYTES, 4, |cpu| cpu == 2);
        assert_eq!(plan.queues, [None, None, Some(2), None]);
    }
}
