//! Encrypted members. The tests encrypt them: with the same crates for AES, with a cipher of their own for
//! PKWARE's.

use super::*;
use crate::format::codec::Codec;
use crate::format::codec::tests::{drive, streams, text};
use ctr::cipher::{KeyIvInit, StreamCipher};
use hmac::{KeyInit, Mac};

const PASSWORD: &[u8] = "pass wörd".as_bytes();

fn with(password: Option<&[u8]>) -> OpenOptions {
    OpenOptions { password: password.map(Secret::new), ..OpenOptions::default() }
}

/// PKWARE's cipher, bit by bit.
fn zip_crypto(password: &[u8], check: u8, data: &[u8]) -> Vec<u8> {
    fn crc(crc: u32, byte: u8) -> u32 {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    }
    let mut keys = [305_419_896u32, 591_751_049, 878_082_192];
    let update = |keys: &mut [u32; 3], byte| {
        keys[0] = crc(keys[0], byte);
        keys[1] = (u64::from(keys[1]) + u64::from(keys[0] & 255)) as u32;
        keys[1] = (u64::from(keys[1]) * 134_775_813 + 1) as u32;
        keys[2] = crc(keys[2], (keys[1] >> 24) as u8);
    };
    password.iter().for_each(|&byte| update(&mut keys, byte));
    let head = [7, 6, 5, 4, 3, 2, 1, 0, 9, 8, 7, check];
    let mut encrypt = |&plain: &u8| {
        let mixed = u32::from((keys[2] | 2) as u16);
        let stored = plain ^ ((mixed * (mixed ^ 1)) >> 8) as u8;
        update(&mut keys, plain);
        stored
    };
    head.iter().chain(data).map(&mut encrypt).collect()
}

fn traditional(name: &str, data: &str) -> Spec {
    traditional_of(file(name, data), data.as_bytes())
}

/// The member `plain`, encrypted; `coded` are the bytes that its method gives.
fn traditional_of(plain: Spec, coded: &[u8]) -> Spec {
    let check = (crc32fast::hash(&plain.data) >> 24) as u8;
    Spec { flags: 1, stored: Some(zip_crypto(PASSWORD, check, coded)), ..plain }
}

/// A member as WinZip encrypts it: `strength` 1 to 3, `version` 1 or 2.
fn aes(name: &str, data: &str, method: u16, strength: u8, version: u16) -> Spec {
    let coded = if method == 8 { deflate(data.as_bytes()) } else { data.as_bytes().to_vec() };
    aes_of(Spec { method, ..file(name, data) }, coded, strength, version)
}

/// The member `plain`, encrypted; `coded` are the bytes that its method gives.
fn aes_of(plain: Spec, mut coded: Vec<u8>, strength: u8, version: u16) -> Spec {
    let key_bytes = 8 + 8 * usize::from(strength);
    let salt: Vec<u8> = (0..key_bytes as u8 / 2).collect();
    let mut derived = vec![0; 2 * key_bytes + 2];
    pbkdf2::pbkdf2_hmac::<sha1::Sha1>(PASSWORD, &salt, 1000, &mut derived);
    let (key, rest) = derived.split_at(key_bytes);
    let (mac_key, verifier) = rest.split_at(key_bytes);
    let mut counter = [0; 16];
    counter[0] = 1;
    match strength {
        1 => ctr::Ctr128LE::<::aes::Aes128>::new_from_slices(key, &counter)
            .unwrap()
            .apply_keystream(&mut coded),
        2 => ctr::Ctr128LE::<::aes::Aes192>::new_from_slices(key, &counter)
            .unwrap()
            .apply_keystream(&mut coded),
        _ => ctr::Ctr128LE::<::aes::Aes256>::new_from_slices(key, &counter)
            .unwrap()
            .apply_keystream(&mut coded),
    }
    let mut mac = hmac::Hmac::<sha1::Sha1>::new_from_slice(mac_key).unwrap();
    mac.update(&coded);
    let mac = mac.finalize().into_bytes();
    let stored = [&salt[..], verifier, &coded, &mac[..10]].concat();
    let extra =
        [&version.to_le_bytes()[..], b"AE", &[strength], &plain.method.to_le_bytes()].concat();
    let extra = field(0x9901, &extra);
    let crc32 = (version == 2).then_some(0);
    let (stored, local_extra) = (Some(stored), extra.clone());
    Spec { flags: 1, method: 99, stored, local_extra, extra, crc32, ..plain }
}

fn all() -> Vec<Spec> {
    let text = "secret ".repeat(30);
    let mut members = vec![file("clear", "for all"), traditional("old", &text)];
    for strength in 1..=3 {
        for version in 1..=2 {
            for method in [0, 8] {
                members.push(aes(
                    &format!("{strength}{version}{method}"),
                    &text,
                    method,
                    strength,
                    version,
                ));
            }
        }
    }
    members
}

#[test]
fn encrypted_members_are_read_with_the_password() {
    let bytes = zip(&all());
    let container = open_with(bytes.clone(), &with(Some(PASSWORD))).unwrap();
    assert!(container.warnings().is_empty(), "{:?}", container.warnings());
    for (member, (_, seen)) in all().iter().zip(list(&bytes, container.as_ref())) {
        let name = String::from_utf8_lossy(&member.name).into_owned();
        assert_eq!(seen, Seen::File(Some(member.data.clone())), "{name}");
    }
    assert_eq!(container.sample(3).unwrap().size_bytes(), 210);
}

#[test]
fn without_a_password_clear_members_are_served_and_the_others_are_damaged() {
    let bytes = zip(&all());
    let container = open_with(bytes.clone(), &with(None)).unwrap();
    let seen = list(&bytes, container.as_ref());
    assert_eq!(seen[0].1, Seen::File(Some(b"for all".to_vec())));
    assert!(seen[1..].iter().all(|(_, seen)| *seen == Seen::File(None)));
    let warning = &container.warnings()[0];
    assert!(
        warning.contains("13 members are encrypted") && warning.contains("password"),
        "{warning}"
    );
}

#[test]
fn a_wrong_password_is_refused_unless_damage_is_allowed() {
    for member in [traditional("a", "text"), aes("a", "text", 8, 3, 2)] {
        let bytes = zip(&[file("clear", "for all"), member]);
        let wrong = with(Some(b"mistaken"));
        let message = open_with(bytes.clone(), &wrong).err().unwrap().to_string();
        assert!(message.contains("wrong password"), "{message}");
        assert!(!message.contains("mistaken"), "a password is never shown: {message}");
        let options = OpenOptions { allow_damaged: true, ..wrong };
        let container = open_with(bytes.clone(), &options).unwrap();
        let seen = list(&bytes, container.as_ref());
        assert_eq!(seen[0].1, Seen::File(Some(b"for all".to_vec())));
        assert_eq!(seen[1].1, Seen::File(None));
    }
}

#[test]
fn a_member_that_does_not_match_its_hmac_is_an_error() {
    let mut member = aes("a", "text that is not checked otherwise", 0, 3, 2);
    let stored = member.stored.as_mut().unwrap();
    stored[20] ^= 1;
    let bytes = zip(&[member]);
    let container = open_with(bytes.clone(), &with(Some(PASSWORD))).unwrap();
    assert_eq!(container.sample(0).unwrap().checksum, None);
    assert_eq!(read_sample(&bytes, container.as_ref(), 0), None);
}

#[test]
fn an_encrypted_member_too_short_for_its_encryption_is_damaged() {
    for (member, length) in [(traditional("a", ""), 11), (aes("a", "", 0, 1, 1), 19)] {
        let stored = member.stored.as_ref().map(|stored| stored[..length].to_vec());
        let bytes = zip(&[Spec { stored, ..member }]);
        let container = open_with(bytes, &with(Some(PASSWORD))).unwrap();
        assert!(container.sample(0).unwrap().damaged);
    }
}

#[test]
fn strong_and_unknown_encryption_is_told_from_damage_with_a_warning() {
    let unknown = Spec { extra: field(0x9901, b"\x09\0AE\x03\x08\0"), ..aes("a", "x", 0, 3, 1) };
    for member in [Spec { flags: 0x41, ..file("a", "x") }, unknown] {
        let container = open_with(zip(&[member]), &with(Some(PASSWORD))).unwrap();
        assert!(container.sample(0).unwrap().damaged);
        assert!(container.warnings()[0].contains("encrypted in a way that ffrfs does not read"));
        assert!(matches!(container.fault(0), Some(crate::format::Fault::Encryption(_))));
        assert!(!container.wants_password());
    }
}

#[test]
fn a_member_whose_aes_field_is_missing_or_cut_is_damaged() {
    for extra in [Vec::new(), field(0x9901, b"\x09"), field(0x9901, b"\x02\0AE\x03\x08")] {
        let bytes = zip(&[Spec { extra, ..aes("a", "x", 0, 3, 2) }]);
        for password in [None, Some(PASSWORD)] {
            let container = open_with(bytes.clone(), &with(password)).unwrap();
            assert!(container.sample(0).unwrap().damaged && container.fault(0).is_none());
            let warning = &container.warnings()[0];
            assert!(warning.contains("encoded with an unknown method"), "{warning}");
            assert!(!container.wants_password());
        }
    }
}

#[test]
fn a_cut_or_split_archive_is_called_so_though_its_directory_may_be_encrypted() {
    let mut bytes = zip(&[Spec { flags: 0x2041, ..file("a", "x") }]);
    let end = bytes.len() - 22;
    let said = refusal(bytes[..end].to_vec());
    assert!(said.contains("the file is truncated"), "{said}");
    bytes[end + 4] = 1;
    let said = refusal(bytes);
    assert!(said.contains("join the parts first"), "{said}");
}

#[test]
fn an_encrypted_directory_is_refused_as_encrypted() {
    let mut bytes = zip(&[Spec { flags: 0x2041, ..file("a", "x") }]);
    let at = memchr::memmem::find(&bytes, b"PK\x01\x02").unwrap();
    bytes[at..at + 4].fill(0);
    let error = open(bytes).err().unwrap();
    assert!(matches!(error, Error::Encryption { .. }), "{error}");
    assert!(error.to_string().contains("PKWARE's strong encryption"), "{error}");
}

#[test]
fn a_wrong_password_that_the_traditional_cipher_accepts_is_called_wrong_or_damaged() {
    let bytes = zip(&[traditional("a", "some text")]);
    let messages = (0..4000).map(|number| {
        let wrong = with(Some(format!("wrong{number}").as_bytes()));
        open_with(bytes.clone(), &wrong).err().unwrap().to_string()
    });
    let (unsure, sure): (Vec<_>, Vec<_>) = messages.partition(|said| said.contains("or damaged"));
    assert!(!unsure.is_empty() && sure.len() > 50 * unsure.len(), "{}", unsure.len());
    assert!(unsure.iter().chain(&sure).all(|said| said.contains("wrong password")));
    let cure = "(--allow-damaged serves the members that do not need it)";
    assert!(unsure.iter().chain(&sure).all(|said| said.ends_with(cure)));
}

#[test]
fn a_password_of_any_of_the_first_encrypted_members_is_right() {
    let other = zip_crypto(b"other", (crc32fast::hash(b"text") >> 24) as u8, b"text");
    let other = Spec { flags: 1, stored: Some(other), ..file("b", "text") };
    let bytes = zip(&[aes("a", "secret", 8, 3, 2), other]);
    for (password, index, data) in [(PASSWORD, 0, "secret"), (&b"other"[..], 1, "text")] {
        let container = open_with(bytes.clone(), &with(Some(password))).unwrap();
        let read = read_sample(&bytes, container.as_ref(), index);
        assert_eq!(read.as_deref(), Some(data.as_bytes()));
        assert_eq!(read_sample(&bytes, container.as_ref(), 1 - index), None);
    }
}

/// A stored member, encrypted with the traditional cipher and this password, which is too large to be tried by its CRC.
fn large(name: &str, password: &[u8]) -> Spec {
    let data = vec![b'x'; 300_000];
    let check = (crc32fast::hash(&data) >> 24) as u8;
    let stored = Some(zip_crypto(password, check, &data));
    Spec { flags: 1, stored, ..file(name, data) }
}

#[test]
fn a_wrong_password_that_a_large_compressed_member_accepts_is_told_by_what_it_begins_with() {
    let deflated = |name: &str, data: Vec<u8>, password: &[u8]| {
        let check = (crc32fast::hash(&data) >> 24) as u8;
        let stored = Some(zip_crypto(password, check, &deflate(&data)));
        Spec { flags: 1, method: 8, stored, ..file(name, data) }
    };
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    let noise: Vec<u8> = (0..300_000).map(|_| next()).collect();
    for data in [vec![b'x'; 300_000], noise] {
        let alone = zip(&[deflated("a", data.clone(), PASSWORD)]);
        assert!(open_with(alone.clone(), &with(Some(PASSWORD))).is_ok());
        let unsure = (0..3000).filter(|number| {
            let wrong = with(Some(format!("wrong{number}").as_bytes()));
            let said = open_with(alone.clone(), &wrong).err().unwrap().to_string();
            assert!(said.contains("wrong password"), "{said}");
            said.contains("or damaged")
        });
        assert!(unsure.count() > 0);
        let second = [deflated("a", data.clone(), b"other"), deflated("b", data, PASSWORD)];
        let bytes = zip(&second);
        let container = open_with(bytes.clone(), &with(Some(PASSWORD))).unwrap();
        assert!(read_sample(&bytes, container.as_ref(), 0).is_none());
        assert!(read_sample(&bytes, container.as_ref(), 1).is_some());
    }
}

#[test]
fn of_large_members_the_first_and_another_one_or_any_three_accept_a_password() {
    let archive = |passwords: &[&[u8]]| {
        let members = passwords.iter().enumerate();
        let members: Vec<_> =
            members.map(|(number, password)| large(&number.to_string(), password)).collect();
        zip(&members)
    };
    let open = |passwords: &[&[u8]]| {
        open_with(archive(passwords), &with(Some(PASSWORD))).err().map(|error| error.to_string())
    };
    let other = &b"other"[..];
    let right: [&[&[u8]]; 3] =
        [&[PASSWORD], &[PASSWORD, other, PASSWORD], &[other, PASSWORD, PASSWORD, PASSWORD]];
    for passwords in right {
        assert_eq!(open(passwords), None, "{}", passwords.len());
    }
    let wrong: [(&[&[u8]], &str); 5] = [
        (&[other], "wrong password ("),
        (&[other, other, other], "wrong password ("),
        (&[PASSWORD, other], "wrong password, or one that only one large member has;"),
        (&[other, PASSWORD], "wrong password, or one that only one large member has;"),
        (&[other, PASSWORD, PASSWORD, other], "or one that only two large members have;"),
    ];
    for (passwords, says) in wrong {
        let said = open(passwords).unwrap();
        assert!(said.contains("wrong password") && said.contains(says), "{said}");
        // As the message says, the members that this password opens are served if damage is allowed.
        let is_used = said.ends_with("(--allow-damaged uses it)");
        assert_eq!(is_used, passwords.contains(&PASSWORD), "{said}");
        let bytes = archive(passwords);
        let options = OpenOptions { allow_damaged: true, ..with(Some(PASSWORD)) };
        let container = open_with(bytes.clone(), &options).unwrap();
        for (index, password) in (0..).zip(passwords) {
            let read = read_sample(&bytes, container.as_ref(), index);
            assert_eq!(read.is_some(), *password == PASSWORD, "{said}");
        }
    }
}

#[test]
fn a_check_byte_may_come_from_the_time() {
    let data = "text";
    let stored = Some(zip_crypto(PASSWORD, 0x42, data.as_bytes()));
    let member =
        Spec { flags: 1, stored, dos_time: 0x1234_4207, descriptor: true, ..file("a", data) };
    let bytes = zip(&[member]);
    let container = open_with(bytes.clone(), &with(Some(PASSWORD))).unwrap();
    assert_eq!(read_sample(&bytes, container.as_ref(), 0).unwrap(), data.as_bytes());
}

#[test]
fn symbolic_links_are_decrypted_too() {
    let link = unix("link", "secret/place", 0o120_777);
    let secret = aes("link", "secret/place", 0, 3, 2);
    let bytes = zip(&[Spec { made_by: link.made_by, external: link.external, ..secret }]);
    let container = open_with(bytes, &with(Some(PASSWORD))).unwrap();
    assert_eq!(container.link_target(0).unwrap(), b"secret/place");
}

// ---- step by step --------------------------------------------------------------------------------

/// `data` in every coding that is decoded step by step, each in every encryption.
fn locked(data: &[u8]) -> Vec<Spec> {
    let number = |codec| match codec {
        Codec::Deflate => Some(8),
        Codec::Deflate64 => Some(9),
        Codec::Bzip2 => Some(12),
        Codec::Lzma => Some(14),
        Codec::Zstd => Some(93),
        Codec::Xz => Some(95),
        Codec::Ppmd | Codec::Gzip | Codec::Zlib => None,
    };
    let coded = streams(data).into_iter().filter_map(|(codec, to)| Some((number(codec)?, to)));
    let mut all = Vec::new();
    for (strength, (method, coded)) in
        [1, 2, 3].into_iter().cycle().zip(coded.chain([(0, data.to_vec())]))
    {
        let plain = |lock: &str| Spec { method, ..file(format!("{method}, {lock}"), data) };
        all.push(traditional_of(plain("traditional"), &coded));
        all.push(aes_of(plain("AES"), coded, strength, 2));
    }
    all
}

/// Decodes the only member in steps, and from each of some checkpoints.
fn decode_in_steps(member: &Spec, sizes: (usize, usize)) -> Result<(Vec<u8>, usize), String> {
    let bytes = zip(std::slice::from_ref(member));
    let container = open_with(bytes, &with(Some(PASSWORD))).unwrap();
    assert!(!container.may_keep_checkpoints(0), "they are secret");
    let stored = member.stored.as_deref().unwrap();
    let decoder = |from: Option<&Checkpoint>| container.decoder(0, from).unwrap().unwrap();
    let (whole, checkpoints) = drive(decoder(None).as_mut(), None, stored, sizes)?;
    for checkpoint in checkpoints.iter().step_by(checkpoints.len() / 3 + 1) {
        let from = Some(checkpoint);
        let (rest, _) = drive(decoder(from).as_mut(), from, stored, (sizes.1, sizes.0))?;
        assert!(rest == whole[checkpoint.decoded_bytes as usize..]);
    }
    Ok((whole, checkpoints.len()))
}

#[test]
fn encrypted_members_of_every_method_are_read_step_by_step_and_from_the_middle() {
    let data = text(300_000);
    for member in locked(&data) {
        let name = String::from_utf8_lossy(&member.name).into_owned();
        for sizes in [(1 << 20, 1 << 20), (1000, 70_001)] {
            let decoded = decode_in_steps(&member, sizes);
            let (whole, checkpoints) = decoded.unwrap_or_else(|e| panic!("{name} {sizes:?}: {e}"));
            assert!(whole == data, "{name} {sizes:?}");
            assert_eq!(
                checkpoints == 0,
                ["9,", "14,"].iter().any(|n| name.starts_with(n)),
                "{name}"
            );
        }
    }
}

#[test]
fn a_changed_byte_of_an_aes_member_is_an_error_by_its_end() {
    let data = text(100_000);
    for mut member in locked(&data).into_iter().skip(1).step_by(2) {
        let length = member.stored.as_ref().unwrap().len();
        // Salt and verifier are looked at when the archive is opened.
        for at in [18, 19, length / 3, length - 12, length - 10, length - 1] {
            let stored = member.stored.as_mut().unwrap();
            stored[at] ^= 0x10;
            let name = String::from_utf8_lossy(&member.name).into_owned();
            assert!(decode_in_steps(&member, (5000, 5000)).is_err(), "{name} {at}");
            member.stored.as_mut().unwrap()[at] ^= 0x10;
        }
    }
}

#[test]
fn stored_bytes_that_end_early_are_an_error_step_by_step() {
    for member in locked(&text(20_000)) {
        let stored = member.stored.clone().unwrap();
        let container = open_with(zip(&[member]), &with(Some(PASSWORD))).unwrap();
        for end in [0, 5, 12, 20, 1000, stored.len() - 30] {
            let mut decoder = container.decoder(0, None).unwrap().unwrap();
            let cut = drive(decoder.as_mut(), None, &stored[..end], (700, 700));
            assert!(cut.is_err(), "{end} of {}", stored.len());
        }
    }
}

#[test]
fn what_is_no_checkpoint_of_an_encrypted_member_is_refused() {
    for member in locked(&text(20_000)) {
        let container = open_with(zip(&[member]), &with(Some(PASSWORD))).unwrap();
        for (length, stored_bytes) in [(0, 100), (5, 100), (18, 3), (40, u64::MAX)] {
            let state = vec![1; length].into_boxed_slice();
            let from = Checkpoint { stored_bytes, decoded_bytes: 7, state };
            assert!(container.decoder(0, Some(&from)).is_err(), "{from:?}");
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(6))]

    #[test]
    fn encrypted_bytes_in_any_pieces_come_back(
        data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20_000),
        piece in 1..30_000_usize,
        room in 1..30_000_usize,
    ) {
        for member in locked(&data) {
            assert!(decode_in_steps(&member, (piece, room)).unwrap().0 == data);
        }
    }
}
