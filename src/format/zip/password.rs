//! Tries whether a password is right. Imports `crypto`, `method` and `record`.

use super::crypto::Lock;
use super::method::Method;
use super::record::{Head, LOCAL_BYTES};
use super::{ZipFile, reader};
use crate::format::bytes::u16_at;
use crate::format::{Error, OpenOptions, Result};

/// Encrypted members of at most this size are decrypted whole to try a password.
const MAX_PROOF_BYTES: u64 = 256 << 10;
/// The bytes of a larger compressed member that are decrypted, and the most bytes that are decoded from them.
const FRONT_BYTES: usize = 64 << 10;
const MAX_FRONT_DECODED_BYTES: u64 = 1 << 20;
/// The hint where no member accepts a password.
const SURELY: &str = " (--allow-damaged serves the members that do not need it)";
/// The hint where the password may be wrong or the members damaged.
const OR_DAMAGED: &str = " or damaged: what it decrypts does not match its CRC-32, or cannot be decoded \
     (--allow-damaged serves the members that do not need it)";
/// The hints where the password may be wrong, or that of very few members.
const OR_OF_ONE: &str = ", or one that only one large member has; 1 of 256 wrong ones looks so, too \
     (--allow-damaged uses it)";
const OR_OF_TWO: &str = ", or one that only two large members have; 1 of 256 wrong ones looks so, too \
     (--allow-damaged uses it)";

/// Whether the first encrypted members accept a password.
enum Verdict {
    Fits,
    /// The hint names other possible causes, and options.
    Wrong(&'static str),
}

impl ZipFile {
    /// Refuses a wrong password; where damage is allowed, the archive is served as without a password. `rows`: those of the
    /// first encrypted members.
    pub(super) fn try_password(&mut self, rows: &[u64], options: &OpenOptions) -> Result<()> {
        match self.fits(rows, options.allow_damaged) {
            Ok(Verdict::Fits) => Ok(()),
            Ok(Verdict::Wrong(_)) if options.allow_damaged => {
                self.password = None;
                let name = self.source.name();
                let why = "wrong password: its encrypted members cannot be read";
                self.warnings.push(format!("{name}: {why}"));
                Ok(())
            }
            Ok(Verdict::Wrong(hint)) => {
                Err(Error::WrongPassword { part: self.source.name().clone(), hint })
            }
            // Members that cannot be read tell nothing of the password.
            Err(_) if options.allow_damaged => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tries the password on the first few encrypted members: a wrong password is better refused here than found out by every
    /// reader. One of them must accept it; others may have other passwords. The traditional cipher accepts 1 or 2 of 256 wrong
    /// ones: there the member must also match its CRC or, if it is too large for that, its first bytes must be decodable.
    /// A large member that is stored proves nothing by itself. Unless no other member is asked, further ones must accept the
    /// password: one more beside the first member, two more beside a later one, as any pair of eight members lets four times
    /// as many wrong passwords through.
    fn fits(&self, rows: &[u64], allow_damaged: bool) -> Result<Verdict> {
        let Some(password) = &self.password else { return Ok(Verdict::Fits) };
        let (mut asked, mut accepting) = (0_u32, 0_u32);
        let (mut tried, mut first_accepts) = (false, false);
        for row in rows {
            let head = self.head(*row)?;
            let Some(stored) = self.stored_front(&head)? else { continue };
            asked = asked.saturating_add(1);
            if !head.lock.accepts(password, &stored, Self::check_bytes(&head)) {
                continue;
            }
            if head.lock != Lock::ZipCrypto {
                return Ok(Verdict::Fits);
            }
            accepting = accepting.saturating_add(1);
            first_accepts |= asked == 1;
            match self.is_proven(&head, &stored) {
                Some(true) => return Ok(Verdict::Fits),
                Some(false) => tried = true,
                None => {}
            }
        }
        Ok(match accepting {
            0 if asked > 0 => Verdict::Wrong(SURELY),
            // Members that do not match their CRC, or cannot be decoded, are damaged.
            2.. if allow_damaged => Verdict::Fits,
            _ if tried => Verdict::Wrong(OR_DAMAGED),
            1 if asked > 1 && !allow_damaged => Verdict::Wrong(OR_OF_ONE),
            2 if !first_accepts => Verdict::Wrong(OR_OF_TWO),
            _ => Verdict::Fits,
        })
    }

    /// Whether the first bytes of a member, or all of a small one, are decrypted rightly; `None` if that cannot be told.
    fn is_proven(&self, head: &Head, stored: &[u8]) -> Option<bool> {
        if !is_small(head) {
            return self.begins(head, stored);
        }
        let mut out = vec![0; usize::try_from(head.size_bytes).unwrap_or(0)];
        let is_decoded = self.decode_as(head, stored, &mut out).is_ok();
        Some(is_decoded && crc32fast::hash(&out) == head.crc32)
    }

    /// Whether the codec decodes the first bytes of a member; `None` if the member has no codec, or one that needs the whole
    /// member. Bytes that were not compressed fail soon, or end early.
    fn begins(&self, head: &Head, mut front: &[u8]) -> Option<bool> {
        Method::of(head.method).filter(|method| *method != Method::Stored)?;
        let mut decoder = self.decoder_of(head, None).ok()??;
        let (mut out, mut decoded) = (vec![0; FRONT_BYTES], 0_u64);
        while decoded < MAX_FRONT_DECODED_BYTES.min(head.size_bytes) {
            let Ok(step) = decoder.decode(front, &mut out, false) else { return Some(false) };
            decoded = decoded.saturating_add(step.given as u64);
            front = front.get(step.taken..)?;
            if step.is_end {
                return Some(decoded == head.size_bytes);
            }
            if step.taken == 0 && step.given == 0 {
                break;
            }
        }
        Some(decoded <= head.size_bytes)
    }

    /// The first stored bytes of an encrypted member, or all of a small one; `None` if its headers show a fault.
    fn stored_front(&self, head: &Head) -> Result<Option<Vec<u8>>> {
        let Some((at, room)) = self.room(head).filter(|_| self.fault_of(head).is_none()) else {
            return Ok(None);
        };
        let mut fixed = [0; LOCAL_BYTES as usize];
        reader(self.source.as_ref()).read("a local header", &mut fixed, at)?;
        let field = |at| u64::from(u16_at(&fixed, at).unwrap_or_default());
        let length = LOCAL_BYTES.saturating_add(field(26)).saturating_add(field(28));
        if length > room {
            return Ok(None);
        }
        let whole = usize::try_from(head.stored_bytes).unwrap_or(usize::MAX);
        let wanted = if is_small(head) { whole } else { FRONT_BYTES.min(whole) };
        let mut front = vec![0; wanted.max(head.lock.head_bytes())];
        let data_at = at.saturating_add(length);
        reader(self.source.as_ref()).read("an encrypted member", &mut front, data_at)?;
        Ok(Some(front))
    }
}

fn is_small(head: &Head) -> bool {
    head.stored_bytes.max(head.size_bytes) <= MAX_PROOF_BYTES
}
