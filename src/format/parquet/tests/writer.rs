//! A writer of those parts of Parquet that the tests need, by the specification.

/// A value that Thrift's compact protocol writes.
pub(super) enum Value {
    I32(i32),
    I64(i64),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Struct(Vec<(i16, Value)>),
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64, out: &mut Vec<u8>) {
    varint((value << 1 ^ value >> 63) as u64, out);
}

impl Value {
    fn kind(&self) -> u8 {
        match self {
            Value::I32(_) => 5,
            Value::I64(_) => 6,
            Value::Bytes(_) => 8,
            Value::List(_) => 9,
            Value::Struct(_) => 12,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::I32(value) => zigzag((*value).into(), out),
            Value::I64(value) => zigzag(*value, out),
            Value::Bytes(bytes) => {
                varint(bytes.len() as u64, out);
                out.extend(bytes);
            }
            Value::List(values) => {
                out.push(0xf0 | values.first().map_or(12, Value::kind));
                varint(values.len() as u64, out);
                values.iter().for_each(|value| value.write(out));
            }
            Value::Struct(fields) => {
                let mut last = 0;
                for (id, value) in fields {
                    match id - last {
                        step @ 1..=15 => out.push((step as u8) << 4 | value.kind()),
                        _ => {
                            out.push(value.kind());
                            zigzag((*id).into(), out);
                        }
                    }
                    value.write(out);
                    last = *id;
                }
                out.push(0);
            }
        }
    }
}

/// How the pages of a file are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// 0: none, 1: snappy, 2: gzip, 6: zstd.
    pub(super) codec: i32,
    pub(super) is_second_version: bool,
    pub(super) has_dictionary: bool,
    pub(super) has_checksums: bool,
    /// The number of values in a page, nulls among them.
    pub(super) page_values: usize,
    pub(super) group_rows: usize,
}

/// Repetition level, definition level, and the value as PLAIN has it.
pub(super) type Entry = (u32, u32, Option<Vec<u8>>);

/// A leaf: its element of the schema and those above it, and its values.
pub(super) struct Column {
    pub(super) elements: Vec<Value>,
    pub(super) stored_type: i32,
    pub(super) levels: (u32, u32),
    pub(super) rows: Vec<Vec<Entry>>,
}

pub(super) fn element(
    name: &str,
    stored_type: Option<i32>,
    repetition: i32,
    children: i32,
    converted: Option<i32>,
) -> Value {
    let mut fields: Vec<_> = stored_type.map(|kind| (1, Value::I32(kind))).into_iter().collect();
    fields.push((3, Value::I32(repetition)));
    fields.push((4, Value::Bytes(name.into())));
    fields.extend((children > 0).then_some((5, Value::I32(children))));
    fields.extend(converted.map(|kind| (6, Value::I32(kind))));
    Value::Struct(fields)
}

/// Runs of equal values, and packed runs where values differ.
fn runs(values: &[u32], width: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = values;
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|value| *value == first).count();
        if same >= 8 || rest.len() < 8 {
            varint((same as u64) << 1, &mut out);
            out.extend(first.to_le_bytes().iter().take(width.div_ceil(8) as usize));
            rest = &rest[same..];
            continue;
        }
        varint(1 << 1 | 1, &mut out);
        let packed = rest[..8].iter().rev().fold(0_u128, |all, v| all << width | u128::from(*v));
        out.extend(packed.to_le_bytes().iter().take(width as usize));
        rest = &rest[8..];
    }
    out
}

fn compress(codec: i32, bytes: &[u8]) -> Vec<u8> {
    match codec {
        1 => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        6 => zstd::bulk::compress(bytes, 1).unwrap(),
        _ => bytes.to_vec(),
    }
}

fn width_of(most: u32) -> u32 {
    u32::BITS - most.leading_zeros()
}

/// A page: its header and its body.
fn page(
    style: Style,
    number: i32,
    header: Value,
    levels: (&[u8], &[u8]),
    values: &[u8],
) -> Vec<u8> {
    let before = [levels.0, levels.1].concat();
    let is_second = number == 8;
    let body = match is_second {
        true => [&before[..], &compress(style.codec, values)].concat(),
        false => compress(style.codec, &[&before[..], values].concat()),
    };
    let kind = [(5, 0), (7, 2), (8, 3)].iter().find(|(field, _)| *field == number).unwrap().1;
    let mut fields = vec![
        (1, Value::I32(kind)),
        (2, Value::I32((before.len() + values.len()) as i32)),
        (3, Value::I32(body.len() as i32)),
    ];
    if style.has_checksums {
        fields.push((4, Value::I32(crc32fast::hash(&body).cast_signed())));
    }
    fields.push((number as i16, header));
    let mut out = Vec::new();
    Value::Struct(fields).write(&mut out);
    out.extend(body);
    out
}

fn data_page(style: Style, column: &Column, entries: &[Entry], dictionary: &[Vec<u8>]) -> Vec<u8> {
    let (most_repetition, most_definition) = column.levels;
    let level = |most: u32, of: fn(&Entry) -> u32| match most {
        0 => Vec::new(),
        most => runs(&entries.iter().map(of).collect::<Vec<_>>(), width_of(most)),
    };
    let (repetition, definition) =
        (level(most_repetition, |entry| entry.0), level(most_definition, |entry| entry.1));
    let there = entries.iter().filter_map(|entry| entry.2.as_ref());
    let (encoding, values) = if style.has_dictionary {
        let numbers: Vec<u32> =
            there.map(|v| dictionary.iter().position(|known| known == v).unwrap() as u32).collect();
        let width = width_of(dictionary.len() as u32);
        (8, [&[width as u8][..], &runs(&numbers, width)].concat())
    } else {
        (0, there.flatten().copied().collect())
    };
    let (count, rle) = (Value::I32(entries.len() as i32), || Value::I32(3));
    if style.is_second_version {
        let nulls = entries.iter().filter(|entry| entry.2.is_none()).count();
        let rows = entries.iter().filter(|entry| entry.0 == 0).count();
        let numbers = [nulls, rows].map(|number| Value::I32(number as i32));
        let [nulls, rows] = numbers;
        let lengths = [&definition, &repetition].map(|levels| Value::I32(levels.len() as i32));
        let [definitions, repetitions] = lengths;
        let fields = [count, nulls, rows, Value::I32(encoding), definitions, repetitions];
        let header = Value::Struct((1..).zip(fields).collect());
        return page(style, 8, header, (&repetition, &definition), &values);
    }
    let prefixed = |levels: Vec<u8>, most| match most {
        0 => levels,
        _ => [&(levels.len() as u32).to_le_bytes()[..], &levels].concat(),
    };
    let levels = (prefixed(repetition, most_repetition), prefixed(definition, most_definition));
    let header = Value::Struct((1..).zip([count, Value::I32(encoding), rle(), rle()]).collect());
    page(style, 5, header, (&levels.0, &levels.1), &values)
}

/// The chunk of some rows of a column.
fn chunk(style: Style, column: &Column, rows: &[Vec<Entry>], at: usize) -> (Vec<u8>, Value) {
    let entries: Vec<Entry> = rows.iter().flatten().cloned().collect();
    let mut dictionary: Vec<Vec<u8>> = Vec::new();
    for value in entries.iter().filter_map(|entry| entry.2.as_ref()) {
        if !dictionary.contains(value) {
            dictionary.push(value.clone());
        }
    }
    let mut out = Vec::new();
    if style.has_dictionary {
        let count = Value::I32(dictionary.len() as i32);
        let header = Value::Struct(vec![(1, count), (2, Value::I32(0))]);
        out.extend(page(style, 7, header, (&[], &[]), &dictionary.concat()));
    }
    let data_at = at + out.len();
    let mut rest = &entries[..];
    while !rest.is_empty() {
        let mut length = style.page_values.clamp(1, rest.len());
        // A page of the second version begins with a row.
        while style.is_second_version && rest.get(length).is_some_and(|entry| entry.0 > 0) {
            length += 1;
        }
        let (entries, behind) = rest.split_at(length);
        out.extend(data_page(style, column, entries, &dictionary));
        rest = behind;
    }
    let mut fields = vec![
        (1, Value::I32(column.stored_type)),
        (4, Value::I32(style.codec)),
        (5, Value::I64(entries.len() as i64)),
        (7, Value::I64(out.len() as i64)),
        (9, Value::I64(data_at as i64)),
    ];
    if style.has_dictionary {
        fields.push((11, Value::I64(at as i64)));
    }
    let chunk = Value::Struct(vec![(2, Value::I64(0)), (3, Value::Struct(fields))]);
    (out, chunk)
}

/// A file of these columns.
pub(super) fn file(style: Style, columns: Vec<Column>) -> Vec<u8> {
    let rows = columns.first().map_or(0, |column| column.rows.len());
    let mut out = b"PAR1".to_vec();
    let mut groups = Vec::new();
    for first in (0..rows).step_by(style.group_rows.max(1)) {
        let end = rows.min(first + style.group_rows.max(1));
        let mut chunks = Vec::new();
        for column in &columns {
            let (bytes, place) = chunk(style, column, &column.rows[first..end], out.len());
            out.extend(bytes);
            chunks.push(place);
        }
        let count = Value::I64((end - first) as i64);
        groups.push(Value::Struct(vec![(1, Value::List(chunks)), (2, Value::I64(0)), (3, count)]));
    }
    let mut schema = vec![element("schema", None, 0, columns.len() as i32, None)];
    schema.extend(columns.into_iter().flat_map(|column| column.elements));
    let footer_at = out.len();
    Value::Struct(vec![
        (1, Value::I32(2)),
        (2, Value::List(schema)),
        (3, Value::I64(rows as i64)),
        (4, Value::List(groups)),
    ])
    .write(&mut out);
    let length = (out.len() - footer_at) as u32;
    out.extend(length.to_le_bytes());
    out.extend(b"PAR1");
    out
}
