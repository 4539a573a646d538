//! The schema: leaves, which have values, and the trees of the columns.
//!
//! Imports the footer, and `npy`'s types by their names.

use super::footer::{Element, Logical};
use crate::format::counted;

/// The most groups within each other.
const MAX_DEPTH: u32 = 40;
/// The longest decimal that is shown as digits; longer ones are shown as bytes. To make digits takes time with the square of
/// the length. Arrow has up to 32 bytes.
pub(super) const MAX_DECIMAL_BYTES: u32 = 128;
/// The most digits behind the point of a decimal: a number of 128 bytes has no more digits.
pub(super) const MAX_SCALE: i32 = 308;
/// The most leaves of a schema: no table has more columns.
const MAX_LEAVES: usize = 1 << 16;

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Physical {
    Boolean,
    /// A number of bytes, little-endian: INT32, INT64, INT96, FLOAT, DOUBLE, FIXED_LEN_BYTE_ARRAY.
    Fixed(u32),
    Bytes,
}

/// The meaning of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Numbers of NumPy's type, made by a [`Change`].
    Number(&'static str, Change),
    /// Digits, with this number of them behind the point.
    Decimal(i32),
    Text,
    Bytes,
}

/// The change that makes NumPy's elements from stored numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// To this number of first bytes.
    Narrow(u32),
    /// To 8 bytes, with the sign.
    Widen,
    /// Nanoseconds of a day and Julian days → nanoseconds since 1970.
    Days,
}

/// A column of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) physical: Physical,
    /// The footer's number of the type, with which each chunk must agree.
    pub(super) stored_type: i32,
    pub(super) meaning: Meaning,
    /// Whether the values are timestamps in UTC.
    pub(super) is_utc: bool,
    /// The largest definition and repetition levels.
    pub(super) definition: u32,
    pub(super) repetition: u32,
}

/// A tree of values.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: Vec<u8>,
    /// The tree is present from this definition level on.
    pub(super) present: u32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Leaf(usize),
    Struct(Vec<Node>),
    /// Items are present from the definition level `there` on, and each but the first has the repetition level `level`.
    List {
        there: u32,
        level: u32,
        item: Box<Node>,
    },
    Map {
        there: u32,
        level: u32,
        key: Box<Node>,
        value: Option<Box<Node>>,
    },
}

impl Node {
    /// The range of the tree's leaves.
    pub(super) fn leaves(&self) -> std::ops::Range<usize> {
        self.first()..self.end()
    }

    fn first(&self) -> usize {
        match &self.kind {
            Kind::Leaf(leaf) => *leaf,
            Kind::Struct(fields) => fields.first().map_or(0, Node::first),
            Kind::List { item, .. } => item.first(),
            Kind::Map { key, .. } => key.first(),
        }
    }

    fn end(&self) -> usize {
        match &self.kind {
            Kind::Leaf(leaf) => leaf.saturating_add(1),
            Kind::Struct(fields) => fields.last().map_or(0, Node::end),
            Kind::List { item, .. } => item.end(),
            Kind::Map { key, value, .. } => value.as_ref().unwrap_or(key).end(),
        }
    }
}

/// The leaves, and a tree for each column.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) leaves: Vec<Leaf>,
    pub(super) columns: Vec<Node>,
}

struct Walk<'a> {
    elements: std::slice::Iter<'a, Element>,
    leaves: Vec<Leaf>,
}

/// Levels above an element.
#[derive(Clone, Copy, Default)]
struct Levels {
    definition: u32,
    repetition: u32,
    depth: u32,
}

impl Schema {
    /// Builds leaves and trees from the elements of a schema.
    ///
    /// # Errors
    /// The elements are not a tree; the text says why.
    pub(super) fn new(elements: &[Element]) -> Result<Self, String> {
        let mut walk = Walk { elements: elements.iter(), leaves: Vec::new() };
        let root = walk.elements.next().ok_or("a schema of no elements")?;
        let mut columns = Vec::new();
        for _ in 0..root.children {
            columns.push(walk.node(Levels::default())?);
        }
        match walk.elements.next() {
            None => Ok(Self { leaves: walk.leaves, columns }),
            Some(_) => Err("elements of the schema that are in no group".to_owned()),
        }
    }
}

impl Walk<'_> {
    fn node(&mut self, above: Levels) -> Result<Node, String> {
        let element = self.elements.next().ok_or("a group with too few elements")?;
        let mut levels = Levels { depth: above.depth.saturating_add(1), ..above };
        if levels.depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} groups in each other"));
        }
        levels.definition = levels.definition.saturating_add(u32::from(element.repetition != 0));
        if element.repetition != 2 {
            return self.content(element, levels);
        }
        // A repeated field outside of a list: a list whose items are always present.
        levels.repetition = levels.repetition.saturating_add(1);
        let item = Box::new(self.content(element, levels)?);
        let (there, level) = (levels.definition, levels.repetition);
        let kind = Kind::List { there, level, item };
        Ok(Node { name: element.name.clone(), present: above.definition, kind })
    }

    /// Builds the tree of an element, whose own repetition is already in `levels`.
    fn content(&mut self, element: &Element, levels: Levels) -> Result<Node, String> {
        let present = levels.definition;
        let name = element.name.clone();
        if element.physical.is_some() {
            if self.leaves.len() >= MAX_LEAVES {
                return Err(format!("more than {MAX_LEAVES} columns"));
            }
            self.leaves.push(leaf(element, levels)?);
            let kind = Kind::Leaf(self.leaves.len().saturating_sub(1));
            return Ok(Node { name, present, kind });
        }
        let is_map = element.logical == Logical::Map || matches!(element.converted, Some(1 | 2));
        let is_list = element.logical == Logical::List || element.converted == Some(3);
        let kind = match element.children {
            1 if is_list || is_map => self.repeated(&name, levels, is_map)?,
            0 => return Err("a group of no fields".to_owned()),
            _ => Kind::Struct(self.fields(element.children, levels)?),
        };
        Ok(Node { name, present, kind })
    }

    fn fields(&mut self, count: u64, levels: Levels) -> Result<Vec<Node>, String> {
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push(self.node(levels)?);
        }
        Ok(fields)
    }

    /// Builds a list or a map from its only child.
    fn repeated(&mut self, above: &[u8], levels: Levels, is_map: bool) -> Result<Kind, String> {
        let Some(child) = self.elements.as_slice().first().filter(|child| child.repetition == 2)
        else {
            return Ok(Kind::Struct(self.fields(1, levels)?));
        };
        let levels = Levels {
            definition: levels.definition.saturating_add(1),
            repetition: levels.repetition.saturating_add(1),
            depth: levels.depth.saturating_add(1),
        };
        let (there, level) = (levels.definition, levels.repetition);
        let is_pair = child.physical.is_none() && matches!(child.children, 1 | 2);
        if is_map && is_pair {
            let child = self.elements.next().ok_or("a map of nothing")?;
            let key = Box::new(self.node(levels)?);
            let value = match child.children {
                2 => Some(Box::new(self.node(levels)?)),
                _ => None,
            };
            return Ok(Kind::Map { there, level, key, value });
        }
        // Old writers leave out the group around an item that has fields, or is a map.
        let is_item = child.physical.is_some()
            || child.children != 1
            || child.logical == Logical::Map
            || child.converted == Some(1)
            || child.name == b"array"
            || child.name == [above, b"_tuple"].concat();
        let child = self.elements.next().ok_or("a list of nothing")?;
        let item = match is_item {
            true => self.content(child, levels)?,
            false => self.node(levels)?,
        };
        Ok(Kind::List { there, level, item: Box::new(item) })
    }
}

fn leaf(element: &Element, levels: Levels) -> Result<Leaf, String> {
    let stored_type = element.physical.unwrap_or(-1);
    let physical = match stored_type {
        0 => Physical::Boolean,
        1 | 4 => Physical::Fixed(4),
        2 | 5 => Physical::Fixed(8),
        3 => Physical::Fixed(12),
        6 => Physical::Bytes,
        7 if (1..=1 << 24).contains(&element.length) => Physical::Fixed(element.length),
        7 => return Err(format!("values of {}", counted(element.length, "byte"))),
        other => return Err(format!("type {other} of values")),
    };
    Ok(Leaf {
        physical,
        stored_type,
        meaning: meaning(element, stored_type),
        is_utc: matches!(element.logical, Logical::Timestamp(_, true))
            || matches!(element.converted, Some(9 | 10)) && element.logical == Logical::None,
        definition: levels.definition,
        repetition: levels.repetition,
    })
}

fn meaning(element: &Element, stored_type: i32) -> Meaning {
    use Change::{Days, Narrow, Nothing, Widen};
    let (logical, converted) = (element.logical, element.converted);
    let plain = |descr| Meaning::Number(descr, Nothing);
    if logical == Logical::Decimal || converted == Some(5) {
        let is_short = stored_type != 7 || element.length <= MAX_DECIMAL_BYTES;
        let has_point = (0..=MAX_SCALE).contains(&element.scale);
        return if is_short && has_point {
            Meaning::Decimal(element.scale)
        } else {
            Meaning::Bytes
        };
    }
    match (stored_type, logical, converted) {
        (0, ..) => plain("|b1"),
        (1, Logical::Date, _) | (1, _, Some(6)) => Meaning::Number("<M8[D]", Widen),
        (1, Logical::Time(_), _) | (1, _, Some(7)) => Meaning::Number("<m8[ms]", Widen),
        (1, Logical::Integer(8, true), _) | (1, _, Some(15)) => Meaning::Number("|i1", Narrow(1)),
        (1, Logical::Integer(16, true), _) | (1, _, Some(16)) => Meaning::Number("<i2", Narrow(2)),
        (1, Logical::Integer(8, _), _) | (1, _, Some(11)) => Meaning::Number("|u1", Narrow(1)),
        (1, Logical::Integer(16, _), _) | (1, _, Some(12)) => Meaning::Number("<u2", Narrow(2)),
        (1, Logical::Integer(_, false), _) | (1, _, Some(13)) => plain("<u4"),
        (1, ..) => plain("<i4"),
        (2, Logical::Timestamp(1, _), _) => plain("<M8[ms]"),
        (2, Logical::Timestamp(3, _), _) => plain("<M8[ns]"),
        (2, Logical::Timestamp(..), _) | (2, _, Some(10)) => plain("<M8[us]"),
        (2, _, Some(9)) => plain("<M8[ms]"),
        (2, Logical::Time(3), _) => plain("<m8[ns]"),
        (2, Logical::Time(_), _) | (2, _, Some(8)) => plain("<m8[us]"),
        (2, Logical::Integer(_, false), _) | (2, _, Some(14)) => plain("<u8"),
        (2, ..) => plain("<i8"),
        (3, ..) => Meaning::Number("<M8[ns]", Days),
        (4, ..) => plain("<f4"),
        (5, ..) => plain("<f8"),
        (6, Logical::String, _) | (6, _, Some(0 | 4 | 19)) => Meaning::Text,
        (7, Logical::Float16, _) if element.length == 2 => plain("<f2"),
        _ => Meaning::Bytes,
    }
}

impl Leaf {
    /// The leaf as JSON needs it: times of 96 bits stay as they are stored, since dates in JSON have any year.
    pub(super) fn in_json(self) -> Self {
        let meaning = match self.meaning {
            Meaning::Number(descr, Change::Days) => Meaning::Number(descr, Change::Nothing),
            meaning => meaning,
        };
        Self { meaning, ..self }
    }

    /// Bytes of each element that is shown, if all elements have the same length.
    pub(super) fn width(&self) -> Option<u32> {
        match (self.meaning, self.physical) {
            (Meaning::Number(_, Change::Narrow(width)), _) => Some(width),
            (Meaning::Number(_, Change::Widen | Change::Days), _) => Some(8),
            (_, Physical::Boolean) => Some(1),
            (Meaning::Decimal(_), _) | (_, Physical::Bytes) => None,
            (_, Physical::Fixed(width)) => Some(width),
        }
    }

    /// Whether PLAIN values are shown as they are stored.
    pub(super) fn is_plain(&self) -> bool {
        match self.meaning {
            Meaning::Number(_, change) => {
                change == Change::Nothing && self.physical != Physical::Boolean
            }
            Meaning::Decimal(_) => false,
            Meaning::Text | Meaning::Bytes => true,
        }
    }
}
