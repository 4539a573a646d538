//! Other readers of packed containers: Python that reads as the reference package does, and that package
//! itself where it is installed.

use super::super::common::{
    Mount, Outcome, TempDir, for_each_transport, run, skip, skip_forced, temp_dir,
};
use super::{Tree, pack};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// Reads containers as the reference package does: `struct`, `zlib.crc32`, `pickle.loads`.
const READER: &str = r#"
import os, pickle, struct, sys, zlib
from collections import OrderedDict
from pathlib import Path

class Reader:
    def __init__(self, path):
        path = Path(path)
        self.samples = []
        for file in sorted(path.glob("*.ffr")) if path.is_dir() else [path]:
            data = file.read_bytes()
            crc, n = struct.unpack_from("<Iq", data)
            crcs = struct.unpack_from(f"<{n}I", data, 12)
            offsets = struct.unpack_from(f"<{n}q", data, 12 + 4 * n) + (len(data),)
            assert crc and crc == zlib.crc32(data[4:12 + 12 * n]), f"{file}: header"
            for i in range(n):
                sample = data[offsets[i]:offsets[i + 1]]
                assert zlib.crc32(sample) == crcs[i], f"{file}: sample {i}"
                self.samples.append(sample)

class PackedDirectory:
    def __init__(self, path):
        self.samples = Reader(path).samples
        assert self.samples[-1].startswith(b"piouhjgbr")
        self.structure = pickle.loads(self.samples[-1][9:])

    def read(self, indices):
        return [self.samples[i] for i in indices]
"#;

/// The same interface from the package.
const PACKAGE: &str = r#"
import os, sys
from collections import OrderedDict
from pathlib import Path
try:
    import ffrecord
except ImportError as error:
    print(error)
    sys.exit(77)

class Reader:
    def __init__(self, path):
        reader = ffrecord.FileReader(path)
        self.samples = [reader.read_one(i).tobytes() for i in range(reader.n)]

class PackedDirectory(ffrecord.PackedDirectory):
    def read(self, indices):
        # One by one it uses pread, many at a time libaio.
        one = [self.reader.read_one(i).tobytes() for i in indices]
        many = self.reader.read(indices)
        assert [sample.tobytes() for sample in many] == one
        return one
"#;

/// Compares `Reader` or `PackedDirectory` of `sys.argv[2]` with the directory `sys.argv[1]`.
const COMPARE: &str = r#"
def compare(struct, directory, found):
    assert type(struct) is OrderedDict, type(struct)
    assert list(struct) == [child.name for child in sorted(directory.iterdir())], directory
    for name, value in struct.items():
        if type(value) is int:
            found.append((value, (directory / name).read_bytes()))
        else:
            compare(value, directory / name, found)
    return found

directory, out, flat = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "flat"
if flat:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    assert Reader(out).samples == [path.read_bytes() for path in files]
else:
    packed = PackedDirectory(out)
    found = compare(packed.structure, directory, [])
    assert [index for index, _ in found] == list(range(len(found)))
    assert packed.read([index for index, _ in found]) == [data for _, data in found]
"#;

/// The Python interpreter; `FFRFS_TEST_PYTHON` may name one with the reference package.
fn interpreter() -> String {
    std::env::var("FFRFS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

fn python(code: &str, args: &[&OsStr]) -> Option<Outcome> {
    let works = Command::new(interpreter()).arg("-V").output().is_ok();
    works.then(|| run(Command::new(interpreter()).arg("-c").arg(code).args(args)))
}

/// A tree with difficult cases: sizes, depths, more than 256 and 65,536 names, bytes that are no UTF-8.
fn tree() -> Tree {
    let mut tree = Tree::default();
    let mut add = |path: &[u8], bytes: Vec<u8>| {
        let names: Vec<_> = path.split(|&b| b == b'/').map(<[u8]>::to_vec).collect();
        tree.directories.extend((1..names.len()).map(|end| names[..end].to_vec()));
        tree.files.insert(names, bytes);
    };
    add(b"large", super::noise(1, 3_000_000));
    add(b"empty", Vec::new());
    add("é/日本/\u{1f600}.jpg".as_bytes(), b"unicode".to_vec());
    add(b"bytes/\xff\xfe\xed\xa0\x80", b"no UTF-8".to_vec());
    add(&[&[b'n'; 255][..], b"/x"].concat(), b"long".to_vec());
    for i in 0..1200 {
        add(format!("many/{i}").as_bytes(), i.to_string().into_bytes());
    }
    let deep: Vec<String> = (0..60).map(|level| level.to_string()).collect();
    add(deep.join("/").as_bytes(), b"deep".to_vec());
    tree.directories.insert(vec![b"hollow".to_vec()]);
    tree
}

/// The tree as a directory, and packed in several ways: each output, and whether it is a tree or flat.
fn packed() -> (TempDir, PathBuf, Vec<(PathBuf, &'static str)>) {
    let work = temp_dir();
    let input = work.path().join("in");
    tree().write(&input);
    let mut outputs = Vec::new();
    for (name, args, kind) in [
        ("tree.ffr", &[][..], "tree"),
        ("flat.ffr", &["--flat"], "flat"),
        ("parts", &["--parts=3"], "tree"),
        ("flat parts", &["--parts=3", "--flat"], "flat"),
    ] {
        let out = work.path().join(name);
        pack(&input, &out, args).ok();
        outputs.push((out, kind));
    }
    (work, input, outputs)
}

fn compare(library: &str) {
    let (_work, input, outputs) = packed();
    let code = format!("{library}{COMPARE}");
    for (out, kind) in &outputs {
        let args = [input.as_os_str(), out.as_os_str(), OsStr::new(kind)];
        match python(&code, &args) {
            None => return skip(&format!("no {}", interpreter())),
            Some(outcome) if outcome.code == 77 => {
                return skip_forced(&format!("{}: {}", interpreter(), outcome.text().trim()));
            }
            Some(outcome) => outcome.ok(),
        };
    }
}

#[test]
fn python_reads_what_pack_writes_as_the_reference_package_does() {
    compare(READER);
}

#[test]
fn the_reference_package_reads_what_pack_writes() {
    compare(PACKAGE);
}

#[test]
fn a_mount_shows_what_the_reference_package_packs() {
    let work = temp_dir();
    let input = work.path().join("in");
    let tree = tree();
    tree.write(&input);
    let out = work.path().join("out.ffr");
    let code = format!("{PACKAGE}\nffrecord.pack_directory(sys.argv[1], sys.argv[2])");
    match python(&code, &[input.as_os_str(), out.as_os_str()]) {
        None => return skip(&format!("no {}", interpreter())),
        Some(outcome) if outcome.code == 77 => {
            return skip_forced(&format!("{}: {}", interpreter(), outcome.text().trim()));
        }
        Some(outcome) => outcome.ok(),
    };
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &out, &[]);
        assert!(Tree::read(mount.point()) == tree);
    });
}
