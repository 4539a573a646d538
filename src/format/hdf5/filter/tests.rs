//! Filters against bytes that libraries wrote, and one filter behind another.

use super::*;

#[test]
fn lz4_is_decoded_in_blocks_that_may_be_as_they_are() {
    let plain: Vec<u8> = (0..100).map(|i| i / 20).collect();
    let mut stored = [&100_u64.to_be_bytes()[..], &40_u32.to_be_bytes()].concat();
    for (block, is_plain) in plain.chunks(40).zip([false, true, false]) {
        let block = if is_plain { block.to_vec() } else { lz4_flex::block::compress(block) };
        stored.extend((block.len() as u32).to_be_bytes());
        stored.extend(block);
    }
    let filters = [Filter { id: LZ4, values: [0].into() }];
    assert_eq!(decode(&filters, 0, &stored, 100).unwrap().as_ref(), plain);
    for bad in [&stored[..stored.len() - 1], &stored[..10], &[]] {
        assert!(decode(&filters, 0, bad, 100).is_err());
    }
    assert!(decode(&filters, 0, &stored, 99).is_err());
}

#[test]
fn fletcher32_is_that_of_the_library() {
    // From a file that h5py wrote: arange(6) as <i2.
    let bytes: Vec<u8> = (0..6_i16).flat_map(i16::to_le_bytes).collect();
    assert_eq!(fletcher32(&bytes), 0x2300_0f00);
    assert_eq!(fletcher32(b"ab"), 0x6162_6162);
}

#[test]
fn what_is_decoded_to_its_place_is_what_is_decoded() {
    let filter = |id| Filter { id, values: [2].into() };
    let lists = [vec![LZF], vec![SHUFFLE, LZF], vec![LZF, FLETCHER32], vec![LZF, LZF], vec![]];
    for (ids, mask) in lists.iter().flat_map(|ids| (0..4).map(move |mask| (ids, mask))) {
        let filters: Vec<_> = ids.iter().copied().map(filter).collect();
        for stored in [&b"\x02abc\xa0\x02"[..], b"abcdefghij", b"abc", b""] {
            let mut out = [0; 10];
            let decoded = decode(&filters, mask, stored, 10);
            let to = decode_to(&filters, mask, stored, &mut out);
            assert_eq!(to.is_ok(), decoded.is_ok(), "{ids:?} {mask} {stored:?}");
            assert!(decoded.is_err() || decoded.unwrap().as_ref() == out);
        }
    }
}

#[test]
fn bzip2_is_decoded() {
    // `bz2.compress(bytes(range(30)) + b"0" * 270)`
    let stored =
        b"\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\xc0\xbf\x17\x59\x00\x00\x00\x68\x00\xff\
        \xff\xff\xfe\x40\x00\x00\x08\x20\x00\x22\x20\x02\x30\x8c\x08\xc2\x7a\x86\x30\x00\
        \x4c\x00\x04\xce\x4a\x63\xa1\x2a\x5b\x1b\xc7\xce\x73\xe1\x1e\xbb\x94\xe9\x5b\x5f\
        \xcf\x71\x9d\x6e\x64\x11\x30\x07\xe2\xee\x48\xa7\x0a\x12\x18\x17\xe2\xeb\x20";
    let expected = [(0..30).collect(), vec![b'0'; 270]].concat();
    let bzip2 = Filter { id: BZIP2, values: [9].into() };
    assert_eq!(bzip2.missing(), None);
    for filters in [vec![bzip2.clone()], vec![Filter { id: LZF, values: [0].into() }, bzip2]] {
        let mask = u32::from(filters.len() > 1);
        assert_eq!(decode(&filters, mask, stored, 300).unwrap().as_ref(), expected);
        assert!(decode(&filters, mask, &stored[..stored.len() / 2], 300).is_err());
    }
}

#[test]
fn a_shuffle_without_a_size_is_only_left_out() {
    let filters = [2, 0].map(|value| Filter { id: SHUFFLE, values: [value].into() });
    assert!(!filters.iter().any(|filter| filter.is_of_others(2)));
    assert!(filters[0].is_of_others(4));
    assert_eq!(decode(&filters, 2, b"acbd", 4).unwrap().as_ref(), b"abcd");
    let said = decode(&filters, 0, b"acbd", 4).unwrap_err().to_string();
    assert!(said.contains("sorted by no size"), "{said}");
}

#[test]
fn what_was_compressed_twice_is_decoded_within_the_bounds_of_a_chunk() {
    let elements: Vec<u8> = (0..90_000_u32).flat_map(|i| ((i / 7) as u16).to_le_bytes()).collect();
    let zlib = |bytes: &[u8]| miniz_oxide::deflate::compress_to_vec_zlib(bytes, 1);
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let filters = |ids: &[u16]| {
        ids.iter().map(|id| Filter { id: *id, values: [2].into() }).collect::<Vec<_>>()
    };
    for (ids, stored) in [
        (&[DEFLATE, DEFLATE][..], zlib(&zlib(&elements))),
        (&[DEFLATE, ZSTD], zstd(&zlib(&elements))),
        (&[ZSTD, DEFLATE, DEFLATE], zlib(&zlib(&zstd(&elements)))),
    ] {
        let decoded = decode(&filters(ids), 0, &stored, elements.len()).unwrap();
        assert!(decoded.as_ref() == elements, "{ids:?}");
        assert!(decode(&filters(ids), 0, &stored[..stored.len() / 2], elements.len()).is_err());
    }
    // LZF literals that are themselves LZF of "abcabcabca".
    let once = b"\x02abc\xa0\x02";
    let twice = [&[once.len() as u8 - 1][..], once].concat();
    assert_eq!(decode(&filters(&[LZF, LZF]), 0, &twice, 10).unwrap().as_ref(), b"abcabcabca");
    // A bomb: the bytes between two filters are longer than any that a filter makes of a chunk.
    for bomb in [zlib(&vec![0; 1 << 20]), zstd(&vec![0; 1 << 20])] {
        let id = if bomb.first() == Some(&0x78) { DEFLATE } else { ZSTD };
        let said = decode(&filters(&[DEFLATE, id]), 0, &bomb, 10).unwrap_err().to_string();
        assert!(said.contains("over 65556 bytes in between"), "{said}");
    }
}

#[test]
fn a_wrong_checksum_is_said() {
    let filters = [Filter { id: FLETCHER32, values: [].into() }];
    let good = [&b"ab"[..], &0x6162_6162_u32.to_le_bytes()].concat();
    assert_eq!(decode(&filters, 0, &good, 2).unwrap().as_ref(), b"ab");
    assert_eq!(decode(&filters, 1, b"ab", 2).unwrap().as_ref(), b"ab");
    let said = decode(&filters, 0, b"ac\0\0\0\0", 2).unwrap_err();
    assert!(said.to_string().contains("fletcher32: checksum mismatch"), "{said}");
}

#[test]
fn a_filter_that_takes_no_bits_away_changes_nothing_behind_any_other() {
    let nbit = Filter { id: NBIT, values: [8, 1, 4, 1, 2, 0, 16, 0].into() };
    let scaleoffset = Filter { id: SCALEOFFSET, values: [2, 16, 4, 0, 2, 0, 0, 0].into() };
    let lzf = Filter { id: LZF, values: [].into() };
    for plain in [nbit, scaleoffset] {
        for filters in
            [vec![plain.clone()], vec![lzf.clone(), plain.clone()], vec![plain, lzf.clone()]]
        {
            let stored = if filters.len() == 1 { &b"abcdefgh"[..] } else { b"\x07abcdefgh" };
            let mut out = [0; 8];
            assert_eq!(decode(&filters, 0, stored, 8).unwrap().as_ref(), b"abcdefgh");
            decode_to(&filters, 0, stored, &mut out).unwrap();
            assert_eq!(&out, b"abcdefgh");
        }
    }
}

#[test]
fn filters_that_take_bits_away_are_undone_behind_others() {
    // 5, 6, 7 and 5 in 2 bits each, behind the least value.
    let scaled = [&[2, 0, 0, 0, 8, 5][..], &[0; 15], &[0b0001_1000]].concat();
    let values = [2, 0, 4, 0, 2, 0, 0, 0, 0, 0].into();
    let scaleoffset = Filter { id: SCALEOFFSET, values };
    let gzip = Filter { id: DEFLATE, values: [6].into() };
    let stored = miniz_oxide::deflate::compress_to_vec_zlib(&scaled, 6);
    let decoded = decode(&[scaleoffset, gzip.clone()], 0, &stored, 8).unwrap();
    assert_eq!(decoded.as_ref(), [5, 0, 6, 0, 7, 0, 5, 0]);
    // Bytes that are compressed before they are shuffled by bits have a length of their own.
    let shuffle = Filter { id: SHUFFLE, values: [2].into() };
    let lzf = Filter { id: LZF, values: [].into() };
    let bits = Filter { id: BITSHUFFLE, values: [0, 3, 1, 8, 0].into() };
    // The bits of "\x07abcdefg", sorted; then the "h".
    let columns: Vec<u8> =
        (0..8).map(|bit| (0..8).map(|at| (b"\x07abcdefg"[at] >> bit & 1) << at).sum()).collect();
    let stored = [&columns[..], b"h"].concat();
    let decoded = decode(&[shuffle, lzf, bits], 0, &stored, 8).unwrap();
    assert_eq!(decoded.as_ref(), b"aebfcgdh");
}
