//! Options for sources that are URLs: how their stores are reached, and cached on this machine.

use crate::daemon::memory;
use crate::failure::Failure;
use crate::store::remote::{CacheMax, CachePlace, RemoteOptions};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The heading of the options about bytes of such sources that are kept on this machine.
const CACHE: &str = "The cache of remote sources";

/// Sources that are URLs: s3:// gs:// az:// https:// hdfs:// hf://
#[derive(Debug, Args, Clone, Default)]
#[command(next_help_heading = "Remote sources (s3:// gs:// az:// https:// hdfs:// hf://)")]
pub(super) struct RemoteArgs {
    /// Another server of the same protocol, such as MinIO, Ceph or R2
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The region of S3 buckets
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Send requests unsigned, for public buckets
    #[arg(long, conflicts_with_all = ["profile", "credentials"])]
    anonymous: bool,
    /// The profile in ~/.aws/config and ~/.aws/credentials
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// A file with credentials, as the store's own programs read it; a name without a slash may be one that systemd's
    /// LoadCredential= gives [default: as those programs find theirs]
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// A file with further headers of HTTP requests, one `Name: value` per line
    #[arg(long, value_name = "FILE")]
    header: Option<PathBuf>,
    /// Name the bucket in the path of requests, not in the host name (always so with --endpoint)
    #[arg(long, alias = "path_style")]
    path_style: bool,
    /// Certificates to trust beside the system's, in PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Whether a request that takes unusually long is sent a second time
    #[arg(long, value_name = "yes|no")]
    hedge: Option<Hedge>,
    /// Send at most N requests at a time [default: 256]
    #[arg(long, alias = "max_in_flight", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    max_in_flight: Option<u16>,
    /// How long an answer may make no progress until the request is sent again [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds::seconds)]
    timeout: Option<Duration>,
    /// Where fetched bytes are kept for later mounts [default: ~/.cache/ffrfs, for root /var/cache/ffrfs]
    #[arg(long, alias = "cache_dir", value_name = "DIR")]
    #[arg(help_heading = CACHE)]
    pub(super) cache_dir: Option<PathBuf>,
    /// How much fetched bytes may take there, and how much decoded copies beside them (--cache-size is another thing, a part of
    /// the memory)
    #[arg(long, alias = "cache_max", value_name = "SIZE|PERCENT", value_parser = cache_max)]
    #[arg(help_heading = CACHE)]
    cache_max: Option<CacheMax>,
    /// Whether fetched bytes are kept on this machine
    #[arg(long, value_name = "WHERE")]
    #[arg(help_heading = CACHE)]
    cache: Option<CacheChoice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CacheChoice {
    /// In a directory (--cache-dir)
    Disk,
    /// In memory, until they are read
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Hedge {
    Yes,
    No,
}

/// `500G`, or `80%` of the file system.
fn cache_max(text: &str) -> Result<CacheMax, String> {
    match text.strip_suffix('%') {
        None => memory::size(text).map(CacheMax::Bytes),
        Some(percent) => match percent.parse() {
            Ok(percent @ 1..=100) => Ok(CacheMax::Percent(percent)),
            _ => Err("a percentage from 1% to 100% is needed".to_owned()),
        },
    }
}

impl RemoteArgs {
    /// The files and directories that the options name.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = [&self.cache_dir, &self.credentials, &self.header, &self.ca];
        paths.into_iter().flatten().map(PathBuf::as_path)
    }

    /// The options, without clap. A daemon changes its directory: paths are absolute.
    pub(super) fn options(&self) -> Result<RemoteOptions, Failure> {
        let default = RemoteOptions::default();
        let absolute = |path: &Option<PathBuf>| {
            let absolute = |path: &PathBuf| {
                std::path::absolute(path).map_err(|e| Failure::unreadable(path.display(), e))
            };
            path.as_ref().map(absolute).transpose()
        };
        // A name without a directory may be that of a credential which systemd gives.
        let is_name = |path: &&PathBuf| path.components().count() == 1 && !path.exists();
        check_header(self.header.as_deref())?;
        let cache = match (self.cache, absolute(&self.cache_dir)?) {
            (Some(CacheChoice::None), Some(_)) => {
                return Err(Failure::usage("--cache none cannot be used with --cache-dir"));
            }
            (Some(CacheChoice::None), None) => CachePlace::None,
            (_, Some(directory)) => CachePlace::Directory(directory),
            _ => CachePlace::User,
        };
        Ok(RemoteOptions {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            anonymous: self.anonymous,
            profile: self.profile.clone(),
            credentials: match self.credentials.as_ref().filter(is_name) {
                Some(name) => Some(name.clone()),
                None => absolute(&self.credentials)?,
            },
            header: absolute(&self.header)?,
            path_style: self.path_style.then_some(true),
            ca: absolute(&self.ca)?,
            cache,
            cache_max: self.cache_max,
            hedge: self.hedge != Some(Hedge::No),
            max_in_flight: self.max_in_flight.map_or(default.max_in_flight, usize::from),
            timeout: self.timeout.unwrap_or(default.timeout),
        })
    }
}

/// Refuses a header itself in place of a file with headers, without quoting it.
fn check_header(header: Option<&Path>) -> Result<(), Failure> {
    let is_header = header.is_some_and(|path| {
        let bytes = path.as_os_str().as_encoded_bytes();
        bytes.contains(&b':') && !path.exists()
    });
    match is_header {
        true => Err(Failure::usage(
            "header=FILE names a file with one `Name: value` per line: a header itself would be seen by everybody, in the \
             list of processes and among the mount options",
        )),
        false => Ok(()),
    }
}

/// The reason why an option must not be given with `-o`, if it is a secret.
pub(super) fn refusal(name: &str) -> Option<String> {
    // As in AWS_SECRET_ACCESS_KEY, AZURE_CLIENT_SECRET, AZURE_STORAGE_SAS_TOKEN, HF_TOKEN.
    const SECRETS: [&str; 6] = ["password", "passwd", "pass", "token", "bearer", "secret"];
    const ENDS: [&str; 7] = [
        "-password",
        "-token",
        "-secret",
        "access-key",
        "access-key-id",
        "account-key",
        "secret-key",
    ];
    let is_secret = SECRETS.contains(&name) || ENDS.iter().any(|end| name.ends_with(end));
    let instead = match name {
        "password" | "passwd" | "pass" => {
            "password-file=FILE for an encrypted archive, credentials=FILE for a store"
        }
        _ => "credentials=FILE, profile=NAME, or the environment (EnvironmentFile= of a service)",
    };
    is_secret
        .then(|| format!("{name} is a secret, and everybody can read mount options: use {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        remote: RemoteArgs,
    }

    fn parsed(args: &[&str]) -> RemoteArgs {
        let args = std::iter::once("x").chain(args.iter().copied());
        Line::try_parse_from(args).unwrap().remote
    }

    #[test]
    fn options_become_those_of_the_stores_with_absolute_paths() {
        let options = parsed(&["--endpoint=http://h:9000", "--cache-max=80%", "--hedge=no"]);
        let options = options.options().unwrap();
        assert_eq!(options.endpoint.as_deref(), Some("http://h:9000"));
        assert_eq!((options.cache_max, options.hedge), (Some(CacheMax::Percent(80)), false));
        assert_eq!(parsed(&[]).options().unwrap(), RemoteOptions::default());
        let options = parsed(&["--cache-dir=c", "--ca=x.pem", "--timeout=3"]).options().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(options.cache, CachePlace::Directory(here.join("c")));
        assert_eq!(options.ca, Some(here.join("x.pem")));
        assert_eq!(options.timeout, Duration::from_secs(3));
        assert_eq!(parsed(&["--cache=none"]).options().unwrap().cache, CachePlace::None);
        let options = parsed(&["--cache=disk", "--cache-dir=c"]).options().unwrap();
        assert_eq!(options.cache, CachePlace::Directory(here.join("c")));
        assert!(parsed(&["--cache=none", "--cache-dir=c"]).options().is_err());
    }

    #[test]
    fn a_file_with_credentials_is_absolute_but_the_name_of_a_credential_stays() {
        let of = |path: &str| {
            parsed(&[&format!("--credentials={path}")]).options().unwrap().credentials.unwrap()
        };
        assert_eq!(of("no-such-file"), Path::new("no-such-file"));
        assert_eq!(of("Cargo.toml"), std::env::current_dir().unwrap().join("Cargo.toml"));
        assert!(of("./no-such-file").is_absolute());
    }

    #[test]
    fn a_header_in_place_of_a_file_is_refused_and_not_quoted() {
        let failure = parsed(&["--header=Authorization: Bearer hush"]).options().unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("names a file") && !said.contains("hush"), "{said}");
        assert!(parsed(&["--header=no-such-file"]).options().is_ok());
    }

    #[test]
    fn the_size_of_the_cache_is_bytes_or_a_share() {
        assert_eq!(cache_max("2G"), Ok(CacheMax::Bytes(2 << 30)));
        assert!(cache_max("0%").is_err() && cache_max("101%").is_err());
    }

    #[test]
    fn a_secret_is_refused_with_what_to_do_instead() {
        for name in [
            "password",
            "token",
            "access-key-id",
            "aws-secret-access-key",
            "sas-token",
            "azure-client-secret",
            "storage-account-key",
            "hf-token",
        ] {
            let why = refusal(name).unwrap();
            assert!(why.contains("credentials=FILE"), "{why}");
        }
        assert!(refusal("password-file").is_none() && refusal("profile").is_none());
    }
}
