//! `ffrfs pack`: a folder as FFRecord. Streaming; the output appears under its name only when it is whole.

use super::failure::say;
use super::interrupt::Interrupt;
use super::{Exit, Failure, logging};
use crate::format::ffrecord::{PACKED_FOLDER_MAGIC, Writer, pickle};
use crate::format::{Entry, Folder};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read};
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Deeper folders are refused: they are more likely a loop than a dataset, and readers refuse them too.
const MAX_DEPTH: usize = 250;

/// Pack a folder into an FFRecord container
#[derive(Debug, Args)]
pub(super) struct PackArgs {
    /// The folder whose files become samples, in order of their names
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The container to write; with --parts a folder of containers
    #[arg(value_name = "OUT.ffr")]
    output: PathBuf,
    /// Numbered samples, no names
    #[arg(long)]
    flat: bool,
    /// Write N containers of about the same size into the folder OUT
    #[arg(long, value_name = "N")]
    parts: Option<NonZeroU32>,
    /// Replace the output if it is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &PackArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let interrupt = Interrupt::listen();
    check_places(args)?;
    let mut scan = Scan { files: Vec::new(), bytes: 0, above: Vec::new(), interrupt: &interrupt };
    let Some(tree) = scan.folder(&args.folder)? else { return Ok(interrupted()) };
    let tree = (!args.flat).then_some(tree);
    let pack =
        Pack { files: &scan.files, tree, progress: progress(scan.bytes), interrupt: &interrupt };
    let packed = match args.parts {
        None => pack.one(&args.output, args.force),
        Some(parts) => pack.several(&args.output, u64::from(parts.get()), args.force),
    };
    pack.progress.finish_and_clear();
    match packed? {
        Some(()) => Ok(Exit::Ok),
        None => Ok(interrupted()),
    }
}

fn interrupted() -> Exit {
    say(format_args!("ffrfs: interrupted; nothing was written"));
    Exit::Interrupted
}

fn check_places(args: &PackArgs) -> Result<(), Failure> {
    let output = &args.output;
    let folder =
        args.folder.canonicalize().map_err(|e| Failure::unreadable(args.folder.display(), e))?;
    if !folder.is_dir() {
        return Err(Failure::usage(format!("{}: not a folder", args.folder.display())));
    }
    let parent = parent_of(output);
    let parent = parent.canonicalize().map_err(|e| Failure::output(parent.display(), e))?;
    let packs_itself = output.canonicalize().is_ok_and(|output| output == folder);
    if parent.starts_with(&folder) || packs_itself {
        return Err(Failure::usage(format!(
            "{}: the output would lie in the folder that is packed",
            output.display()
        )));
    }
    match output.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::output(output.display(), e)),
        Ok(_) if args.force => {
            check_replaceable(args).map_err(|e| Failure::output(output.display(), e))
        }
        Ok(_) => Err(Failure::output(
            output.display(),
            io::Error::new(io::ErrorKind::AlreadyExists, "is there already (--force replaces it)"),
        )),
    }
}

/// What is replaced must be what `pack` could have written.
fn check_replaceable(args: &PackArgs) -> io::Result<()> {
    let kind = args.output.metadata()?.file_type();
    if args.parts.is_none() {
        return match kind.is_file() {
            true => Ok(()),
            false => Err(io::Error::other("is no file; it is not replaced")),
        };
    }
    for entry in fs::read_dir(&args.output)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("PART_") && name.ends_with(".ffr")) {
            return Err(io::Error::other(format!("holds {name}, which pack did not write")));
        }
    }
    Ok(())
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Finds the files below a folder, in the order of the reference package: by name, folder by folder.
struct Scan<'a> {
    files: Vec<(PathBuf, u64)>,
    bytes: u64,
    /// The folders above the present one, to notice links that lead back.
    above: Vec<(u64, u64)>,
    interrupt: &'a Interrupt,
}

impl Scan<'_> {
    /// `None` if it was interrupted.
    fn folder(&mut self, path: &Path) -> Result<Option<Folder>, Failure> {
        let unreadable = |e| Failure::unreadable(path.display(), e);
        let metadata = fs::metadata(path).map_err(unreadable)?;
        let identity = (metadata.dev(), metadata.ino());
        if self.above.contains(&identity) || self.above.len() >= MAX_DEPTH {
            return Err(unreadable(io::Error::other("a link leads back, or folders are too deep")));
        }
        let mut children = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            children.push(entry.map_err(unreadable)?.file_name());
        }
        children.sort();
        self.above.push(identity);
        let mut folder = Folder::default();
        for name in children {
            if self.interrupt.requested() {
                return Ok(None);
            }
            let child = path.join(&name);
            let metadata =
                fs::metadata(&child).map_err(|e| Failure::unreadable(child.display(), e))?;
            let entry = if metadata.is_dir() {
                let Some(inner) = self.folder(&child)? else { return Ok(None) };
                Entry::Folder(inner)
            } else if metadata.is_file() {
                let number = self.files.len() as u64;
                self.bytes += metadata.len();
                self.files.push((child, metadata.len()));
                Entry::File(number)
            } else {
                tracing::warn!("{}: left out: neither file nor folder", child.display());
                continue;
            };
            folder.entries.push((name.as_bytes().into(), entry));
        }
        self.above.pop();
        Ok(Some(folder))
    }
}

struct Pack<'a> {
    files: &'a [(PathBuf, u64)],
    /// The names to store behind the last sample.
    tree: Option<Folder>,
    progress: ProgressBar,
    interrupt: &'a Interrupt,
}

impl Pack<'_> {
    /// Writes one container; `None` if it was interrupted.
    fn one(&self, output: &Path, force: bool) -> Result<Option<()>, Failure> {
        let failed = |e| Failure::output(output.display(), e);
        let temporary = temporary_beside(output).map_err(failed)?;
        let all = 0..self.files.len();
        if self.write(temporary.as_file(), output, all, self.tree.as_ref())?.is_none() {
            return Ok(None);
        }
        let named =
            if force { temporary.persist(output) } else { temporary.persist_noclobber(output) };
        named.map_err(|e| failed(e.error))?;
        sync_folder(parent_of(output)).map_err(failed)?;
        Ok(Some(()))
    }

    /// Writes a folder of containers; `None` if it was interrupted.
    fn several(&self, output: &Path, parts: u64, force: bool) -> Result<Option<()>, Failure> {
        let failed = |e| Failure::output(output.display(), e);
        let folder = tempfile::Builder::new()
            .prefix(".ffrfs-pack-")
            .permissions(fs::Permissions::from_mode(0o777 & !umask()))
            .tempdir_in(parent_of(output))
            .map_err(failed)?;
        let ranges = split(self.files, parts);
        let last = ranges.len() - 1;
        for (number, range) in ranges.into_iter().enumerate() {
            let path = folder.path().join(format!("PART_{number:05}.ffr"));
            let shown = output.join(format!("PART_{number:05}.ffr"));
            let file = File::create_new(&path).map_err(failed)?;
            let tree = self.tree.as_ref().filter(|_| number == last);
            if self.write(&file, &shown, range, tree)?.is_none() {
                return Ok(None);
            }
        }
        sync_folder(folder.path()).map_err(failed)?;
        // The old parts step aside first, and are removed (with `aside`) when the new ones have the name.
        let aside = tempfile::Builder::new().prefix(".ffrfs-old-").tempdir_in(parent_of(output));
        let aside = aside.map_err(failed)?;
        let old = aside.path().join("parts");
        if force && output.exists() {
            fs::rename(output, &old).map_err(failed)?;
        }
        fs::rename(folder.path(), output).map_err(|e| {
            let _ = fs::rename(&old, output);
            failed(e)
        })?;
        let _ = folder.keep();
        sync_folder(parent_of(output)).map_err(failed)?;
        Ok(Some(()))
    }

    fn write(
        &self,
        file: &File,
        shown: &Path,
        range: Range<usize>,
        tree: Option<&Folder>,
    ) -> Result<Option<()>, Failure> {
        let failed = |e| Failure::output(shown.display(), e);
        let count = range.len() as u64 + u64::from(tree.is_some());
        let out = BufWriter::with_capacity(1 << 20, file);
        let mut writer = Writer::new(out, count).map_err(failed)?;
        for (path, _) in &self.files[range] {
            if self.interrupt.requested() {
                return Ok(None);
            }
            let mut source = Reading { file: open(path)?, failed: false, pack: self };
            if let Err(error) = writer.write_sample(&mut source) {
                // One call reads and writes: which side was it?
                return match source.failed {
                    _ if self.interrupt.requested() => Ok(None),
                    true => Err(Failure::unreadable(path.display(), error)),
                    false => Err(failed(error)),
                };
            }
        }
        if let Some(tree) = tree {
            let mut stored = PACKED_FOLDER_MAGIC.to_vec();
            pickle::encode(tree, &mut stored).map_err(failed)?;
            writer.write_sample(&mut &stored[..]).map_err(failed)?;
        }
        let out = writer.finish().map_err(failed)?;
        out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
        Ok(Some(()))
    }
}

/// A file that is being packed: shows progress, ends early, remembers whether it was reading that failed.
struct Reading<'a> {
    file: File,
    failed: bool,
    pack: &'a Pack<'a>,
}

impl Read for Reading<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.pack.interrupt.requested() {
            return Err(io::Error::other("interrupted"));
        }
        let read = self.file.read(buf).inspect_err(|_| self.failed = true)?;
        self.pack.progress.inc(read as u64);
        Ok(read)
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|e| Failure::unreadable(path.display(), e))
}

/// A file that vanishes unless it is given a name; readable like any file that the user makes.
fn temporary_beside(output: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".ffrfs-pack-")
        .permissions(fs::Permissions::from_mode(0o666 & !umask()))
        .tempfile_in(parent_of(output))
}

/// It can only be read by setting it; nobody else creates files meanwhile.
fn umask() -> u32 {
    use nix::sys::stat::{Mode, umask};
    let mask = umask(Mode::from_bits_truncate(0o077));
    umask(mask);
    mask.bits()
}

/// Makes the name itself durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Ranges of about the same number of bytes, exactly `parts` of them; some may be empty.
fn split(files: &[(PathBuf, u64)], parts: u64) -> Vec<Range<usize>> {
    let total: u128 = files.iter().map(|(_, bytes)| u128::from(*bytes) + 1).sum();
    let mut ranges = Vec::new();
    let (mut start, mut end, mut sum) = (0, 0, 0u128);
    for part in 1..=u128::from(parts) {
        let target = total * part / u128::from(parts);
        while end < files.len() && sum < target {
            sum += u128::from(files[end].1) + 1;
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

fn progress(bytes: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_files_in_order() {
        let files: Vec<_> = (0..10u64).map(|i| (PathBuf::new(), i * 100)).collect();
        for parts in [1, 2, 3, 7, 10, 25] {
            let ranges = split(&files, parts);
            assert_eq!(ranges.len() as u64, parts);
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, 10));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
        assert_eq!(split(&[], 3), vec![0..0; 3]);
    }
}
