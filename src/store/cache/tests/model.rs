//! A cache compared with a model: which blocks are present, and which daemon fetches a block.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

const BLOCKS: u64 = 5;
const DAEMONS: usize = 3;

#[derive(Debug, Clone)]
enum Act {
    Claim {
        daemon: usize,
        block: u64,
    },
    ClaimRun {
        daemon: usize,
        blocks: Range<u64>,
    },
    Publish {
        daemon: usize,
        block: u64,
    },
    GiveUp {
        daemon: usize,
        block: u64,
    },
    Invalidate {
        daemon: usize,
        block: u64,
    },
    /// The daemon ends and starts again.
    Restart {
        daemon: usize,
    },
    /// The machine ends and starts again.
    Reboot,
}

fn acts() -> impl Strategy<Value = Act> {
    let block = || (0..DAEMONS, 0..BLOCKS);
    prop_oneof![
        6 => block().prop_map(|(daemon, block)| Act::Claim { daemon, block }),
        3 => (block(), 1..=BLOCKS).prop_map(|((daemon, first), count)| {
            Act::ClaimRun { daemon, blocks: first..(first + count).min(BLOCKS) }
        }),
        4 => block().prop_map(|(daemon, block)| Act::Publish { daemon, block }),
        2 => block().prop_map(|(daemon, block)| Act::GiveUp { daemon, block }),
        1 => block().prop_map(|(daemon, block)| Act::Invalidate { daemon, block }),
        1 => (0..DAEMONS).prop_map(|daemon| Act::Restart { daemon }),
        1 => Just(Act::Reboot),
    ]
}

/// A daemon, and the blocks that it fetches at the moment.
struct Daemon {
    entry: Arc<Entry>,
    _cache: Arc<Cache>,
    fetching: HashMap<u64, Fetching>,
}

struct World {
    directory: CacheDirectory,
    run: u8,
    daemons: Vec<Daemon>,
    /// Whole blocks, and whether each was checked since the machine booted.
    whole: HashMap<u64, bool>,
    /// The blocks that each daemon may know to be present.
    seen: [HashMap<u64, ()>; DAEMONS],
}

impl World {
    fn start(directory: &TempDir, run: u8) -> Daemon {
        let cache = daemon_in_run(directory, run);
        let object = object("s3://bucket/key", "\"1\"", (BLOCKS - 1) * BLOCK_BYTES + 3);
        let entry = cache.entry(&object, "").unwrap();
        Daemon { entry, _cache: cache, fetching: HashMap::new() }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Claim { daemon, block } => {
                let claim = self.daemons[daemon].entry.claim(block);
                self.claimed(daemon, block, claim);
            }
            Act::ClaimRun { daemon, ref blocks } => self.claim_run(daemon, blocks.clone()),
            Act::Publish { daemon, block } => {
                let Some(mut fetching) = self.daemons[daemon].fetching.remove(&block) else {
                    return;
                };
                let range = fetching.range();
                fetching.write(range.start, &bytes(range)).unwrap();
                fetching.publish().unwrap();
                self.whole.insert(block, true);
                self.seen[daemon].insert(block, ());
            }
            Act::GiveUp { daemon, block } => drop(self.daemons[daemon].fetching.remove(&block)),
            Act::Invalidate { daemon, block } => {
                self.daemons[daemon].entry.invalidate(block);
                self.whole.remove(&block);
                self.seen[daemon].remove(&block);
            }
            Act::Restart { daemon } => {
                self.daemons[daemon] = Self::start(&self.directory, self.run);
                self.seen[daemon].clear();
            }
            Act::Reboot => {
                self.daemons.clear();
                self.run += 1;
                self.whole.values_mut().for_each(|checked| *checked = false);
                for seen in &mut self.seen {
                    seen.clear();
                    self.daemons.push(Self::start(&self.directory, self.run));
                }
            }
        }
    }

    fn claim_run(&mut self, daemon: usize, blocks: Range<u64>) {
        let Some(claims) = self.daemons[daemon].entry.claim_run(blocks.clone(), None) else {
            let is_had = |block| self.is_fetched(block) || self.seen[daemon].contains_key(&block);
            assert!(blocks.into_iter().any(is_had), "nobody has one of them");
            return;
        };
        assert_eq!(claims.len() as u64, blocks.end - blocks.start);
        for (block, claim) in blocks.zip(claims) {
            self.claimed(daemon, block, claim);
        }
    }

    fn is_fetched(&self, block: u64) -> bool {
        self.daemons.iter().any(|daemon| daemon.fetching.contains_key(&block))
    }

    fn claimed(&mut self, daemon: usize, block: u64, claim: Claim) {
        let is_fetched = self.is_fetched(block);
        let is_seen = self.seen[daemon].contains_key(&block);
        match claim {
            Claim::Present => {
                assert!(self.whole.get(&block) == Some(&true) || is_seen);
                self.seen[daemon].insert(block, ());
            }
            Claim::Fetch(fetching) => {
                assert!(!self.whole.contains_key(&block) && !is_fetched && !is_seen);
                self.daemons[daemon].fetching.insert(block, fetching);
            }
            Claim::Elsewhere => assert!(is_fetched),
            Claim::Unchecked(unchecked) => {
                assert_eq!(self.whole.get(&block), Some(&false));
                assert!(matches!(unchecked.check(), Claim::Present));
                self.whole.insert(block, true);
                self.seen[daemon].insert(block, ());
            }
            Claim::NoRoom => panic!("there is room"),
        }
    }

    fn check(&mut self) {
        for (at, daemon) in self.daemons.iter().enumerate() {
            for block in 0..BLOCKS {
                let range = map::block_range(block, daemon.entry.length_bytes());
                let is_present = daemon.entry.is_present(&range);
                let is_seen = self.seen[at].contains_key(&block);
                assert_eq!(is_present, self.whole.get(&block) == Some(&true) || is_seen);
                if is_present {
                    self.seen[at].insert(block, ());
                    let tail = range.end.saturating_sub(100).max(range.start)..range.end;
                    assert!(read(&daemon.entry, tail.clone()) == bytes(tail));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn daemons_agree_with_the_model_on_what_is_present_and_who_fetches(
        acts in prop::collection::vec(acts(), 1..40)
    ) {
        let directory = CacheDirectory::make();
        let daemons = (0..DAEMONS).map(|_| World::start(&directory, 0)).collect();
        let mut world = World { directory, run: 0, daemons, whole: HashMap::new(), seen: <_>::default() };
        for act in &acts {
            world.act(act);
            world.check();
        }
    }
}
