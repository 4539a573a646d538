//! Encrypted members: PKWARE's traditional cipher (APPNOTE 6.1) and WinZip's AES (AE-1 and AE-2).

use crate::format::bytes::{u16_at, u32_at};
use crate::format::{DecodeError, Secret};
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncrypt, BlockSizeUser, KeyInit, KeyIvInit, StreamCipher, StreamCipherSeek,
};
use aes::{Aes128, Aes192, Aes256};
use ctr::Ctr128LE;
use hmac::{Hmac, Mac};
use sha1::Sha1;

/// The bytes of the traditional cipher's header, before the data.
const ZIP_CRYPTO_HEAD: usize = 12;
/// AES: two bytes that tell most wrong passwords.
const VERIFIER_BYTES: usize = 2;
/// AES: the first bytes of the HMAC, behind the data.
const MAC_BYTES: usize = 10;
/// The rounds of PBKDF2 that WinZip laid down.
const ROUNDS: u32 = 1000;
/// The bytes of the traditional cipher's keys.
const KEYS_BYTES: usize = 12;

const CUT: &str = "fewer bytes than its encryption adds";
const WRONG: DecodeError = DecodeError::WrongPassword;
const TAMPERED: &str = "bytes that do not match their HMAC";
const ENDLESS: &str = "more bytes than its cipher can count";
const UNKNOWN: &str = "an unknown encryption method";

/// The encryption of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    None,
    ZipCrypto,
    Aes {
        key: Key,
        /// AE-1 has a CRC of the decrypted bytes, AE-2 has none.
        has_crc: bool,
    },
    /// PKWARE's strong encryption, or an unknown one.
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
    /// The bytes that AES has behind the data.
    pub(super) const TAIL_BYTES: usize = MAC_BYTES;

    /// Parses AES's extra field: the lock, and the method below it.
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

    /// The number of bytes that [`Cipher::state`] has.
    pub(super) fn state_bytes(self) -> usize {
        match self {
            Lock::None | Lock::Unknown => 0,
            Lock::ZipCrypto => KEYS_BYTES,
            Lock::Aes { .. } => self.head_bytes(),
        }
    }

    /// Whether the password can be right: the traditional cipher accepts 1 of 256 wrong ones (2 if the CRC stands
    /// behind the data), AES 1 of 65,536. `check` has the bytes that the traditional cipher may end its header with:
    /// the highest of the CRC, or of the time if the CRC was not known yet.
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
    ) -> Result<Vec<u8>, DecodeError> {
        match self {
            Lock::None => Ok(stored.to_vec()),
            Lock::Unknown => Err(UNKNOWN.into()),
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
                    return Err(TAMPERED.into());
                }
                let mut data = data.to_vec();
                derived.keystream().ok_or(CUT)?.apply(0, &mut data)?;
                Ok(data)
            }
        }
    }
}

/// The values that a password and a salt give: the key of the cipher, that of the HMAC, the verifier.
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

    fn keystream(&self) -> Option<Box<dyn Keystream>> {
        match self.key {
            Key::Bits128 => counter::<Aes128>(&self.cipher_key),
            Key::Bits192 => counter::<Aes192>(&self.cipher_key),
            Key::Bits256 => counter::<Aes256>(&self.cipher_key),
        }
    }
}

/// The keystream of WinZip's AES, with a key of any length.
pub(super) trait Keystream: Send {
    /// Decrypts bytes that begin `at` bytes behind the beginning of the data.
    /// An error tells if bytes are left encrypted: where there is no CRC, no other check would find them.
    fn apply(&mut self, at: u64, data: &mut [u8]) -> Result<(), &'static str>;
}

impl<C> Keystream for Ctr128LE<C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + Send,
{
    fn apply(&mut self, at: u64, data: &mut [u8]) -> Result<(), &'static str> {
        self.try_seek(at).map_err(|_| ENDLESS)?;
        self.try_apply_keystream(data).map_err(|_| ENDLESS)
    }
}

/// Counter mode; the counter is little-endian and begins at 1.
fn counter<C>(key: &[u8]) -> Option<Box<dyn Keystream>>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit + Send + 'static,
{
    let first = 1_u128.to_le_bytes();
    let cipher = Ctr128LE::<C>::new_from_slices(key, &first).ok()?;
    Some(Box::new(cipher))
}

/// Decrypts a member's data piece by piece.
pub(super) enum Cipher {
    ZipCrypto {
        keys: Keys,
        /// The keys behind the bytes that were decrypted last, and the number of these bytes.
        ahead: (Keys, usize),
    },
    Aes {
        /// Salt and verifier.
        head: Vec<u8>,
        keystream: Box<dyn Keystream>,
        /// The number of bytes that were passed.
        at: u64,
        /// The HMAC of all bytes that were passed, if they begin with the data.
        hmac: Option<Hmac<Sha1>>,
    },
}

impl Cipher {
    /// Begins behind the head of a member.
    pub(super) fn new(
        lock: Lock,
        password: &Secret,
        head: &[u8],
        check: [u8; 2],
    ) -> Result<Self, DecodeError> {
        match lock {
            Lock::None | Lock::Unknown => Err(UNKNOWN.into()),
            Lock::ZipCrypto => {
                let (keys, last) = zip_crypto_head(password, head).ok_or(CUT)?;
                let cipher = Cipher::ZipCrypto { keys, ahead: (keys, 0) };
                if check.contains(&last) { Ok(cipher) } else { Err(WRONG) }
            }
            Lock::Aes { key, .. } => Self::aes(key, password, head, true).ok_or(WRONG),
        }
    }

    /// Goes on where [`Cipher::state`] was taken, `at` bytes behind the head.
    pub(super) fn resume(lock: Lock, password: &Secret, state: &[u8], at: u64) -> Option<Self> {
        match lock {
            Lock::None | Lock::Unknown => None,
            Lock::ZipCrypto => {
                let keys = Keys::read(state)?;
                Some(Cipher::ZipCrypto { keys, ahead: (keys, 0) })
            }
            Lock::Aes { key, .. } => {
                let mut cipher = Self::aes(key, password, state, false)?;
                if let Cipher::Aes { at: now, .. } = &mut cipher {
                    *now = at;
                }
                Some(cipher)
            }
        }
    }

    fn aes(key: Key, password: &Secret, head: &[u8], is_whole: bool) -> Option<Self> {
        let (salt, verifier) = head.split_at_checked(key.salt_bytes())?;
        let derived = Derived::new(password, key, salt);
        let hmac = if is_whole { Some(derived.hmac()?) } else { None };
        let keystream = derived.keystream()?;
        let cipher = Cipher::Aes { head: head.to_vec(), keystream, at: 0, hmac };
        (verifier == derived.verifier).then_some(cipher)
    }

    /// Decrypts the next bytes into `plain`, without passing them.
    pub(super) fn decrypt(
        &mut self,
        stored: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        plain.clear();
        match self {
            Cipher::ZipCrypto { keys, ahead } => {
                let mut now = *keys;
                plain.extend(stored.iter().map(|&byte| now.decrypt(byte)));
                *ahead = (now, stored.len());
                Ok(())
            }
            Cipher::Aes { keystream, at, .. } => {
                plain.extend_from_slice(stored);
                keystream.apply(*at, plain)
            }
        }
    }

    /// Passes these bytes, which are the next ones.
    pub(super) fn pass(&mut self, stored: &[u8]) {
        match self {
            Cipher::ZipCrypto { keys, ahead: (behind, length) } => {
                if stored.len() == *length {
                    *keys = *behind;
                } else {
                    for &byte in stored {
                        keys.decrypt(byte);
                    }
                }
            }
            Cipher::Aes { at, hmac, .. } => {
                *at = at.saturating_add(stored.len() as u64);
                if let Some(hmac) = hmac {
                    hmac.update(stored);
                }
            }
        }
    }

    /// Whether an HMAC behind the data can be checked.
    pub(super) fn has_tail(&self) -> bool {
        matches!(self, Cipher::Aes { hmac: Some(_), .. })
    }

    /// Checks all bytes that were passed against the HMAC behind the data.
    pub(super) fn check(&mut self, tail: &[u8]) -> Result<(), &'static str> {
        let Cipher::Aes { hmac, .. } = self else { return Ok(()) };
        let is_right = hmac.take().is_none_or(|hmac| hmac.verify_truncated_left(tail).is_ok());
        if is_right { Ok(()) } else { Err(TAMPERED) }
    }

    /// The bytes that [`Cipher::resume`] needs: [`Lock::state_bytes`] of them.
    pub(super) fn state(&self) -> Vec<u8> {
        match self {
            Cipher::ZipCrypto { keys, .. } => keys.write(),
            Cipher::Aes { head, .. } => head.clone(),
        }
    }
}

/// The state of the traditional cipher.
#[derive(Clone, Copy)]
pub(super) struct Keys(u32, u32, u32);

impl Keys {
    fn new(password: &[u8]) -> Self {
        let mut keys = Keys(0x1234_5678, 0x2345_6789, 0x3456_7890);
        for &byte in password {
            keys.update(byte);
        }
        keys
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let key = |at: usize| u32_at(bytes, at);
        Some(Keys(key(0)?, key(4)?, key(8)?))
    }

    fn write(self) -> Vec<u8> {
        [self.0, self.1, self.2].map(u32::to_le_bytes).concat()
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

/// Adds a byte to a CRC-32 that is neither inverted before nor after.
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

/// Decrypts the header of the traditional cipher: returns the keys behind it, and its last byte.
fn zip_crypto_head(password: &Secret, stored: &[u8]) -> Option<(Keys, u8)> {
    let head = stored.get(..ZIP_CRYPTO_HEAD)?;
    let mut keys = Keys::new(password.reveal());
    let last = head.iter().map(|&byte| keys.decrypt(byte)).last()?;
    Some((keys, last))
}
