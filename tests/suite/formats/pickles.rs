//! Pickled samples of FFRecord as the files that they hold, as NumPy and Pillow write them.

use super::tree;
use crate::common::{
    FFRFS, Mount, Need, container_in, fixture, flip_byte, for_each_transport, have, python, run,
    temp_dir,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes `p.ffr` with samples of all protocols, and beside it a directory of the files that a mount must show.
const WRITE: &str = r#"
import collections, io, os, pickle, struct, sys, zlib
import numpy
from PIL import Image
place, count = sys.argv[1], int(sys.argv[2])

def jpeg(number):
    out = io.BytesIO()
    Image.new("RGB", (8 + number % 70, 30), (number % 256, 1, 2)).save(out, "JPEG")
    return out.getvalue()

def kinds(number):
    noise = numpy.random.default_rng(number)
    pixels = noise.integers(0, 256, (11, 7, 3), dtype=numpy.uint8)
    return [
        (jpeg(number), number, f"ünï {number}"),
        {"image": jpeg(number), "score": number / 7, "none": None, 3: number % 2 == 0, "inner": {"text": "x" * 300}},
        [noise.random((number % 9, 3)), numpy.int64(number), numpy.asfortranarray(noise.random((3, 4)))],
        collections.OrderedDict(image=Image.fromarray(pixels), grey=Image.fromarray(pixels).convert("L"), bytes=bytes(range(256))),
    ]

def write(path, value):
    if value is None:
        return
    if isinstance(value, dict):
        return [write(f"{path}/{key}", inner) for key, inner in value.items()]
    if isinstance(value, (tuple, list)):
        return [write(f"{path}/{number}", inner) for number, inner in enumerate(value)]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return numpy.save(path + ".npy", value)
    if isinstance(value, Image.Image):
        return value.save(path + (".ppm" if value.mode == "RGB" else ".pgm"))
    if isinstance(value, bytes):
        return open(path + (".jpg" if value.startswith(b"\xff\xd8\xff") else ".bin"), "wb").write(value)
    open(path + ".txt", "w").write(str(value))

samples = []
for number in range(count):
    value = kinds(number)[number % 4]
    samples.append(pickle.dumps(value, 2 + number // 4 % 4))
    write(f"{place}/expected/{number:06}", value)
offsets = [12 + 12 * count]
for sample in samples:
    offsets.append(offsets[-1] + len(sample))
index = struct.pack(f"<q{count}I{count}q", count, *map(zlib.crc32, samples), *offsets[:-1])
open(f"{place}/p.ffr", "wb").write(struct.pack("<I", zlib.crc32(index)) + index + b"".join(samples))
"#;

#[test]
fn pickled_samples_are_the_files_that_they_hold() {
    if !have(Need::Python("numpy, PIL")) {
        return;
    }
    for_each_transport(|transport| {
        let directory = temp_dir();
        python(WRITE, &[directory.path().to_str().unwrap(), "200"]).ok();
        let (container, wanted) =
            (directory.path().join("p.ffr"), directory.path().join("expected"));
        let wanted = tree(&wanted);
        // The first mount reads the pickles, the second one uses the kept index.
        for _ in 0..2 {
            let mount = Mount::new(transport, &container, &["pickles"]);
            let found = tree(mount.point());
            assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
            assert!(found == wanted, "other bytes");
            assert!(directory.path().join("p.ffr.ffrfs-index").exists());
        }
        let plain = Mount::new(transport, &container, &[]);
        assert_eq!(plain.list("").len(), 200);
        let verify = &mut Command::new(FFRFS);
        let said = run(verify.args(["verify", "--pickles"]).arg(&container)).ok().text();
        assert!(!said.contains("not verifiable"), "{said}");
        let out = directory.path().join("out");
        run(Command::new(FFRFS).args(["extract", "--pickles"]).args([&container, &out])).ok();
        assert!(tree(&out) == wanted, "other bytes are extracted");
    });
}

#[test]
fn a_byte_that_changes_in_a_pickle_is_an_error_of_its_file_alone() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        // pickle.dumps((b"\xff\xd8\xff" and 2000 bytes, 7), 4)
        let jpeg = [&b"\xff\xd8\xff"[..], &[9; 1997]].concat();
        let length = (jpeg.len() as u32).to_le_bytes();
        let pickle = [&b"\x80\x04B"[..], &length, &jpeg, b"K\x07\x86."].concat();
        let container = container_in(&directory, &[&pickle, &pickle]);
        let mount = Mount::new(transport, &container, &["pickles"]);
        assert_eq!(mount.read("000001/0.jpg").unwrap(), jpeg);
        assert_eq!(mount.read("000001/1.txt").unwrap(), b"7");
        drop(mount);
        flip_byte(&container, fs::metadata(&container).unwrap().len() - 500);
        let again = Mount::new(transport, &container, &["pickles", "index=none"]);
        assert_eq!(again.read("000001").unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(again.read("000000/0.jpg").unwrap(), jpeg);
    });
}

#[test]
fn of_a_packed_directory_no_pickles_are_taken_apart_and_a_warning_says_so() {
    let (directory, flat) = (temp_dir(), fixture("pickled.ffr"));
    let ffrfs =
        |command: &str, args: &[&Path]| run(Command::new(FFRFS).arg(command).args(args)).ok();
    fs::create_dir(directory.path().join("d")).unwrap();
    let pickle = ffrfs("cat", &[&flat, "000000".as_ref()]).stdout;
    fs::write(directory.path().join("d/0.pkl"), pickle).unwrap();
    let packed = directory.path().join("p.ffr");
    ffrfs("pack", &[&directory.path().join("d"), &packed]);
    let ls = ffrfs("ls", &["--pickles".as_ref(), &packed]);
    assert_eq!(ls.stdout, b"0.pkl\n");
    assert!(ls.stderr.contains("--pickles has no effect on a packed directory"), "{}", ls.stderr);
    for (source, advice) in [(&flat, "--pickles shows what they hold"), (&packed, "load them with")]
    {
        let info = ffrfs("info", &[source]).text();
        assert!(info.contains(advice), "{info}");
    }
}
