//! The location of an object: its URL in parts.
//!
//! A URL has the keys of object stores and the paths of HDFS unencoded, as in the stores' own programs. Paths of HTTP
//! stay percent-encoded, as only the server knows their meaning. Imports from [`crate::format`].

use super::{ErrorKind, StoreError};
use crate::format::PartName;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt;

/// The protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `s3://bucket/key`.
    S3,
    /// `gs://bucket/key`.
    Gs,
    /// `az://container/key`, also `abfss://container@account.dfs.core.windows.net/key`.
    Azure,
    /// `http://host/path`.
    Http,
    /// `https://host/path`.
    Https,
    /// `hdfs://nameservice/path`, `hdfs://host:port/path` or `hdfs:///path`.
    Hdfs,
    /// `hf://datasets/ORG/NAME[@REV]/path`.
    HuggingFace,
}

/// The location of an object, or the common prefix of several.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The protocol.
    pub scheme: Scheme,
    /// The bucket, container (for Azure perhaps with `@account.host`), host and port, name service (may be empty), or
    /// `datasets/ORG/NAME[@REV]`.
    pub authority: String,
    /// The key or path, without a leading slash; percent-encoded for HTTP, otherwise not.
    pub key: String,
    /// The query of an HTTP URL, such as a signature, with its question mark; a secret, never displayed.
    pub query: String,
}

/// The characters to encode in the path of an HTTP URL.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// The characters to encode in a name that is not encoded yet.
const NAME: &AsciiSet = &PATH.add(b'%');

impl Scheme {
    /// The first name of each scheme is the displayed one.
    const ALL: [(&str, Scheme); 10] = [
        ("s3", Scheme::S3),
        ("s3a", Scheme::S3),
        ("gs", Scheme::Gs),
        ("az", Scheme::Azure),
        ("abfss", Scheme::Azure),
        ("abfs", Scheme::Azure),
        ("http", Scheme::Http),
        ("https", Scheme::Https),
        ("hdfs", Scheme::Hdfs),
        ("hf", Scheme::HuggingFace),
    ];

    /// The name before `://`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }

    fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https)
    }
}

impl Location {
    /// Parses a URL. `None` for a path; `file://` is left to the caller as a path, too.
    ///
    /// # Errors
    /// A URL of an unknown scheme, without a bucket or host, or with a password in it. The error names the URL
    /// without its password and query.
    pub fn parse(text: &str) -> Option<Result<Self, StoreError>> {
        let (scheme, rest) = text.split_once("://")?;
        if scheme.contains('/') || scheme.eq_ignore_ascii_case("file") {
            return None;
        }
        let parsed = parse(scheme, rest);
        Some(parsed.map_err(|why| StoreError::new(without_secrets(text), ErrorKind::Refused, why)))
    }

    /// The name in messages and statistics, without the query.
    #[must_use]
    pub fn name(&self) -> PartName {
        PartName::Url(self.to_string())
    }

    /// The last component of the key, decoded, unless no file can have that name; empty for a prefix that ends with a slash.
    #[must_use]
    pub fn file_name(&self) -> Cow<'_, str> {
        let last = self.key.rsplit('/').next().unwrap_or_default();
        let decoded = self.scheme.is_http().then(|| percent_decode_str(last).decode_utf8_lossy());
        decoded.filter(|name| !name.contains(['/', '\0'])).unwrap_or(last.into())
    }

    /// The object `name` below this prefix; `name` is not encoded, and may contain slashes.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let slash = if self.key.is_empty() || self.key.ends_with('/') { "" } else { "/" };
        let encoded = self.encoded(name);
        Self { key: format!("{}{slash}{encoded}", self.key), ..self.clone() }
    }

    /// The object beside this one whose name has `suffix` added, such as `.ffrsum`.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        Self { key: format!("{}{}", self.key, self.encoded(suffix)), ..self.clone() }
    }

    /// The object `key` in the same bucket, container or server; `key` is not encoded.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: self.encoded(key).into_owned(), ..self.clone() }
    }

    /// The prefix that contains this object or prefix, with its slash; `None` for a whole bucket or server.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.key.is_empty() {
            return None;
        }
        let inner = self.key.strip_suffix('/').unwrap_or(&self.key);
        let key = inner.rfind('/').map_or("", |slash| &inner[..=slash]);
        Some(Self { key: key.to_owned(), ..self.clone() })
    }

    /// Whether the location can only be a prefix: a whole bucket or server, or a key with a trailing slash.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    fn encoded<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.scheme.is_http() { utf8_percent_encode(name, NAME).into() } else { name.into() }
    }
}

fn parse(scheme: &str, rest: &str) -> Result<Location, String> {
    let found = Scheme::ALL.iter().find(|(name, _)| scheme.eq_ignore_ascii_case(name));
    let Some(&(_, scheme)) = found else {
        return Err("the scheme is unknown: use s3, gs, az, http, https, hdfs or hf".into());
    };
    let rest = if scheme.is_http() { rest.split('#').next().unwrap_or_default() } else { rest };
    let (rest, query) = match rest.find('?').filter(|_| scheme.is_http()) {
        Some(mark) => rest.split_at(mark),
        None => (rest, ""),
    };
    let (authority, key) = match scheme {
        Scheme::HuggingFace => split_repository(rest)?,
        _ => rest.split_once('/').unwrap_or((rest, "")),
    };
    check_authority(scheme, authority)?;
    if key.split('/').any(is_dot) {
        return Err("`.` and `..` cannot be part of a key or path".into());
    }
    if key.chars().any(char::is_control) || query.chars().any(char::is_control) {
        return Err("control characters cannot be part of a URL".into());
    }
    let (authority, key) = match scheme.is_http() {
        true => (authority.to_ascii_lowercase(), encode_path(key)),
        false => (authority.to_owned(), key.to_owned()),
    };
    let query = utf8_percent_encode(query, QUERY).to_string();
    Ok(Location { scheme, authority, key, query })
}

/// The characters to encode in a query.
const QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>');

fn is_dot(segment: &str) -> bool {
    let segment = percent_decode_str(segment).decode_utf8_lossy();
    segment == "." || segment == ".."
}

/// A percent sign that begins no escape stands for itself.
fn encode_path(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for (i, piece) in path.split('%').enumerate() {
        if i > 0 {
            let is_escape =
                piece.len() >= 2 && piece.bytes().take(2).all(|b| b.is_ascii_hexdigit());
            encoded.push_str(if is_escape { "%" } else { "%25" });
        }
        encoded.extend(utf8_percent_encode(piece, PATH));
    }
    encoded
}

/// Splits `datasets/ORG/NAME[@REV]` from the path. A revision such as `refs/convert/parquet` has slashes.
fn split_repository(rest: &str) -> Result<(&str, &str), String> {
    let wrong = || "use hf://datasets/ORG/NAME[@REV]/path".to_owned();
    if !rest.starts_with("datasets/") {
        return Err(wrong());
    }
    let mut slashes = rest.match_indices('/').map(|(at, _)| at);
    let (_, second) = (slashes.next(), slashes.next().ok_or_else(wrong)?);
    let mut end = slashes.next();
    let name = &rest[second + 1..end.unwrap_or(rest.len())];
    if name.is_empty() || second == "datasets/".len() {
        return Err(wrong());
    }
    if name.ends_with("@refs") {
        let kind = end.ok_or_else(wrong)?;
        let revision = slashes.next().filter(|at| *at > kind + 1).ok_or_else(wrong)?;
        end = slashes.next();
        if end.unwrap_or(rest.len()) == revision + 1 {
            return Err(wrong());
        }
    }
    let end = end.unwrap_or(rest.len());
    Ok((&rest[..end], rest.get(end + 1..).unwrap_or_default()))
}

/// The authority becomes part of host names, paths and headers, so it must not contain their delimiters.
fn check_authority(scheme: Scheme, authority: &str) -> Result<(), String> {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let (host, in_front) = match authority.rsplit_once('@') {
        Some((before, host)) => (host, Some(before)),
        None => (authority, None),
    };
    match (scheme, in_front) {
        (Scheme::HuggingFace, _) => {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_./@%".contains(c);
            let fits = authority.chars().all(fits) && !authority.split('/').any(is_dot);
            return fits.then_some(()).ok_or_else(|| "this cannot be the name of a dataset".into());
        }
        (Scheme::Azure, Some(container)) if is_name(container) && is_name(host) => return Ok(()),
        (Scheme::Hdfs, None) if host.is_empty() => return Ok(()),
        (Scheme::Http | Scheme::Https, Some(_)) => {
            return Err(
                "a name or password in a URL can be read by every user of this machine: put \
                        it into ~/.netrc, or into a file of headers (option `header`)"
                    .into(),
            );
        }
        (_, Some(_)) => {
            return Err(
                "a name or password in a URL can be read by every user of this machine: use \
                        the environment or the option `credentials`"
                    .into(),
            );
        }
        (Scheme::Http | Scheme::Https | Scheme::Hdfs, None) => {}
        (_, None) if is_name(host) => return Ok(()),
        (_, None) if host.is_empty() => return Err("the bucket or container is missing".into()),
        (_, None) => return Err("this cannot be the name of a bucket or container".into()),
    }
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("ipv6", port.strip_prefix(':').or(port.is_empty().then_some("80")))
        }
        Some(_) => ("", None),
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, Some("80")),
        },
    };
    match is_name(name) && port.is_some_and(|port| port.parse::<u16>().is_ok()) {
        true => Ok(()),
        false => Err("this cannot be a host and port".into()),
    }
}

/// The text for messages about a URL that cannot be parsed, whose password may be anywhere.
fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}://…@{rest}"),
        None => text.to_owned(),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}/{}", self.scheme.name(), self.authority, self.key)
    }
}

/// Hides the query, which is a secret.
impl fmt::Debug for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.query.is_empty() { "" } else { "?…" };
        write!(out, "{self}{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Location {
        Location::parse(text).expect("a URL").expect(text)
    }

    fn refusal(text: &str) -> String {
        Location::parse(text).expect("a URL").expect_err(text).to_string()
    }

    #[test]
    fn a_path_is_no_url() {
        for path in ["/data/train.ffr", "train.tar", "./a://b", "file:///data/x.zip", "c:/x"] {
            assert_eq!(Location::parse(path), None, "{path}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, scheme, authority, key, query) in [
            ("s3://b/a/k.tar", Scheme::S3, "b", "a/k.tar", ""),
            ("s3a://b", Scheme::S3, "b", "", ""),
            ("s3://b/a//k?x=%20#1", Scheme::S3, "b", "a//k?x=%20#1", ""),
            ("gs://my_bucket/ü @.tar", Scheme::Gs, "my_bucket", "ü @.tar", ""),
            ("az://c/k", Scheme::Azure, "c", "k", ""),
            (
                "abfss://c@a.dfs.core.windows.net/k",
                Scheme::Azure,
                "c@a.dfs.core.windows.net",
                "k",
                "",
            ),
            (
                "HTTP://Host:80/A%20b c?sig=a%2Fb#top",
                Scheme::Http,
                "host:80",
                "A%20b%20c",
                "?sig=a%2Fb",
            ),
            ("https://[::1]:8443/100%", Scheme::Https, "[::1]:8443", "100%25", ""),
            ("hdfs:///d/x", Scheme::Hdfs, "", "d/x", ""),
            ("hdfs://nn:8020/d", Scheme::Hdfs, "nn:8020", "d", ""),
            ("hf://datasets/o/n/a/b", Scheme::HuggingFace, "datasets/o/n", "a/b", ""),
            ("hf://datasets/o/n@v1/a", Scheme::HuggingFace, "datasets/o/n@v1", "a", ""),
            (
                "hf://datasets/o/n@refs/convert/parquet/a",
                Scheme::HuggingFace,
                "datasets/o/n@refs/convert/parquet",
                "a",
                "",
            ),
            ("hf://datasets/o/n", Scheme::HuggingFace, "datasets/o/n", "", ""),
        ] {
            let (authority, key, query) = (authority.into(), key.into(), query.into());
            assert_eq!(parsed(text), Location { scheme, authority, key, query }, "{text}");
        }
    }

    #[test]
    fn a_url_that_names_no_store_is_refused() {
        for text in [
            "ftp://h/x",
            "s3:///key",
            "s3://b:1/key",
            "http:///x",
            "http://h:x/",
            "https://[::1/x",
            "hf://models/o/n",
            "hf://datasets/o",
            "hf://datasets//n/x",
            "hf://datasets/o/n@refs",
            "hf://datasets/o/n@refs/convert",
            "hf://datasets/o/n@refs/convert/",
            "hf://datasets/o/n@refs//parquet/a",
            "hf://datasets/o/n@refs/convert//a",
            "s3://b/../x",
            "s3://b/\n",
            "http://h/%2e%2E/x",
            "abfss://c@a/b@c@d/..",
            "http://a b/c",
            "gs://b\r\nx: y/k",
        ] {
            refusal(text);
        }
    }

    #[test]
    fn a_password_is_refused_and_not_shown() {
        for text in [
            "https://me:hush@h/x",
            "https://hush@h/x",
            "https://me:hush/hush@h/x",
            "s3://id:hush@b/k",
            "hdfs://me:hush@nn/x",
            "ftp://me:hush@h/x?hush",
            "http://h:hush@/x?token=hush",
        ] {
            let message = refusal(text);
            assert!(!message.contains("hush"), "{message}");
        }
    }

    #[test]
    fn the_query_of_a_signed_url_is_kept_and_not_shown() {
        let signed = parsed("https://h/x.tar?X-Amz-Signature=hush");
        assert_eq!(signed.query, "?X-Amz-Signature=hush");
        let shown = format!("{signed} {signed:?} {:?}", signed.name());
        assert!(!shown.contains("hush"), "{shown}");
        assert_eq!(signed.file_name(), "x.tar");
    }

    #[test]
    fn neighbours_are_found_by_name() {
        let key = parsed("s3://b/a/x.tar");
        assert_eq!(key.with_suffix(".ffrsum").key, "a/x.tar.ffrsum");
        assert_eq!(key.parent().map(|l| l.key).as_deref(), Some("a/"));
        assert_eq!(key.parent().and_then(|l| l.parent()).map(|l| l.key).as_deref(), Some(""));
        assert_eq!(parsed("s3://b").parent(), None);
        assert_eq!(parsed("s3://b").join("x%y").key, "x%y");
        assert_eq!(parsed("s3://b/a").join("x").key, "a/x");
        let path = parsed("https://h/a%20b/");
        assert_eq!(path.join("1 %.tar").key, "a%20b/1%20%25.tar");
        assert_eq!(path.join("1 %.tar").file_name(), "1 %.tar");
        assert!(path.is_prefix() && !key.is_prefix());
        // An encoded slash separates nothing.
        let within = parsed("https://h/d/a%2Fb");
        assert_eq!((within.file_name().as_ref(), within.is_prefix()), ("a%2Fb", false));
        assert_eq!(path.join("a%2Fb").file_name(), "a%2Fb");
    }

    proptest! {
        #[test]
        fn what_is_displayed_means_the_same(
            scheme in prop::sample::select(vec!["s3", "gs", "az", "http", "https", "hdfs", "hf"]),
            rest in "(datasets/)?[a-z@:%. /]{0,6}[a-zA-Z0-9%/?#@ü {}._-]{0,24}",
        ) {
            if let Some(Ok(location)) = Location::parse(&format!("{scheme}://{rest}")) {
                let again = parsed(&location.to_string());
                prop_assert_eq!(&again, &Location { query: String::new(), ..location.clone() });
                if let Some(parent) = location.parent() {
                    prop_assert!(parent.is_prefix() && location.key.starts_with(&parent.key));
                    if !location.is_prefix() {
                        let name = location.file_name().into_owned();
                        let joined = parent.join(&name);
                        prop_assert_eq!(joined.file_name(), name);
                    }
                }
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = Location::parse(&text);
            let _ = Location::parse(&format!("hf://{text}"));
            let _ = Location::parse(&format!("https://{text}"));
        }
    }
}
