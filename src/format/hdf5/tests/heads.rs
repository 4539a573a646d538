//! Superblocks, and the structures that they lead to.

use super::super::input::lookup3;
use super::*;

#[test]
fn a_file_whose_user_block_was_taken_away_is_whole() {
    let file = tiny("earliest");
    let expected = files(&file, open(&file).unwrap().as_ref());
    // As `h5unjam` leaves it: addresses count from the superblock, which says where it was, and where the file ended.
    let mut taken = file.clone();
    let end = u64::from_le_bytes(file[40..48].try_into().unwrap());
    assert_eq!(end, file.len() as u64);
    taken[24..32].copy_from_slice(&512_u64.to_le_bytes());
    taken[40..48].copy_from_slice(&(end + 512).to_le_bytes());
    assert!(files(&taken, open(&taken).unwrap().as_ref()) == expected);
    let said = refused(&taken[..taken.len() - 1]);
    assert!(said.contains("as the superblock says") && said.contains("truncated"), "{said}");
    // Bytes that were put before the file since then count as well.
    let behind = [&[7; 1024][..], &file].concat();
    assert!(open(&behind).is_ok() && refused(&behind[..behind.len() - 1]).contains("truncated"));
}

/// A file of the newest version whose superblock leads to an extension with one message of 17 bytes.
fn extended(kind: u8) -> Vec<u8> {
    extended_by(kind, &[&[0][..], &[8; 16]].concat())
}

fn extended_by(kind: u8, told: &[u8]) -> Vec<u8> {
    let mut file = tiny("latest");
    let summed = |bytes: &[u8]| [bytes, &lookup3(bytes).to_le_bytes()].concat();
    let at = file.len() as u64;
    let message = [&[kind, told.len() as u8, 0, 0][..], told].concat();
    file.extend(summed(&[&b"OHDR\x02\0"[..], &[message.len() as u8], &message].concat()));
    let end = file.len() as u64;
    file[20..28].copy_from_slice(&at.to_le_bytes());
    file[28..36].copy_from_slice(&end.to_le_bytes());
    let superblock = summed(&file[..44]);
    file[..48].copy_from_slice(&superblock);
    file
}

#[test]
fn a_file_with_an_image_of_a_cache_is_refused_as_what_is_in_its_places_is_older() {
    let file = tiny("latest");
    let expected = files(&file, open(&file).unwrap().as_ref());
    // An extension tells of free space, too.
    let bytes = extended(0x17);
    assert!(files(&bytes, open(&bytes).unwrap().as_ref()) == expected);
    let bytes = extended(0x18);
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        let said = open_as(NAME, &bytes, &options).err().expect("refused").to_string();
        assert!(said.contains("found some in an image of a cache"), "{said}");
    }
    // An extension that cannot be read.
    let mut bytes = bytes;
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(refused(&bytes).contains("checksum"));
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let said = open_as(NAME, &bytes, &options).unwrap().warnings().join("\n");
    for part in ["the superblock's extension cannot be read", "checksum", "as it was before"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn one_of_several_files_says_what_makes_one_of_them() {
    // An old file names its driver in a block that the superblock leads to, a newer one in its extension.
    let old = |name: &[u8]| {
        let mut file = tiny("earliest");
        let at = file.len() as u64;
        file.extend([&[0; 8], name].concat());
        let end = file.len() as u64;
        file[40..48].copy_from_slice(&end.to_le_bytes());
        file[48..56].copy_from_slice(&at.to_le_bytes());
        file
    };
    let new = |name: &[u8]| extended_by(0x14, &[&[0], name, &[0; 2]].concat());
    let lenient = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    for (name, tool) in
        [(b"NCSAfami", "family of files: h5repart"), (b"NCSAmult", "in another: h5repack")]
    {
        for mut file in [old(name), new(name)] {
            // A family whose members were put behind each other is one whole file.
            assert_eq!(open(&file).is_ok(), name == b"NCSAfami");
            let place = if file[8] == 0 { 40 } else { 28 };
            file[place + 2] += 1;
            if file[8] > 0 {
                let sum = lookup3(&file[..44]).to_le_bytes();
                file[44..48].copy_from_slice(&sum);
            }
            let said = refused(&file);
            assert!(said.contains(tool), "{said}");
            assert!(open_as(NAME, &file, &lenient).is_ok());
        }
    }
}

#[test]
fn of_a_file_that_was_not_closed_it_is_said_that_it_may_lack_something() {
    let file = tiny("latest");
    let open_flags = |flags: u8| {
        let mut bytes = file.clone();
        bytes[11] = flags;
        let sum = lookup3(&bytes[..44]).to_le_bytes();
        bytes[44..48].copy_from_slice(&sum);
        open(&bytes).unwrap().warnings().join("\n")
    };
    assert_eq!((file[8], open_flags(0)), (3, String::new()));
    // Open for writing, and open for writing while others read.
    for flags in [1, 5] {
        let said = open_flags(flags);
        assert!(said.contains("t: it is open for writing, or was not closed"), "{said}");
    }
}

#[test]
fn filtered_links_shared_messages_and_chunks_that_are_compressed_twice_are_read() {
    let (shown, warnings) = decompressed("reused.h5.zz");
    assert!(warnings.is_empty(), "{warnings:?}");
    let stored = std::fs::read(fixture("reused.h5.zz")).unwrap();
    let file = miniz_oxide::inflate::decompress_to_vec_zlib(&stored).unwrap();
    let (container, mut links) = (open(&file).unwrap(), Vec::new());
    let visit = &mut |member: crate::format::Member<'_>| {
        links.push(String::from_utf8(member.path.to_vec()).unwrap());
        Ok(())
    };
    container.members(visit).unwrap();
    for (name, count) in [("few", 9), ("many", 900)] {
        let found = links.iter().filter(|path| path.starts_with(&format!("{name}/a link")));
        assert_eq!(found.count(), count, "{name}");
        // A huge object, whose filters are undone as well.
        assert!(links.contains(&format!("{name}/long.npy")), "{name}");
    }
    for number in 0..3 {
        let element =
            |first: i32, second: f64| [&first.to_le_bytes()[..], &second.to_be_bytes()].concat();
        let expected: Vec<u8> = (0..40)
            .flat_map(
                |at| if (5..9).contains(&at) { element(7, 2.5) } else { element(number, 2.0) },
            )
            .collect();
        let array = &shown[&format!("shared/{number}.npy")];
        assert!(array.ends_with(&expected) && array.len() == expected.len() + 128, "{number}");
    }
    let expected: Vec<u8> = (0..1000_i32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    assert!(shown["twice.npy"].ends_with(&expected));
}
