//! Writes archives block by block, in any dialect, also damaged ones.

/// A header; fields that are not set are as in V7.
pub(super) struct Block(pub(super) [u8; 512]);

impl Block {
    pub(super) fn new(kind: u8, name: &[u8], size: u64) -> Self {
        let mut block = Self([0; 512]);
        block.set(0, name).set(100, b"0000644\0").set(124, format!("{size:011o}\0").as_bytes());
        block.set(136, b"00000000001\0").set(156, &[kind]);
        block
    }

    pub(super) fn set(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn ustar(&mut self) -> &mut Self {
        self.set(257, b"ustar\x0000")
    }

    pub(super) fn gnu(&mut self) -> &mut Self {
        self.set(257, b"ustar  \0")
    }

    pub(super) fn sealed(&self) -> [u8; 512] {
        let mut block = self.0;
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

/// An archive that grows.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn block(&mut self, block: &Block) -> &mut Self {
        self.0.extend_from_slice(&block.sealed());
        self
    }

    /// Appends data, and fills the last block.
    pub(super) fn data(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Appends a member of POSIX with its data.
    pub(super) fn member(&mut self, kind: u8, name: &str, bytes: &[u8]) -> &mut Self {
        let mut block = Block::new(kind, name.as_bytes(), bytes.len() as u64);
        self.block(block.ustar()).data(bytes)
    }

    pub(super) fn file(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        self.member(b'0', name, bytes)
    }

    pub(super) fn link(&mut self, kind: u8, name: &str, target: &str) -> &mut Self {
        let mut block = Block::new(kind, name.as_bytes(), 0);
        self.block(block.ustar().set(157, target.as_bytes()))
    }

    /// Appends an extended header of pax.
    pub(super) fn pax(&mut self, kind: u8, records: &[(&str, &[u8])]) -> &mut Self {
        let mut text = Vec::new();
        for (key, value) in records {
            text.extend(record(key, value));
        }
        self.member(kind, "PaxHeader", &text)
    }

    /// Appends GNU's long name (`L`) or target (`K`).
    pub(super) fn long(&mut self, kind: u8, name: &[u8]) -> &mut Self {
        let text = [name, b"\0"].concat();
        let mut block = Block::new(kind, b"././@LongLink", text.len() as u64);
        self.block(block.gnu()).data(&text)
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0.clone()
    }
}

/// A record `LENGTH KEY=VALUE\n`, whose length counts itself.
pub(super) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}
