//! Archives of the field against the results of their tools: the directory that `FFRFS_CORPUS` names, which has a
//! `manifest.jsonl`. Its lines have `path`, `format` and, under `references`, the results of Python's and libarchive's
//! readers: `status`, and `entries` with `name` (bytes as latin-1), `type`, `size`, `sha256` or `error`, `link`.
//!
//! Archives that ffrfs reads otherwise than both references are listed here with the reason, and pinned by a unit test of
//! the format on an archive of its own.

use crate::common::skip_forced;
use ffrfs::format::{
    self, Container, Content, Kind, Member, MemorySource, Node, OpenOptions, Result, Secret,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Formats of the manifest that are compared.
const COMPARED: &[&str] = &["zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"];
/// The most time that an archive may take, in a build for tests on a busy machine.
const MOST: Duration = Duration::from_secs(20);

/// Archives that ffrfs reads otherwise than both references, and the reason.
const DECIDED: &[(&str, &str)] = &[
    ("mount-zip/hlink-before-target.zip", HARD_LINKS),
    ("mount-zip/hlink-chain.zip", HARD_LINKS),
    ("mount-zip/hlink-relative.zip", HARD_LINKS),
    ("mount-zip/hlink-symlink.zip", PKWARE_LINKS),
    ("mount-zip/pkware-symlink.zip", PKWARE_LINKS),
    ("mount-zip/pkware-specials.zip", PKWARE_LINKS),
    ("mount-zip/ntfs-extrafld.zip", "deflate64 is decoded; both references cannot"),
    (
        "libarchive/test_read_format_zip_7075_utf8_paths.zip",
        "names as in the central directory, like Python; members with a Unicode field are read \
         although their local header has another name, like libarchive",
    ),
    (
        "libarchive/test_read_format_tar_concatenated.tar",
        "joined archives show all their members, as tar -i does",
    ),
    (
        "libarchive/test_read_format_gtar_sparse_skip_entry.tar",
        "a whole archive on which both references break off shows all its members",
    ),
];
const HARD_LINKS: &str =
    "hard links of PKWARE's field are names of one file, as mount-zip shows them";
const PKWARE_LINKS: &str =
    "links of PKWARE's field are links, and devices are not shown, also when the host is DOS";

/// The passwords of encrypted members, by archive. All members of these archives must be readable.
const PASSWORDS: &[(&str, &str)] = &[
    ("mount-zip/different-encryptions.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes128.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_large.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_large_bzip2.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_large_lzma.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_large_ppmd.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_large_xz.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_large_zstd.zip", "password"),
    ("libarchive/test_read_format_zip_winzip_aes256_stored.zip", "password"),
    ("libarchive/test_read_format_zip_traditional_encryption_data.zip", "12345678"),
    ("libarchive/test_encrypted.zip", "password"),
    ("libarchive/test_option_passphrase.zip", "pass1"),
    ("libarchive/tar__test__test_option_passphrase.zip", "pass1"),
];

/// The entry that a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Directory,
    Link(Vec<u8>),
    /// The SHA-256 of the file's bytes; `None` if they cannot be read.
    File(Option<String>),
}

/// Names and their entries; `None` if the archive is refused.
type Listing = Option<Vec<(Vec<u8>, Seen)>>;

#[test]
fn archives_of_the_field_are_read_as_their_tools_read_them() {
    let Some(root) = std::env::var_os("FFRFS_CORPUS") else {
        skip_forced("FFRFS_CORPUS names no directory of archives with a manifest.jsonl");
        return;
    };
    let root = Path::new(&root);
    let manifest = std::fs::read_to_string(root.join("manifest.jsonl")).expect("a manifest");
    let (mut totals, mut undecided) = ([0; 5], Vec::new());
    for line in manifest.lines() {
        let archive: Value = serde_json::from_str(line).expect("a line of JSON");
        let path = archive["path"].as_str().expect("a path");
        if !COMPARED.contains(&archive["format"].as_str().unwrap_or_default()) {
            continue;
        }
        let start = Instant::now();
        let (verdict, text) = compare(&root.join(path), &archive["references"]);
        assert!(start.elapsed() < MOST, "{path} took {:?}", start.elapsed());
        let decision = DECIDED.iter().find(|(decided, _)| *decided == path).map(|(_, why)| *why);
        let (verdict, text) = match (verdict, decision) {
            (Verdict::Neither, Some(why)) => (Verdict::Decided, format!("decided: {why}; {text}")),
            other => (other.0, text),
        };
        totals[verdict as usize] += 1;
        println!("{path}: {text}");
        if verdict == Verdict::Neither {
            undecided.push(path.to_owned());
        }
    }
    let [both, python, libarchive, decided, neither] = totals;
    println!(
        "{} archives: as both read them {both}, as Python {python}, as libarchive {libarchive}, \
         decided otherwise {decided}, undecided {neither}",
        totals.iter().sum::<usize>()
    );
    assert!(undecided.is_empty(), "neither as a reference nor decided: {undecided:#?}");
}

#[test]
fn encrypted_archives_of_the_field_are_read_with_their_passwords() {
    let Some(root) = std::env::var_os("FFRFS_CORPUS") else {
        skip_forced("FFRFS_CORPUS names no directory of archives with a manifest.jsonl");
        return;
    };
    let mut wrong = Vec::new();
    for (path, password) in PASSWORDS {
        let path = Path::new(&root).join(path);
        let bytes = std::fs::read(&path).expect("the archive");
        let password = Some(Secret::new(password.as_bytes()));
        let options = OpenOptions { password, ..OpenOptions::default() };
        match listing(&bytes, &path, &options) {
            None => wrong.push(format!("{} is refused", path.display())),
            Some(all) => {
                wrong.extend(all.iter().filter(|(_, seen)| *seen == Seen::File(None)).map(
                    |(name, _)| format!("{} of {}", String::from_utf8_lossy(name), path.display()),
                ))
            }
        }
    }
    assert!(wrong.is_empty(), "cannot be read: {wrong:#?}");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Both,
    Python,
    Libarchive,
    Decided,
    Neither,
}

fn compare(path: &Path, references: &Value) -> (Verdict, String) {
    let bytes = std::fs::read(path).expect("the archive");
    // Python gives the bytes of names, libarchive their decoded text.
    let raw_names = OpenOptions { encoding: Some("raw".to_owned()), ..OpenOptions::default() };
    let raw = listing(&bytes, path, &raw_names);
    let decoded = listing(&bytes, path, &OpenOptions::default());
    let python = difference(&raw, &reference(&references["python"]), false);
    let libarchive = reference(&references["libarchive"]);
    let libarchive = difference(&raw, &libarchive, true)
        .and_then(|why| difference(&decoded, &libarchive, true).map(|_| why));
    match (python, libarchive) {
        (None, None) => (Verdict::Both, "as both".to_owned()),
        (None, Some(why)) => (Verdict::Python, format!("as Python; libarchive: {why}")),
        (Some(why), None) => (Verdict::Libarchive, format!("as libarchive; Python: {why}")),
        (Some(python), Some(libarchive)) => {
            (Verdict::Neither, format!("Python: {python}; libarchive: {libarchive}"))
        }
    }
}

fn listing(bytes: &[u8], path: &Path, options: &OpenOptions) -> Listing {
    let source = Arc::new(MemorySource::new(path, bytes.to_vec()));
    let container = match format::open(source, options) {
        Ok(container) => container,
        Err(why) => {
            if options.encoding.is_none() {
                println!("  {why}");
            }
            return None;
        }
    };
    if options.encoding.is_none() {
        container.warnings().iter().for_each(|warning| println!("  {warning}"));
    }
    let mut all = Vec::new();
    let mut see = |member: Member| -> Result<()> {
        let seen = match member.node {
            Node::Directory(_) => Seen::Directory,
            Node::Sample(index) => match container.attributes(index)?.kind {
                Kind::Symlink => container.link_target(index).map_or(Seen::File(None), Seen::Link),
                Kind::File => {
                    let data = read(bytes, container.as_ref(), index);
                    Seen::File(data.map(|data| hex(&Sha256::digest(data))))
                }
            },
        };
        all.push((member.path.to_vec(), seen));
        Ok(())
    };
    container.members(&mut see).expect("what was opened has names");
    Some(all)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that a reader of the file gets.
fn read(bytes: &[u8], container: &dyn Container, index: u64) -> Option<Vec<u8>> {
    let mut sample = container.sample(index).ok()?;
    for _ in 0..3 {
        if sample.damaged || sample.header_bytes == 0 || sample.size_bytes() == 0 {
            break;
        }
        let at = usize::try_from(sample.offset_bytes).ok()?;
        container.check_header(index, bytes.get(at - sample.header_bytes as usize..at)?).ok()?;
        sample = container.sample(index).ok()?;
    }
    if sample.damaged {
        return None;
    }
    let stored = |at: u64, length: u64| {
        let start = usize::try_from(at).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    };
    let size = usize::try_from(sample.size_bytes()).ok().filter(|&size| size <= 256 << 20)?;
    let shown = match sample.content {
        _ if size == 0 => Vec::new(),
        Content::Stored => stored(sample.offset_bytes, sample.length_bytes)?.to_vec(),
        Content::Prefixed(_) => {
            let data = stored(sample.offset_bytes, sample.length_bytes)?;
            [&container.prefix(index).ok()?, data].concat()
        }
        Content::Encoded(_) => {
            let mut out = vec![0; size];
            let data = stored(sample.offset_bytes, sample.length_bytes)?;
            container.decode(index, data, &mut out).ok()?;
            out
        }
        Content::Sparse(_) => {
            let (mut out, mut at) = (vec![0; size], 0);
            while let Some(piece) = container.piece(index, at).ok()? {
                let data = stored(piece.offset_bytes, piece.length_bytes)?;
                let start = piece.at_bytes as usize;
                out.get_mut(start..start + data.len())?.copy_from_slice(data);
                at = piece.at_bytes + piece.length_bytes;
            }
            out
        }
    };
    let is_right = sample.checksum.is_none_or(|checksum| checksum.check(&shown).is_ok());
    is_right.then_some(shown)
}

/// The entries that a reference found. Devices, pipes and sockets are not shown, and so not compared.
fn reference(found: &Value) -> Listing {
    if !matches!(found["status"].as_str(), Some("ok" | "content-errors")) {
        return None;
    }
    let latin1 = |text: &Value| -> Vec<u8> {
        text.as_str().unwrap_or_default().chars().map(|c| c as u32 as u8).collect()
    };
    let entries = found["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut files: HashMap<Vec<u8>, Seen> = HashMap::new();
    let shown = entries.iter().filter_map(|entry| {
        let seen = match entry["type"].as_str()? {
            // A further name of a file before it.
            "h" if entry.get("sha256").is_none() => {
                files.get(&latin1(&entry["link"])).cloned().unwrap_or(Seen::File(None))
            }
            "d" => Seen::Directory,
            "l" if entry.get("error").is_some() => Seen::File(None),
            "l" => Seen::Link(latin1(&entry["link"])),
            "f" | "h" => Seen::File(entry["sha256"].as_str().map(str::to_owned)),
            _ => return None,
        };
        files.insert(latin1(&entry["name"]), seen.clone());
        Some((latin1(&entry["name"]), seen))
    });
    Some(shown.collect())
}

/// The first difference between two listings.
fn difference(ours: &Listing, theirs: &Listing, slashes: bool) -> Option<String> {
    let plain = |name: &[u8]| -> Vec<u8> {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let turn = |&byte: &u8| if slashes && byte == b'\\' { b'/' } else { byte };
        name.iter().map(turn).collect()
    };
    let (ours, theirs) = match (ours, theirs) {
        (None, None) => return None,
        (None, Some(_)) => return Some("we refuse it".to_owned()),
        (Some(_), None) => return Some("it refuses".to_owned()),
        (Some(ours), Some(theirs)) => (ours, theirs),
    };
    for ((our_name, our_seen), (name, seen)) in ours.iter().zip(theirs) {
        if plain(our_name) != plain(name) {
            let names = [our_name, name].map(|name| String::from_utf8_lossy(name).into_owned());
            return Some(format!("{:?} is called {:?} there", names[0], names[1]));
        }
        if our_seen != seen {
            let name = String::from_utf8_lossy(name);
            return Some(format!("{name:?} is {our_seen:?}, there {seen:?}"));
        }
    }
    let (our_count, count) = (ours.len(), theirs.len());
    (our_count != count).then(|| format!("{our_count} names, there {count}"))
}
