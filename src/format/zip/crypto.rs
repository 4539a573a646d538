//! Encrypted members: PKWARE's traditional cipher (APPNOTE 6.1) and WinZip's AES (AE-1 and AE-2).

use crate::format::Secret;
use crate::format::bytes::u16_at;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit, KeyIvInit, StreamCipher};
use aes::{Aes128, Aes192, Aes256};
use ctr::Ctr128LE;
use hmac::{Hmac, Mac};
use sha1::Sha1;

/// What stands before the bytes that the traditional cipher gives.
const ZIP_CRYPTO_HEAD: usize = 12;
/// AES: two bytes that tell most wrong passwords.
const VERIFIER_BYTES: usize = 2;
/// AES: the first bytes of the HMAC, behind the data.
const MAC_BYTES: usize = 10;
/// The rounds of PBKDF2 that WinZip laid down.
const ROUNDS: u32 = 1000;

/// How a member is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    None,
    ZipCrypto,
    Aes {
        key: Key,
        /// AE-1 has a CRC of the decrypted bytes, AE-2 has none.
        has_crc: bool,
    },
    /// PKWARE's strong encryption, or what nobody knows.
    Unknown,
}

/// The length of an AES key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Bits128,
    Bits192,
    Bits256,
}

impl Key {
    fn bytes(self) -> usize {
        match self {
            Key::Bits128 => 16,
            Key::Bits192 => 24,
            Key::Bits256 => 32,
        }
    }

    fn salt_bytes(self) -> usize {
        match self {
            Key::Bits128 => 8,
            Key::Bits192 => 12,
            Key::Bits256 => 16,
        }
    }
}

impl Lock {
    /// Of AES's extra field: the lock, and the method below it.
    pub(super) fn aes(field: &[u8]) -> Option<(Self, u16)> {
        let has_crc = match u16_at(field, 0)? {
            1 => true,
            2 => false,
            _ => return None,
        };
        let key = match field.get(4)? {
            1 => Key::Bits128,
            2 => Key::Bits192,
            3 => Key::Bits256,
            _ => return None,
        };
        Some((Lock::Aes { key, has_crc }, u16_at(field, 5)?))
    }

    /// Whether the directory holds a CRC of the decrypted bytes.
    pub(super) fn has_crc(self) -> bool {
        !matches!(self, Lock::Aes { has_crc: false, .. })
    }

    /// The bytes that an encryption adds.
    pub(super) fn added_bytes(self) -> u64 {
        let added = match self {
            Lock::None | Lock::Unknown => 0,
            Lock::ZipCrypto => ZIP_CRYPTO_HEAD,
            Lock::Aes { .. } => self.head_bytes().saturating_add(MAC_BYTES),
        };
        added as u64
    }

    /// The bytes at the front that tell whether a password can be right.
    pub(super) fn head_bytes(self) -> usize {
        match self {
            Lock::None | Lock::Unknown => 0,
            Lock::ZipCrypto => ZIP_CRYPTO_HEAD,
            Lock::Aes { key, .. } => key.salt_bytes().saturating_add(VERIFIER_BYTES),
        }
    }

    /// Whether the password can be right: of the traditional cipher's wrong ones 1 of 256 seems so, of AES's
    /// 1 of 65,536. `check` is the byte that the traditional cipher ends its header with: the highest of the
    /// CRC, or of the time if the CRC was not known yet.
    pub(super) fn accepts(self, password: &Secret, head: &[u8], check: [u8; 2]) -> bool {
        let accepted = match self {
            Lock::None => Some(true),
            Lock::Unknown => Some(false),
            Lock::ZipCrypto => {
                zip_crypto_head(password, head).map(|(_, last)| check.contains(&last))
            }
            Lock::Aes { key, .. } => {
                let salt_and_verifier = head.split_at_checked(key.salt_bytes());
                salt_and_verifier.map(|(salt, verifier)| {
                    let derived = Derived::new(password, key, salt);
                    verifier.get(..VERIFIER_BYTES) == Some(&derived.verifier[..])
                })
            }
        };
        accepted.unwrap_or(false)
    }

    /// Decrypts all of a member's bytes.
    pub(super) fn open(
        self,
        password: &Secret,
        stored: &[u8],
        check: [u8; 2],
    ) -> Result<Vec<u8>, &'static str> {
        const CUT: &str = "fewer bytes than its encryption adds";
        const WRONG: &str = "a member that another password encrypts";
        match self {
            Lock::None => Ok(stored.to_vec()),
            Lock::Unknown => Err("an encryption that nobody knows"),
            Lock::ZipCrypto => {
                let (mut keys, last) = zip_crypto_head(password, stored).ok_or(CUT)?;
                if !check.contains(&last) {
                    return Err(WRONG);
                }
                let data = stored.get(ZIP_CRYPTO_HEAD..).ok_or(CUT)?;
                Ok(data.iter().map(|&byte| keys.decrypt(byte)).collect())
            }
            Lock::Aes { key, .. } => {
                let (salt, rest) = stored.split_at_checked(key.salt_bytes()).ok_or(CUT)?;
                let (verifier, rest) = rest.split_at_checked(VERIFIER_BYTES).ok_or(CUT)?;
                let (data, mac) = rest.split_last_chunk::<MAC_BYTES>().ok_or(CUT)?;
                let derived = Derived::new(password, key, salt);
                if verifier != derived.verifier {
                    return Err(WRONG);
                }
                let mut hmac = derived.hmac().ok_or(CUT)?;
                hmac.update(data);
                if hmac.verify_truncated_left(mac).is_err() {
                    return Err("bytes that do not match their HMAC");
                }
                let mut data = data.to_vec();
                derived.decrypt(&mut data);
                Ok(data)
            }
        }
    }
}

/// What a password and a salt give: the key of the cipher, that of the HMAC, the verifier.
struct Derived {
    key: Key,
    cipher_key: Vec<u8>,
    mac_key: Vec<u8>,
    verifier: [u8; VERIFIER_BYTES],
}

impl Derived {
    fn new(password: &Secret, key: Key, salt: &[u8]) -> Self {
        let mut all = [0; 2 * 32 + VERIFIER_BYTES];
        let wanted = key.bytes().saturating_mul(2).saturating_add(VERIFIER_BYTES);
        let all = all.get_mut(..wanted).unwrap_or_default();
        pbkdf2::pbkdf2_hmac::<Sha1>(password.reveal(), salt, ROUNDS, all);
        let (cipher_key, rest) = all.split_at_checked(key.bytes()).unwrap_or_default();
        let (mac_key, verifier) = rest.split_at_checked(key.bytes()).unwrap_or_default();
        Self {
            key,
            cipher_key: cipher_key.to_vec(),
            mac_key: mac_key.to_vec(),
            verifier: verifier.first_chunk().copied().unwrap_or_default(),
        }
    }

    fn hmac(&self) -> Option<Hmac<Sha1>> {
        <Hmac<Sha1> as KeyInit>::new_from_slice(&self.mac_key).ok()
    }

    fn decrypt(&self, data: &mut [u8]) {
        match self.key {
            Key::Bits128 => counter::<Aes128>(&self.cipher_key, data),
            Key::Bits192 => counter::<Aes192>(&self.cipher_key, data),
            Key::Bits256 => counter::<Aes256>(&self.cipher_key, data),
        }
    }
}

/// Counter mode; the counter is little-endian and begins at 1.
fn counter<C>(key: &[u8], data: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
{
    let mut first = [0; 16];
    if let Some(lowest) = first.first_mut() {
        *lowest = 1;
    }
    if let Ok(mut cipher) = Ctr128LE::<C>::new_from_slices(key, &first) {
        cipher.apply_keystream(data);
    }
}

/// The state of the traditional cipher.
struct Keys(u32, u32, u32);

impl Keys {
    fn new(password: &[u8]) -> Self {
        let mut keys = Keys(0x1234_5678, 0x2345_6789, 0x3456_7890);
        for &byte in password {
            keys.update(byte);
        }
        keys
    }

    fn update(&mut self, plain: u8) {
        self.0 = crc_step(self.0, plain);
        self.1 = self.1.wrapping_add(self.0 & 0xff).wrapping_mul(0x0808_8405).wrapping_add(1);
        let [.., top] = self.1.to_le_bytes();
        self.2 = crc_step(self.2, top);
    }

    fn decrypt(&mut self, stored: u8) -> u8 {
        let mixed = self.2 | 2;
        let [_, second, ..] = mixed.wrapping_mul(mixed ^ 1).to_le_bytes();
        let plain = stored ^ second;
        self.update(plain);
        plain
    }
}

/// A byte further in a CRC-32 that is neither inverted before nor after.
fn crc_step(crc: u32, byte: u8) -> u32 {
    let [lowest, ..] = crc.to_le_bytes();
    let entry = CRC_TABLE.get(usize::from(lowest ^ byte)).copied().unwrap_or(0);
    (crc >> 8) ^ entry
}

static CRC_TABLE: [u32; 256] = crc_table();

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // Evaluated by the compiler.
const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// Decrypts the header of the traditional cipher: the state behind it, and its last byte.
fn zip_crypto_head(password: &Secret, stored: &[u8]) -> Option<(Keys, u8)> {
    let head = stored.get(..ZIP_CRYPTO_HEAD)?;
    let mut keys = Keys::new(password.reveal());
    let last = head.iter().map(|&byte| keys.decrypt(byte)).last()?;
    Some((keys, last))
}
