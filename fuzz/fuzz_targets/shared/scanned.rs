//! Opens bytes in the ways that formats which are scanned can be opened; all must find the same.

use ffrfs::format::scanned::FIRST_BYTES;
use ffrfs::format::{Container, Format, MemorySource, OpenOptions, PartName, Source};
use std::sync::Arc;

/// Opens bytes called `name` by a pass, by a pass over a stream, and by the kept index. `None` if they are refused. Both
/// passes have the same name, as kept notes contain it.
pub fn open(
    format: &dyn Format,
    bytes: &[u8],
    name: &str,
    options: &OpenOptions,
) -> Option<Box<dyn Container>> {
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(name, bytes.to_vec()));
    let _ = format.detect(source.as_ref()).expect("memory can be read");
    let scanned = format.open(Arc::clone(&source), options);
    if let Some(streamed) = stream(format, bytes, (&source, &name.into()), options) {
        assert_eq!(scanned.is_ok(), streamed.is_some(), "the two ways to scan differ");
        if let (Ok(first), Some(second)) = (&scanned, &streamed) {
            assert!(kept(first.as_ref()) == kept(second.as_ref()), "the two ways to scan differ");
        }
    }
    let container = scanned.ok()?;
    let index = kept(container.as_ref());
    let found = format.open_kept(source, Arc::new(MemorySource::new("index", index.clone())));
    let found = found.expect("it was just written").expect("of this version");
    assert!(index == kept(found.as_ref()), "it changed");
    Some(container)
}

/// Scans bytes as a decoded stream. `None` if such a stream is not looked at as a container of the format.
fn stream(
    format: &dyn Format,
    bytes: &[u8],
    (source, name): (&Arc<dyn Source>, &PartName),
    options: &OpenOptions,
) -> Option<Option<Box<dyn Container>>> {
    let first = &bytes[..bytes.len().min(FIRST_BYTES)];
    let mut scanner = format.scan_stream(name, first, options).ok()??;
    let mut end = 0;
    while let Some((at, length)) = scanner.want() {
        assert!(at >= end, "it goes back");
        end = at + length;
        let to = end.min(bytes.len() as u64) as usize;
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        if scanner.take(bytes.get(from..to).unwrap_or_default()).is_err() {
            return Some(None);
        }
    }
    Some(scanner.finish(Arc::clone(source)).ok())
}

fn kept(container: &dyn Container) -> Vec<u8> {
    let mut out = Vec::new();
    container.keep(&mut out).expect("memory takes it");
    out
}
