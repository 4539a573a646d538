//! Options for opening containers, and passwords.

use super::remote::RemoteArgs;
use crate::daemon::patience;
use crate::dataset::expand::local_paths;
use crate::dataset::{
    ChecksumOptions, IndexOptions, IndexPlace, Opened, Options, SidecarPlace, digest,
    may_be_locked, open, remote_wants_password, wants_password,
};
use crate::failure::{Exit, Failure};
use crate::format::{self, OpenOptions, PartName, Secret, View, one_line};
use crate::io::process::in_child;
use crate::tools::progress::Terminal;
use clap::{Args, ValueEnum};
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// The most bytes of a password.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;
/// The bytes that programs on Windows write before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// How containers are opened.
#[derive(Debug, Args, Clone, Default)]
#[command(next_help_heading = "Containers")]
pub(super) struct OpenArgs {
    /// Serve a container whose damage is confined to some samples (those give an error)
    #[arg(long, alias = "allow_damaged")]
    pub(super) allow_damaged: bool,
    /// The format, instead of recognising it by the content: a name as `info` prints it, or an extension such as zip
    #[arg(long, value_name = "NAME", value_parser = format_name)]
    pub(super) format: Option<&'static str>,
    /// How samples with a type are shown
    #[arg(long, value_name = "HOW", default_value = "typed")]
    pub(super) view: ViewChoice,
    /// Show what is pickled by Python (in FFRecord, LMDB, MDS) as the files that it holds: tuples and dicts as directories,
    /// arrays as .npy, images, text; nothing in it is executed, and what is not known stays one file
    #[arg(long)]
    pub(super) pickles: bool,
    /// Show datasets of HDF5 as directories of their rows, each an array of its own
    #[arg(long)]
    pub(super) rows: bool,
    /// Character set of names whose container states none, such as cp437, shift-jis or gbk [default: guessed]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    pub(super) encoding: Option<String>,
    /// The first line of this file is the password of encrypted members
    #[arg(long, alias = "password_file", value_name = "FILE", conflicts_with = "password_fd")]
    pub(super) password_file: Option<PathBuf>,
    /// As --password-file, from an open descriptor
    #[arg(long, alias = "password_fd", value_name = "N")]
    pub(super) password_fd: Option<u32>,
    /// The password, once it was read.
    #[arg(skip)]
    secret: Option<Secret>,
    /// Show members that are containers themselves as directories; DEPTH: how deep, 1 as a rule
    #[arg(long, value_name = "DEPTH", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(..=16))]
    pub(super) nested: u8,
    #[command(flatten)]
    pub(super) indexes: IndexArgs,
    #[command(flatten)]
    pub(super) checksums: ChecksumArgs,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

/// How samples with a type are shown.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum ViewChoice {
    /// As files that programs know: .npy, .jpg, .ppm, .json, .txt
    #[default]
    Typed,
    /// The stored bytes
    Raw,
    /// As typed, and raw images as .npy too
    Npy,
}

/// Where indexes are kept.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Indexes and compressed data")]
pub(super) struct IndexArgs {
    /// Where the index of a container that must be read whole is kept: `auto` (beside it, else in the
    /// user's cache), `memory` (an existing index is used, none is written), `none`, or a file
    #[arg(long, value_name = "auto|memory|none|FILE", default_value = "auto")]
    pub(super) index: PathBuf,
    /// The directory for indexes, instead of beside the containers
    #[arg(long, alias = "index_dir", value_name = "DIR")]
    pub(super) index_dir: Option<PathBuf>,
    /// Decode what cannot be read in the middle (large frames and blocks, LZMA in zip) to this directory: to
    /// files without a name, which go with the mount
    #[arg(long, value_name = "DIR")]
    pub(super) spool: Option<PathBuf>,
    /// Whether this command writes indexes.
    #[arg(skip)]
    pub(super) writes: bool,
}

impl Default for IndexArgs {
    fn default() -> Self {
        Self { index: "auto".into(), index_dir: None, spool: None, writes: false }
    }
}

/// What containers are checked by.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Checks")]
pub(super) struct ChecksumArgs {
    /// Checksums of samples whose format has none, as `ffrfs sum --sidecar` writes them: `auto` (the file beside
    /// the container), `none`, or a file
    #[arg(long, value_name = "auto|none|FILE", default_value = "auto")]
    pub(super) checksums: PathBuf,
    /// Refuse containers with samples that have no checksum
    #[arg(long, alias = "require_checksums")]
    pub(super) require_checksums: bool,
    /// Refuse containers with another SHA-256; they are read whole to compute it (`ffrfs sum --container` prints it)
    #[arg(long, value_name = "sha256:HEX", value_parser = digest::parse)]
    pub(super) digest: Option<[u8; 32]>,
}

impl Default for ChecksumArgs {
    fn default() -> Self {
        Self { checksums: "auto".into(), require_checksums: false, digest: None }
    }
}

/// The names of sources, which stand among other arguments as paths.
pub(super) fn names(paths: &[PathBuf]) -> Vec<PartName> {
    paths.iter().map(|path| path.clone().into_os_string().into()).collect()
}

/// Checks that daemons answer, if sources lie in mounts of ffrfs. No thread may run yet.
pub(super) fn check_answered(sources: &[PartName]) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = local_paths(sources).collect();
    patience::check(paths.iter().map(PathBuf::as_path))
}

/// As [`check_answered`], also for the output, which stands last.
pub(super) fn check_all_answered(paths: &[PathBuf]) -> Result<(), Failure> {
    check_answered(&names(paths))
}

/// Refuses an output that is a URL.
pub(super) fn refuse_url(output: &Path) -> Result<(), Failure> {
    match PartName::from(output.as_os_str().to_owned()) {
        PartName::Path(_) => Ok(()),
        PartName::Url(url) => Err(Failure::usage(format!(
            "{url}: nothing is written to a store: name a file or directory on this machine, and upload it"
        ))),
    }
}

fn encoding(text: &str) -> Result<String, String> {
    match format::is_charset(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("no character set has that name; there are cp437, shift_jis, gbk, koi8-r, raw …"
                .into())
        }
    }
}

fn format_name(text: &str) -> Result<&'static str, String> {
    let is_meant = |format: &&&dyn format::Format| {
        let names = format.extensions().iter().chain(std::iter::once(&"")).copied();
        format.name().eq_ignore_ascii_case(text)
            || names.filter(|name| !name.is_empty()).any(|name| name.eq_ignore_ascii_case(text))
    };
    format::FORMATS.iter().find(is_meant).map(|format| format.name()).ok_or_else(|| {
        let names: Vec<_> = format::FORMATS.iter().map(|format| format.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

impl IndexArgs {
    fn options(&self) -> IndexOptions {
        let place = match self.index.to_str() {
            Some("auto" | "") => IndexPlace::Auto,
            Some("memory") => IndexPlace::Memory,
            Some("none") => IndexPlace::None,
            _ => IndexPlace::File(self.index.clone()),
        };
        let (directory, spool) = (self.index_dir.clone(), self.spool.clone());
        IndexOptions { place, directory, spool, writes: self.writes }
    }
}

impl ChecksumArgs {
    fn options(&self) -> ChecksumOptions {
        let sidecars = match self.checksums.to_str() {
            Some("auto") => SidecarPlace::Auto,
            Some("none") => SidecarPlace::None,
            _ => SidecarPlace::File(self.checksums.clone()),
        };
        ChecksumOptions { sidecars, require: self.require_checksums, digest: self.digest }
    }
}

impl OpenArgs {
    /// The options, without clap.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let format = OpenOptions {
            allow_damaged: self.allow_damaged,
            format: self.format,
            view: match self.view {
                ViewChoice::Typed => View::Typed,
                ViewChoice::Raw => View::Raw,
                ViewChoice::Npy => View::Npy,
            },
            pickles: self.pickles,
            rows: self.rows,
            encoding: self.encoding.clone(),
            password: self.secret.clone().map_or_else(|| self.password(), |s| Ok(Some(s)))?,
        };
        let (indexes, checksums) = (self.indexes.options(), self.checksums.options());
        let remote = self.remote.options()?;
        Ok(Options { format, nested: self.nested, indexes, checksums, remote, io: None })
    }

    /// As [`check_answered`], also for files and directories that the options name.
    fn check_answered(&self, sources: &[PartName]) -> Result<(), Failure> {
        let Self { indexes, checksums, password_file, .. } = self;
        let named = [&indexes.index, &checksums.checksums].into_iter();
        let named = named.chain(password_file).chain(&indexes.index_dir).chain(&indexes.spool);
        patience::check(named.map(PathBuf::as_path).chain(self.remote.paths()))?;
        check_answered(sources)
    }

    /// Opens containers, with a bar on a terminal while the opening takes long.
    pub(super) fn open(&self, sources: &[PartName]) -> Result<Opened, Failure> {
        self.check_answered(sources)?;
        open(sources, &self.options()?, &Terminal::watch())
    }

    /// Reads the password now: a daemon has neither the caller's descriptors nor its directory and terminal.
    pub(super) fn read_password(&mut self, sources: &[PartName]) -> Result<(), Failure> {
        self.check_answered(sources)?;
        self.secret = self.password()?;
        if self.secret.is_some() || !std::io::stdin().is_terminal() {
            return Ok(());
        }
        let options = self.options()?;
        if let Some(path) = wants_password(sources, &options)? {
            self.secret = ask_password(&path.display())?;
        } else if sources.iter().any(may_be_locked) {
            // A daemon is forked from here, and must not find threads that its parent had.
            let look = || {
                let found = remote_wants_password(sources, &options);
                found.map(|name| name.to_string().into_bytes()).unwrap_or_default()
            };
            let found = in_child(look).map_err(|e| Failure::new(Exit::Mount, e))?;
            if let Some(url) = found.filter(|url| !url.is_empty()) {
                let url = String::from_utf8_lossy(&url);
                self.secret = ask_password(&url.split('?').next().unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// The first line of the password file. A password never stands on the command line, where everybody would see it.
    fn password(&self) -> Result<Option<Secret>, Failure> {
        let (name, mut file) = match (&self.password_file, self.password_fd) {
            (Some(path), _) => {
                let file = std::fs::File::open(path);
                let name = format!("--password-file {}", path.display());
                (name.clone(), file.map_err(|e| Failure::unreadable(name, e))?)
            }
            (None, Some(number)) => {
                let name = format!("--password-fd {number}");
                let file = std::fs::File::open(format!("/dev/fd/{number}"));
                let file = file.map_err(|e| match e.kind() {
                    ErrorKind::NotFound => {
                        let why =
                            format!("descriptor {number} is not open ({number}< FILE opens it)");
                        Failure::unreadable(&name, std::io::Error::new(ErrorKind::NotFound, why))
                    }
                    _ => Failure::unreadable(&name, e),
                });
                (name, file?)
            }
            (None, None) => return Ok(None),
        };
        let mut text = Vec::new();
        let read = file.by_ref().take(MAX_PASSWORD_BYTES).read_to_end(&mut text);
        read.map_err(|e| Failure::unreadable(&name, e))?;
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(Failure::usage(format!("{name}: the first line is empty: no password")));
        }
        Ok(Some(Secret::new(line)))
    }
}

fn ask_password(source: &dyn Display) -> Result<Option<Secret>, Failure> {
    let source = one_line(source.to_string());
    let question = format!("Password for {source} (Enter for none): ");
    let answer = rpassword::prompt_password(question);
    let answer = match answer {
        // Ctrl-D.
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => String::new(),
        answer => answer.map_err(|e| Failure::unreadable("the terminal", e))?,
    };
    Ok((!answer.is_empty()).then(|| Secret::new(answer.as_bytes())))
}
