//! Decoding step by step, with checkpoints.

/// Decodes one stream of stored bytes.
pub trait Decoder: Send {
    /// Takes stored bytes and gives decoded ones, as far as `input` or `output` reaches, or up to a
    /// [`Decoder::checkpoint`]. Input that was not taken must be given again. Every step makes progress, unless there is no
    /// input or no room for output. `is_last`: no stored bytes follow `input`.
    ///
    /// # Errors
    /// The stored bytes are no encoding, or are encrypted with another password.
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError>;

    /// The checkpoint exactly here, behind all bytes taken and given, if there is one. The decoder does not stop at every
    /// checkpoint of a stream; making one costs time (deflate: its window is compressed).
    fn checkpoint(&self) -> Option<Checkpoint>;
}

/// Why stored bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are no encoding: the reason, as a sentence without its end.
    Damaged(String),
    /// The bytes are encrypted with another password.
    WrongPassword,
}

impl From<String> for DecodeError {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

impl From<&str> for DecodeError {
    fn from(why: &str) -> Self {
        Self::Damaged(why.to_owned())
    }
}

impl From<DecodeError> for String {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Damaged(why) => why,
            DecodeError::WrongPassword => "it is encrypted with another password".to_owned(),
        }
    }
}

/// The progress of one step of a [`Decoder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes of the input that were taken.
    pub taken: usize,
    /// Bytes of the output that were filled.
    pub given: usize,
    /// Whether the stream has ended; further input does not belong to it.
    pub is_end: bool,
}

/// A place in a stream where decoding can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Offset of the next stored byte in the stream.
    pub stored_bytes: u64,
    /// Offset of the next decoded byte.
    pub decoded_bytes: u64,
    /// The decoder's state, in a form of its own.
    pub state: Box<[u8]>,
}
