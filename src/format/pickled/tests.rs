//! Samples that are taken apart, those that stay one file, and pickles that lie.

use super::*;
use crate::format::MemorySource;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Shown = BTreeMap<String, Option<Vec<u8>>>;

/// A container of these samples.
fn container(samples: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0; 4];
    file.extend_from_slice(&(samples.len() as u64).to_le_bytes());
    let crcs = samples.iter().map(|sample| crc32fast::hash(sample));
    file.extend(crcs.flat_map(u32::to_le_bytes));
    let mut at = 12 + 12 * samples.len() as u64;
    for sample in samples {
        file.extend_from_slice(&at.to_le_bytes());
        at += sample.len() as u64;
    }
    file.extend(samples.concat());
    file
}

fn open(file: &[u8]) -> Box<dyn Container> {
    let options = OpenOptions { pickles: true, ..OpenOptions::default() };
    let source = Arc::new(MemorySource::new("t", file.to_vec()));
    let format = crate::format::recognize(source.as_ref(), &options).unwrap();
    format.open(source, &options).unwrap()
}

/// The bytes that a file shows, whose checksum must be right.
fn shown_of(file: &[u8], container: &dyn Container, index: u64) -> Option<Vec<u8>> {
    let sample = container.sample(index).unwrap();
    let stored = &file[sample.offset_bytes as usize..sample.end_bytes() as usize];
    let (checked, all) = match sample.content {
        Content::Encoded(size) => {
            let mut out = vec![0; size as usize];
            container.decode(index, stored, &mut out).unwrap();
            (out.clone(), out)
        }
        _ => (stored.to_vec(), [&container.prefix(index).unwrap(), stored].concat()),
    };
    assert_eq!(sample.checksum, Some(ChecksumKind::Crc32.of(&checked)));
    assert_eq!(all.len() as u64, sample.size_bytes());
    Some(all)
}

/// All files, by path.
fn shown(samples: &[Vec<u8>]) -> Shown {
    let file = container(samples);
    let container = open(&file);
    let container = container.as_ref();
    let mut all = Shown::new();
    let mut add = |path: String, index: u64| {
        let bytes = shown_of(&file, container, index);
        assert!(all.insert(path, bytes).is_none());
    };
    match container.names(container.len()).unwrap() {
        Names::None => (0..container.len()).for_each(|index| add(format!("{index}"), index)),
        Names::Fields(fields) => (0..container.len()).for_each(|index| {
            let name = String::from_utf8(container.field_name(index).unwrap()).unwrap();
            add(format!("{}/{name}", index / fields), index);
        }),
        _ => container
            .members(&mut |member| {
                if let crate::format::Node::Sample(index) = member.node {
                    add(String::from_utf8(member.path.to_vec()).unwrap(), index);
                }
                Ok(())
            })
            .unwrap(),
    }
    all
}

fn one(pickle: &[u8]) -> Shown {
    shown(&[pickle.to_vec()])
}

fn expected(files: &[(&str, &[u8])]) -> Shown {
    files.iter().map(|(path, bytes)| ((*path).to_owned(), Some(bytes.to_vec()))).collect()
}

#[track_caller]
fn stays_one(pickle: &[u8]) {
    assert_eq!(one(pickle), expected(&[("0", pickle)]));
}

/// `pickle.dumps((b"\xff\xd8\xff", 7, "text", 0.5, True, None), 4)`
const TUPLE: &[u8] = b"\x80\x04\x95\x1e\0\0\0\0\0\0\0(C\x03\xff\xd8\xff\x94K\x07\x8c\x04text\x94\
    G?\xe0\0\0\0\0\0\0\x88Nt\x94.";

#[test]
fn a_tuple_is_a_directory_of_its_values() {
    let files = [
        ("0/0.jpg", &b"\xff\xd8\xff"[..]),
        ("0/1.txt", b"7"),
        ("0/2.txt", b"text"),
        ("0/3.txt", b"0.5"),
        ("0/4.txt", b"True"),
    ];
    assert_eq!(one(TUPLE), expected(&files));
}

#[test]
fn a_dict_is_a_directory_of_its_keys_and_of_equal_ones_the_last_counts() {
    // {"a": 1, 2: [], "a": b"x"}, and nothing in a list.
    let pickle = b"\x80\x04}(\x8c\x01aK\x01K\x02]\x8c\x01aC\x01\x01u.";
    assert_eq!(one(pickle), expected(&[("0/a.bin", b"\x01")]));
}

/// An image as it is pickled, without the end of the pickle.
fn image(mode: &str, (width, height): (u8, u8), palette: &[u8], data: &[u8]) -> Vec<u8> {
    let mut pickle = b"cPIL.Image\nImage\n)\x81](}\x8c".to_vec();
    pickle.push(mode.len() as u8);
    pickle.extend_from_slice(mode.as_bytes());
    pickle.extend_from_slice(&[b'K', width, b'K', height, 0x86]);
    match palette {
        [] => pickle.push(b'N'),
        _ => {
            let numbers = palette.iter().flat_map(|number| [b'K', *number]);
            pickle.extend([b']', b'('].into_iter().chain(numbers).chain([b'e']));
        }
    }
    pickle.extend_from_slice(&[b'C', data.len() as u8]);
    pickle.extend_from_slice(data);
    pickle.extend_from_slice(b"eb");
    pickle
}

fn pickle_of(image: &[u8]) -> Vec<u8> {
    [b"\x80\x04", image, b"."].concat()
}

#[test]
fn images_with_a_palette_or_of_single_bits_are_tiff_around_their_bytes() {
    let palette = [9, 8, 7, 6, 5, 4];
    for mode in ["P", "L"] {
        let shown = one(&pickle_of(&image(mode, (3, 1), &palette, &[0, 1, 1])));
        let file = shown["0"].as_ref().unwrap();
        assert_eq!((&file[..4], file.len()), (&b"II*\0"[..], 8 + 2 + 10 * 12 + 4 + 768 * 2 + 3));
        let colours = &file[134..file.len() - 3];
        for (band, first) in [9, 8, 7].into_iter().enumerate() {
            assert_eq!(colours[band * 512..][..6], [first, first, first - 3, first - 3, 0, 0]);
        }
        assert_eq!(file[file.len() - 3..], [0, 1, 1]);
    }
    let bits = [0xff, 0xc0, 0, 0x40];
    let shown = one(&pickle_of(&image("1", (10, 2), &[], &bits)));
    let file = shown["0"].as_ref().unwrap();
    assert_eq!((&file[..4], &file[122..]), (&b"II*\0"[..], &bits[..]));
    let shown = one(&pickle_of(&image("PA", (1, 1), &palette, &[1, 255])));
    assert_eq!(shown["0"].as_ref().unwrap().len(), 8 + 2 + 11 * 12 + 4 + 768 * 2 + 2);
}

#[test]
fn an_image_of_a_file_is_its_pixels_whatever_else_its_format_keeps() {
    let plain = image("L", (2, 1), &[], &[7, 8]);
    let whole = one(&pickle_of(&plain))["0"].clone();
    let class = |name: &str| [&b"cPIL."[..], name.as_bytes(), b"\n)\x81](}"].concat();
    let start = plain.strip_prefix(b"cPIL.Image\nImage\n)\x81](}").unwrap();
    let start = start.strip_suffix(b"eb").unwrap();
    // A name; for a JPEG also the number of components, and the values of each.
    for (name, more) in [
        ("PngImagePlugin\nPngImageFile", &b"\x8c\0"[..]),
        ("JpegImagePlugin\nJpegImageFile", b"\x8c\0K\x01](K\x01K\x01K\x01K\0ta"),
    ] {
        let shown = one(&pickle_of(&[&class(name)[..], start, more, b"eb"].concat()));
        assert_eq!(shown["0"], whole, "{name}");
    }
}

#[test]
fn images_whose_sizes_or_palettes_lie_stay_one_file() {
    for (mode, size, palette, data) in [
        ("P", (3, 1), &[1, 2, 3][..], &[0, 1][..]),
        ("P", (2, 1), &[1, 2, 3, 4], &[0, 1]),
        ("1", (10, 2), &[], &[0; 3]),
        ("1", (8, 1), &[], &[0; 2]),
        ("X;7", (1, 1), &[], &[0]),
    ] {
        stays_one(&pickle_of(&image(mode, size, palette, data)));
    }
    let number = [&b"](M\0\x01K\0K\0e"[..], b"C\x01\0eb"].concat();
    let large = image("P", (1, 1), &[], &[0]);
    let start = large.strip_suffix(b"NC\x01\0eb").unwrap();
    stays_one(&pickle_of(&[start, &number].concat()));
    // An index would hold a palette for each image.
    let many = image("P", (1, 1), &[], &[0]).repeat(30);
    stays_one(&pickle_of(&[b"(", &many[..], b"t"].concat()));
}

#[test]
fn an_image_of_no_pixels_is_an_array_as_pnm_has_none() {
    for (mode, width, shape) in
        [("RGB", 3_u8, "(0, 3, 3)"), ("L", 0, "(0, 0)"), ("P", 3, "(0, 3)"), ("1", 9, "(0, 9)")]
    {
        let shown = one(&pickle_of(&image(mode, (width, 0), &[], &[])));
        let array = shown["0"].as_ref().unwrap();
        assert_eq!(array.len(), 128);
        assert!(String::from_utf8_lossy(array).contains(shape), "{mode}");
    }
}

#[test]
fn bytes_of_protocol_2_are_decoded() {
    // pickle.dumps((b"\xff\xd8\xff\x01",), 2)
    let pickle = [
        &b"\x80\x02c_codecs\nencode\nq\0X\x07\0\0\0"[..],
        "ÿØÿ\u{1}".as_bytes(),
        b"q\x01X\x06\0\0\0latin1q\x02\x86q\x03Rq\x04\x85q\x05.",
    ]
    .concat();
    assert_eq!(one(&pickle), expected(&[("0/0.jpg", b"\xff\xd8\xff\x01")]));
}

#[test]
fn samples_of_other_files_have_names_of_their_own() {
    let other = b"\x80\x04K\x05\x85.".to_vec();
    let plain = b"no pickle".to_vec();
    let shown = shown(&[TUPLE.to_vec(), other, plain]);
    assert_eq!(shown.len(), 7);
    assert_eq!(shown["1/0.txt"].as_deref(), Some(&b"5"[..]));
    assert_eq!(shown["2"].as_deref(), Some(&b"no pickle"[..]));
}

#[test]
fn what_is_not_known_stays_one_file_and_nothing_is_called() {
    for pickle in [
        &b""[..],
        b"\x80\x04N.",
        b"\x80\x04).",
        b"\x80\x04cos\nsystem\n(\x8c\x02lstR.",
        b"\x80\x04cbuiltins\neval\n.",
        b"\x80\x04ccollections\nOrderedDict\n.",
        b"\x80\x04K\x01.trailing",
        b"\x80\x04K\x01",
        b"\x80\x06K\x01.",
        b"(I1\nt.",
        // A list that holds itself.
        b"\x80\x04]q\0h\0a.",
        b"\x80\x04}(CK\x01K\x02u.",
    ] {
        stays_one(pickle);
    }
    let mut doubled = b"\x80\x04(]q\0".to_vec();
    for level in 0..14_u8 {
        doubled.extend_from_slice(&[b']', b'q', level + 1, b'(', b'h', level, b'h', level, b'e']);
    }
    doubled.extend_from_slice(b"t.");
    stays_one(&doubled);
    let deep = [&b"\x80\x04K\x01"[..], &b"\x85".repeat(100), b"."].concat();
    stays_one(&deep);
    let many = [&b"\x80\x04("[..], &b"K\x01".repeat(5000), b"t."].concat();
    stays_one(&many);
    let long = [&b"\x80\x04("[..], &b"N".repeat(400_000), b"t."].concat();
    stays_one(&long);
}

/// A storage of three bytes, as a file of PyTorch, with the opcodes `more` behind the description of the system.
fn storage(more: &[u8]) -> Vec<u8> {
    [
        &b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."[..],
        b"\x80\x02M\xe9\x03.",
        b"\x80\x02}X\x0d\0\0\0little_endian\x88s",
        more,
        b".",
        b"\x80\x02(X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\0kX\x03\0\0\0cpuK\x03NtQ.",
        b"\x80\x02]X\x01\0\0\0ka.",
        b"\x03\0\0\0\0\0\0\0abc",
    ]
    .concat()
}

/// A tensor of three bytes, with the opcodes `more` behind its usual arguments.
fn tensor(more: &[u8]) -> Vec<u8> {
    let file = storage(b"");
    let start = b"\x80\x04ctorch._utils\n_rebuild_tensor_v2\n(ctorch.storage\n_load_from_bytes\nB";
    let length = (file.len() as u32).to_le_bytes();
    let arguments = b"\x85RK\0K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)R";
    [start, &length[..], &file, arguments, more, b"tR."].concat()
}

#[test]
fn a_tensor_that_is_marked_as_conjugated_or_negative_stays_one_file() {
    let array = [&crate::format::npy::header("|u1", &[3])[..], b"abc"].concat();
    for plain in [&b""[..], b"N", b"}"] {
        assert_eq!(one(&tensor(plain)), expected(&[("0", &array)]));
    }
    for marks in [&b"}\x8c\x04conj\x88s"[..], b"}\x8c\x03neg\x88s", b"K\x01"] {
        stays_one(&tensor(marks));
    }
}

/// Opcodes that call `_load_from_bytes` with a pickle.
fn loaded(pickle: &[u8]) -> Vec<u8> {
    let length = (pickle.len() as u32).to_le_bytes();
    let load: &[u8] = b"\x80\x04ctorch.storage\n_load_from_bytes\nB";
    [load, &length, pickle, b"\x85R."].concat()
}

#[test]
fn a_small_pickle_cannot_make_work_or_memory_without_end() {
    let nested = (0..3000).fold(b"\x80\x04N.".to_vec(), |inner, _| loaded(&inner));
    stays_one(&nested);
    stays_one(&[&b"\x80\x04N"[..], &b"\x94".repeat(300_000), b"."].concat());
    // One list of pairs, of which dictionaries are made again and again.
    let pairs = [&b"\x80\x04]q\0("[..], &b"K\x01K\x02\x86".repeat(1000), b"e"].concat();
    let calls = [&b"ccollections\nOrderedDict\nq\x01("[..], &b"h\x01h\0\x85R".repeat(300)].concat();
    stays_one(&[&pairs[..], &calls, b"t."].concat());
    // The same bytes in many places; a long name of many files.
    let large = [&b"\x80\x04(B\0\0\x01\0"[..], &[7; 1 << 16], b"q\0"].concat();
    stays_one(&[&large[..], &b"h\0".repeat(4000), b"t."].concat());
    let key = [&b"\x80\x04}X\0\0\x01\0"[..], &[b'x'; 1 << 16], b"]("].concat();
    stays_one(&[&key[..], &b"K\x01".repeat(4000), b"es."].concat());
    // One long key of many entries of one dictionary.
    let key = [&b"\x80\x04}(X\0\0\x01\0"[..], &[b'x'; 1 << 16], b"q\0K\x01"].concat();
    stays_one(&[&key[..], &b"h\0K\x01".repeat(4000), b"u."].concat());
    // A persistent ID, which stands only in a storage.
    stays_one(
        b"\x80\x04(X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\0kX\x03\0\0\0cpuK\x01NtQ.",
    );
}

#[test]
fn what_storages_decode_counts_for_each_of_them_and_for_the_sample() {
    // A storage that makes bytes of one long text `count` times, as protocol 2 does.
    let decoding = |count: usize| {
        let text = [&b"X"[..], &(8 * count as u32).to_le_bytes(), &vec![b'x'; 8 * count], b"q\x01"];
        let start = [&b"X\x01\0\0\0x("[..], &text.concat(), b"c_codecs\nencode\nq\x02"].concat();
        let calls = b"h\x02h\x01X\x06\0\0\0latin1\x86R".repeat(count);
        storage(&[&start[..], &calls, b"ts"].concat())
    };
    let sample = |filler: usize, storage: &[u8], loads: usize| {
        let filler =
            [&b"\x80\x04(B"[..], &(filler as u32).to_le_bytes(), &vec![7; filler]].concat();
        let file = [&b"B"[..], &(storage.len() as u32).to_le_bytes(), storage, b"q\x01"].concat();
        let load =
            b"ctorch._utils\n_rebuild_tensor_v2\n(ctorch.storage\n_load_from_bytes\nh\x01\x85R";
        let tensor =
            [&load[..], b"K\0K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"].concat();
        [&filler[..], &file, &tensor.repeat(loads), b"t."].concat()
    };
    let is_directory = |storage: &[u8], loads| {
        let pickle = sample(4 << 20, storage, loads);
        one(&pickle).keys().any(|path| path.starts_with("0/"))
    };
    assert!(is_directory(&decoding(10), 1));
    assert!(is_directory(&decoding(300), 20));
    // 8 MB from 18 KB, too much for a storage but not for the whole sample; and 0.7 MB too often for the sample.
    assert!(!is_directory(&decoding(1000), 1));
    assert!(!is_directory(&decoding(300), 100));
}

#[test]
fn keys_that_are_written_alike_are_two_files() {
    // {1: b"abc", "1": b"def"}
    let pickle = b"\x80\x04}(K\x01C\x03abc\x8c\x011C\x03defu.".to_vec();
    assert_eq!(open(&container(&[pickle])).len(), 2);
}

#[test]
fn arrays_of_dates_stay_one_file() {
    // pickle.dumps(numpy.array(["2020-01-01"], "M8[D]"), 4)
    stays_one(
        b"\x80\x04\x95\xa1\x00\x00\x00\x00\x00\x00\x00\x8c\x16numpy._core.multiarray\x94\x8c\x0c_reconstru\
        ct\x94\x93\x94\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\
        \x01K\x01\x85\x94h\x03\x8c\x05dtype\x94\x93\x94\x8c\x02M8\x94\x89\x88\x87\x94R\x94(K\x04\x8c\x01\
        <\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00N(C\x01D\x94K\x01K\x01K\x01t\x94\x86\x94t\x94b\
        \x89C\x08VG\x00\x00\x00\x00\x00\x00\x94t\x94b.",
    );
}

#[test]
fn arrays_whose_sizes_lie_stay_one_file() {
    let array = |shape: u8, data: &[u8]| {
        let dtype = b"cnumpy\ndtype\n(\x8c\x02u1\x89\x88tR(K\x03\x8c\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb";
        let start = b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\x01btR(K\x01";
        let length = [data.len() as u8];
        [start, &[b'K', shape, 0x85][..], dtype, b"\x89C", &length, data, b"tb\x85."].concat()
    };
    let header = crate::format::npy::header("|u1", &[3]);
    let whole = [&header[..], b"abc"].concat();
    assert_eq!(one(&array(3, b"abc")), expected(&[("0/0.npy", &whole)]));
    stays_one(&array(4, b"abc"));
    stays_one(&array(2, b"abc"));
}

#[test]
fn a_sample_that_fails_its_checksum_stays_one_file_with_that_checksum() {
    let mut file = container(&[TUPLE.to_vec(), TUPLE.to_vec()]);
    let last = file.len() - 3;
    file[last] ^= 1;
    let container = open(&file);
    let sample = container.sample(container.len() - 1).unwrap();
    assert_eq!(sample.length_bytes, TUPLE.len() as u64);
    assert_eq!(sample.checksum.unwrap().value(), crc32fast::hash(TUPLE));
}

#[test]
fn an_index_is_kept_and_found_again() {
    let file = container(&[TUPLE.to_vec(), b"other".to_vec()]);
    let first = open(&file);
    let mut kept = Vec::new();
    first.keep(&mut kept).unwrap();
    let source =
        |bytes: &[u8]| -> Arc<dyn Source> { Arc::new(MemorySource::new("t", bytes.to_vec())) };
    let again = Pickled.open_kept(source(&file), source(&kept)).unwrap().unwrap();
    assert_eq!(again.len(), first.len());
    for index in 0..first.len() {
        assert_eq!(again.sample(index).unwrap(), first.sample(index).unwrap());
        assert_eq!(again.prefix(index).unwrap(), first.prefix(index).unwrap());
    }
}

#[test]
fn nothing_that_is_cut_or_flipped_panics() {
    for end in 0..TUPLE.len() {
        shown(&[TUPLE[..end].to_vec()]);
    }
    for bit in 0..TUPLE.len() * 8 {
        let mut bad = TUPLE.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        shown(&[bad]);
    }
}

proptest! {
    #[test]
    fn any_tuple_is_shown_as_the_model_has_it(
        values in vec((vec(any::<u8>(), 0..90), any::<i32>(), "[a-z]{0,9}"), 1..9),
    ) {
        let mut samples = Vec::new();
        let mut model = Shown::new();
        for (number, (bytes, int, text)) in values.into_iter().enumerate() {
            let jpeg = [b"\xff\xd8\xff", &bytes[..]].concat();
            let mut pickle = b"\x80\x03B".to_vec();
            pickle.extend_from_slice(&(jpeg.len() as u32).to_le_bytes());
            pickle.extend_from_slice(&jpeg);
            pickle.push(b'J');
            pickle.extend_from_slice(&int.to_le_bytes());
            pickle.extend_from_slice(&[0x8c, text.len() as u8]);
            pickle.extend_from_slice(text.as_bytes());
            pickle.extend_from_slice(b"\x87.");
            samples.push(pickle);
            model.insert(format!("{number}/0.jpg"), Some(jpeg));
            model.insert(format!("{number}/1.txt"), Some(int.to_string().into_bytes()));
            model.insert(format!("{number}/2.txt"), Some(text.into_bytes()));
        }
        prop_assert_eq!(shown(&samples), model);
    }

    #[test]
    fn any_opcodes_stay_one_file_or_can_be_looked_at(
        rest in vec(prop_oneof![
            Just(b'('), Just(b'N'), Just(b']'), Just(b'}'), Just(b')'), Just(b't'), Just(b'e'), Just(b'a'),
            Just(b'u'), Just(b's'), Just(0x85), Just(0x86), Just(0x94), Just(b'R'), Just(b'b'), Just(b'h'),
            Just(b'K'), Just(b'C'), Just(0x8c), Just(b'.'), any::<u8>(),
        ], 0..40),
    ) {
        shown(&[[&b"\x80\x04"[..], &rest, b"."].concat()]);
    }
}
