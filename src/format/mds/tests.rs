use super::*;
use crate::format::records::tests::{Files, all_files, array, opened, truncate_and_flip};
use crate::format::testing::open_as;
use crate::format::{Format, Names, View};
use proptest::collection::vec;
use proptest::prelude::*;

/// Columns with their encodings and sizes, and the stored values of each sample.
struct Model<'a> {
    columns: &'a [(&'a str, &'a str, Option<u64>)],
    samples: Vec<Vec<Vec<u8>>>,
}

impl Model<'_> {
    /// Writes the shard as `MDSWriter` does.
    fn write(&self) -> Vec<u8> {
        let names: Vec<_> = self.columns.iter().map(|(name, ..)| name).collect();
        let encodings: Vec<_> = self.columns.iter().map(|(_, encoding, _)| encoding).collect();
        let sizes: Vec<_> = self.columns.iter().map(|(.., size)| size).collect();
        let json = serde_json::json!({
            "column_encodings": encodings, "column_names": names, "column_sizes": sizes,
            "compression": null, "format": "mds", "hashes": [], "size_limit": 67_108_864, "version": 2,
        });
        let json = json.to_string().into_bytes();
        let sample = |values: &Vec<Vec<u8>>| {
            let varying = self.columns.iter().zip(values).filter(|((.., size), _)| size.is_none());
            let sizes: Vec<u8> =
                varying.flat_map(|(_, value)| (value.len() as u32).to_le_bytes()).collect();
            [sizes, values.concat()].concat()
        };
        let samples: Vec<Vec<u8>> = self.samples.iter().map(sample).collect();
        let mut at = (8 + 4 * samples.len() + json.len()) as u32;
        let mut out = (samples.len() as u32).to_le_bytes().to_vec();
        out.extend(at.to_le_bytes());
        for sample in &samples {
            at += sample.len() as u32;
            out.extend(at.to_le_bytes());
        }
        [out, json, samples.concat()].concat()
    }
}

fn open(file: &[u8], allow_damaged: bool) -> Result<Box<dyn Container>> {
    open_as(NAME, file, &OpenOptions { allow_damaged, ..OpenOptions::default() })
}

const COLUMNS: &[(&str, &str, Option<u64>)] = &[
    ("array", "ndarray", None),
    ("fixed", "ndarray:int16:2,2", Some(8)),
    ("image", "jpeg:90", None),
    ("label", "int", Some(8)),
    ("text", "str", None),
    ("weight", "float32", Some(4)),
];

fn sample(number: u8) -> Vec<Vec<u8>> {
    // uint16, two dimensions whose lengths take a byte: 1 × 3.
    let values = [[16, 2 << 2, 1, 3].to_vec(), vec![number; 6]].concat();
    vec![
        values,
        vec![number; 8],
        b"\xff\xd8\xff".to_vec(),
        u64::from(number).to_le_bytes().to_vec(),
        vec![b'a'; number.into()],
        1.5_f32.to_le_bytes().to_vec(),
    ]
}

fn small() -> Vec<u8> {
    Model { columns: COLUMNS, samples: (0..3).map(sample).collect() }.write()
}

#[test]
fn a_sample_is_a_directory_of_its_columns() {
    let file = small();
    let detected = Mds.detect(&crate::format::MemorySource::new("x", file.clone()));
    assert_eq!(detected.unwrap(), Detected::Yes);
    assert_eq!(open(&file, false).unwrap().names(0).unwrap(), Names::Fields(6));
    let files = opened(NAME, &file, &OpenOptions::default());
    assert_eq!(files.len(), 18);
    for (path, bytes) in [
        ("2/array.npy", array("<u2", &[1, 3], &[2; 6])),
        ("2/fixed.npy", array("<i2", &[2, 2], &[2; 8])),
        ("2/image.jpg", Some(b"\xff\xd8\xff".to_vec())),
        ("2/label.npy", array("<i8", &[], &2_u64.to_le_bytes())),
        ("2/text.txt", Some(b"aa".to_vec())),
        ("2/weight.npy", array("<f4", &[], &1.5_f32.to_le_bytes())),
    ] {
        assert_eq!(files[path], bytes, "{path}");
    }
    let raw = OpenOptions { view: View::Raw, ..OpenOptions::default() };
    assert_eq!(opened(NAME, &file, &raw)["1/array"], Some(sample(1)[0].clone()));
}

#[test]
fn a_value_that_is_no_array_of_its_type_is_damaged_and_the_others_are_served() {
    let mut samples: Vec<_> = (0..3).map(sample).collect();
    samples[1][0][2] = 7;
    let file = Model { columns: COLUMNS, samples }.write();
    let container = open(&file, false).unwrap();
    assert_eq!(container.warnings().len(), 1);
    let files = all_files(&file, container.as_ref());
    let bad: Vec<_> =
        files.iter().filter(|(_, bytes)| bytes.is_none()).map(|(p, _)| &**p).collect();
    assert_eq!(bad, ["1/array.npy"].map(|path| path.replace(".npy", ".bin")));
}

#[test]
fn a_sample_whose_sizes_are_wrong_is_damaged_and_the_others_are_served() {
    let mut file = small();
    let first = u32_at(&file, 4).unwrap() as usize;
    file[first] ^= 1;
    let files = all_files(&file, open(&file, false).unwrap().as_ref());
    assert_eq!(files.values().filter(|bytes| bytes.is_none()).count(), 6);
    assert!(files.iter().all(|(path, bytes)| bytes.is_none() == path.starts_with("0/")));
}

#[test]
fn a_sample_that_is_shorter_than_its_sizes_is_not_read_into_the_next_one() {
    use crate::format::scanned::Scanner as _;
    let mut file = small();
    let first = crate::format::bytes::u32_at(&file, 4).unwrap();
    file[8..12].copy_from_slice(&(first + 3).to_le_bytes());
    let mut scanner = super::scan::MdsScanner::new(&"x.mds".into(), &OpenOptions::default());
    let mut end = 0;
    while let Some((at, length)) = scanner.want() {
        assert!(at >= end, "it goes back from {end} to {at}");
        end = at + length;
        scanner.take(&file[at as usize..end as usize]).unwrap();
    }
    let container = open(&file, true).unwrap();
    let is_damaged = |sample| container.sample(sample).unwrap().damaged;
    assert!(is_damaged(0) && is_damaged(6) && !is_damaged(12));
}

#[test]
fn a_truncated_shard_is_refused_or_serves_what_is_before_its_end() {
    let file = small();
    let last = u32_at(&file, 12).unwrap() as usize;
    for length in last..file.len() {
        let error = open(&file[..length], false).err().unwrap().to_string();
        assert!(error.contains("truncated") && error.contains("at byte"), "{error}");
        let container = open(&file[..length], true).unwrap();
        let files = all_files(&file[..length], container.as_ref());
        assert_eq!(files.len(), 18, "{length}");
        assert!(files.iter().all(|(path, bytes)| path.starts_with("2/") || bytes.is_some()));
    }
    for (cut, byte) in [(4, 0), (10, 8), (40, 8)] {
        let error = open(&file[..cut], true).err().unwrap().to_string();
        assert!(error.contains(&format!("at byte {byte}")), "{error}");
    }
}

#[test]
fn small_lies_do_not_take_much_memory() {
    // A million empty samples of a thousand empty columns.
    let names: Vec<String> = (0..1000).map(|number| format!("c{number}")).collect();
    let columns: Vec<_> = names.iter().map(|name| (&**name, "bytes", Some(0))).collect();
    let file = Model { columns: &columns, samples: vec![vec![Vec::new(); 1000]; 3] }.write();
    let (json_at, samples_at) = json_range(&file).unwrap();
    let json = &file[json_at as usize..samples_at as usize];
    let count = 1_000_000_u32;
    let at = 8 + 4 * count + json.len() as u32;
    let offsets = at.to_le_bytes().repeat(count as usize + 1);
    let file = [&count.to_le_bytes()[..], &offsets, json].concat();
    let error = open(&file, true).err().unwrap().to_string();
    assert!(error.contains("as many bytes in the samples as they have values"), "{error}");
}

#[test]
fn names_that_are_long_beside_their_values_are_refused_with_their_length() {
    // More columns than are stored once for all samples, of names that are longer than the values.
    let names: Vec<String> = (0..300).map(|number| format!("{number:0400}")).collect();
    let columns: Vec<_> = names.iter().map(|name| (&**name, "uint8", Some(1))).collect();
    let file = Model { columns: &columns, samples: vec![vec![vec![7]; 300]; 200] }.write();
    let error = open(&file, true).err().unwrap().to_string();
    assert!(error.contains("at most 4 times as long as the samples"), "{error}");
    assert!(error.contains("300 columns whose names have 120000 bytes"), "{error}");
}

#[test]
fn a_list_of_very_many_columns_is_refused() {
    let count = (1 << 16) + 1;
    let columns: Vec<_> = (0..count).map(|_| ("", "bytes", Some(0))).collect();
    let file = Model { columns: &columns, samples: Vec::new() }.write();
    let error = open(&file, true).err().unwrap().to_string();
    assert!(error.contains("over 65536 columns"), "{error}");
}

#[test]
fn columns_of_very_long_json_are_refused() {
    use crate::format::scanned::Scanner as _;
    for (json_bytes, is_refused) in [(16 << 20, false), ((16 << 20) + 1, true)] {
        let head = [3_u32, 8 + 4 * 3 + json_bytes].map(u32::to_le_bytes).concat();
        let mut scanner = super::scan::MdsScanner::new(&"x.mds".into(), &OpenOptions::default());
        let said = scanner.take(&head).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(
            said.contains("the offset of the first behind all offsets"),
            is_refused,
            "{said}"
        );
    }
}

#[test]
fn a_compressed_copy_is_told_by_its_name() {
    for (name, shard) in [
        ("d/shard.00000.mds.zstd", Some("d/shard.00000.mds")),
        ("shard.00000.mds.gz", Some("shard.00000.mds")),
        ("d/shard.00000.mds", None),
        ("d/train.tar.gz", None),
        ("zstd", None),
    ] {
        assert_eq!(copied_shard(Path::new(name)), shard.map(PathBuf::from), "{name}");
    }
}

#[test]
fn an_encoding_that_is_not_known_is_shown_as_stored() {
    let columns = [("a", "pil", None), ("b", "of_my_own:3", None), ("c", "pkl", None)];
    let samples = vec![vec![b"1".to_vec(), b"2".to_vec(), b"3".to_vec()]];
    let file = Model { columns: &columns, samples }.write();
    let container = open(&file, false).unwrap();
    assert!(container.warnings()[0].contains("of_my_own:3"));
    let files = all_files(&file, container.as_ref());
    assert!(files.keys().eq(["0/a.bin", "0/b.bin", "0/c.bin"].iter()));
}

/// A shard of samples with pickles; `second` is the first pickle of the second sample.
fn pickles(second: &[u8]) -> Vec<u8> {
    let columns = [("a/b", "pkl", None), ("n", "int8", Some(1)), ("z", "pkl", None)];
    let first = b"\x80\x04C\x04\xff\xd8\xff\x01K\x07\x86.".to_vec();
    let coded = "\u{80}\u{2}c_codecs\nencode\nX\u{7}\0\0\0ÿØÿ\u{1}X\u{6}\0\0\0latin1\u{86}R.";
    // All characters but these three letters are ASCII, or opcodes of one byte.
    let coded: Vec<u8> = coded
        .chars()
        .flat_map(|c| match c {
            'ÿ' | 'Ø' => c.to_string().into_bytes(),
            c => vec![c as u8],
        })
        .collect();
    let samples = vec![
        vec![first.clone(), vec![1], coded.clone()],
        vec![second.to_vec(), vec![2], coded],
        vec![first, vec![3], Vec::new()],
    ];
    Model { columns: &columns, samples }.write()
}

#[test]
fn columns_of_pickles_are_the_files_that_they_hold_if_that_is_asked_for() {
    let options = OpenOptions { pickles: true, ..OpenOptions::default() };
    let number = |number: u8| array("|i1", &[], &[number]);
    for (second, shown) in [
        (&b"\x80\x04}\x8c\x03keyK\x05s."[..], ("1/a/b/key.txt", &b"5"[..])),
        (b"\x80\x04cos\nsystem\n.", ("1/a/b.bin", b"\x80\x04cos\nsystem\n.")),
    ] {
        let file = pickles(second);
        let jpeg = || Some(b"\xff\xd8\xff\x01".to_vec());
        let wanted: Files = [
            ("0/a/b/0.jpg", jpeg()),
            ("0/a/b/1.txt", Some(b"7".to_vec())),
            ("0/n.npy", number(1)),
            ("0/z.jpg", jpeg()),
            (shown.0, Some(shown.1.to_vec())),
            ("1/n.npy", number(2)),
            ("1/z.jpg", jpeg()),
            ("2/a/b/0.jpg", jpeg()),
            ("2/a/b/1.txt", Some(b"7".to_vec())),
            ("2/n.npy", number(3)),
            ("2/z.bin", Some(Vec::new())),
        ]
        .map(|(path, bytes)| (path.to_owned(), bytes))
        .into();
        assert_eq!(opened(NAME, &file, &options), wanted);
        let plain = opened(NAME, &file, &OpenOptions::default());
        assert_eq!((plain.len(), plain["1/a/b.bin"].as_deref()), (9, Some(second)));
    }
}

#[test]
fn every_truncation_and_flip_is_refused_or_right() {
    let columns = [("a", "ndarray", None), ("i", "int8", Some(1)), ("s", "str", None)];
    let samples = vec![
        vec![vec![8, 4, 2, 5, 6], vec![1], vec![]],
        vec![vec![8, 4, 1, 5], vec![2], vec![b'x']],
    ];
    truncate_and_flip(NAME, &Model { columns: &columns, samples }.write());
    let mut bad = pickles(b"\x80\x04N.");
    for bit in 0..bad.len() * 8 {
        bad[bit / 8] ^= 1 << (bit % 8);
        let options = OpenOptions { pickles: true, ..OpenOptions::default() };
        if let Ok(container) = open_as(NAME, &bad, &options) {
            all_files(&bad, container.as_ref());
        }
        bad[bit / 8] ^= 1 << (bit % 8);
    }
}

proptest! {
    #[test]
    fn any_samples_come_back(samples in vec((vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..9), any::<i64>()), 0..9)) {
        let columns = [("a", "bytes", None), ("n", "int64", Some(8)), ("v", "ndarray:uint8", None)];
        let mut expected = Files::new();
        let stored = samples.iter().enumerate().map(|(number, (bytes, array_bytes, integer))| {
            let length = array_bytes.len() as u64;
            expected.insert(format!("{number}/a.bin"), Some(bytes.clone()));
            expected.insert(format!("{number}/n.npy"), array("<i8", &[], &integer.to_le_bytes()));
            expected.insert(format!("{number}/v.npy"), array("|u1", &[length], array_bytes));
            let value = [&[1 << 2 | 1, length as u8, 0][..], array_bytes].concat();
            vec![bytes.clone(), integer.to_le_bytes().to_vec(), value]
        });
        let file = Model { columns: &columns, samples: stored.collect() }.write();
        prop_assert_eq!(opened(NAME, &file, &OpenOptions::default()), expected);
    }

    #[test]
    fn any_bytes_behind_the_columns_do_no_harm(noise in vec(any::<u8>(), 0..100), places in vec((4..16_usize, any::<u8>()), 0..3)) {
        let mut file = small();
        let at = u32_at(&file, 4).unwrap() as usize;
        file.truncate(at);
        file.extend(noise);
        for (place, value) in places {
            file[place] = value;
        }
        for container in [open(&file, false), open(&file, true)].into_iter().flatten() {
            all_files(&file, container.as_ref());
        }
    }
}

#[test]
fn tables_that_would_take_many_times_their_bytes_are_refused() {
    let said = |columns: &[(&str, &str, Option<u64>)]| {
        let file = Model { columns, samples: vec![vec![vec![7]]] }.write();
        open(&file, false).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&[(&"n".repeat(2000), "bytes", Some(1))]), "");
    let long = "n".repeat(2001);
    for column in [(&*long, "bytes", Some(1)), ("n", &*long, Some(1))] {
        let said = said(&[column]);
        assert!(said.contains("names and encodings of columns have up to 2000 bytes"), "{said}");
    }
    // Up to 2²⁶ samples are allowed, if the file has them; more are refused without a look.
    for (samples, is_too_many) in [(1_u32 << 26, false), ((1 << 26) + 1, true)] {
        let mut scanner = scan::MdsScanner::new(&"x.mds".into(), &OpenOptions::default());
        let first = 4 * (samples + 2) + 100;
        let head = [samples.to_le_bytes(), first.to_le_bytes()].concat();
        let taken = crate::format::scanned::Scanner::take(&mut scanner, &head);
        let said = taken.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said.contains("up to 2²⁶ samples"), is_too_many, "{said}");
    }
}

#[test]
fn an_array_of_more_dimensions_than_any_program_reads_is_stored_bytes() {
    for (dimensions, name) in [(64, "0/n.npy"), (65, "0/n.bin")] {
        let encoding = format!("ndarray:int8:{}", vec!["1"; dimensions].join(","));
        let columns = [("n", &*encoding, Some(1))];
        let file = Model { columns: &columns, samples: vec![vec![vec![7]]] }.write();
        let files = all_files(&file, open(&file, false).unwrap().as_ref());
        assert_eq!(files.keys().collect::<Vec<_>>(), [name]);
    }
}
