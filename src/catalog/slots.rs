//! A hash table over the entries of a tree: a name is found with a look or two, not with some twenty.

use super::column::Column;
use std::io;

/// The slots, from its first one on, in which a name must be found, or there is no table: names that were made to
/// collide must not cost time.
const MAX_PROBES: u64 = 64;

/// Entries by the hash of directory and name. Per slot: an entry's number plus 1, or 0.
#[derive(Debug)]
pub(super) struct Slots(pub(super) Column);

impl Slots {
    /// Makes a table of entries, whose directories and names are given in order. The table is empty if it would be slow.
    pub(super) fn new<'a>(entries: impl ExactSizeIterator<Item = (u32, &'a [u8])>) -> Self {
        let count = entries.len() as u64;
        let slots = count + count / 2 + 1;
        let mut table = vec![0u32; slots as usize];
        for (number, (directory, name)) in entries.enumerate() {
            let first = first_slot(directory, name, slots);
            let free = (first..first + MAX_PROBES)
                .map(|slot| (slot % slots) as usize)
                .find(|&slot| table[slot] == 0);
            let Some(free) = free else { return Self(Column::Memory(Vec::new())) };
            table[free] = number as u32 + 1;
        }
        Self(Column::of_u32(table.into_iter()))
    }

    /// Looks for the entry for which `is_it` is true. `None` if there is no table.
    pub(super) fn find(
        &self,
        directory: u32,
        name: &[u8],
        mut is_it: impl FnMut(usize) -> io::Result<bool>,
    ) -> io::Result<Option<Option<usize>>> {
        let slots = self.0.bytes() / 4;
        if slots == 0 {
            return Ok(None);
        }
        let first = first_slot(directory, name, slots);
        for slot in first..first + MAX_PROBES {
            match self.0.u32_at((slot % slots) as usize)? {
                0 => break,
                entry if is_it(entry as usize - 1)? => return Ok(Some(Some(entry as usize - 1))),
                _ => {}
            }
        }
        Ok(Some(None))
    }
}

fn first_slot(directory: u32, name: &[u8], slots: u64) -> u64 {
    let mut crc = crc32fast::Hasher::new_with_initial(directory);
    crc.update(name);
    // The CRCs of numbers lie close together.
    let hash = crc.finalize().wrapping_mul(0x9e37_79b1);
    (u64::from(hash) * slots) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_no_other() {
        let names: Vec<String> = (0..20_000).map(|number| format!("{number:06}")).collect();
        let slots = Slots::new(names.iter().map(|name| (7, name.as_bytes())));
        let find = |directory, name: &str| {
            let is_it = |entry: usize| Ok(directory == 7 && names[entry] == name);
            slots.find(directory, name.as_bytes(), is_it).unwrap().expect("a table")
        };
        for (number, name) in names.iter().enumerate() {
            assert_eq!(find(7, name), Some(number));
        }
        assert_eq!((find(7, "020000"), find(8, "000000")), (None, None));
    }

    #[test]
    fn names_that_were_made_to_collide_make_no_table() {
        let alike = std::iter::repeat_n((0, &b"x"[..]), 100).collect::<Vec<_>>();
        let slots = Slots::new(alike.into_iter());
        assert_eq!(slots.find(0, b"x", |_| Ok(true)).unwrap(), None);
    }
}
