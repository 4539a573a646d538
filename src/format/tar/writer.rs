//! Writes tar: ustar headers, with a pax header before those whose values do not fit (long names, large files,
//! fine times). Owner and group are 0, so that the same members give the same bytes.

use super::header::BLOCK_BYTES;
use crate::format::write::Announced;
use crate::format::{Holds, MemberWriter, NewMember, NewNode, Outline, Output, WriteFormat};
use std::io;

/// The bytes of the fields `name` and `linkname`.
const FIELD_BYTES: usize = 100;
/// The largest number of eleven octal digits.
const MAX_OCTAL: u64 = 0o77_777_777_777;
/// The bytes that a tape wrote at once, to which archives are padded.
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES;

const ZEROS: [u8; RECORD_BYTES as usize] = [0; RECORD_BYTES as usize];

/// Writes tar.
#[derive(Debug)]
pub struct WriteTar;

impl WriteFormat for WriteTar {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tar"]
    }

    fn holds(&self) -> Holds {
        Holds {
            modes: true,
            times_nanos: 1,
            symlinks: true,
            hard_links: true,
            any_names: true,
            empty_directories: true,
        }
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        let data = member.data_bytes();
        (headers(member).len() as u64).saturating_add(data).saturating_add(padding(data))
    }

    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        _outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        Ok(Box::new(Members { out, position: 0, left: Announced::default() }))
    }
}

struct Members<'a> {
    out: Box<dyn Output + 'a>,
    position: u64,
    left: Announced,
}

impl Members<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.position = self.position.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn pad(&mut self, to_bytes: u64) -> io::Result<()> {
        let beyond = self.position.checked_rem(to_bytes).unwrap_or(0);
        let missing = if beyond == 0 { 0 } else { to_bytes.saturating_sub(beyond) };
        self.put(ZEROS.get(..missing as usize).unwrap_or(&ZEROS))
    }
}

impl MemberWriter for Members<'_> {
    fn begin(&mut self, member: &NewMember) -> io::Result<()> {
        self.left.expect(member.data_bytes())?;
        self.pad(BLOCK_BYTES)?;
        self.put(&headers(member))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left.take(bytes.len())?;
        self.put(bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.left.check_done()?;
        self.pad(BLOCK_BYTES)?;
        for _ in 0..2 {
            self.put(ZEROS.get(..BLOCK_BYTES as usize).unwrap_or_default())?;
        }
        self.pad(RECORD_BYTES)?;
        self.out.flush()
    }
}

fn padding(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES).saturating_sub(bytes)
}

/// All blocks before a member's data.
fn headers(member: &NewMember) -> Vec<u8> {
    let path = match member.node {
        NewNode::Directory => [member.path, b"/"].concat(),
        _ => member.path.to_vec(),
    };
    let (kind, link) = match member.node {
        NewNode::File { .. } => (b'0', &b""[..]),
        NewNode::HardLink(first) => (b'1', first),
        NewNode::Symlink(target) => (b'2', target),
        NewNode::Directory => (b'5', &b""[..]),
    };
    let records = pax_records(&path, link, member);
    let mut out = Vec::with_capacity(512);
    if !records.is_empty() {
        let name = [&b"PaxHeaders/"[..], last_part(member.path)].concat();
        out.extend(header(&name, b"", b'x', 0o644, records.len() as u64, 0));
        out.extend_from_slice(&records);
        out.resize(out.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    }
    let seconds = u64::try_from(member.modified.0).unwrap_or(0);
    let size = member.data_bytes();
    out.extend(header(&path, link, kind, member.mode_or_usual(), size, seconds));
    out
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The pax records of the values that do not fit into a ustar header.
fn pax_records(path: &[u8], link: &[u8], member: &NewMember) -> Vec<u8> {
    let mut records = Vec::new();
    let is_long = |text: &[u8]| text.len() > FIELD_BYTES;
    let is_text = |text: &[u8]| std::str::from_utf8(text).is_ok();
    if (is_long(path) && !is_text(path)) || (is_long(link) && !is_text(link)) {
        record(&mut records, "hdrcharset", b"BINARY");
    }
    if is_long(path) {
        record(&mut records, "path", path);
    }
    if is_long(link) {
        record(&mut records, "linkpath", link);
    }
    if member.data_bytes() > MAX_OCTAL {
        record(&mut records, "size", member.data_bytes().to_string().as_bytes());
    }
    let (seconds, nanos) = member.modified;
    if nanos != 0 || u64::try_from(seconds).map_or(true, |seconds| seconds > MAX_OCTAL) {
        record(&mut records, "mtime", time(seconds, nanos).as_bytes());
    }
    records
}

/// `LENGTH KEY=VALUE\n`, where the length counts its own digits.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len().saturating_add(value.len()).saturating_add(3);
    let mut length = rest;
    while length != rest.saturating_add(length.to_string().len()) {
        length = rest.saturating_add(length.to_string().len());
    }
    out.extend_from_slice(format!("{length} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Decimal seconds. The fraction counts up from the seconds, also before 1970: -1.5 s is -2 s and 0.5 s.
fn time(seconds: i64, nanos: u32) -> String {
    let (sign, seconds, nanos) = match (seconds < 0, nanos) {
        (true, 1..) => {
            let whole = seconds.saturating_add(1).unsigned_abs();
            ("-", whole, 1_000_000_000u32.saturating_sub(nanos))
        }
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (false, _) => ("", seconds.unsigned_abs(), nanos),
    };
    let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}") };
    format!("{sign}{seconds}{}", fraction.trim_end_matches('0'))
}

/// A ustar header. A value that does not fit is cut, or 0, and stands in the pax header.
fn header(name: &[u8], link: &[u8], kind: u8, mode: u16, size: u64, seconds: u64) -> Vec<u8> {
    let octal = |value: u64, digits: usize| format!("{value:0digits$o}\0").into_bytes();
    let fits = |value: u64| if value > MAX_OCTAL { 0 } else { value };
    let cut = |text: &[u8]| text.get(..FIELD_BYTES).unwrap_or(text).to_vec();
    let before = [
        (cut(name), FIELD_BYTES),
        (octal(mode.into(), 7), 8),
        (octal(0, 7), 8),
        (octal(0, 7), 8),
        (octal(fits(size), 11), 12),
        (octal(fits(seconds), 11), 12),
    ];
    let behind = [
        (vec![kind], 1),
        (cut(link), FIELD_BYTES),
        (b"ustar\x0000".to_vec(), 8),
        (Vec::new(), 64),
        (octal(0, 7), 8),
        (octal(0, 7), 8),
        (Vec::new(), 167),
    ];
    let block = |checksum: Vec<u8>| -> Vec<u8> {
        let fields = before.iter().cloned().chain([(checksum, 8)]).chain(behind.iter().cloned());
        let padded = fields.map(|(mut field, length)| {
            field.resize(length, 0);
            field
        });
        padded.flatten().collect()
    };
    let sum: u64 = block(vec![b' '; 8]).iter().map(|byte| u64::from(*byte)).sum();
    block(format!("{sum:06o}\0 ").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_records_count_their_own_digits() {
        for (length, expected) in [(1, "9 path=a\n".len()), (90, 99), (91, 101), (988, 998)] {
            let mut out = Vec::new();
            record(&mut out, "path", &vec![b'a'; length]);
            assert_eq!(out.len(), expected, "{length}");
            assert!(out.starts_with(format!("{expected} path=").as_bytes()));
        }
    }

    #[test]
    fn times_are_decimal_also_before_1970() {
        for ((seconds, nanos), expected) in [
            ((1, 500_000_000), "1.5"),
            ((0, 1), "0.000000001"),
            ((-2, 500_000_000), "-1.5"),
            ((-1, 500_000_000), "-0.5"),
            ((-2, 0), "-2"),
            ((10, 0), "10"),
        ] {
            assert_eq!(time(seconds, nanos), expected);
        }
    }

    #[test]
    fn a_member_that_gets_too_few_or_too_many_bytes_is_an_error() {
        let outline = Outline {
            files: 2,
            is_numbered: false,
            grouping: crate::format::Grouping::Keys,
            records: 2,
            largest_bytes: 9,
        };
        let node = NewNode::File { size_bytes: 3, checksum: None };
        let member = NewMember { path: b"a", node, mode: None, modified: (0, 0) };
        let mut writer = WriteTar.begin(Box::new(io::Cursor::new(Vec::new())), &outline).unwrap();
        writer.begin(&member).unwrap();
        writer.write(b"ab").unwrap();
        assert!(writer.begin(&member).is_err());
        assert!(writer.write(b"cd").is_err());
        assert!(writer.finish().is_err());
    }
}
