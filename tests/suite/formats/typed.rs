//! Syrah and FFCV: typed files, and the containers that the packages' own writers wrote.

use super::tree;
use crate::common::{Mount, Need, fixture, for_each_transport, have, python};
use crate::fixtures::{check, refuse};
use std::process::Command;

#[test]
fn syrah_is_served_as_the_package_reads_it() {
    check("features.syr");
    check("mixed.syr");
}

#[test]
fn ffcv_is_served_as_the_package_reads_it() {
    check("jpg.beton");
    check("raw.beton");
    check("proportion.beton");
}

#[test]
fn syrah_files_of_wrong_structure_are_refused_with_the_byte() {
    for name in ["bad_magic.syr", "negative_offset.syr", "truncated.syr"] {
        refuse(name, 3, &["Syrah", "expected", "found"]);
    }
}

/// Header and data of a `.npy` file, read by hand.
#[track_caller]
fn npy(bytes: &[u8]) -> (String, &[u8]) {
    assert!(bytes.starts_with(b"\x93NUMPY\x01\0"), "{:?}", &bytes[..bytes.len().min(16)]);
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + length) % 64, 0);
    let (header, data) = bytes[10..].split_at(length);
    assert_eq!(header.last(), Some(&b'\n'));
    (String::from_utf8(header.to_vec()).unwrap().trim_end().to_owned(), data)
}

#[test]
fn npy_files_say_their_type_and_shape_and_hold_the_raw_bytes() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("features.syr"), &[]);
        let raw = Mount::new(transport, fixture("features.syr"), &["view=raw"]);
        let mut seen = 0;
        for (path, bytes) in tree(mount.point()) {
            let (header, data) = npy(&bytes);
            assert_eq!(data, raw.read(path.strip_suffix(".npy").unwrap()).unwrap(), "{path}");
            let descr = header.split('\'').nth(3).unwrap();
            let item: usize = descr[2..].parse().unwrap();
            let shape = format!("'shape': ({},)", data.len() / item);
            assert!(
                header.contains(&shape) && header.contains("'fortran_order': False"),
                "{header}"
            );
            seen += 1;
        }
        assert!(seen >= 4, "{seen} arrays");
    });
}

#[test]
fn raw_images_are_ppm_files_and_with_view_npy_arrays_of_the_same_pixels() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("raw.beton"), &[]);
        let arrays = Mount::new(transport, fixture("raw.beton"), &["view=npy"]);
        for record in mount.list("") {
            let ppm = mount.read(format!("{record}/image.ppm")).unwrap();
            let text = String::from_utf8_lossy(&ppm[..24]).into_owned();
            let mut words = text.split_ascii_whitespace();
            assert_eq!(words.next(), Some("P6"));
            let (width, height) = (words.next().unwrap(), words.next().unwrap());
            let array = arrays.read(format!("{record}/image.npy")).unwrap();
            let (header, pixels) = npy(&array);
            assert!(header.contains("'|u1'"), "{header}");
            assert!(header.contains(&format!("({height}, {width}, 3)")), "{header}");
            assert!(ppm.ends_with(pixels), "{record}");
            assert_eq!(ppm.len() - pixels.len(), format!("P6\n{width} {height}\n255\n").len());
        }
    });
}

#[test]
fn cmp_sees_the_same_raw_bytes_twice_and_json_is_json() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("jpg.beton"), &[]);
        for record in mount.list("") {
            let json = mount.read(format!("{record}/meta.json")).unwrap();
            serde_json::from_slice::<serde_json::Value>(&json).unwrap();
            let image = mount.path(format!("{record}/image.jpg"));
            let copy = mount.scratch().join("copy.jpg");
            crate::common::run(Command::new("cp").arg(&image).arg(&copy)).ok();
            crate::common::run(Command::new("cmp").arg(&image).arg(&copy)).ok();
            let bytes = std::fs::read(&copy).unwrap();
            assert!(bytes.starts_with(b"\xff\xd8\xff") && bytes.ends_with(b"\xff\xd9"), "{record}");
        }
    });
}

#[test]
fn numpy_loads_every_array() {
    if !have(Need::Python("numpy")) {
        return;
    }
    const LOAD: &str = "
import numpy, pathlib, sys
paths = sorted(pathlib.Path(sys.argv[1]).rglob('*.npy'))
for path in paths:
    array = numpy.load(path)
    mapped = numpy.load(path, mmap_mode='r')
    assert array.tobytes() == mapped.tobytes(), path
    assert path.stat().st_size == len(array.tobytes()) + 128, path
print(len(paths))
";
    for_each_transport(|transport| {
        for (name, at_least) in [("features.syr", 4), ("mixed.syr", 10), ("raw.beton", 4)] {
            let mount = Mount::new(transport, fixture(name), &[]);
            let loaded: usize = python(LOAD, &[mount.point()]).ok().text().trim().parse().unwrap();
            assert!(loaded >= at_least, "{name}: {loaded}");
        }
    });
}
