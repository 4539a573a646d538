use super::*;
use crate::format::ffrecord::FfRecord;
use crate::format::testing::{compare, files, look_at, open_as, open_fixture, truncate_and_flip};
use crate::format::{Error, MemorySource};
use proptest::prelude::*;

const PAGE: usize = 64;
const ROW: usize = ROW_BYTES as usize;

/// The value of a field in one sample. All samples' values of a field are of one kind.
#[derive(Debug, Clone)]
enum Stored {
    Float(f64),
    Int(i64),
    Picture {
        mode: u8,
        width: u16,
        height: u16,
        bytes: Vec<u8>,
    },
    Bytes(Vec<u8>),
    Json(String),
    /// An array of type `<i2`.
    Array {
        shape: Vec<u64>,
        bytes: Vec<u8>,
    },
}

impl Stored {
    fn code(&self) -> u8 {
        match self {
            Stored::Float(_) => 0,
            Stored::Int(_) => 1,
            Stored::Picture { .. } => 2,
            Stored::Bytes(_) => 3,
            Stored::Array { .. } => 4,
            Stored::Json(_) => 5,
        }
    }

    fn arguments(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Stored::Array { shape, .. } = self {
            let json = br#"[["", "<i2"]]"#;
            shape.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
            bytes.resize(256, 0);
            bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
            bytes.extend_from_slice(json);
        }
        bytes.resize(1024, 0);
        bytes
    }

    fn paged(&self) -> Option<Vec<u8>> {
        match self {
            Stored::Float(_) | Stored::Int(_) => None,
            Stored::Picture { bytes, .. } | Stored::Bytes(bytes) => Some(bytes.clone()),
            Stored::Array { bytes, .. } => Some(bytes.clone()),
            Stored::Json(text) => Some([text.as_bytes(), b"\0"].concat()),
        }
    }

    /// The alignment and the bytes of the value in a metadata record.
    fn metadata(&self, ptr: u64) -> (usize, Vec<u8>) {
        let ptr_bytes = ptr.to_le_bytes();
        match self {
            Stored::Float(value) => (8, value.to_le_bytes().to_vec()),
            Stored::Int(value) => (8, value.to_le_bytes().to_vec()),
            Stored::Picture { mode, width, height, .. } => (
                1,
                [&[*mode][..], &width.to_le_bytes(), &height.to_le_bytes(), &ptr_bytes].concat(),
            ),
            Stored::Array { .. } => (8, ptr_bytes.to_vec()),
            Stored::Bytes(_) | Stored::Json(_) => {
                let size = self.paged().unwrap().len() as u64;
                (1, [ptr_bytes, size.to_le_bytes()].concat())
            }
        }
    }

    /// The end of the file's name, behind the field's name, and the bytes that the file shows.
    fn file(&self) -> (&'static str, Vec<u8>) {
        match self {
            Stored::Float(value) => {
                (".npy", [npy::header("<f8", &[]), value.to_le_bytes().to_vec()].concat())
            }
            Stored::Int(value) => {
                (".npy", [npy::header("<i8", &[]), value.to_le_bytes().to_vec()].concat())
            }
            Stored::Picture { mode: 0, bytes, .. } => (".jpg", bytes.clone()),
            Stored::Picture { width, height, bytes, .. } => {
                let head = format!("P6\n{width} {height}\n255\n");
                (".ppm", [head.as_bytes(), bytes].concat())
            }
            Stored::Bytes(bytes) => (".bin", bytes.clone()),
            Stored::Json(text) => (".json", text.clone().into_bytes()),
            Stored::Array { shape, bytes } => {
                (".npy", [npy::header("<i2", shape), bytes.clone()].concat())
            }
        }
    }
}

type Model = Vec<Vec<Stored>>;

/// Pages, each of one worker, as the package's allocator gives them out.
struct Pages {
    start: usize,
    data: Vec<u8>,
    /// A worker's place in its page, and its rows.
    workers: Vec<(Option<usize>, Vec<u8>)>,
}

impl Pages {
    fn allocate(&mut self, sample: u64, bytes: &[u8]) -> u64 {
        let workers = self.workers.len() as u64;
        let (place, rows) = &mut self.workers[(sample % workers) as usize];
        let full = place.is_none_or(|at| at.div_ceil(PAGE).max(1) * PAGE < at + bytes.len());
        let at = match *place {
            Some(at) if !full => at,
            // An empty value without an allocation lies before the data.
            None if bytes.is_empty() => 0,
            _ => {
                let at = self.data.len();
                self.data.resize(at + PAGE, 0);
                at
            }
        };
        let ptr =
            if place.is_none() && bytes.is_empty() { self.start - PAGE } else { self.start + at };
        if !bytes.is_empty() || place.is_some() {
            self.data[at..at + bytes.len()].copy_from_slice(bytes);
            *place = Some(at + bytes.len());
        }
        for number in [sample, ptr as u64, bytes.len() as u64] {
            rows.extend_from_slice(&number.to_le_bytes());
        }
        ptr as u64
    }
}

/// A whole file. `kinds` has a value of each field, as there may be no sample.
fn write(kinds: &[Stored], model: &Model, workers: usize) -> Vec<u8> {
    let stride = {
        let (mut end, mut widest) = (0usize, 1);
        for kind in kinds {
            let (alignment, bytes) = kind.metadata(0);
            end = end.next_multiple_of(alignment) + bytes.len();
            widest = widest.max(alignment);
        }
        end.next_multiple_of(widest)
    };
    let metadata_end = 24 + kinds.len() * 1041 + model.len() * stride;
    let start = metadata_end.next_multiple_of(PAGE);
    let mut pages = Pages { start, data: Vec::new(), workers: vec![(None, Vec::new()); workers] };
    let mut records = Vec::new();
    for (sample, values) in model.iter().enumerate() {
        let begin = records.len();
        for value in values {
            let ptr = value.paged().map_or(0, |bytes| pages.allocate(sample as u64, &bytes));
            let (alignment, bytes) = value.metadata(ptr);
            let inside = records.len() - begin;
            records.resize(begin + inside.next_multiple_of(alignment), 0);
            records.extend_from_slice(&bytes);
        }
        records.resize(begin + stride, 0);
    }
    let table_at = if pages.data.is_empty() { metadata_end } else { start + pages.data.len() };
    let mut file = Vec::new();
    file.extend_from_slice(&2u16.to_le_bytes());
    file.extend_from_slice(&(kinds.len() as u16).to_le_bytes());
    file.extend_from_slice(&(PAGE as u32).to_le_bytes());
    file.extend_from_slice(&(model.len() as u64).to_le_bytes());
    file.extend_from_slice(&(table_at as u64).to_le_bytes());
    for (number, kind) in kinds.iter().enumerate() {
        file.push(kind.code());
        let mut name = format!("f{number}").into_bytes();
        name.resize(16, 0);
        file.extend_from_slice(&name);
        file.extend_from_slice(&kind.arguments());
    }
    file.extend_from_slice(&records);
    file.resize(table_at - pages.data.len(), 0);
    file.extend_from_slice(&pages.data);
    pages.workers.iter().for_each(|(_, rows)| file.extend_from_slice(rows));
    file
}

fn picture(mode: u8, width: u16, height: u16, bytes: &[u8]) -> Stored {
    Stored::Picture { mode, width, height, bytes: bytes.to_vec() }
}

fn small() -> Model {
    let sample = |number: u8| {
        vec![
            picture(number % 2, 2, 1, &[number; 6]),
            Stored::Int(number.into()),
            Stored::Json(format!("[{number}]")),
            Stored::Array { shape: vec![2, 3], bytes: vec![number; 12] },
        ]
    };
    (0..3).map(sample).collect()
}

fn small_file() -> Vec<u8> {
    write(&small()[0], &small(), 1)
}

fn open(file: &[u8]) -> Result<Box<dyn Container>> {
    open_as(NAME, file, &OpenOptions::default())
}

fn refusal(file: &[u8]) -> String {
    open(file).err().expect("refused").to_string()
}

fn with(view: View) -> OpenOptions {
    OpenOptions { view, ..OpenOptions::default() }
}

/// The offset of a field's metadata in `small`; `at` is 0, 16, 24 or 40 of a sample's 48 bytes.
fn metadata_at(sample: usize, at: usize) -> usize {
    24 + 4 * 1041 + sample * 48 + at
}

#[test]
fn every_fixture_is_shown_as_the_reference_package_has_it() {
    for name in ["jpg.beton", "raw.beton", "proportion.beton"] {
        compare(name);
    }
}

#[test]
fn the_raw_view_shows_the_stored_bytes_under_the_bare_field() {
    let (file, raw) = open_fixture("proportion.beton", &with(View::Raw));
    let (_, typed) = open_fixture("proportion.beton", &OpenOptions::default());
    let (raw, typed) = (raw.unwrap(), typed.unwrap());
    assert_eq!(raw.len(), typed.len());
    let typed = files(&file, typed.as_ref());
    let mut sum = 0;
    for (path, bytes) in files(&file, raw.as_ref()) {
        let stored = bytes.unwrap();
        sum += stored.len() as u64;
        let (shown, bytes) = typed
            .range(format!("{path}.")..)
            .next()
            .map(|(n, b)| (n, b.as_ref().unwrap()))
            .unwrap();
        match shown.rsplit('.').next().unwrap() {
            "json" => assert_eq!([bytes.as_slice(), b"\0"].concat(), stored),
            "npy" | "ppm" => assert!(bytes.ends_with(&stored) && bytes.len() > stored.len()),
            _ => assert_eq!(bytes, &stored),
        }
    }
    assert_eq!(raw.data_bytes(), sum);
}

#[test]
fn the_npy_view_shows_raw_images_as_arrays() {
    let (file, npy) = open_fixture("raw.beton", &with(View::Npy));
    let (_, typed) = open_fixture("raw.beton", &OpenOptions::default());
    let npy = npy.unwrap();
    let (npy_files, typed) = (files(&file, npy.as_ref()), files(&file, typed.unwrap().as_ref()));
    let image = npy_files["000000/image.npy"].as_deref().unwrap();
    let shape = b"{'descr': '|u1', 'fortran_order': False, 'shape': (";
    assert_eq!(&image[10..10 + shape.len()], shape);
    assert_eq!(image[128..], typed["000000/image.ppm"].as_deref().unwrap()[13..]);
    let sum: usize = npy_files.values().map(|bytes| bytes.as_ref().unwrap().len()).sum();
    assert_eq!(npy.data_bytes(), sum as u64);
}

#[test]
fn a_dataset_of_numbers_only_has_an_empty_table() {
    let model: Model = (0..5).map(|n| vec![Stored::Int(n), Stored::Float(0.5)]).collect();
    let file = write(&model[0], &model, 1);
    let container = open(&file).unwrap();
    assert_eq!((container.len(), container.data_bytes()), (10, 10 * 136));
    assert_eq!(files(&file, container.as_ref())["000003/f0.npy"], Some(model[3][0].file().1));
    let none = write(&model[0], &Vec::new(), 1);
    assert!(open(&none).unwrap().is_empty());
}

#[test]
fn an_ffrecord_a_zip_and_a_tar_are_never_taken_for_ffcv() {
    // An FFRecord whose checksum reads as version 2 and one field, with a power of two of samples, and
    // whose next checksums read as a description.
    let mut record = vec![0; 12 + 12 * 4096];
    record[0] = 2;
    record[2] = 1;
    record[4..12].copy_from_slice(&4096u64.to_le_bytes());
    record[24..31].copy_from_slice(b"\x02image\0");
    for at in (12 + 4 * 4096..record.len()).step_by(8) {
        record[at..at + 8].copy_from_slice(&(12u64 + 12 * 4096).to_le_bytes());
    }
    let source = MemorySource::new("t", record.clone());
    assert_eq!(FfRecord.detect(&source).unwrap(), Detected::Yes);
    assert!(Ffcv.detect(&source).unwrap() < Detected::Yes);
    let opened = crate::format::open(Arc::new(source), &OpenOptions::default());
    assert!(matches!(opened, Err(Error::Checksum { .. })));
    let mut tar = vec![0; 2048];
    tar[..8].copy_from_slice(b"\x02\0\x01\0x.j\0");
    for other in [tar, [b"PK\x03\x04", &[0; 2000][..]].concat(), vec![0; 2000], vec![2; 2000]] {
        assert_eq!(Ffcv.detect(&MemorySource::new("t", other)).unwrap(), Detected::No);
    }
}

#[test]
fn a_header_that_cannot_be_is_refused_at_its_byte() {
    let file = small_file();
    let cases: &[(usize, &[u8], &str)] = &[
        (0, &[1, 0], "byte 0: expected version 2, found version 1"),
        (2, &[0, 0], "byte 2"),
        (2, &[0xff, 0xff], "byte 2"),
        (4, &[65, 0, 0, 0], "byte 4"),
        (8, &[0xff; 8], "byte 8"),
        (8, &[1, 0, 0, 0, 0, 0, 0, 1], "byte 8"),
        (16, &[0; 8], "the writer died"),
        (16, &[9, 0, 0, 0, 0, 0, 0, 0], "byte 16"),
        (16, &[0xff; 8], "the file is truncated"),
    ];
    for (at, bytes, says) in cases {
        let mut bad = file.clone();
        bad[*at..at + bytes.len()].copy_from_slice(bytes);
        let message = refusal(&bad);
        assert!(message.contains(says), "{says:?} is not in: {message}");
    }
    assert!(refusal(&file[..file.len() - 1]).contains("rows of 24 bytes"));
    assert!(refusal(&file[..20]).contains("header of 24 bytes"));
}

#[test]
fn custom_and_unknown_fields_are_refused_by_name() {
    for (code, says) in [(255, "type 255 (custom) of \"f1\""), (7, "type 7 of \"f1\"")] {
        let mut file = small_file();
        file[24 + 1041] = code;
        let message = refusal(&file);
        assert!(message.contains(says) && message.contains("byte 1065"), "{message}");
    }
    let mut file = small_file();
    file[24 + 3 * 1041 + 17 + 256] = 200;
    assert!(refusal(&file).contains("other arguments of \"f3\""));
}

#[test]
fn one_wrong_value_is_damaged_and_all_others_are_shown() {
    let good = small_file();
    let model = small();
    let changes: &[(usize, &[u8], usize, &str)] = &[
        (metadata_at(1, 0), &[7], 4, "f0.bin"),
        (metadata_at(1, 1), &[3], 4, "f0.ppm"),
        (metadata_at(1, 5), &[0xff; 8], 4, "f0.ppm"),
        (metadata_at(0, 5), &[0; 8], 0, "f0.jpg"),
        (metadata_at(1, 24 + 8), &[200], 6, "f2.json"),
        (metadata_at(1, 24 + 8), &[0xff; 8], 6, "f2.json"),
        (metadata_at(2, 40), &[1; 8], 11, "f3.npy"),
    ];
    for (at, bytes, index, name) in changes {
        let mut bad = good.clone();
        bad[*at..at + bytes.len()].copy_from_slice(bytes);
        let container = open(&bad).unwrap();
        look_at(&bad, container.as_ref());
        for other in 0..12 {
            let sample = container.sample(other as u64).unwrap();
            assert_eq!(sample.damaged, other == *index, "{name}: {other}");
        }
        assert_eq!(container.field_name(*index as u64).unwrap(), name.as_bytes());
    }
    // Rows that reach out of their page, or out of the pages.
    for (ptr, size) in [(None, 65u64), (Some(0u64), 12), (Some(1 << 62), 12)] {
        let mut bad = good.clone();
        let row = bad.len() - ROW;
        bad[row + 16..].copy_from_slice(&size.to_le_bytes());
        if let Some(ptr) = ptr {
            bad[row + 8..row + 16].copy_from_slice(&ptr.to_le_bytes());
            let at = metadata_at(2, 40);
            bad[at..at + 8].copy_from_slice(&ptr.to_le_bytes());
        }
        let container = open(&bad).unwrap();
        assert!(container.sample(11).unwrap().damaged);
        assert_eq!(files(&bad, container.as_ref())["000002/f1.npy"], Some(model[2][1].file().1));
    }
}

#[test]
fn fields_of_one_name_and_names_that_are_none_are_told_apart() {
    let mut file = small_file();
    for (number, name) in [&b"a/b"[..], b"", b"x", b"a/b"].iter().enumerate() {
        let at = 24 + number * 1041 + 1;
        file[at..at + 16].fill(0);
        file[at..at + name.len()].copy_from_slice(name);
    }
    let container = open_as(NAME, &file, &with(View::Raw)).unwrap();
    look_at(&file, container.as_ref());
    let names: Vec<_> = (0..4)
        .map(|index| String::from_utf8(container.field_name(index).unwrap()).unwrap())
        .collect();
    assert_eq!(names, ["a%2Fb", "%", "x", "a%2Fb (1)"]);
}

#[test]
fn a_name_may_fill_all_its_bytes() {
    let mut file = small_file();
    file[25..41].copy_from_slice(b"sixteen_letters_");
    assert_eq!(open(&file).unwrap().field_name(0).unwrap(), b"sixteen_letters_.jpg");
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused_or_shown_without_a_panic() {
    let model: Model = vec![
        vec![picture(1, 2, 1, &[9; 6]), Stored::Json("[1]".into()), Stored::Bytes(Vec::new())],
        vec![picture(0, 2, 1, &[8; 9]), Stored::Json("{}".into()), Stored::Bytes(vec![5; 20])],
    ];
    let file = write(&model[0], &model, 2);
    look_at(&file, open(&file).unwrap().as_ref());
    truncate_and_flip(NAME, &file, &OpenOptions::default());
}

#[test]
fn every_truncation_is_refused_or_has_lost_whole_rows_only() {
    let file = small_file();
    for length in 0..file.len() {
        let Ok(container) = open(&file[..length]) else { continue };
        assert!((file.len() - length).is_multiple_of(ROW));
        assert!((0..container.len()).any(|index| container.sample(index).unwrap().damaged));
    }
    assert!(open(&file[..file.len() - ROW]).is_ok());
}

fn value(kind: u8) -> BoxedStrategy<Stored> {
    let bytes = |range| proptest::collection::vec(any::<u8>(), range);
    match kind {
        0 => any::<f64>().prop_map(Stored::Float).boxed(),
        1 => any::<i64>().prop_map(Stored::Int).boxed(),
        2 => (0u16..4, 0u16..5)
            .prop_flat_map(move |(width, height)| {
                let raw = bytes(usize::from(width * height * 3)..=usize::from(width * height * 3));
                prop_oneof![
                    raw.prop_map(move |bytes| picture(1, width, height, &bytes)),
                    bytes(1..=64).prop_map(move |bytes| picture(0, width, height, &bytes)),
                ]
            })
            .boxed(),
        3 => bytes(0..=64).prop_map(Stored::Bytes).boxed(),
        4 => bytes(24..=24).prop_map(|bytes| Stored::Array { shape: vec![4, 1, 3], bytes }).boxed(),
        _ => "[ -~]{0,63}".prop_map(Stored::Json).boxed(),
    }
}

fn models() -> impl Strategy<Value = (Vec<Stored>, Model)> {
    proptest::collection::vec(0u8..6, 1..6).prop_flat_map(|kinds| {
        let record: Vec<_> = kinds.into_iter().map(value).collect();
        (record.clone(), proptest::collection::vec(record, 0..12))
    })
}

proptest! {
    #[test]
    fn any_samples_come_back_as_they_were_written((kinds, model) in models(), workers in 1usize..4) {
        let file = write(&kinds, &model, workers);
        let container = open(&file).unwrap();
        let files = files(&file, container.as_ref());
        prop_assert_eq!(files.len(), kinds.len() * model.len());
        let mut sum = 0;
        for (sample, values) in model.iter().enumerate() {
            for (field, value) in values.iter().enumerate() {
                let (ending, expected) = value.file();
                sum += expected.len() as u64;
                let path = format!("{sample:06}/f{field}{ending}");
                prop_assert_eq!(files.get(&path), Some(&Some(expected)), "{}", path);
            }
        }
        prop_assert_eq!(container.data_bytes(), sum);
    }

    #[test]
    fn any_changed_bytes_are_opened_or_refused_without_a_panic(
        (kinds, model) in models(),
        places in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut file = write(&kinds, &model, 2);
        for (place, byte) in places {
            // The fields' descriptions stay, as they have unused arguments: header, metadata, pages and table are changed.
            let behind = file.len() - 24 - kinds.len() * 1041;
            let at = place.index(24 + behind);
            let at = if at < 24 { at } else { at + kinds.len() * 1041 };
            file[at] = byte;
        }
        for view in [View::Typed, View::Raw, View::Npy] {
            for file in [&file[..], &file[..cut.index(file.len())]] {
                if let Ok(container) = open_as(NAME, file, &with(view)) {
                    look_at(file, container.as_ref());
                }
            }
        }
    }
}
