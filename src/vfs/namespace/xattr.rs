//! Extended attributes: the place of a sample, and whether its checksum was found right. They are answered by name and
//! never listed: programs that copy all attributes of a file would write ours onto the copy.

use super::Namespace;
use crate::catalog::{Located, Node};
use crate::format::Checksum;
use crate::vfs::Errno;
use crate::vfs::inode::Inode;

/// The prefix of the names of our extended attributes.
pub const XATTR_PREFIX: &str = "user.ffrfs.";

impl Namespace {
    /// The value of an extended attribute of a sample.
    ///
    /// # Errors
    /// ENODATA: there is no attribute of this name. EOPNOTSUPP: there are no attributes of this kind, such as `security.*`;
    /// programs like `ls -l` then stop asking for them.
    pub(in crate::vfs) fn getxattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if !name.starts_with(b"user.") {
            return Err(Errno::EOPNOTSUPP);
        }
        let Inode::Node(Node::Sample(sample)) = Inode::of(ino) else { return Err(Errno::ENODATA) };
        let name = name.strip_prefix(XATTR_PREFIX.as_bytes()).ok_or(Errno::ENODATA)?;
        let Located { part, index, sample: at, .. } = self.samples.locate(sample)?;
        Ok(match name {
            b"container" => self.samples.name_of(part).as_bytes().to_vec(),
            b"index" => index.to_string().into_bytes(),
            b"offset" => at.offset_bytes.to_string().into_bytes(),
            b"length" => at.length_bytes.to_string().into_bytes(),
            b"crc32" => match at.checksum.and_then(Checksum::crc32) {
                Some(crc) => format!("{crc:08x}").into_bytes(),
                None => return Err(Errno::ENODATA),
            },
            b"verified" if self.samples.bad().contains(sample) => b"bad".to_vec(),
            b"verified" if self.samples.is_verified(sample) => b"yes".to_vec(),
            b"verified" => b"no".to_vec(),
            _ => return Err(Errno::ENODATA),
        })
    }
}
