//! The kind of a sample by its first bytes, for `suffix=auto` and for `info`.

/// The number of bytes that [`sniff`] looks at.
pub const HEAD_BYTES: usize = 32;

/// A kind of content.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Kind {
    /// The usual file name ending, with its dot.
    pub suffix: &'static str,
    /// The name that people use.
    pub name: &'static str,
}

/// A run of bytes at an offset.
type Mark = (usize, &'static [u8]);

/// Signatures as the formats' own specifications give them; all marks of a row must be there.
const SIGNATURES: &[(&str, &str, &[Mark])] = &[
    (".jpg", "JPEG image", &[(0, b"\xff\xd8\xff")]),
    (".png", "PNG image", &[(0, b"\x89PNG\r\n\x1a\n")]),
    (".gif", "GIF image", &[(0, b"GIF8")]),
    (".webp", "WebP image", &[(0, b"RIFF"), (8, b"WEBP")]),
    (".tif", "TIFF image", &[(0, b"II*\0")]),
    (".tif", "TIFF image", &[(0, b"MM\0*")]),
    (".jp2", "JPEG 2000 image", &[(0, b"\0\0\0\x0cjP  ")]),
    (".npy", "NumPy array", &[(0, b"\x93NUMPY")]),
    (".h5", "HDF5 file", &[(0, b"\x89HDF\r\n\x1a\n")]),
    (".parquet", "Parquet file", &[(0, b"PAR1")]),
    (".arrow", "Arrow file", &[(0, b"ARROW1")]),
    (".wav", "WAVE audio", &[(0, b"RIFF"), (8, b"WAVE")]),
    (".flac", "FLAC audio", &[(0, b"fLaC")]),
    (".ogg", "Ogg stream", &[(0, b"OggS")]),
    (".mp3", "MP3 audio", &[(0, b"ID3")]),
    (".avi", "AVI video", &[(0, b"RIFF"), (8, b"AVI ")]),
    (".avif", "AVIF image", &[(4, b"ftypavif")]),
    (".avif", "AVIF image", &[(4, b"ftypavis")]),
    (".heic", "HEIC image", &[(4, b"ftyphei")]),
    (".heic", "HEIC image", &[(4, b"ftyphev")]),
    (".heic", "HEIC image", &[(4, b"ftypmif1")]),
    (".mp4", "MP4 video", &[(4, b"ftyp")]),
    (".mkv", "Matroska video", &[(0, b"\x1a\x45\xdf\xa3")]),
    (".pdf", "PDF document", &[(0, b"%PDF-")]),
    (".zip", "zip archive", &[(0, b"PK\x03\x04")]),
    (".gz", "gzip data", &[(0, b"\x1f\x8b\x08")]),
    (".zst", "zstd data", &[(0, b"\x28\xb5\x2f\xfd")]),
    (".xz", "xz data", &[(0, b"\xfd7zXZ\0")]),
    (".bz2", "bzip2 data", &[(0, b"BZh")]),
    (".pkl", "Python pickle", &[(0, b"\x80\x02")]),
    (".pkl", "Python pickle", &[(0, b"\x80\x03")]),
    (".pkl", "Python pickle", &[(0, b"\x80\x04\x95")]),
    (".pkl", "Python pickle", &[(0, b"\x80\x05\x95")]),
];

/// Names the kind of content that begins with `head`: its first [`HEAD_BYTES`] bytes, or all of shorter content.
#[must_use]
pub fn sniff(head: &[u8]) -> Option<Kind> {
    // Most signatures differ in their first byte.
    let has = |&(at, mark): &Mark| {
        head.get(at) == mark.first() && head.get(at..).is_some_and(|rest| rest.starts_with(mark))
    };
    let has_all = |(_, _, marks): &&(_, _, &[Mark])| marks.iter().all(has);
    let &(suffix, name, _) = SIGNATURES.iter().find(has_all)?;
    Some(match suffix {
        ".heic" if is_avif(head) => Kind { suffix: ".avif", name: "AVIF image" },
        _ => Kind { suffix, name },
    })
}

/// Whether an image of the common brand `mif1` is AVIF, by the brands behind `mif1`, which end with their box.
fn is_avif(head: &[u8]) -> bool {
    let length = head.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
    let brands = head.get(16..length.min(head.len())).unwrap_or_default();
    head.get(4..12) == Some(b"ftypmif1") && brands.chunks(4).any(|brand| brand == b"avif")
}

/// Every suffix that [`sniff`] can return, each once.
#[must_use]
pub fn suffixes() -> Vec<&'static str> {
    let mut all: Vec<_> = SIGNATURES.iter().map(|&(suffix, ..)| suffix).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_name_the_kind_of_a_sample() {
        assert_eq!(sniff(b"\xff\xd8\xff\xe0\0\x10JFIF").unwrap().suffix, ".jpg");
        assert_eq!(sniff(b"RIFF\x24\0\0\0WAVEfmt ").unwrap().suffix, ".wav");
        assert_eq!(sniff(b"RIFF\x24\0\0\0WEBPVP8 ").unwrap().suffix, ".webp");
        assert_eq!(sniff(b"\x93NUMPY\x01\0").unwrap().suffix, ".npy");
        assert_eq!(sniff(b"\xff\xd8"), None);
        assert_eq!(sniff(b""), None);
    }

    #[test]
    fn every_suffix_is_listed_once() {
        let mut all = suffixes();
        let listed = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), listed);
    }
}
