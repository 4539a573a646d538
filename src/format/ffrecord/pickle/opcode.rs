//! The opcodes of pickle that a tree of names is written with, and those of other values.
//!
//! Not among them: POP and POP_MARK, which picklers write only for objects that hold themselves.

pub(in crate::format) const MARK: u8 = b'(';
pub(in crate::format) const STOP: u8 = b'.';
pub(in crate::format) const INT: u8 = b'I';
pub(in crate::format) const BININT: u8 = b'J';
pub(in crate::format) const BININT1: u8 = b'K';
pub(in crate::format) const BININT2: u8 = b'M';
pub(in crate::format) const LONG: u8 = b'L';
pub(in crate::format) const LONG1: u8 = 0x8a;
pub(in crate::format) const LONG4: u8 = 0x8b;
pub(in crate::format) const STRING: u8 = b'S';
pub(in crate::format) const BINSTRING: u8 = b'T';
pub(in crate::format) const SHORT_BINSTRING: u8 = b'U';
pub(in crate::format) const UNICODE: u8 = b'V';
pub(in crate::format) const BINUNICODE: u8 = b'X';
pub(in crate::format) const SHORT_BINUNICODE: u8 = 0x8c;
pub(in crate::format) const BINUNICODE8: u8 = 0x8d;
pub(in crate::format) const GLOBAL: u8 = b'c';
pub(in crate::format) const STACK_GLOBAL: u8 = 0x93;
pub(in crate::format) const REDUCE: u8 = b'R';
pub(in crate::format) const EMPTY_DICT: u8 = b'}';
pub(in crate::format) const DICT: u8 = b'd';
pub(in crate::format) const SETITEM: u8 = b's';
pub(in crate::format) const SETITEMS: u8 = b'u';
pub(in crate::format) const EMPTY_LIST: u8 = b']';
pub(in crate::format) const LIST: u8 = b'l';
pub(in crate::format) const APPEND: u8 = b'a';
pub(in crate::format) const APPENDS: u8 = b'e';
pub(in crate::format) const EMPTY_TUPLE: u8 = b')';
pub(in crate::format) const TUPLE: u8 = b't';
pub(in crate::format) const TUPLE1: u8 = 0x85;
pub(in crate::format) const PUT: u8 = b'p';
pub(in crate::format) const BINPUT: u8 = b'q';
pub(in crate::format) const LONG_BINPUT: u8 = b'r';
pub(in crate::format) const GET: u8 = b'g';
pub(in crate::format) const BINGET: u8 = b'h';
pub(in crate::format) const LONG_BINGET: u8 = b'j';
pub(in crate::format) const MEMOIZE: u8 = 0x94;
pub(in crate::format) const PROTO: u8 = 0x80;
pub(in crate::format) const FRAME: u8 = 0x95;

// Opcodes of other values than names and numbers of samples.
pub(in crate::format) const NONE: u8 = b'N';
pub(in crate::format) const NEWTRUE: u8 = 0x88;
pub(in crate::format) const NEWFALSE: u8 = 0x89;
pub(in crate::format) const BINFLOAT: u8 = b'G';
pub(in crate::format) const BINBYTES: u8 = b'B';
pub(in crate::format) const SHORT_BINBYTES: u8 = b'C';
pub(in crate::format) const BINBYTES8: u8 = 0x8e;
pub(in crate::format) const BYTEARRAY8: u8 = 0x96;
pub(in crate::format) const TUPLE2: u8 = 0x86;
pub(in crate::format) const TUPLE3: u8 = 0x87;
pub(in crate::format) const NEWOBJ: u8 = 0x81;
pub(in crate::format) const BUILD: u8 = b'b';
pub(in crate::format) const BINPERSID: u8 = b'Q';
