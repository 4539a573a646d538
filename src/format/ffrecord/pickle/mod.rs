//! The index of a packed directory: a pickle of nested `OrderedDict`s, read and written.
//!
//! [`decode`] is not an unpickler. It knows the opcodes that CPython 2 and 3 write for a tree of
//! `dict` / `collections.OrderedDict` with `str` keys and `int` leaves, and refuses all others;
//! no code is imported, called or executed. [`encode`] writes a pickle that `pickle.loads` reads.
//! Imports nothing from other rooms.

mod decode;
mod encode;
mod input;
pub(in crate::format) mod opcode;
#[cfg(test)]
mod tests;

pub use decode::decode;
pub use encode::encode;
pub(in crate::format) use input::Input;

/// The most directories that may lie inside each other, the root included.
///
/// It also bounds the recursion of `Drop`, `Clone` and [`encode`].
pub const MAX_DEPTH: u16 = 256;

/// The longest file name that Linux takes.
const MAX_NAME_BYTES: usize = 255;

/// A directory: its entries in stored order.
///
/// A directory that [`decode`] returns is at most [`MAX_DEPTH`] deep and has no name twice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Names, as raw bytes, and the entries that they stand for.
    pub entries: Vec<(Box<[u8]>, Entry)>,
}

/// The file or directory that a name in a [`Directory`] stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file: the index of its sample.
    File(u64),
    /// A directory inside the directory.
    Directory(Directory),
}

/// The pickle is not a tree of names, so its dataset is shown flat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the pickle: {reason}")]
pub struct Unsupported {
    /// The offset of the opcode that was refused, from the start of the pickle.
    pub offset: u64,
    /// The reason why it was refused.
    pub reason: Reason,
}

/// The reason why a pickle was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The pickle ends inside an opcode, before STOP, or inside its frame.
    #[error("the pickle ends too early")]
    Truncated,
    /// Bytes follow STOP.
    #[error("{0} bytes follow the end of the pickle")]
    Trailing(u64),
    /// A protocol after 5, or the opcode in the wrong place.
    #[error("protocol {0} is unknown or set too late")]
    Protocol(u8),
    /// An opcode that a tree of names has no use for.
    #[error("opcode {0:#04x} does not belong in a tree of names")]
    Opcode(u8),
    /// Another class or function than `dict` and `OrderedDict`; the text is escaped and cut.
    #[error("{0} is neither dict nor collections.OrderedDict")]
    Global(String),
    /// A known opcode with operands that a tree of names never has there.
    #[error("opcode does not fit the values before it")]
    Shape,
    /// A text operand (a number, an escape, UTF-8) that Python does not write.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A memo entry that was never stored.
    #[error("memo entry {0} was never stored")]
    Memo(u64),
    /// A directory (or another object that changes) is used in two places, or in itself.
    #[error("an object is used twice or holds itself")]
    Shared,
    /// An integer that is a bool, negative or too large for any index.
    #[error("an integer is not the index of a sample")]
    Integer,
    /// An index that no data sample has.
    #[error("index {index}, but there are {samples} data samples")]
    Index {
        /// The index found.
        index: u64,
        /// The number of data samples.
        samples: u64,
    },
    /// Two files have the same sample.
    #[error("index {0} is used twice")]
    IndexTwice(u64),
    /// A name that no file can have.
    #[error("a name {0}")]
    Name(&'static str),
    /// A directory has a name twice; the name is escaped.
    #[error("the name \"{0}\" is twice in one directory")]
    NameTwice(String),
    /// Directories lie too deep inside each other.
    #[error("more than {MAX_DEPTH} nested directories")]
    TooDeep,
    /// Names repeated through the memo take many times the size of the pickle.
    #[error("repeated names outgrow the pickle")]
    Expansion,
    /// The top of the tree is not a directory.
    #[error("the top level is not a dict")]
    NotDirectory,
}

/// Refuses a name that a directory cannot show; the text says why.
fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("is empty"),
        b"." | b".." => Err("is . or .."),
        _ if name.len() > MAX_NAME_BYTES => Err("has over 255 bytes"),
        _ if name.contains(&b'/') => Err("has a slash"),
        _ if name.contains(&0) => Err("has a NUL byte"),
        _ => Ok(()),
    }
}
