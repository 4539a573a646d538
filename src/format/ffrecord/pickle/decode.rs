//! Pickle → directory.
//!
//! Each value on the stack has one owner: picklers build a dict whole before they store it in its
//! parent. So fetching a dict from the memo always means that it is shared or holds itself, and is
//! refused; the rest is a tree by construction. The memo holds offsets alone: those at which objects
//! were made in the pickle.
//!
//! The input is hostile. No function recurses further than [`MAX_DEPTH`]; every opcode adds a bounded
//! amount of memory, and the memory of names fetched from the memo is limited.

use std::collections::BTreeMap;

use super::input::{Input, Name};
use super::opcode::*;
use super::{Directory, Entry, MAX_DEPTH, Reason, Unsupported};
use crate::format::one_line;

/// CPython 2 has three MARKs open a level (arguments, list, pair), CPython 3 one.
const MAX_MARKS: usize = 4 * MAX_DEPTH as usize;
/// The most bytes that are read again, for names fetched from the memo: this many times the size of
/// the pickle, and [`REREAD_BYTES_FREE`]. It bounds the memory that those names take, and the time.
/// Real pickles do fetch names (pathlib interns them, so files called alike in many directories are one
/// `str`), but these would have to be 150 bytes long on average to reach the limit.
const REREAD_FACTOR: u64 = 32;
const REREAD_BYTES_FREE: u64 = 1 << 20;
const MAX_PROTOCOL: u8 = 5;

/// Reads the tree of names out of a pickle of protocol 0 to 5.
///
/// `samples` is the number of data samples: a file's index lies below it, and no two files share one.
///
/// # Errors
/// [`Unsupported`] for a pickle that is not such a tree; the dataset is then a flat one.
pub fn decode(pickle: &[u8], samples: u64) -> Result<Directory, Unsupported> {
    let mut decoder = Decoder {
        input: Input { bytes: pickle, at: 0 },
        samples,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: BTreeMap::new(),
        made_at: None,
        used: BTreeMap::new(),
        reread_bytes_left: (pickle.len() as u64)
            .saturating_mul(REREAD_FACTOR)
            .saturating_add(REREAD_BYTES_FREE),
    };
    loop {
        let at = decoder.input.at;
        match decoder.step(at) {
            Ok(None) => {}
            Ok(Some(directory)) => return Ok(directory),
            Err(reason) => {
                return Err(Unsupported { offset: at as u64, reason });
            }
        }
    }
}

/// A directory that is being built, and the number of its levels, itself included.
struct Tree {
    directory: Directory,
    levels: u16,
}

/// A value on the stack.
enum Value {
    /// `dict` or `OrderedDict`.
    Class,
    Name(Name),
    File(u64),
    Directory(Tree),
    /// An empty list: of pairs, or a pair to be.
    EmptyList,
    /// `[name]`, half a pair.
    HalfPair(Name),
    /// `[name, value]`, an item of the list that CPython 2 makes an `OrderedDict` from.
    Pair(Box<(Name, Value)>),
    /// `[[name, value], ...]`.
    Pairs(Tree),
    /// `()` or `([[name, value], ...],)`.
    Arguments(Tree),
}

impl Tree {
    fn new() -> Self {
        Self { directory: Directory::default(), levels: 1 }
    }

    fn insert(&mut self, key: Value, value: Value) -> Result<(), Reason> {
        let Value::Name(name) = key else {
            return Err(Reason::Shape);
        };
        let entry = match value {
            Value::File(index) => Entry::File(index),
            Value::Directory(child) => {
                let levels = child.levels.saturating_add(1);
                if levels > MAX_DEPTH {
                    return Err(Reason::TooDeep);
                }
                self.levels = self.levels.max(levels);
                Entry::Directory(child.finish()?)
            }
            _ => return Err(Reason::Shape),
        };
        self.directory.entries.push((name, entry));
        Ok(())
    }

    /// Inserts key, value, key, value, ...
    fn insert_all(&mut self, items: Vec<Value>) -> Result<(), Reason> {
        let mut items = items.into_iter();
        while let Some(key) = items.next() {
            self.insert(key, items.next().ok_or(Reason::Shape)?)?;
        }
        Ok(())
    }

    /// Ends a directory: no entry is added from here on, so its names are compared, once.
    fn finish(mut self) -> Result<Directory, Reason> {
        let entries = &mut self.directory.entries;
        entries.shrink_to_fit();
        let mut names: Vec<&[u8]> = entries.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        for (name, next) in names.iter().zip(names.iter().skip(1)) {
            if name == next {
                return Err(Reason::NameTwice(one_line(name)));
            }
        }
        Ok(self.directory)
    }
}

struct Decoder<'a> {
    input: Input<'a>,
    samples: u64,
    stack: Vec<Value>,
    /// The height of the stack at each open MARK.
    marks: Vec<usize>,
    /// Memo entry → offset of the opcode that made the object.
    memo: BTreeMap<u64, usize>,
    /// The offset at which the value on top was made, until another opcode than FRAME follows.
    made_at: Option<usize>,
    /// Indices used, as bits: index / 64 → word.
    used: BTreeMap<u64, u64>,
    /// See [`REREAD_FACTOR`].
    reread_bytes_left: u64,
}

impl Decoder<'_> {
    /// Runs the opcode at `at`; STOP returns the tree.
    fn step(&mut self, at: usize) -> Result<Option<Directory>, Reason> {
        let made_at = self.made_at.take();
        let opcode = self.input.byte()?;
        match opcode {
            PROTO => self.protocol(at)?,
            FRAME => {
                self.input.frame()?;
                self.made_at = made_at;
            }
            STOP => return self.stop().map(Some),
            MARK => self.mark()?,
            PUT | BINPUT | LONG_BINPUT | MEMOIZE => self.put(opcode, made_at)?,
            SETITEM | SETITEMS => self.set_items(opcode)?,
            APPEND | APPENDS => self.append(opcode)?,
            _ => {
                let value = self.make(opcode)?;
                self.stack.push(value);
                self.made_at = Some(at);
            }
        }
        Ok(None)
    }

    /// Makes the value that an opcode pushes.
    fn make(&mut self, opcode: u8) -> Result<Value, Reason> {
        match opcode {
            EMPTY_DICT => Ok(Value::Directory(Tree::new())),
            EMPTY_LIST => Ok(Value::EmptyList),
            EMPTY_TUPLE => Ok(Value::Arguments(Tree::new())),
            DICT => {
                let mut tree = Tree::new();
                tree.insert_all(self.pop_to_mark()?)?;
                Ok(Value::Directory(tree))
            }
            LIST => append_all(Value::EmptyList, self.pop_to_mark()?),
            TUPLE => {
                let mut items = self.pop_to_mark()?;
                match (items.pop(), items.pop()) {
                    (None, _) => Ok(Value::Arguments(Tree::new())),
                    (Some(item), None) => arguments(item),
                    _ => Err(Reason::Shape),
                }
            }
            TUPLE1 => arguments(self.pop()?),
            GLOBAL => {
                let (module, name) = (self.input.line()?, self.input.line()?);
                class(module, name)
            }
            STACK_GLOBAL => match (self.pop()?, self.pop()?) {
                (Value::Name(name), Value::Name(module)) => class(&module, &name),
                _ => Err(Reason::Shape),
            },
            REDUCE => match (self.pop()?, self.pop()?) {
                (Value::Arguments(tree), Value::Class) => Ok(Value::Directory(tree)),
                _ => Err(Reason::Shape),
            },
            GET | BINGET | LONG_BINGET => self.get(opcode),
            INT | LONG | BININT | BININT1 | BININT2 | LONG1 | LONG4 => {
                let index = self.input.integer(opcode)?;
                self.use_index(index)?;
                Ok(Value::File(index))
            }
            _ => match self.input.name(opcode)? {
                Some(name) => Ok(Value::Name(name)),
                None => Err(Reason::Opcode(opcode)),
            },
        }
    }

    fn protocol(&mut self, at: usize) -> Result<(), Reason> {
        let version = self.input.byte()?;
        if at != 0 || version > MAX_PROTOCOL {
            return Err(Reason::Protocol(version));
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<Directory, Reason> {
        let top = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err(Reason::Shape);
        }
        let Value::Directory(tree) = top else {
            return Err(Reason::NotDirectory);
        };
        match self.input.rest().len() {
            0 => tree.finish(),
            left => Err(Reason::Trailing(left as u64)),
        }
    }

    fn mark(&mut self) -> Result<(), Reason> {
        if self.marks.len() >= MAX_MARKS {
            return Err(Reason::TooDeep);
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// The height below which values belong to an open MARK.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, Reason> {
        if self.stack.len() <= self.floor() {
            return Err(Reason::Shape);
        }
        self.stack.pop().ok_or(Reason::Shape)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Reason> {
        let height = self.marks.pop().ok_or(Reason::Shape)?;
        // Never more than the stack holds: pop() stops at a MARK.
        Ok(self.stack.split_off(height.min(self.stack.len())))
    }

    fn set_items(&mut self, opcode: u8) -> Result<(), Reason> {
        let items = if opcode == SETITEMS {
            self.pop_to_mark()?
        } else {
            let value = self.pop()?;
            vec![self.pop()?, value]
        };
        let floor = self.floor();
        match self.stack.get_mut(floor..).and_then(<[Value]>::last_mut) {
            Some(Value::Directory(tree)) => tree.insert_all(items),
            _ => Err(Reason::Shape),
        }
    }

    fn append(&mut self, opcode: u8) -> Result<(), Reason> {
        let items = if opcode == APPENDS { self.pop_to_mark()? } else { vec![self.pop()?] };
        let list = append_all(self.pop()?, items)?;
        self.stack.push(list);
        Ok(())
    }

    /// Stores the value on top in the memo: picklers do so right after they made it.
    fn put(&mut self, opcode: u8, made_at: Option<usize>) -> Result<(), Reason> {
        let id = match opcode {
            PUT => self.input.decimal_line()?,
            BINPUT => self.input.byte()?.into(),
            LONG_BINPUT => u32::from_le_bytes(self.input.array()?).into(),
            _ => self.memo.len() as u64,
        };
        self.memo.insert(id, made_at.ok_or(Reason::Shape)?);
        Ok(())
    }

    /// Makes the name or class again; other objects have one owner already.
    fn get(&mut self, opcode: u8) -> Result<Value, Reason> {
        let id = match opcode {
            GET => self.input.decimal_line()?,
            BINGET => self.input.byte()?.into(),
            _ => u32::from_le_bytes(self.input.array()?).into(),
        };
        let at = *self.memo.get(&id).ok_or(Reason::Memo(id))?;
        let mut source = Input { bytes: self.input.bytes, at };
        match source.byte()? {
            GLOBAL | STACK_GLOBAL => Ok(Value::Class),
            opcode => {
                let name = source.name(opcode)?.ok_or(Reason::Shared)?;
                let text_bytes = (source.at as u64).saturating_sub(at as u64);
                self.reread_bytes_left =
                    self.reread_bytes_left.checked_sub(text_bytes).ok_or(Reason::Expansion)?;
                Ok(Value::Name(name))
            }
        }
    }

    /// Marks an index as used. Every integer ends up as a file: no other value takes one, and no value is dropped.
    fn use_index(&mut self, index: u64) -> Result<(), Reason> {
        if index >= self.samples {
            return Err(Reason::Index { index, samples: self.samples });
        }
        let word = self.used.entry(index / 64).or_default();
        let bit = 1_u64.rotate_left((index % 64) as u32);
        if *word & bit != 0 {
            return Err(Reason::IndexTwice(index));
        }
        *word |= bit;
        Ok(())
    }
}

fn append_all(list: Value, items: Vec<Value>) -> Result<Value, Reason> {
    items.into_iter().try_fold(list, |list, item| match (list, item) {
        (Value::EmptyList, Value::Name(name)) => Ok(Value::HalfPair(name)),
        (Value::HalfPair(name), item @ (Value::File(_) | Value::Directory(_))) => {
            Ok(Value::Pair(Box::new((name, item))))
        }
        (list @ (Value::EmptyList | Value::Pairs(_)), Value::Pair(pair)) => {
            let mut tree = if let Value::Pairs(tree) = list { tree } else { Tree::new() };
            let (name, value) = *pair;
            tree.insert(Value::Name(name), value)?;
            Ok(Value::Pairs(tree))
        }
        _ => Err(Reason::Shape),
    })
}

/// Makes `(list,)`, the arguments with which CPython 2 calls the class.
fn arguments(list: Value) -> Result<Value, Reason> {
    match list {
        Value::EmptyList => Ok(Value::Arguments(Tree::new())),
        Value::Pairs(tree) => Ok(Value::Arguments(tree)),
        _ => Err(Reason::Shape),
    }
}

fn class(module: &[u8], name: &[u8]) -> Result<Value, Reason> {
    match (module, name) {
        (b"collections", b"OrderedDict") | (b"builtins" | b"__builtin__", b"dict") => {
            Ok(Value::Class)
        }
        _ => {
            let cut = |text: &[u8]| text.iter().take(80).copied().collect::<Vec<u8>>();
            let (module, name) = (cut(module), cut(name));
            Err(Reason::Global(format!("{}.{}", module.escape_ascii(), name.escape_ascii())))
        }
    }
}
