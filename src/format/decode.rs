//! Decoding step by step, with places to go on from.

/// Decodes one stream of stored bytes.
pub trait Decoder: Send {
    /// Takes stored bytes and gives decoded ones, as far as `input` or `output` reaches, or to where
    /// [`Decoder::checkpoint`] has a place to go on from: what was not taken is to be shown again. Only without
    /// input or room nothing may come of it. `is_last`: nothing follows behind `input`.
    ///
    /// # Errors
    /// The stored bytes are no encoding, or encrypted with another password.
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError>;

    /// A place to go on from, if there is one exactly here: behind all that was taken and given. Not every
    /// such place is met; making one costs time (deflate: its window is compressed).
    fn checkpoint(&self) -> Option<Checkpoint>;
}

/// Why stored bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// They are no encoding: what is wrong, as a sentence without its end.
    Damaged(String),
    /// They are encrypted with another password.
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

/// What a step of a [`Decoder`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes of the input that were taken.
    pub taken: usize,
    /// Bytes of the output that were filled.
    pub given: usize,
    /// The stream has ended; what follows in the input is none of it.
    pub is_end: bool,
}

/// A place in a stream to go on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The next stored byte, from the start of the stream.
    pub stored_bytes: u64,
    /// The next decoded byte.
    pub decoded_bytes: u64,
    /// What the decoder must know, for itself.
    pub state: Box<[u8]>,
}
