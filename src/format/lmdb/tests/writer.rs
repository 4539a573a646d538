//! Writes databases as LMDB lays them out, for models and for lies.

use super::super::page::{DATABASE_BYTES, HEAD_BYTES, MAGIC, META_BYTES};

/// The data that stand under a key.
pub(super) enum Under<'a> {
    Value(&'a [u8]),
    /// Several values, sorted; of a fixed length or not.
    Values(&'a [Vec<u8>], bool),
    /// A database of its own.
    Entries(&'a [(Vec<u8>, Under<'a>)]),
}

/// A node that is ready to be put into a page.
struct Ready {
    key: Vec<u8>,
    flags: u16,
    length: u32,
    data: Vec<u8>,
}

impl Ready {
    fn packed(&self) -> Vec<u8> {
        let mut node = self.length.to_le_bytes().to_vec();
        node.extend_from_slice(&self.flags.to_le_bytes());
        node.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        node.extend_from_slice(&self.key);
        node.extend_from_slice(&self.data);
        node.resize(node.len().next_multiple_of(2), 0);
        node
    }
}

pub(super) struct Writer {
    page_bytes: usize,
    /// The pages behind the two meta pages.
    pages: Vec<Vec<u8>>,
}

/// A database of these entries, which are sorted by key.
pub(super) fn write(page_bytes: usize, entries: &[(Vec<u8>, Under)]) -> Vec<u8> {
    let mut writer = Writer { page_bytes, pages: Vec::new() };
    let main = writer.database(entries);
    let mut file = Vec::new();
    for transaction in [3_u64, 2] {
        let number = file.len() / page_bytes;
        let mut meta = head(number as u64, 0x08, HEAD_BYTES, 0);
        meta.extend_from_slice(&MAGIC.to_le_bytes());
        meta.extend_from_slice(&1_u32.to_le_bytes());
        meta.extend_from_slice(&[0; 16]);
        meta.extend_from_slice(&description(page_bytes as u32, 0, 0, u64::MAX));
        // The older meta page leads to a page that does not exist.
        let nothing = description(0, 1, 77, 1 << 40);
        meta.extend_from_slice(if transaction == 3 { &main } else { &nothing });
        meta.extend_from_slice(&(writer.pages.len() as u64 + 1).to_le_bytes());
        meta.extend_from_slice(&transaction.to_le_bytes());
        assert_eq!(meta.len(), META_BYTES);
        meta.resize(page_bytes, 0);
        file.extend_from_slice(&meta);
    }
    file.extend(writer.pages.into_iter().flatten());
    file
}

fn head(number: u64, flags: u16, lower: usize, upper: usize) -> Vec<u8> {
    let mut page = number.to_le_bytes().to_vec();
    for field in [0, flags, lower as u16, upper as u16] {
        page.extend_from_slice(&field.to_le_bytes());
    }
    page
}

pub(super) fn description(page_bytes: u32, depth: u16, entries: u64, root: u64) -> Vec<u8> {
    let mut bytes = page_bytes.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&depth.to_le_bytes());
    for field in [0, 0, 0, entries, root] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    assert_eq!(bytes.len(), DATABASE_BYTES);
    bytes
}

/// A page of nodes, `length` bytes long.
fn page_of(number: u64, flags: u16, nodes: &[Vec<u8>], length: usize) -> Vec<u8> {
    let lower = HEAD_BYTES + 2 * nodes.len();
    let upper = length - nodes.iter().map(Vec::len).sum::<usize>();
    assert!(lower <= upper, "the nodes do not fit");
    let mut page = head(number, flags, lower, upper);
    let mut at = length;
    for node in nodes {
        at -= node.len();
        page.extend_from_slice(&(at as u16).to_le_bytes());
    }
    page.resize(upper, 0xee);
    page.extend(nodes.iter().rev().flatten());
    page
}

impl Writer {
    fn next(&self) -> u64 {
        self.pages.len() as u64 + 2
    }

    fn database(&mut self, entries: &[(Vec<u8>, Under)]) -> Vec<u8> {
        let mut count = 0;
        let mut ready = Vec::new();
        for (key, under) in entries {
            let (flags, data, values) = match under {
                Under::Value(value) => {
                    let (flags, data) = self.value(key, value);
                    ready.push(Ready { key: key.clone(), flags, length: value.len() as u32, data });
                    count += 1;
                    continue;
                }
                Under::Entries(entries) => (2, self.database(entries), 1),
                Under::Values(values, is_fixed) => {
                    let (flags, data) = self.values(values, *is_fixed);
                    (flags, data, values.len() as u64)
                }
            };
            ready.push(Ready { key: key.clone(), flags, length: data.len() as u32, data });
            count += values;
        }
        let (root, depth) = self.tree(&ready);
        description(0, depth, count, root)
    }

    /// The flags and the data of a node with this value.
    fn value(&mut self, key: &[u8], value: &[u8]) -> (u16, Vec<u8>) {
        if 8 + key.len() + value.len() <= self.page_bytes / 4 {
            return (0, value.to_vec());
        }
        let number = self.next();
        let pages = (HEAD_BYTES + value.len()).div_ceil(self.page_bytes);
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0, 4, 0]);
        bytes.extend_from_slice(&(pages as u32).to_le_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(pages * self.page_bytes, 0xdd);
        self.pages.extend(bytes.chunks(self.page_bytes).map(<[u8]>::to_vec));
        (1, number.to_le_bytes().to_vec())
    }

    /// As `value`, for several values: in a page within the node, or in a tree.
    fn values(&mut self, values: &[Vec<u8>], is_fixed: bool) -> (u16, Vec<u8>) {
        let ready =
            |value: &Vec<u8>| Ready { key: value.clone(), flags: 0, length: 0, data: Vec::new() };
        if is_fixed {
            let length = values[0].len();
            let all =
                [&head(0, 0x72, HEAD_BYTES + 2 * values.len(), 0)[..], &values.concat()].concat();
            let mut page = all;
            page[8..10].copy_from_slice(&(length as u16).to_le_bytes());
            assert!(page.len() <= self.page_bytes / 2);
            return (4, page);
        }
        let nodes: Vec<_> = values.iter().map(|value| ready(value).packed()).collect();
        let length = HEAD_BYTES + nodes.iter().map(|node| node.len() + 2).sum::<usize>();
        if length <= self.page_bytes / 4 {
            return (4, page_of(0, 0x52, &nodes, length));
        }
        let (root, depth) = self.tree(&values.iter().map(ready).collect::<Vec<_>>());
        (6, description(0, depth, values.len() as u64, root))
    }

    /// Writes a tree of nodes; returns its root and its depth.
    fn tree(&mut self, ready: &[Ready]) -> (u64, u16) {
        if ready.is_empty() {
            return (u64::MAX, 0);
        }
        let mut level: Vec<Vec<u8>> = ready.iter().map(Ready::packed).collect();
        let mut flags = 2;
        let mut depth = 0;
        loop {
            depth += 1;
            let mut below = Vec::new();
            let mut rest = &level[..];
            while !rest.is_empty() {
                let mut left = self.page_bytes - HEAD_BYTES;
                let fits = |node: &&Vec<u8>| {
                    let rest = left.checked_sub(node.len() + 2);
                    left = rest.unwrap_or(0);
                    rest.is_some()
                };
                let count = rest.iter().take_while(fits).count().max(1);
                let number = self.next();
                self.pages.push(page_of(number, flags, &rest[..count], self.page_bytes));
                below.push(number);
                rest = &rest[count..];
            }
            if let [root] = below[..] {
                return (root, depth);
            }
            let branch = |number: &u64| Ready {
                key: b"separator".to_vec(),
                flags: (number >> 32) as u16,
                length: *number as u32,
                data: Vec::new(),
            };
            level = below.iter().map(|number| branch(number).packed()).collect();
            flags = 1;
        }
    }
}
