//! The parser of announcements in `/.ffrfs/prefetch`: lines of text, or raw numbers, cut anywhere. It makes no system calls.
//!
//! | form | content | known by |
//! | --- | --- | --- |
//! | text | a sample number (digits alone) or a path per line; `\r\n` too; empty lines mean nothing | the first write has no zero byte |
//! | raw | sample numbers as little-endian u64 | the first write has a zero byte, as has every number below 2^56 |

use super::Errno;
use crate::format::{one_or_many, quoted};

/// The most bytes of a line: a longer line is no path.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The least bytes of a write that the kernel may have cut anywhere; a shorter write came as it was written.
const CUT_BYTES: usize = 4096;
/// The most bytes of a wrong line that a message shows.
const SHOWN_BYTES: usize = 200;

/// The sample that one line or number names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vfs) enum Item<'a> {
    /// A sample by its number.
    Number(u64),
    /// A sample by its path.
    Path(&'a [u8]),
}

/// The function that is called for each item in order; an error ends the write.
pub(in crate::vfs) type Take<'a> = dyn FnMut(Item) -> Result<(), Errno> + 'a;

/// The function that is called for a line whose end has not come: an error if no line with this beginning names a sample.
pub(in crate::vfs) type MayBegin<'a> = dyn Fn(&[u8]) -> Result<(), Errno> + 'a;

/// A write that was refused: the items before the wrong one have been taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::vfs) struct Refused {
    /// For the writer.
    pub(in crate::vfs) errno: Errno,
    /// For the log: the wrong line or number.
    pub(in crate::vfs) item: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Raw,
}

impl Form {
    fn of(first: &[u8]) -> Option<Self> {
        match first.contains(&0) {
            false => Some(Form::Text),
            true if first.len().is_multiple_of(8) || first.len() >= CUT_BYTES => Some(Form::Raw),
            true => None,
        }
    }
}

/// Puts together the writes of one writer.
#[derive(Debug, Clone, Default)]
pub(in crate::vfs) struct Parser {
    form: Option<Form>,
    /// The beginning of a line or number whose end has not come.
    pending: Vec<u8>,
    /// The number of lines or numbers so far.
    items: u64,
    /// Whether the bytes behind `pending` were refused: then `pending` counts only if the write is tried again.
    was_refused: bool,
}

impl Parser {
    /// Takes the lines or numbers that the next bytes complete. After a refusal the parser is as if the bytes had not been
    /// written: if the kernel has cut a write in two, the writer learns that the first part was taken, and writes the second
    /// part again.
    ///
    /// No writer hears of an error after it has closed the file, so `may_begin` is asked about a last line without newline.
    pub(in crate::vfs) fn write(
        &mut self,
        bytes: &[u8],
        take: &mut Take,
        may_begin: &MayBegin,
    ) -> Result<(), Refused> {
        if bytes.is_empty() {
            return Ok(());
        }
        let junk = || refused(Errno::EINVAL, "neither text nor numbers of 8 bytes".to_owned());
        let form = self.form.or_else(|| Form::of(bytes)).ok_or_else(junk)?;
        let before = self.clone();
        self.form = Some(form);
        self.was_refused = false;
        let outcome = match form {
            Form::Text => self.lines(bytes, take).and_then(|()| self.check_last_line(may_begin)),
            Form::Raw => self.numbers(bytes, take),
        };
        if outcome.is_err() {
            *self = Self { was_refused: true, ..before };
        }
        outcome
    }

    /// Whether a line waits for its end.
    pub(in crate::vfs) fn has_line(&self) -> bool {
        self.form == Some(Form::Text) && !self.pending.is_empty() && !self.was_refused
    }

    /// Ends the input: takes a last line without newline.
    pub(in crate::vfs) fn end(&mut self, take: &mut Take) -> Result<(), Refused> {
        let rest = std::mem::take(&mut self.pending);
        match (self.form, rest.len()) {
            (_, 0) | (None, _) => Ok(()),
            _ if self.was_refused => Ok(()),
            (Some(Form::Text), _) => self.line(&rest, take),
            (Some(Form::Raw), bytes) => Err(refused(
                Errno::EINVAL,
                format!(
                    "the last {} not a whole number",
                    one_or_many(bytes, "byte is", "bytes are")
                ),
            )),
        }
    }

    fn lines(&mut self, bytes: &[u8], take: &mut Take) -> Result<(), Refused> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            rest = behind;
            if self.pending.is_empty() {
                self.line(line, take)?;
            } else {
                self.keep(line)?;
                let line = std::mem::take(&mut self.pending);
                self.line(&line, take)?;
            }
        }
        self.keep(rest)
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Refused> {
        if self.pending.len() + part.len() > MAX_LINE_BYTES {
            self.items += 1;
            return Err(self.too_long());
        }
        self.pending.extend_from_slice(part);
        Ok(())
    }

    fn check_last_line(&self, may_begin: &MayBegin) -> Result<(), Refused> {
        if self.pending.is_empty() {
            return Ok(());
        }
        may_begin(&self.pending)
            .map_err(|errno| refused(errno, named(self.items + 1, &self.pending)))
    }

    fn too_long(&self) -> Refused {
        let item = format!("line {}: longer than {MAX_LINE_BYTES} bytes", self.items);
        refused(Errno::EINVAL, item)
    }

    fn line(&mut self, line: &[u8], take: &mut Take) -> Result<(), Refused> {
        self.items += 1;
        if line.len() > MAX_LINE_BYTES {
            return Err(self.too_long());
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let taken = if line.is_empty() {
            Ok(())
        } else if line.contains(&0) {
            Err(Errno::EINVAL)
        } else if line.iter().all(u8::is_ascii_digit) {
            let text = std::str::from_utf8(line).unwrap_or_default();
            text.parse().map_err(|_| Errno::EINVAL).and_then(|number| take(Item::Number(number)))
        } else {
            take(Item::Path(line))
        };
        taken.map_err(|errno| refused(errno, named(self.items, line)))
    }

    fn numbers(&mut self, bytes: &[u8], take: &mut Take) -> Result<(), Refused> {
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let missing = (8 - self.pending.len()).min(rest.len());
            self.pending.extend_from_slice(&rest[..missing]);
            rest = &rest[missing..];
            if let Ok(whole) = <[u8; 8]>::try_from(&self.pending[..]) {
                self.pending.clear();
                self.number(whole, take)?;
            }
        }
        let (whole, part) = rest.as_chunks::<8>();
        for &number in whole {
            self.number(number, take)?;
        }
        self.pending.extend_from_slice(part);
        Ok(())
    }

    fn number(&mut self, bytes: [u8; 8], take: &mut Take) -> Result<(), Refused> {
        self.items += 1;
        let number = u64::from_le_bytes(bytes);
        take(Item::Number(number))
            .map_err(|errno| refused(errno, format!("number {}: {number}", self.items)))
    }
}

/// A line, as messages name it.
fn named(number: u64, line: &[u8]) -> String {
    format!("line {number}: {}", quoted(&line[..line.len().min(SHOWN_BYTES)]))
}

fn refused(errno: Errno, item: String) -> Refused {
    Refused { errno, item }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Taken {
        Number(u64),
        Path(Vec<u8>),
    }

    /// Numbers from 1000 on and the path `absent` are refused.
    fn take(item: Item, taken: &mut Vec<Taken>) -> Result<(), Errno> {
        taken.push(match item {
            Item::Number(1000..) => return Err(Errno::EINVAL),
            Item::Path(b"absent") => return Err(Errno::ENOENT),
            Item::Number(number) => Taken::Number(number),
            Item::Path(path) => Taken::Path(path.to_vec()),
        });
        Ok(())
    }

    /// What is taken of these writes and the end, and what is refused.
    fn written(writes: &[&[u8]]) -> (Vec<Taken>, Vec<Refused>) {
        let (mut parser, mut taken) = (Parser::default(), Vec::new());
        let mut refused = Vec::new();
        for write in writes {
            let take = &mut |item: Item| take(item, &mut taken);
            refused.extend(parser.write(write, take, &|_| Ok(())).err());
            assert!(parser.pending.len() <= MAX_LINE_BYTES);
        }
        refused.extend(parser.end(&mut |item| take(item, &mut taken)).err());
        (taken, refused)
    }

    fn path(path: &str) -> Taken {
        Taken::Path(path.as_bytes().to_vec())
    }

    #[test]
    fn lines_are_numbers_or_paths_and_empty_ones_nothing() {
        let (taken, refused) = written(&[b"7\ncat/1.jpg\r\n\n\r\n./17\n000123\n", b"a b"]);
        let expected =
            [Taken::Number(7), path("cat/1.jpg"), path("./17"), Taken::Number(123), path("a b")];
        assert_eq!((&taken[..], &refused[..]), (&expected[..], &[][..]));
    }

    #[test]
    fn names_need_not_be_utf8() {
        let (taken, _) = written(&[b"\xff\xfe\n"]);
        assert_eq!(taken, [Taken::Path(vec![0xff, 0xfe])]);
    }

    #[test]
    fn raw_numbers_are_known_by_their_zero_bytes() {
        let bytes: Vec<u8> = [5u64, 0, 999].iter().flat_map(|n| n.to_le_bytes()).collect();
        let (taken, refused) = written(&[&bytes[..8], &bytes[8..11], &bytes[11..]]);
        assert_eq!(taken, [5, 0, 999].map(Taken::Number));
        assert_eq!(refused, []);
    }

    #[test]
    fn what_is_neither_text_nor_numbers_is_refused() {
        let (taken, refused) = written(&[b"\0\x01\x02"]);
        assert_eq!((taken.len(), refused[0].errno), (0, Errno::EINVAL));
        // Another try of the same writer is a first write again.
        assert_eq!(written(&[b"\0", b"3\n"]).0, [Taken::Number(3)]);
    }

    #[test]
    fn a_long_first_write_may_be_cut_within_a_number() {
        let bytes: Vec<u8> = (0..999u64).flat_map(u64::to_le_bytes).collect();
        let (taken, refused) = written(&[&bytes[..4099], &bytes[4099..]]);
        assert_eq!((taken.len(), refused.len()), (999, 0));
    }

    #[test]
    fn everything_before_a_bad_line_is_taken_and_nothing_behind_it() {
        let (taken, refused) = written(&[b"1\n2\nabsent\n3\n4", b"5\n"]);
        assert_eq!(taken, [1, 2, 5].map(Taken::Number));
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].errno, Errno::ENOENT);
        assert_eq!(refused[0].item, "line 3: \"absent\"");
    }

    #[test]
    fn a_refused_write_can_be_tried_again_where_it_began() {
        // The kernel has cut `12\nabsent\n` after `1`, and gives the second part once more.
        let (taken, refused) = written(&[b"1", b"2\nabsent\n", b"2\nabsent\n"]);
        assert_eq!(taken, [12, 12].map(Taken::Number));
        assert_eq!(refused[0], refused[1]);
        assert_eq!((&*refused[0].item, refused.len()), ("line 2: \"absent\"", 2));
        // What was before the cut is no line by itself.
        assert_eq!(written(&[b"1", b"000000\n"]).0, []);
    }

    #[test]
    fn a_last_line_that_begins_no_sample_is_refused_at_once() {
        let (mut parser, mut taken) = (Parser::default(), Vec::new());
        let mut write = |bytes: &[u8]| {
            let may_begin = |line: &[u8]| match b"cat/1.jpg".starts_with(line) {
                true => Ok(()),
                false => Err(Errno::ENOENT),
            };
            parser.write(bytes, &mut |item| take(item, &mut taken), &may_begin)
        };
        assert_eq!(write(b"7\ncat/"), Ok(()));
        let error = write(b"2").unwrap_err();
        assert_eq!((error.errno, &*error.item), (Errno::ENOENT, "line 2: \"cat/2\""));
        // It is as if that had not been written.
        assert_eq!(write(b"1.jpg\n8\n"), Ok(()));
        assert_eq!(taken, [Taken::Number(7), path("cat/1.jpg"), Taken::Number(8)]);
    }

    #[test]
    fn a_number_too_large_is_named() {
        assert_eq!(written(&[b"1\n1000\n"]).1[0].item, "line 2: \"1000\"");
        let huge = "9".repeat(40);
        assert_eq!(written(&[huge.as_bytes()]).1[0].errno, Errno::EINVAL);
        let raw = [1u64.to_le_bytes(), 2000u64.to_le_bytes()].concat();
        let (taken, refused) = written(&[&raw]);
        assert_eq!(taken, [Taken::Number(1)]);
        assert_eq!(refused[0].item, "number 2: 2000");
    }

    #[test]
    fn a_zero_byte_in_text_is_refused() {
        let (taken, refused) = written(&[b"1\n", b"a\0b\n2\n"]);
        assert_eq!((taken.len(), refused[0].errno), (1, Errno::EINVAL));
    }

    #[test]
    fn a_raw_number_that_stays_unfinished_is_refused_at_the_end() {
        let (taken, refused) = written(&[&1u64.to_le_bytes(), &[1, 2, 3]]);
        assert_eq!((taken.len(), refused.len()), (1, 1));
        assert!(refused[0].item.contains("3 bytes"), "{}", refused[0].item);
    }

    #[test]
    fn a_line_longer_than_64_kib_is_refused_however_it_is_cut() {
        let fits = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(written(&[&fits, b"\n"]).1, []);
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let (head, tail) = long.split_at(MAX_LINE_BYTES);
        for writes in [&[&long[..], b"\n"][..], &[head, tail], &[&[&long[..], b"\n1\n"].concat()]] {
            let (taken, refused) = written(writes);
            assert_eq!(taken.len(), 0);
            assert_eq!(refused[0].errno, Errno::EINVAL);
            assert!(refused[0].item.starts_with("line 1: longer"), "{}", refused[0].item);
        }
    }

    fn cut<'a>(bytes: &'a [u8], first: usize, cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let first = first.min(bytes.len());
        let mut at: Vec<usize> =
            cuts.iter().map(|cut| first + cut.index(bytes.len() - first + 1)).collect();
        at.extend([0, first, bytes.len()]);
        at.sort_unstable();
        at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn text_says_the_same_however_it_is_cut(
            lines in prop::collection::vec("[0-9]{1,3}|[a-z./]{0,9}x|", 0..20),
            crlf in any::<bool>(), newline_at_end in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let end = if crlf { "\r\n" } else { "\n" };
            let text = lines.join(end) + if newline_at_end { end } else { "" };
            let model = lines.iter().filter(|line| !line.is_empty()).map(|line| {
                line.parse().map_or_else(|_| path(line), Taken::Number)
            });
            let (taken, refused) = written(&cut(text.as_bytes(), 0, &cuts));
            prop_assert_eq!(taken, model.collect::<Vec<_>>());
            prop_assert_eq!(refused, vec![]);
        }

        #[test]
        fn numbers_say_the_same_however_they_are_cut(
            numbers in prop::collection::vec(0..1000u64, 1..40),
            first in 1..5usize,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let raw: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            // The first write says that it is raw: it has whole numbers.
            let (taken, refused) = written(&cut(&raw, first * 8, &cuts));
            prop_assert_eq!(taken, numbers.into_iter().map(Taken::Number).collect::<Vec<_>>());
            prop_assert_eq!(refused, vec![]);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(
            writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let writes: Vec<&[u8]> = writes.iter().map(Vec::as_slice).collect();
            let items: usize = writes.iter().map(|w| w.len() + 1).sum();
            let (taken, refused) = written(&writes);
            prop_assert!(taken.len() <= items && refused.len() <= writes.len() + 1);
        }
    }
}
