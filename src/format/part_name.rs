//! Names of parts of a dataset: a file has its path, an object its URL.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The name of a part: one container file of a dataset, or a file that belongs to one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartName {
    /// A local file.
    Path(PathBuf),
    /// An object elsewhere, with its scheme.
    Url(String),
}

impl PartName {
    /// The path of a local file; `None` for a URL.
    #[must_use]
    pub fn as_path(&self) -> Option<&Path> {
        match self {
            PartName::Path(path) => Some(path),
            PartName::Url(_) => None,
        }
    }

    /// The whole name as bytes; a path need not be UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            PartName::Path(path) => path.as_os_str().as_bytes(),
            PartName::Url(url) => url.as_bytes(),
        }
    }

    /// The last component; empty if the name has none. A URL's query is not part of it.
    #[must_use]
    pub fn file_name(&self) -> &Path {
        let whole = match self {
            PartName::Path(path) => path,
            PartName::Url(url) => Path::new(without_query(url)),
        };
        Path::new(whole.file_name().unwrap_or_default())
    }

    /// The name of the member `path` of an archive that has this name.
    #[must_use]
    pub fn member(&self, path: &[u8]) -> Self {
        match self {
            PartName::Path(archive) => PartName::Path(archive.join(OsStr::from_bytes(path))),
            PartName::Url(url) => PartName::Url(format!("{url}/{}", String::from_utf8_lossy(path))),
        }
    }
}

fn without_query(url: &str) -> &str {
    url.split_once(['?', '#']).map_or(url, |(address, _)| address)
}

impl PartName {
    /// Whether the name has one of these endings, perhaps with others behind it: `train.tfrecord-00000-of-00064.gz`.
    #[must_use]
    pub fn has_ending_within(&self, endings: &[&str]) -> bool {
        let name =
            self.file_name().file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let mut parts = name.split('.').skip(1).map(|part| part.split('-').next().unwrap_or(part));
        parts.any(|part| endings.contains(&part))
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartName::Path(path) => path.display().fmt(out),
            PartName::Url(url) => out.pad(url),
        }
    }
}

impl Default for PartName {
    fn default() -> Self {
        PartName::Path(PathBuf::new())
    }
}

/// A source as a user names it: a URL if a scheme and `://` stand in front, else a path; `file:///data/a.tar` is the
/// path `/data/a.tar`.
impl From<OsString> for PartName {
    fn from(source: OsString) -> Self {
        if let Some(path) = source.as_bytes().strip_prefix(b"file://") {
            let path = path.strip_prefix(b"localhost").unwrap_or(path);
            if path.starts_with(b"/") {
                return PartName::Path(OsString::from_vec(without_percents(path)).into());
            }
        }
        match source.to_str() {
            Some(text) if has_scheme(text) => PartName::Url(text.to_owned()),
            _ => PartName::Path(source.into()),
        }
    }
}

fn has_scheme(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else { return false };
    let mut bytes = scheme.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Decodes `%20` and the like.
fn without_percents(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                out.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

impl From<PathBuf> for PartName {
    fn from(path: PathBuf) -> Self {
        PartName::Path(path)
    }
}

impl From<&Path> for PartName {
    fn from(path: &Path) -> Self {
        PartName::Path(path.to_owned())
    }
}

impl From<String> for PartName {
    fn from(path: String) -> Self {
        PartName::Path(path.into())
    }
}

impl From<&str> for PartName {
    fn from(path: &str) -> Self {
        PartName::Path(path.into())
    }
}

/// As text; bytes of a path that are not UTF-8 become U+FFFD.
impl Serialize for PartName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(if text.contains("://") { PartName::Url(text) } else { text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_url_have_a_file_name_and_members() {
        let path = PartName::from("/data/train.tar");
        assert_eq!(path.file_name(), Path::new("train.tar"));
        assert_eq!(path.member(b"a/b.zip"), PartName::from("/data/train.tar/a/b.zip"));
        let url = PartName::Url("s3://bucket/shards/train.tar?versionId=7".to_owned());
        assert_eq!(url.file_name(), Path::new("train.tar"));
        assert_eq!(url.to_string(), "s3://bucket/shards/train.tar?versionId=7");
        assert_eq!((path.as_path(), url.as_path()), (Some(Path::new("/data/train.tar")), None));
        assert_eq!(PartName::from("/").file_name(), Path::new(""));
    }

    #[test]
    fn a_source_with_a_scheme_is_a_url_and_a_file_url_is_a_path() {
        let source = |text: &str| PartName::from(OsString::from(text));
        for url in ["s3://b/train.ffr", "https://host/a.zip?sig=1", "file://elsewhere/a"] {
            assert_eq!(source(url), PartName::Url(url.to_owned()));
        }
        for path in ["a.tar", "./s3://b/a", "{s3://b/a,x}", "://a", "3s://b/a", "s3:/b/a"] {
            assert_eq!(source(path), PartName::Path(path.into()));
        }
        assert_eq!(source("file:///data/my%20a.tar"), PartName::from("/data/my a.tar"));
        assert_eq!(source("file://localhost/50%25%2"), PartName::from("/50%%2"));
        let bytes = OsString::from_vec(b"/data/\xff".to_vec());
        assert_eq!(PartName::from(bytes.clone()), PartName::Path(bytes.into()));
    }
}
