//! All bytes of a response in one piece. Imports the interface of sinks.

use super::Sink;
use bytes::Bytes;

/// The bytes of a response: memory is taken only for bytes that have come.
#[derive(Default)]
pub(in crate::store::remote) struct Joined {
    bytes: Vec<u8>,
    lacks_memory: bool,
}

impl Joined {
    /// The bytes; `None` if there was no memory for all of them.
    pub(in crate::store::remote) fn into_bytes(self) -> Option<Vec<u8>> {
        (!self.lacks_memory).then_some(self.bytes)
    }
}

impl Sink for Joined {
    async fn push(&mut self, piece: Bytes) -> bool {
        self.lacks_memory = self.lacks_memory || self.bytes.try_reserve(piece.len()).is_err();
        if !self.lacks_memory {
            self.bytes.extend_from_slice(&piece);
        }
        !self.lacks_memory
    }
}
