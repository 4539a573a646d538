//! Any set of members, also if bytes are lost or changed.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn member() -> impl Strategy<Value = Spec> {
    let kind = (any::<bool>(), any::<bool>(), any::<bool>(), 0usize..40, 0usize..5);
    let data = prop_oneof![vec(any::<u8>(), 0..200), vec(Just(b'z'), 0..3000)];
    ("[a-z/é]{0,12}[a-z]", data, kind).prop_map(|(name, data, kind)| {
        let (is_deflated, zip64, descriptor, extra, gap) = kind;
        let local_extra = if extra < 4 { Vec::new() } else { field(0xcafe, &vec![1; extra]) };
        let method = if is_deflated { 8 } else { 0 };
        Spec { method, zip64, descriptor, local_extra, gap, ..file(name, data) }
    })
}

fn archive() -> impl Strategy<Value = Archive> {
    let bytes = |most| vec(any::<u8>(), 0..most);
    (bytes(60), any::<bool>(), bytes(20), bytes(20)).prop_map(
        |(comment, zip64, prefix, trailing)| Archive {
            comment,
            zip64,
            // Other bytes may be those with which a foreign format begins.
            prefix: if prefix.is_empty() { prefix } else { [b"MZ", &prefix[..]].concat() },
            trailing,
            ..Archive::default()
        },
    )
}

proptest! {
    #[test]
    fn any_members_have_the_names_and_bytes_that_were_written(
        members in vec(member(), 0..12), archive in archive()
    ) {
        let bytes = archive.write(&members);
        let seen = listed(bytes);
        let written: Vec<_> = members
            .iter()
            .map(|m| (m.name.clone(), Seen::File(Some(m.data.clone()))))
            .collect();
        prop_assert_eq!(seen, written);
    }

    #[test]
    fn changed_bytes_never_give_wrong_bytes(
        members in vec(member(), 1..5),
        flips in vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        allow_damaged: bool,
    ) {
        let mut bytes = zip(&members);
        for (place, flip) in &flips {
            let place = place.index(bytes.len());
            bytes[place] ^= flip;
        }
        check(&bytes, allow_damaged);
    }
}

/// Checks that all bytes that are read match a checksum, and that nothing panics.
fn check(bytes: &[u8], allow_damaged: bool) {
    let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
    let Ok(container) = open_with(bytes.to_vec(), &options) else { return };
    for index in 0..container.len() {
        let _ = container.attributes(index);
        if let Some(data) = read_sample(bytes, container.as_ref(), index) {
            let sample = container.sample(index).unwrap();
            assert!(sample.checksum.is_none_or(|checksum| checksum.check(&data).is_ok()));
            assert_eq!(sample.size_bytes(), data.len() as u64);
        }
    }
    container.members(&mut |_| Ok(())).unwrap();
}

fn rich() -> Vec<u8> {
    let link = unix("link", "target", 0o120_777);
    let hard = unix("hard", "", 0o100_644);
    let hard = Spec { external: hard.external | 0x800, extra: pkware(b"stored"), ..hard };
    Archive { zip64: true, comment: b"comment".to_vec(), ..Archive::default() }.write(&[
        file("stored", "stored bytes"),
        Spec { zip64: true, ..deflated("b/deflated", "deflated ".repeat(9)) },
        link,
        hard,
        unix("directory/", "", 0o040_755),
        Spec { extra: field(0x5455, &[1, 2, 3, 4, 5]), descriptor: true, ..file("\u{e9}", "x") },
    ])
}

#[test]
fn an_archive_cut_at_any_byte_is_refused_or_right() {
    let bytes = rich();
    let whole = listed(bytes.clone());
    for length in 0..bytes.len() {
        for options in [OpenOptions::default(), damaged()] {
            let Ok(container) = open_with(bytes[..length].to_vec(), &options) else { continue };
            // Only the comment could be cut, but its length is known.
            assert_eq!(list(&bytes, container.as_ref()), whole, "cut at {length}");
        }
    }
}

#[test]
fn an_archive_with_any_bit_flipped_never_gives_wrong_bytes() {
    let bytes = rich();
    for place in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[place / 8] ^= 1 << (place % 8);
        check(&flipped, place % 2 == 0);
    }
}
