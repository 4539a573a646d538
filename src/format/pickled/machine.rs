//! Pickle → values. Opcodes are followed as an unpickler follows them, but no code is imported, called or executed:
//! classes and functions are known by their names, and a pickle with other ones is not taken apart.
//!
//! `None` everywhere means that the sample stays one file. The number of values is limited, not only by the
//! length of the pickle.

use super::heap::{Heap, pairs};
use super::objects;
use super::value::{Bytes, Id, Known, Storage, Value, known};
use crate::format::ffrecord::pickle::{Input, opcode::*};
use std::collections::BTreeMap;
use std::ops::Range;

/// The most values of a sample that is shown as files.
const MAX_VALUES: usize = 1 << 18;
const MAX_PROTOCOL: u8 = 5;
const MIN_PROTOCOL: u8 = 2;

/// Follows one pickle.
pub(super) struct Machine<'a> {
    /// Whether the pickle lies in another one, in a storage of PyTorch.
    is_inside: bool,
    input: Input<'a>,
    heap: Heap<'a>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: BTreeMap<u64, Id>,
    /// The number of references that lists, tuples and dictionaries hold.
    held: usize,
    /// Bytes that may still be decoded: a pickle may refer to the same ones again and again.
    left: usize,
}

/// All values of a pickle, and the number of its own value, which refers to the others.
pub(super) struct Unpickled {
    pub(super) values: Vec<Value>,
    pub(super) top: Id,
    /// The offset of the byte behind the pickle.
    pub(super) end: usize,
    /// Bytes that could still have been decoded.
    left: usize,
}

impl Unpickled {
    pub(super) fn get(&self, id: Id) -> Option<&Value> {
        self.values.get(usize::try_from(id).ok()?)
    }
}

/// Reads the pickle that begins at `at`.
pub(super) fn read(bytes: &[u8], at: usize) -> Option<Unpickled> {
    follow(bytes, at, false, most_decoded(bytes.len()))
}

/// Whether `head` begins a pickle of protocols 2 to 5; pickles of protocols 0 and 1 begin otherwise.
pub(super) fn begins(head: &[u8]) -> bool {
    matches!(head, [PROTO, MIN_PROTOCOL..=MAX_PROTOCOL, ..])
}

/// The most bytes that are decoded, or compared, for a pickle of this length.
pub(super) fn most_decoded(length: usize) -> usize {
    length.saturating_mul(4).saturating_add(1 << 20)
}

/// Follows a pickle that may decode `left` bytes.
fn follow(bytes: &[u8], at: usize, is_inside: bool, left: usize) -> Option<Unpickled> {
    let mut machine = Machine {
        is_inside,
        input: Input { bytes, at },
        heap: Heap { bytes, values: Vec::new() },
        stack: Vec::new(),
        marks: Vec::new(),
        memo: BTreeMap::new(),
        held: 0,
        left,
    };
    if !begins(&[machine.input.byte().ok()?, machine.input.byte().ok()?]) {
        return None;
    }
    loop {
        if machine.step()? {
            let top = machine.pop()?;
            let (values, end, left) = (machine.heap.values, machine.input.at, machine.left);
            return machine.stack.is_empty().then_some(Unpickled { values, top, end, left });
        }
    }
}

impl Machine<'_> {
    /// Follows one opcode; true if it was the last one.
    fn step(&mut self) -> Option<bool> {
        let code = self.input.byte().ok()?;
        match code {
            STOP => return Some(true),
            FRAME => self.input.frame().ok()?,
            MARK => self.marks.push(self.stack.len()),
            BINPUT | LONG_BINPUT | MEMOIZE => {
                let id = match code {
                    BINPUT => self.input.byte().ok()?.into(),
                    LONG_BINPUT => u64::from(self.u32()?),
                    _ => self.memo.len() as u64,
                };
                self.memo.insert(id, *self.stack.last()?);
            }
            BINGET | LONG_BINGET => {
                let id = match code {
                    BINGET => self.input.byte().ok()?.into(),
                    _ => u64::from(self.u32()?),
                };
                let value = *self.memo.get(&id)?;
                self.stack.push(value);
            }
            APPEND | APPENDS => {
                let mut items = self.items(code == APPENDS, 1)?;
                match self.top()? {
                    Value::List(list) => list.append(&mut items),
                    _ => return None,
                }
            }
            SETITEM | SETITEMS => {
                let items = self.items(code == SETITEMS, 2)?;
                match self.top()? {
                    Value::Dict(dict) => dict.extend(pairs(&items)?),
                    _ => return None,
                }
            }
            BUILD => {
                let state = self.pop()?;
                let target = *self.stack.last()?;
                let built = objects::build(&self.heap, target, state)?;
                *self.heap.get_mut(target)? = built;
            }
            _ => {
                let value = self.make(code)?;
                self.push(value)?;
            }
        }
        (self.stack.len() <= MAX_VALUES
            && self.held <= MAX_VALUES
            && self.memo.len() <= MAX_VALUES
            && self.marks.len() <= MAX_VALUES)
            .then_some(false)
    }

    /// Makes the value of an opcode.
    fn make(&mut self, code: u8) -> Option<Value> {
        Some(match code {
            NONE => Value::None,
            NEWTRUE => Value::Bool(true),
            NEWFALSE => Value::Bool(false),
            BININT1 => Value::Int(self.input.byte().ok()?.into()),
            BININT2 => Value::Int(u16::from_le_bytes(self.input.array().ok()?).into()),
            BININT => Value::Int(i32::from_le_bytes(self.input.array().ok()?).into()),
            LONG1 => {
                let length = self.input.byte().ok()?;
                Value::Int(integer(self.input.take(length.into()).ok()?)?)
            }
            BINFLOAT => Value::Float(f64::from_be_bytes(self.input.array().ok()?)),
            SHORT_BINUNICODE | BINUNICODE | BINUNICODE8 => {
                let length = self.length(code == SHORT_BINUNICODE, code == BINUNICODE8)?;
                let range = self.range(length)?;
                str::from_utf8(self.heap.at(&range)).ok()?;
                Value::Text(range)
            }
            SHORT_BINBYTES | BINBYTES | BINBYTES8 | BYTEARRAY8 | SHORT_BINSTRING | BINSTRING => {
                let is_short = matches!(code, SHORT_BINBYTES | SHORT_BINSTRING);
                let length = self.length(is_short, matches!(code, BINBYTES8 | BYTEARRAY8))?;
                Value::Bytes(Bytes { range: self.range(length)?, latin1: None })
            }
            EMPTY_TUPLE => Value::Tuple(Vec::new()),
            EMPTY_LIST => Value::List(Vec::new()),
            EMPTY_DICT => Value::Dict(Vec::new()),
            TUPLE => Value::Tuple(self.items(true, 0)?),
            TUPLE1 => Value::Tuple(self.items(false, 1)?),
            TUPLE2 => Value::Tuple(self.items(false, 2)?),
            TUPLE3 => Value::Tuple(self.items(false, 3)?),
            GLOBAL => {
                let (module, name) = (self.input.line().ok()?, self.input.line().ok()?);
                Value::Known(known(module, name)?)
            }
            STACK_GLOBAL => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (self.heap.get(module)?, self.heap.get(name)?) {
                    (Value::Text(module), Value::Text(name)) => {
                        Value::Known(known(self.heap.at(module), self.heap.at(name))?)
                    }
                    _ => return None,
                }
            }
            REDUCE | NEWOBJ => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                let Value::Known(callable) = *self.heap.get(callable)? else { return None };
                match callable {
                    // A storage holds no other storage.
                    Known::LoadFromBytes if self.is_inside => return None,
                    Known::LoadFromBytes => self.load(arguments)?,
                    _ => self.called(callable, arguments, code == NEWOBJ)?,
                }
            }
            // A storage of PyTorch: ('storage', class, key, location, number of elements, view).
            BINPERSID if self.is_inside => {
                let id = self.pop()?;
                objects::persistent(&self.heap, id)?
            }
            _ => return None,
        })
    }

    /// Makes the value that a class or function would return, which may be as large as its arguments.
    fn called(&mut self, callable: Known, arguments: Id, is_new: bool) -> Option<Value> {
        let value = objects::call(&self.heap, callable, arguments, is_new)?;
        match &value {
            Value::Dict(entries) => self.held = self.held.saturating_add(entries.len()),
            Value::Bytes(bytes) => self.left = self.left.checked_sub(bytes.range.len())?,
            _ => {}
        }
        Some(value)
    }

    fn push(&mut self, value: Value) -> Option<()> {
        let id = Id::try_from(self.heap.values.len()).ok()?;
        if self.heap.values.len() >= MAX_VALUES {
            return None;
        }
        self.heap.values.push(value);
        self.stack.push(id);
        Some(())
    }

    /// Returns the value on top, to be changed.
    fn top(&mut self) -> Option<&mut Value> {
        let id = *self.stack.get(self.floor()..)?.last()?;
        self.heap.get_mut(id)
    }

    /// The height below which values belong to an open MARK.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Option<Id> {
        if self.stack.len() <= self.floor() { None } else { self.stack.pop() }
    }

    /// Takes the values above the last MARK, or `count` values.
    fn items(&mut self, to_mark: bool, count: usize) -> Option<Vec<Id>> {
        let from = match to_mark {
            true => self.marks.pop()?,
            false => self.stack.len().checked_sub(count).filter(|from| *from >= self.floor())?,
        };
        let items = self.stack.split_off(from.min(self.stack.len()));
        self.held = self.held.saturating_add(items.len());
        Some(items)
    }

    fn u32(&mut self) -> Option<u32> {
        self.input.array().ok().map(u32::from_le_bytes)
    }

    /// Reads the length behind an opcode: of one byte, of eight, or of four.
    fn length(&mut self, is_short: bool, is_long: bool) -> Option<u64> {
        Some(match (is_short, is_long) {
            (true, _) => self.input.byte().ok()?.into(),
            (_, true) => u64::from_le_bytes(self.input.array().ok()?),
            _ => self.u32()?.into(),
        })
    }

    /// Passes over `length` bytes, and returns their range.
    fn range(&mut self, length: u64) -> Option<Range<usize>> {
        let start = self.input.at;
        self.input.take(length).ok()?;
        Some(start..self.input.at)
    }

    /// Reads the storage in bytes that are themselves a file of PyTorch.
    fn load(&mut self, arguments: Id) -> Option<Value> {
        let Value::Tuple(arguments) = self.heap.get(arguments)? else { return None };
        let [file] = arguments[..] else { return None };
        match self.heap.get(file)? {
            Value::Bytes(Bytes { range, latin1: None }) => {
                // The same bytes can be loaded again and again.
                self.left = self.left.checked_sub(range.len())?;
                let most = most_decoded(range.len()).min(self.left);
                let (storage, left) = storage(self.input.bytes, range, most)?;
                self.left = self.left.saturating_sub(most.saturating_sub(left));
                Some(Value::Storage(storage))
            }
            _ => None,
        }
    }
}

/// Reads a number of up to 16 bytes, little-endian, in two's complement.
fn integer(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
    let mut whole = [fill; 16];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(whole))
}

/// Reads a storage in the older file format of PyTorch: several pickles, then the number of elements and their bytes. Its
/// pickles may decode `most` bytes; the number of those that are left is also returned.
fn storage(bytes: &[u8], range: &Range<usize>, most: usize) -> Option<(Storage, usize)> {
    let inside = bytes.get(..range.end)?;
    let behind = |last: &Unpickled| follow(inside, last.end, true, last.left);
    let magic = follow(inside, range.start, true, most)?;
    let is_magic = matches!(magic.get(magic.top)?, Value::Int(0x1950_a86a_20f9_469c_fc6c));
    let version = behind(&magic)?;
    let is_version = matches!(version.get(version.top)?, Value::Int(1001));
    let system = behind(&version)?;
    let object = behind(&system)?;
    let keys = behind(&object)?;
    if !is_magic || !is_version || !is_little_endian(inside, &system) {
        return None;
    }
    let Value::List(keys_of) = keys.get(keys.top)? else { return None };
    let Value::Storage(storage) = object.get(object.top)? else { return None };
    let data_at = keys.end.checked_add(8)?;
    let count = u64::from_le_bytes(*inside.get(keys.end..data_at)?.first_chunk()?);
    let length = usize::try_from(count).ok()?.checked_mul(storage.item_bytes)?;
    let is_whole = keys_of.len() == 1
        && storage.range.end.checked_mul(storage.item_bytes) == Some(length)
        && data_at.checked_add(length) == Some(range.end);
    is_whole.then(|| (Storage { range: data_at..range.end, ..storage.clone() }, keys.left))
}

fn is_little_endian(bytes: &[u8], system: &Unpickled) -> bool {
    let Some(Value::Dict(entries)) = system.get(system.top) else { return false };
    entries.iter().any(|(key, value)| {
        let is_key = match system.get(*key) {
            Some(Value::Text(range)) => bytes.get(range.clone()) == Some(b"little_endian"),
            _ => false,
        };
        is_key && system.get(*value) == Some(&Value::Bool(true))
    })
}
