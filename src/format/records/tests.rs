//! Helpers that the tests of formats of records share, and names of records.

use crate::format::testing::open_as;
use crate::format::{
    Container, Content, FORMATS, Format, MemorySource, Names, Node, OpenOptions, Source,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files by their path; `None` if a file is damaged.
pub(in crate::format) type Files = BTreeMap<String, Option<Vec<u8>>>;

/// The bytes of a sample's file; `None` if the sample is damaged, or does not match its checksum.
fn shown(file: &[u8], container: &dyn Container, index: u64) -> Option<Vec<u8>> {
    let sample = container.sample(index).unwrap();
    if sample.damaged {
        assert!(sample.length_bytes > 0);
        return None;
    }
    let stored = &file[sample.offset_bytes as usize..sample.end_bytes() as usize];
    let (held, bytes) = match sample.content {
        Content::Stored => (stored.to_vec(), stored.to_vec()),
        Content::Prefixed(length) => {
            let prefix = container.prefix(index).unwrap();
            assert_eq!(prefix.len(), length as usize);
            (stored.to_vec(), [&prefix[..], stored].concat())
        }
        Content::Encoded(size) => {
            let mut out = vec![0; size as usize];
            container.decode(index, stored, &mut out).unwrap();
            (out.clone(), out)
        }
        Content::Sparse(size) => {
            let mut out = Vec::new();
            while let Some(piece) = container.piece(index, out.len() as u64).unwrap() {
                assert_eq!(piece.at_bytes, out.len() as u64, "a hole");
                assert!(piece.offset_bytes >= sample.offset_bytes);
                let at = piece.offset_bytes as usize;
                assert!(piece.offset_bytes + piece.length_bytes <= sample.end_bytes());
                out.extend_from_slice(&file[at..at + piece.length_bytes as usize]);
            }
            assert_eq!(out.len() as u64, size);
            (out.clone(), out)
        }
    };
    assert_eq!(bytes.len() as u64, sample.size_bytes());
    match sample.checksum {
        Some(checksum) if checksum.check(&held).is_err() => None,
        _ => Some(bytes),
    }
}

/// All files of a container of records. Whatever the container holds, names are those of directory entries, and differ.
pub(in crate::format) fn all_files(file: &[u8], container: &dyn Container) -> Files {
    let mut all = BTreeMap::new();
    let mut add = |path: String, index| {
        let is_name = |name: &str| !name.is_empty() && name != "." && name != "..";
        assert!(path.split('/').all(is_name), "{path:?}");
        let is_new = all.insert(path.clone(), shown(file, container, index)).is_none();
        assert!(is_new, "{path} twice");
    };
    match container.names(container.len()).unwrap() {
        Names::None => (0..container.len()).for_each(|index| add(index.to_string(), index)),
        Names::Fields(fields) => {
            assert!(container.len().is_multiple_of(fields));
            for index in 0..container.len() {
                let name =
                    String::from_utf8_lossy(&container.field_name(index).unwrap()).into_owned();
                add(format!("{}/{name}", index / fields), index);
            }
        }
        Names::Records(records) => {
            // The tree of the catalog escapes invalid names, and numbers names that stand twice.
            let mut samples = 0;
            container
                .members(&mut |member| {
                    let path = String::from_utf8_lossy(member.path).into_owned();
                    let record: u64 = path.split('/').next().unwrap().parse().unwrap();
                    assert!(record < records);
                    if let Node::Sample(index) = member.node {
                        assert_eq!(index, samples, "samples are in order");
                        samples += 1;
                        all.insert(path, shown(file, container, index));
                    } else {
                        all.insert(path + "/", None);
                    }
                    Ok(())
                })
                .unwrap();
            assert_eq!(samples, container.len());
        }
        other => panic!("{other:?}"),
    }
    assert!(container.sample(container.len()).is_err());
    let sum: usize = all.values().flatten().map(Vec::len).sum();
    assert!(sum as u64 <= container.data_bytes());
    all
}

fn kept(container: &dyn Container) -> Vec<u8> {
    let mut out = Vec::new();
    container.keep(&mut out).unwrap();
    out
}

/// Opens a container in the three ways: by a pass, by a pass over a stream, and by its kept index.
pub(in crate::format) fn opened(format: &str, file: &[u8], options: &OpenOptions) -> Files {
    let container = open_as(format, file, options).unwrap();
    let known = FORMATS.iter().find(|known| known.name() == format).unwrap();
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("t.mds", file.to_vec()));
    let index = kept(container.as_ref());
    // A stream without a byte has no format.
    let streamed = stream(*known, file, &source, options);
    assert!(streamed.is_some() || file.is_empty());
    if let Some(streamed) = streamed {
        assert!(kept(streamed.as_ref()) == index, "a pass over a stream finds something else");
    }
    let found = known.open_kept(source, Arc::new(MemorySource::new("index", index.clone())));
    let found = found.unwrap().unwrap();
    assert!(kept(found.as_ref()) == index);
    let files = all_files(file, container.as_ref());
    assert_eq!(all_files(file, found.as_ref()), files);
    files
}

fn stream(
    format: &dyn Format,
    file: &[u8],
    source: &Arc<dyn Source>,
    options: &OpenOptions,
) -> Option<Box<dyn Container>> {
    let first = &file[..file.len().min(512)];
    let mut scanner = format.scan_stream(source.name(), first, options).unwrap()?;
    let mut end = 0;
    while let Some((at, length)) = scanner.want() {
        assert!(at >= end, "it goes back");
        end = at + length;
        let to = (end as usize).min(file.len());
        scanner.take(file.get(at as usize..to).unwrap_or_default()).unwrap();
    }
    Some(scanner.finish(Arc::clone(source)).unwrap())
}

/// Opens every truncation of a file, and the file with any one bit flipped, and looks at all of it.
pub(in crate::format) fn truncate_and_flip(format: &str, file: &[u8]) {
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        let look = |bytes: &[u8]| {
            if let Ok(container) = open_as(format, bytes, &options) {
                all_files(bytes, container.as_ref());
            }
        };
        (0..file.len()).for_each(|length| look(&file[..length]));
        let mut bad = file.to_vec();
        for bit in 0..file.len() * 8 {
            bad[bit / 8] ^= 1 << (bit % 8);
            look(&bad);
            bad[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// The bytes that `numpy.save` writes for elements of this type and shape.
pub(in crate::format) fn array(descr: &str, shape: &[u64], elements: &[u8]) -> Option<Vec<u8>> {
    Some([&crate::format::npy::header(descr, shape)[..], elements].concat())
}
