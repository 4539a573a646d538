//! Whether a password is right. Imports `crypto` and `record`.

use super::crypto::Lock;
use super::record::{Head, LOCAL_BYTES};
use super::{ZipFile, reader};
use crate::format::bytes::u16_at;
use crate::format::{Error, OpenOptions, Result};

/// Encrypted members of at most this size are decrypted to find that out.
const MAX_PROOF_BYTES: u64 = 256 << 10;

impl ZipFile {
    /// Refuses a wrong password; where damage is allowed, the archive is served as without one. `rows`: the first encrypted
    /// members.
    pub(super) fn try_password(&mut self, rows: &[u64], options: &OpenOptions) -> Result<()> {
        match self.fits(rows, options.allow_damaged) {
            Ok(true) => Ok(()),
            Ok(false) if options.allow_damaged => {
                self.password = None;
                let name = self.source.name();
                let why = "wrong password: its encrypted members cannot be read";
                self.warnings.push(format!("{name}: {why}"));
                Ok(())
            }
            Ok(false) => Err(Error::WrongPassword { part: self.source.name().clone() }),
            // What cannot be read tells nothing of the password.
            Err(_) if options.allow_damaged => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A wrong password is better refused than found out by every reader. The first encrypted member must accept
    /// it. The traditional cipher accepts one wrong password of 256: there, of the first few members one must also
    /// match its CRC, or at least another one accept it. With `any`, one of the first few suffices: others may have other
    /// passwords.
    fn fits(&self, rows: &[u64], any: bool) -> Result<bool> {
        let Some(password) = &self.password else { return Ok(true) };
        let (mut asked, mut accepting, mut tried) = (0_u32, 0_u32, false);
        for row in rows {
            let head = self.head(*row)?;
            let Some(stored) = self.stored_front(&head)? else { continue };
            let accepts = head.lock.accepts(password, &stored, Self::check_bytes(&head));
            if asked == 0 && !accepts && !any {
                return Ok(false);
            }
            if head.lock != Lock::ZipCrypto && (accepts || !any) {
                return Ok(true);
            }
            asked = asked.saturating_add(1);
            accepting = accepting.saturating_add(accepts.into());
            if accepts && stored.len() as u64 == head.stored_bytes {
                let mut out = vec![0; usize::try_from(head.size_bytes).unwrap_or(0)];
                if self.decode_as(&head, &stored, &mut out).is_ok()
                    && crc32fast::hash(&out) == head.crc32
                {
                    return Ok(true);
                }
                tried = true;
            }
        }
        if any && accepting >= 2 {
            // Those that do not match their CRC are damaged.
            return Ok(true);
        }
        // The first one accepts what any password would have to be accepted by, or there is no other proof.
        let unproven = if any { asked > 0 && accepting == 0 } else { asked > 1 && accepting < 2 };
        Ok(!tried && !unproven)
    }

    /// What an encrypted member begins with, or all of a small one; `None` if it cannot be read.
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
        let is_small = head.stored_bytes.max(head.size_bytes) <= MAX_PROOF_BYTES;
        let whole = usize::try_from(head.stored_bytes).ok().filter(|_| is_small);
        let mut front = vec![0; whole.unwrap_or(0).max(head.lock.head_bytes())];
        let data_at = at.saturating_add(length);
        reader(self.source.as_ref()).read("an encrypted member", &mut front, data_at)?;
        Ok(Some(front))
    }
}
