//! Members as WinZip encrypts them.

use super::PASSWORD;
use crate::formats::write::Member;
use ctr::cipher::{KeyIvInit, StreamCipher};
use hmac::{KeyInit, Mac};

/// A member as WinZip encrypts it (AE-2, 256 bits).
pub(super) fn aes(plain: Member) -> Member {
    aes_with(PASSWORD, plain)
}

/// As `aes`, with this password.
pub(super) fn aes_with(password: &str, plain: Member) -> Member {
    let salt: Vec<u8> = (0..16).collect();
    let mut derived = vec![0; 66];
    pbkdf2::pbkdf2_hmac::<sha1::Sha1>(password.as_bytes(), &salt, 1000, &mut derived);
    let (key, rest) = derived.split_at(32);
    let (mac_key, verifier) = rest.split_at(32);
    let mut counter = [0; 16];
    counter[0] = 1;
    let mut coded = plain.stored.clone();
    let cipher = ctr::Ctr128LE::<::aes::Aes256>::new_from_slices(key, &counter);
    cipher.unwrap().apply_keystream(&mut coded);
    let mut mac = hmac::Hmac::<sha1::Sha1>::new_from_slice(mac_key).unwrap();
    mac.update(&coded);
    let mac = mac.finalize().into_bytes();
    let [low, high] = plain.method.to_le_bytes();
    Member {
        stored: [&salt[..], verifier, &coded, &mac[..10]].concat(),
        extra: [&b"\x01\x99\x07\0\x02\0AE\x03"[..], &[low, high]].concat(),
        flags: 1,
        method: 99,
        crc32: 0,
        ..plain
    }
}
