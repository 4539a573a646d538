//! Datatype messages, and NumPy's names for the types.
//!
//! ```text
//! u8 class and version | 3 × u8 bits | u32 bytes of an element | properties
//! ```
//!
//! Imports the input, and the `.npy` header's types.

use super::super::Result;
use super::super::npy;
use super::input::Fields;
use crate::format::counted;

/// The deepest nesting of types within types.
const MAX_NESTING: u32 = 32;
/// The most dimensions of an array that NumPy reads.
pub(super) const MAX_DIMENSIONS: usize = 64;

/// The end of a fixed string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    /// The first NUL.
    Terminated,
    /// All NULs at the end of its bytes.
    Nulls,
    Spaces,
}

/// The kind of an element.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A type of NumPy's, such as `<f4`.
    Plain(String),
    /// Text of the element's length.
    Text(Padding),
    Compound(Vec<Member>),
    /// An array of elements in each element.
    Array(Vec<u64>, Box<Datatype>),
    /// A sequence elsewhere in the file, of as many elements as each element says.
    Sequence(Box<Datatype>),
    /// Text elsewhere in the file.
    FarText,
}

/// A field: name, offset, type.
type Member = (Vec<u8>, u32, Datatype);

/// The type of a dataset's elements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Datatype {
    pub(super) bytes: u32,
    pub(super) kind: Kind,
    /// The name of the type's kind, if NumPy has no type for it.
    pub(super) is_unknown: Option<&'static str>,
}

impl Datatype {
    /// The name of a part for which NumPy has no type: the type itself, a field, or its elements.
    pub(super) fn unknown(&self) -> Option<&'static str> {
        self.is_unknown.or_else(|| match &self.kind {
            Kind::Compound(members) => {
                let shares_bytes = || self.is_opaque().then_some("a layout of fields");
                members.iter().find_map(|(_, _, of)| of.unknown()).or_else(shares_bytes)
            }
            Kind::Array(_, of) | Kind::Sequence(of) => of.unknown(),
            Kind::Plain(_) | Kind::Text(_) | Kind::FarText => None,
        })
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        read(fields, MAX_NESTING)
    }

    /// The type as Python writes it in a `.npy` header, and the dimensions that it adds to an array's shape. `None` if
    /// its values lie elsewhere in the file.
    pub(super) fn descr(&self) -> Option<(String, Vec<u64>)> {
        match &self.kind {
            Kind::Plain(descr) => Some((format!("'{descr}'"), Vec::new())),
            Kind::Text(_) => Some((format!("'|S{}'", self.bytes), Vec::new())),
            Kind::Array(shape, of) => {
                let (descr, inner) = of.descr()?;
                Some((descr, [&shape[..], &inner].concat()))
            }
            Kind::Compound(members) => self.structured(members).map(|descr| (descr, Vec::new())),
            Kind::Sequence(_) | Kind::FarText => None,
        }
    }

    /// A structured type, or a complex number as h5py has it: fields `r` and `i`.
    fn structured(&self, members: &[Member]) -> Option<String> {
        if let [(r, 0, real), (i, at, imaginary)] = members
            && (&r[..], &i[..]) == (b"r", b"i")
            && real == imaginary
            && *at == real.bytes
            && self.bytes == at.saturating_mul(2)
            && let Kind::Plain(descr) = &real.kind
            && let Some((order, digits)) = descr.split_once('f')
            && digits != "2"
        {
            return Some(format!("'{order}c{}'", self.bytes));
        }
        let Some(sorted) = self.side_by_side(members) else {
            // References to values elsewhere are never shown, not even as bytes.
            let is_here = members.iter().all(|(_, _, of)| of.descr().is_some());
            return is_here.then(|| self.opaque());
        };
        let (mut parts, mut end) = (Vec::new(), 0_u32);
        for (name, at, of) in sorted {
            let (descr, shape) = of.descr()?;
            parts.extend(gap(end, *at));
            let name = quoted(&String::from_utf8_lossy(name));
            parts.push(match shape.is_empty() {
                true => format!("({name}, {descr})"),
                false => format!("({name}, {descr}, {})", tuple(&shape)),
            });
            end = at.saturating_add(of.bytes);
        }
        parts.extend(gap(end, self.bytes));
        Some(format!("[{}]", parts.join(", ")))
    }

    /// The fields in the order of their bytes: NumPy finds fields by their names, and has them in this order in a file.
    /// `None` if fields share bytes, or if the type has no fields.
    fn side_by_side<'a>(&self, members: &'a [Member]) -> Option<Vec<&'a Member>> {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_by_key(|(_, at, _)| *at);
        let end = sorted.iter().try_fold(0_u32, |end, (_, at, of)| {
            (*at >= end).then(|| at.saturating_add(of.bytes))
        })?;
        (end <= self.bytes && !sorted.is_empty()).then_some(sorted)
    }

    /// Whether the type has fields that NumPy cannot have beside each other.
    pub(super) fn is_opaque(&self) -> bool {
        match &self.kind {
            Kind::Compound(members) => self.side_by_side(members).is_none(),
            _ => false,
        }
    }

    fn opaque(&self) -> String {
        format!("'|V{}'", self.bytes)
    }
}

/// The bytes between two fields, as a field without a name.
fn gap(from: u32, to: u32) -> Option<String> {
    to.checked_sub(from).filter(|gap| *gap > 0).map(|gap| format!("('', '|V{gap}')"))
}

/// A tuple as Python writes it.
fn tuple(values: &[u64]) -> String {
    let texts: Vec<_> = values.iter().map(u64::to_string).collect();
    let comma = if texts.len() == 1 { "," } else { "" };
    format!("({}{comma})", texts.join(", "))
}

/// A string as Python writes it.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter == quote => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push_str(&format!("\\x{:02x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push(quote);
    out
}

fn read(fields: &mut Fields<'_>, nesting: u32) -> Result<Datatype> {
    let before = fields.clone();
    let Some(nesting) = nesting.checked_sub(1) else {
        return Err(before.wrong("types that are nested less deeply", "deeper ones".to_owned()));
    };
    let head = fields.u8()?;
    let bits = fields.number(3)? as u32;
    let bytes = fields.u32()?;
    if bytes == 0 {
        return Err(before.wrong("a type of a byte or more", "0".to_owned()));
    }
    let (class, version) = (head & 15, head >> 4);
    let kind = match class {
        0 => Kind::Plain(integer(fields, bits, bytes)?),
        1 => Kind::Plain(float(fields, bits, bytes)?),
        2 => {
            fields.take(2)?;
            Kind::Plain(opaque(bytes))
        }
        3 => Kind::Text(padding(bits & 15)),
        4 => Kind::Plain(integer(fields, bits & !8, bytes)?),
        5 => Kind::Plain(tagged(fields, bits, bytes)?),
        6 => Kind::Compound(compound(fields, (version, bits, bytes), nesting)?),
        7 => Kind::Plain(opaque(bytes)),
        8 => enumeration(fields, (version, bits, bytes), nesting)?,
        9 => {
            // A length, an address of a heap, and the number of an object there.
            let wanted = fields.input.address_bytes.saturating_add(8);
            if bytes as usize != wanted {
                let wanted = format!("a type of variable length with elements of {wanted} bytes");
                return Err(before.wrong(&wanted, bytes.to_string()));
            }
            let of = read(fields, nesting)?;
            if bits & 15 == 1 { Kind::FarText } else { Kind::Sequence(Box::new(of)) }
        }
        10 => array(fields, (version, bytes), nesting)?,
        11 => complex(fields, bytes, nesting)?,
        _ => return Err(before.wrong("a type of class 0 to 11", class.to_string())),
    };
    let is_opaque = matches!(&kind, Kind::Plain(descr) if *descr == opaque(bytes));
    let is_unknown = match class {
        _ if !is_opaque => None,
        0 | 8 => Some("integers of another precision"),
        1 => Some("floats of another format (such as bfloat16)"),
        2 => Some("times"),
        4 => Some("bit fields of another precision"),
        7 => Some("references"),
        11 => Some("complex numbers of another format"),
        _ => None,
    };
    Ok(Datatype { bytes, kind, is_unknown })
}

fn opaque(bytes: u32) -> String {
    format!("|V{bytes}")
}

fn order(bits: u32, bytes: u32) -> char {
    match (bytes, bits & 1) {
        (1, _) => '|',
        (_, 0) => '<',
        _ => '>',
    }
}

fn integer(fields: &mut Fields<'_>, bits: u32, bytes: u32) -> Result<String> {
    let (offset, precision) = (fields.u16()?, fields.u16()?);
    let is_plain = matches!(bytes, 1 | 2 | 4 | 8)
        && offset == 0
        && u32::from(precision) == bytes.saturating_mul(8);
    let sign = if bits & 8 != 0 { 'i' } else { 'u' };
    Ok(match is_plain {
        true => format!("{}{sign}{bytes}", order(bits, bytes)),
        false => opaque(bytes),
    })
}

fn float(fields: &mut Fields<'_>, bits: u32, bytes: u32) -> Result<String> {
    let (offset, precision) = (fields.u16()?, fields.u16()?);
    let parts = fields.take(4)?;
    let bias = fields.u32()?;
    // The highest bit of the mantissa is not stored.
    let is_implied = bits & 0x30 == 0x20;
    let is_known = offset == 0
        && bits & 0x40 == 0
        && match (bytes, precision, parts, bias) {
            (2, 16, [10, 5, 0, 10], 15)
            | (4, 32, [23, 8, 0, 23], 127)
            | (8, 64, [52, 11, 0, 52], 1023) => is_implied,
            // The format of the x87.
            (16, 80, [64, 15, 0, 64], 16_383) => bits & 1 == 0,
            _ => false,
        };
    Ok(if is_known { format!("{}f{bytes}", order(bits, bytes)) } else { opaque(bytes) })
}

fn padding(bits: u32) -> Padding {
    match bits {
        0 => Padding::Terminated,
        2 => Padding::Spaces,
        _ => Padding::Nulls,
    }
}

/// Opaque bytes; h5py tags those that are a type of NumPy's.
fn tagged(fields: &mut Fields<'_>, bits: u32, bytes: u32) -> Result<String> {
    let tag = fields.take((bits & 0xff) as usize)?.trim_ascii_end();
    let end = tag.iter().position(|byte| *byte == 0).unwrap_or(tag.len());
    let tag = str::from_utf8(tag.get(..end).unwrap_or_default()).unwrap_or_default();
    let descr = tag.strip_prefix("NUMPY:").unwrap_or_default();
    let is_plain = npy::item_bytes(descr) == Some(bytes.into());
    Ok(if is_plain { descr.to_owned() } else { opaque(bytes) })
}

fn name(fields: &mut Fields<'_>, version: u8) -> Result<Vec<u8>> {
    let text = fields.text()?.to_vec();
    if version < 3 {
        fields.pad(text.len().saturating_add(1))?;
    }
    Ok(text)
}

fn compound(
    fields: &mut Fields<'_>,
    (version, bits, bytes): (u8, u32, u32),
    nesting: u32,
) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for _ in 0..bits & 0xffff {
        let name = name(fields, version)?;
        let before = fields.clone();
        let at = match version {
            1 | 2 => fields.u32()?,
            _ => fields.number(super::input::bytes_for(bytes.into()))? as u32,
        };
        let mut shape = Vec::new();
        if version == 1 {
            let rank = fields.u8()?;
            fields.take(11)?;
            for place in 0..4 {
                let length = u64::from(fields.u32()?);
                if place < rank {
                    shape.push(length);
                }
            }
        }
        let mut of = read(fields, nesting)?;
        if !shape.is_empty() {
            let bytes = shape.iter().try_fold(u64::from(of.bytes), |all, &n| all.checked_mul(n));
            let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(u32::MAX);
            of = Datatype { bytes, kind: Kind::Array(shape, Box::new(of)), is_unknown: None };
        }
        if at.checked_add(of.bytes).is_none_or(|end| end > bytes) {
            let found = format!("{} at {at}", counted(of.bytes, "byte"));
            return Err(before.wrong(&format!("a field within {}", counted(bytes, "byte")), found));
        }
        members.push((name, at, of));
    }
    Ok(members)
}

/// Reads an enumeration: integers, or truth values if h5py takes its bytes for those.
fn enumeration(
    fields: &mut Fields<'_>,
    (version, bits, bytes): (u8, u32, u32),
    nesting: u32,
) -> Result<Kind> {
    let before = fields.clone();
    let base = read(fields, nesting)?;
    if base.bytes != bytes {
        let expected = format!("integers of {} for those of a list", counted(bytes, "byte"));
        return Err(before.wrong(&expected, base.bytes.to_string()));
    }
    let count = bits & 0xffff;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(name(fields, version)?);
    }
    let values = fields.take((count as usize).saturating_mul(base.bytes as usize))?;
    let is_byte = matches!(&base.kind, Kind::Plain(descr) if descr == "|i1" || descr == "|u1");
    let mut members: Vec<_> = names.iter().map(Vec::as_slice).zip(values).collect();
    members.sort_unstable();
    let is_bool = is_byte && members == [(&b"FALSE"[..], &0), (b"TRUE", &1)];
    Ok(if is_bool { Kind::Plain("|b1".to_owned()) } else { base.kind })
}

fn array(fields: &mut Fields<'_>, (version, bytes): (u8, u32), nesting: u32) -> Result<Kind> {
    let before = fields.clone();
    let rank = usize::from(fields.u8()?);
    if rank > MAX_DIMENSIONS {
        return Err(before.wrong("an array of up to 64 dimensions", rank.to_string()));
    }
    if version < 3 {
        fields.take(3)?;
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        shape.push(u64::from(fields.u32()?));
    }
    if version < 3 {
        fields.take(rank.saturating_mul(4))?;
    }
    let of = read(fields, nesting)?;
    let product =
        shape.iter().try_fold(u64::from(of.bytes), |all, &length| all.checked_mul(length));
    if product != Some(bytes.into()) {
        let found = format!("{bytes} for {shape:?} of {} each", of.bytes);
        return Err(before.wrong("as many bytes as an array's elements have", found));
    }
    Ok(Kind::Array(shape, Box::new(of)))
}

fn complex(fields: &mut Fields<'_>, bytes: u32, nesting: u32) -> Result<Kind> {
    let base = read(fields, nesting)?;
    let descr = match &base.kind {
        Kind::Plain(descr) if base.bytes.checked_mul(2) == Some(bytes) => descr.split_once('f'),
        _ => None,
    };
    let known = descr.filter(|(_, digits)| *digits != "2");
    Ok(Kind::Plain(known.map_or_else(|| opaque(bytes), |(order, _)| format!("{order}c{bytes}"))))
}
