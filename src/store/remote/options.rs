//! How stores are reached and cached: options with the same names on the command line, in `-o`, fstab and config files.

use std::path::PathBuf;
use std::time::Duration;

/// How stores are reached and cached. Options that are not set come from the environment variables of the usual
/// command-line programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Another server of the same protocol, such as MinIO; without encryption only for `http://`.
    pub endpoint: Option<String>,
    /// The region of S3 buckets.
    pub region: Option<String>,
    /// Do not sign requests.
    pub anonymous: bool,
    /// The profile in the AWS configuration.
    pub profile: Option<String>,
    /// A file with credentials, in the form that the store's own programs use.
    pub credentials: Option<PathBuf>,
    /// A file with additional headers for HTTP requests, one per line.
    pub header: Option<PathBuf>,
    /// Whether the bucket is in the URL's path instead of the host name; by default only with an endpoint.
    pub path_style: Option<bool>,
    /// Certificates to trust in addition to the system's, in PEM.
    pub ca: Option<PathBuf>,
    /// Where fetched bytes are cached.
    pub cache: CachePlace,
    /// The maximum size of the cache; by default the free space of the file system.
    pub cache_max: Option<CacheMax>,
    /// Whether slow requests are sent a second time.
    pub hedge: bool,
    /// The maximum number of concurrent requests.
    pub max_in_flight: usize,
    /// How long a response may make no progress.
    pub timeout: Duration,
}

/// Where fetched bytes are cached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CachePlace {
    /// In the user's cache directory.
    #[default]
    User,
    /// In this directory.
    Directory(PathBuf),
    /// Only in memory, until they are read.
    None,
}

/// The maximum size of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMax {
    /// In bytes.
    Bytes(u64),
    /// In percent of its file system.
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
