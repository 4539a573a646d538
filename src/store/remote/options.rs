//! How stores are reached and cached: what the command line, `-o`, fstab and config files say under the same names.

use std::path::PathBuf;
use std::time::Duration;

/// How stores are reached and cached. The environment of the usual command-line programs counts where this says
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Another server of the same protocol, such as MinIO; `http://` only if it says so.
    pub endpoint: Option<String>,
    /// The region of S3 buckets.
    pub region: Option<String>,
    /// Requests are not signed.
    pub anonymous: bool,
    /// The profile in the AWS configuration.
    pub profile: Option<String>,
    /// A file with credentials, in the form that the store's own programs use.
    pub credentials: Option<PathBuf>,
    /// A file with further headers for HTTP requests, one a line.
    pub header: Option<PathBuf>,
    /// Whether the bucket stands in the path, not in the host name; by default with an endpoint.
    pub path_style: Option<bool>,
    /// Certificates to trust beside the system's, in PEM.
    pub ca: Option<PathBuf>,
    /// Where fetched bytes are kept.
    pub cache: CachePlace,
    /// What the cache may hold; by default what the file system has room for.
    pub cache_max: Option<CacheMax>,
    /// Whether a request that takes long is sent a second time.
    pub hedge: bool,
    /// At most so many requests at a time.
    pub max_in_flight: usize,
    /// How long an answer may make no progress.
    pub timeout: Duration,
}

/// Where fetched bytes are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CachePlace {
    /// In the user's cache directory.
    #[default]
    User,
    /// In this directory.
    Directory(PathBuf),
    /// Nowhere: in memory, until they are read.
    None,
}

/// What the cache may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMax {
    /// So many bytes.
    Bytes(u64),
    /// So much of its file system, in percent.
    Percent(u8),
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            anonymous: false,
            profile: None,
            credentials: None,
            header: None,
            path_style: None,
            ca: None,
            cache: CachePlace::User,
            cache_max: None,
            hedge: true,
            max_in_flight: 256,
            timeout: Duration::from_secs(10),
        }
    }
}
