//! Kerberos identities in files: the principal of a keytab or a ticket cache. The Kerberos library reads the keys and
//! tickets themselves, whenever it needs them.
//!
//! Imports nothing of the project.

use std::path::Path;

/// A principal, and the file with its keys or tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// `name@REALM` or `name/host@REALM`.
    pub(super) principal: String,
    pub(super) proof: Proof,
}

/// The kind of file, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proof {
    Keytab(String),
    Tickets(String),
}

/// The identity in this file: the first one of a keytab, the default one of a ticket cache.
pub(super) fn identity(path: &Path) -> Result<Identity, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.to_str().ok_or_else(|| format!("{}: not UTF-8", path.display()))?.to_owned();
    let found = match bytes.get(..2) {
        Some([5, 2]) => first_of_keytab(&bytes).map(|who| (who, Proof::Keytab(name))),
        Some([5, 3 | 4]) => default_of_tickets(&bytes).map(|who| (who, Proof::Tickets(name))),
        _ => None,
    };
    let (principal, proof) = found.ok_or_else(|| {
        format!(
            "{} is neither a keytab nor a Kerberos ticket cache with an identity in it; HDFS takes no \
             other credentials",
            path.display()
        )
    })?;
    Ok(Identity { principal, proof })
}

/// The unread rest of a file, with integers in network order.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<usize> {
        self.take(2).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)
    }

    /// A text after its length, which has 16 or 32 bits.
    fn text(&mut self, wide: bool) -> Option<&'a str> {
        let length = if wide { usize::try_from(self.u32()?).ok()? } else { self.u16()? };
        std::str::from_utf8(self.take(length)?).ok()
    }

    /// A realm and `count` components of a name.
    fn principal(&mut self, count: usize, wide: bool) -> Option<String> {
        let realm = self.text(wide)?;
        let mut name = String::new();
        for index in 0..count {
            name.push_str(if index > 0 { "/" } else { "" });
            name.push_str(self.text(wide)?);
        }
        (!name.is_empty()).then(|| format!("{name}@{realm}"))
    }
}

/// The first entry. Each entry follows its length; a negative length is a hole of that many bytes.
fn first_of_keytab(bytes: &[u8]) -> Option<String> {
    let mut rest = Rest(bytes.get(2..)?);
    loop {
        let length = rest.u32()?.cast_signed();
        let entry = rest.take(usize::try_from(length.unsigned_abs()).ok()?)?;
        if length > 0 {
            let mut entry = Rest(entry);
            let count = entry.u16()?;
            return entry.principal(count, false);
        }
        if length == 0 {
            return None;
        }
    }
}

/// The default principal, after the header of version 4: its type, number of components, realm and components.
fn default_of_tickets(bytes: &[u8]) -> Option<String> {
    let mut rest = Rest(bytes.get(2..)?);
    if bytes.get(1) == Some(&4) {
        let header = rest.u16()?;
        rest.take(header)?;
    }
    let (_kind, count) = (rest.u32()?, rest.u32()?);
    rest.principal(usize::try_from(count).ok()?, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keytab() -> Vec<u8> {
        let entry = b"\0\x02\0\x07EXAMPLE\0\x03ann\0\x04host\0\0\0\x01the rest";
        let mut file = vec![5, 2];
        file.extend((-3i32).to_be_bytes());
        file.extend(b"abc");
        file.extend(u32::try_from(entry.len()).unwrap().to_be_bytes());
        file.extend(entry);
        file
    }

    const TICKETS: &[u8] =
        b"\x05\x04\0\x02xx\0\0\0\x01\0\0\0\x01\0\0\0\x07EXAMPLE\0\0\0\x03bob and tickets";

    #[test]
    fn the_principal_of_a_keytab_and_of_a_ticket_cache_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, keytab()).unwrap();
        let name = path.to_str().unwrap().to_owned();
        let expected =
            Identity { principal: "ann/host@EXAMPLE".into(), proof: Proof::Keytab(name.clone()) };
        assert_eq!(identity(&path).unwrap(), expected);
        std::fs::write(&path, TICKETS).unwrap();
        let expected =
            Identity { principal: "bob@EXAMPLE".into(), proof: Proof::Tickets(name.clone()) };
        assert_eq!(identity(&path).unwrap(), expected);
        std::fs::write(&path, "[default]\naws_access_key_id = x\n").unwrap();
        assert!(identity(&path).unwrap_err().contains("neither a keytab"));
    }

    #[test]
    fn a_damaged_file_has_no_principal_and_no_panic() {
        for whole in [keytab(), TICKETS.to_vec()] {
            for length in 0..whole.len() {
                let _ = first_of_keytab(&whole[..length]);
                let _ = default_of_tickets(&whole[..length]);
            }
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] = 0xff;
                let _ = first_of_keytab(&damaged);
                let _ = default_of_tickets(&damaged);
            }
        }
    }
}
