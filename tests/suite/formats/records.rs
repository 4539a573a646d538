//! Formats of records: TFRecord as its package wrote it, in every kind of container; RecordIO and MDS as they are documented.

use super::write::{stored, text, through, zip};
use super::{file_in, tree};
use crate::common::{
    Mount, Need, assert_errno, ffrfs, fixture, flip_byte, for_each_transport, have, noise, temp_dir,
};
use crate::fixtures::check;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The elements in the bytes that `numpy.save` writes for one element or a vector: all of them have a header of this length.
fn elements(file: &[u8]) -> &[u8] {
    &file[128..]
}

/// An image record of RecordIO, as MXNet packs it.
fn image_record(label: f32, value: &[u8]) -> Vec<u8> {
    let header = [&0_u32.to_le_bytes()[..], &label.to_le_bytes(), &[0; 16]].concat();
    let length = (header.len() + value.len()) as u32;
    let mut out = [0xced7_230a_u32.to_le_bytes(), length.to_le_bytes()].concat();
    out.extend(header.iter().chain(value));
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A shard of MDS whose samples have a text and a number.
fn shard(samples: &[(&str, i64)]) -> Vec<u8> {
    let json = br#"{"column_encodings": ["int", "str"], "column_names": ["n", "t"], "column_sizes": [8, null], "format": "mds"}"#;
    let mut at = (8 + 4 * samples.len() + json.len()) as u32;
    let (mut head, mut data) = ((samples.len() as u32).to_le_bytes().to_vec(), Vec::new());
    head.extend(at.to_le_bytes());
    for (text, number) in samples {
        at += 12 + text.len() as u32;
        head.extend(at.to_le_bytes());
        data.extend((text.len() as u32).to_le_bytes());
        data.extend(number.to_le_bytes());
        data.extend(text.as_bytes());
    }
    [&head[..], json, &data].concat()
}

#[test]
fn tfrecords_are_served_as_the_package_reads_them() {
    check("alike.tfrecord");
    check("mixed.tfrecord");
    check("steps.tfrecord");
}

#[test]
fn mds_is_served_as_the_package_reads_it() {
    check("mds");
}

#[test]
fn verify_compares_shards_of_mds_with_the_hashes_in_their_list() {
    let directory = temp_dir();
    for entry in fs::read_dir(fixture("mds")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
    }
    let source = directory.path().to_str().unwrap();
    let right = ffrfs(&["verify", source]).ok();
    assert!(right.stderr.contains("3 files have the hashes that index.json lists: 0 bad"));
    assert!(!right.stderr.contains("not verifiable"), "{}", right.stderr);
    // A check of a part of the samples says nothing about whole files.
    let part = ffrfs(&["verify", "--sample", "0-1", source]).ok();
    assert!(part.stderr.contains("not verifiable") && !part.stderr.contains("index.json"));

    let list = directory.path().join("index.json");
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, text.replace("sha1", "blake2b")).unwrap();
    let unchecked = ffrfs(&["verify", source]).ok();
    assert!(unchecked.stderr.contains("blake2b of 3 files in index.json is not checked"));
    assert!(unchecked.stderr.contains("not verifiable"), "{}", unchecked.stderr);

    fs::write(&list, &text).unwrap();
    let shard = directory.path().join("shard.00001.mds");
    flip_byte(&shard, fs::metadata(&shard).unwrap().len() - 1);
    let wrong = ffrfs(&["verify", source]);
    assert_eq!(wrong.code, 4, "{}", wrong.stderr);
    assert!(wrong.text().contains("shard.00001.mds: sha1 of the file: expected"));
    assert!(wrong.stderr.contains("2 files have the hashes that index.json lists: 1 bad"));
    let json = ffrfs(&["verify", "--json", source]);
    let json: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
    assert_eq!(json["listed_hashes"]["right"], 2);
    assert_eq!(json["listed_hashes"]["wrong"][0]["algorithm"], "sha1");

    fs::write(&list, "[]").unwrap();
    let ignored = ffrfs(&["verify", source]).ok();
    assert!(ignored.stderr.contains("index.json: its hashes are not used"), "{}", ignored.stderr);
}

#[test]
fn compressed_and_nested_tfrecords_are_the_same_files() {
    let directory = temp_dir();
    for name in ["alike", "mixed"] {
        let bytes = fs::read(fixture(&format!("{name}.tfrecord"))).unwrap();
        let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&bytes, 6);
        let mut sources = vec![
            (file_in(&directory, &format!("{name}.tfrecord"), bytes.clone()), "", ""),
            (file_in(&directory, &format!("{name}.zz"), zlib), "", ""),
        ];
        if have(Need::Program("gzip")) {
            let gzip = through("gzip", &["-c"], &bytes);
            sources.push((file_in(&directory, &format!("{name}.gz"), gzip), "", ""));
        }
        let outer = zip(&[stored("in/x.tfrecord", &bytes)]);
        let outer = file_in(&directory, &format!("{name}.zip"), outer);
        sources.push((outer, "nested=1", "in/x.tfrecord/"));
        for_each_transport(|transport| {
            let plain =
                Mount::new(transport, fixture(&format!("{name}.tfrecord")), &["index=none"]);
            let expected = tree(plain.point());
            assert!(!expected.is_empty());
            for (source, option, below) in &sources {
                // The first mount makes a pass, the second one uses the kept index.
                for _ in 0..2 {
                    let options: &[&str] = if option.is_empty() { &[] } else { &[option] };
                    let mount = Mount::new(transport, source, options);
                    assert!(tree(&mount.point().join(below)) == expected, "{}", source.display());
                    assert!(mount.bad().is_empty());
                }
            }
        });
    }
}

#[test]
fn empty_lists_of_a_compressed_tfrecord_are_mounted_and_extracted() {
    // tf.Example: {"f": FloatList{}, "i": Int64List{}}
    let record = [
        &b"\x14\0\0\0\0\0\0\0^=)\x15"[..],
        b"\x0a\x12\x0a\x07\x0a\x01f\x12\x02\x12\0\x0a\x07\x0a\x01i\x12\x02\x1a\0",
        b"\xa4=*\xec",
    ]
    .concat();
    let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&record.repeat(3), 6);
    let directory = temp_dir();
    let source = file_in(&directory, "x.tfrecord.zz", zlib);
    for_each_transport(|transport| {
        let shown = tree(Mount::new(transport, &source, &[]).point());
        assert_eq!(shown.len(), 6);
        assert!(shown.values().all(|array| array.len() == 128));
        let out = directory.path().join(format!("{transport:?}"));
        ffrfs(&["extract", source.to_str().unwrap(), out.to_str().unwrap()]).ok();
        assert!(tree(&out) == shown);
    });
}

#[test]
fn shards_of_records_are_numbered_on_and_tools_take_them() {
    let directory = temp_dir();
    for (number, name) in ["alike", "mixed", "alike"].iter().enumerate() {
        let shard = directory.path().join(format!("train.tfrecord-0000{number}-of-00003"));
        fs::copy(fixture(&format!("{name}.tfrecord")), shard).unwrap();
    }
    for_each_transport(|transport| {
        let mount = Mount::new(transport, directory.path(), &["index=none"]);
        let names: Vec<_> = (0..18).map(|number| format!("{number:06}")).collect();
        let mut found: Vec<_> = fs::read_dir(mount.point())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, names);
        let label = mount.read("000013/label.npy").unwrap();
        assert_eq!(elements(&label), (-1_i64).to_le_bytes());
        assert!(mount.read("000007/image/encoded.jpg").unwrap().starts_with(b"\xff\xd8\xff"));
        let shards = Mount::new(transport, directory.path(), &["layout=shards", "index=none"]);
        let path = "train.tfrecord-00002-of-00003/000001/label.npy";
        assert_eq!(shards.read(path).unwrap(), label);
    });
    // A directory as a source would be packed.
    let source = &format!("{}/train.*-of-00003", directory.path().display());
    let verified = ffrfs(&["verify", source]).ok();
    assert!(verified.stderr.contains("0 bad") || verified.text().contains("0 bad"));
    let outputs = temp_dir();
    let converted = outputs.path().join("out.zip");
    ffrfs(&["convert", source, converted.to_str().unwrap()]).ok();
    let out = outputs.path().join("out");
    ffrfs(&["extract", source, out.to_str().unwrap()]).ok();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &converted, &[]);
        assert!(tree(mount.point()) == tree(&out));
    });
}

#[test]
fn raw_records_are_files_that_can_have_a_suffix() {
    let source = fixture("alike.tfrecord");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["view=raw", "suffix=.pb", "index=none"]);
        let file = mount.read("000003.pb").unwrap();
        assert_eq!(file[0], 0x0a, "field 1 of a tf.Example");
    });
}

#[test]
fn a_record_that_does_not_match_its_checksum_is_an_error_and_the_others_are_served() {
    let directory = temp_dir();
    let path = directory.path().join("x.tfrecord");
    let check = |expected: &[&str], options: &[&str]| {
        for_each_transport(|transport| {
            let options = [options, &["index=none"]].concat();
            let mount = Mount::new(transport, &path, &options);
            let mut bad = Vec::new();
            for record in 0..6 {
                for file in ["box.npy", "image.jpg", "label.npy", "text.txt"] {
                    let name = format!("{record:06}/{file}");
                    match mount.read(&name) {
                        Ok(bytes) => assert!(!bytes.is_empty()),
                        Err(error) => {
                            assert_errno::<()>(Err(error), libc::EIO);
                            bad.push(name);
                        }
                    }
                }
            }
            assert_eq!(bad, expected);
            let listed = mount.bad();
            assert_eq!(listed.len(), expected.len());
            assert!(listed.iter().all(|line| line[1] == "checksum"), "{listed:?}");
            assert_eq!(mount.stats()["checksum_failures"], expected.len());
        });
    };
    // Damage that the pass sees: no byte of the record can be trusted.
    fs::copy(fixture("alike.tfrecord"), &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let image = bytes.windows(4).position(|bytes| bytes == b"\xff\xd8\xff\xe0").unwrap() as u64;
    flip_byte(&path, image + 100);
    let files = ["box.npy", "image.jpg", "label.npy", "text.txt"];
    let all: Vec<_> = files.iter().map(|file| format!("000000/{file}")).collect();
    check(&all.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    // Also in a compressed file, and by a kept index.
    let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&fs::read(&path).unwrap(), 6);
    let packed = file_in(&directory, "x.tfrecord.zz", zlib);
    for path in [&path, &packed, &path, &packed] {
        let verified = ffrfs(&["verify", "--json", path.to_str().unwrap()]);
        assert_eq!(verified.code, 4);
        let found: Value = serde_json::from_str(&verified.text()).unwrap();
        let bad = found["bad"].as_array().unwrap();
        let mut paths: Vec<_> = bad.iter().map(|bad| bad["path"].as_str().unwrap()).collect();
        paths.sort_unstable();
        assert_eq!(paths, all);
        for bad in bad {
            assert_eq!(
                (&bad["reason"], &bad["part"]),
                (&json!("checksum"), &json!("the record at byte 0"))
            );
        }
        let info = ffrfs(&["info", path.to_str().unwrap()]).ok().text();
        assert!(info.contains("4 files do not match a checksum"), "{info}");
        assert!(!info.contains("not whole"), "{info}");
    }
    // Damage behind the pass: each file has a checksum of its own.
    for_each_transport(|transport| {
        fs::copy(fixture("alike.tfrecord"), &path).unwrap();
        let mount = Mount::new(transport, &path, &["index=none"]);
        flip_byte(&path, image + 100);
        assert!(mount.read("000000/label.npy").is_ok());
        assert_errno(mount.read("000000/image.jpg"), libc::EIO);
    });
}

#[test]
fn recordio_shows_labels_and_data() {
    let directory = temp_dir();
    let values: Vec<Vec<u8>> = (0..300)
        .map(|number| [b"\xff\xd8\xff\xe0", &noise(number, number as usize * 40)[..]].concat())
        .collect();
    let records: Vec<u8> = values
        .iter()
        .enumerate()
        .flat_map(|(number, value)| image_record(number as f32, value))
        .collect();
    let source = file_in(&directory, "x.rec", records);
    for_each_transport(|transport| {
        for _ in 0..2 {
            let mount = Mount::new(transport, &source, &[]);
            for (number, value) in values.iter().enumerate() {
                let label = mount.read(format!("{number:06}/label.npy")).unwrap();
                assert_eq!(elements(&label), (number as f32).to_le_bytes());
                assert!(mount.read(format!("{number:06}/data.jpg")).unwrap() == *value);
            }
        }
    });
    let info = ffrfs(&["info", source.to_str().unwrap()]).ok().text();
    assert!(info.contains("RecordIO") && info.contains("not verifiable"), "{info}");
}

#[test]
fn records_of_several_parts_match_their_sidecar_wherever_they_are_read() {
    let part = |flag: u32, bytes: &[u8]| {
        let head = [0xced7_230a_u32, flag << 29 | bytes.len() as u32].map(u32::to_le_bytes);
        let mut out = [&head.concat(), bytes].concat();
        out.resize(out.len().next_multiple_of(4), 0);
        out
    };
    let header = [&[0; 4][..], &1.5_f32.to_le_bytes(), &[0; 16]].concat();
    let first = part(1, &[&header[..], b"\xffbcd"].concat());
    let directory = temp_dir();
    let records = [&first[..], &part(3, b"xyz"), &image_record(2.0, b"whole")].concat();
    let source = file_in(&directory, "x.rec", records);
    let source = source.to_str().unwrap();
    ffrfs(&["sum", "--sidecar", source]).ok();
    ffrfs(&["verify", source]).ok();
    let joined = b"\xffbcd\x0a\x23\xd7\xcexyz";
    let out = directory.path().join("out");
    ffrfs(&["extract", source, out.to_str().unwrap()]).ok();
    assert_eq!(fs::read(out.join("000000/data.bin")).unwrap(), joined);
    let zip = directory.path().join("x.zip");
    ffrfs(&["convert", source, zip.to_str().unwrap()]).ok();
    assert_eq!(ffrfs(&["cat", source, "000000/data.bin"]).ok().stdout, joined);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, Path::new(source), &[]);
        assert_eq!(mount.read("000000/data.bin").unwrap(), joined);
    });
    flip_byte(Path::new(source), 33);
    assert_eq!(ffrfs(&["cat", source, "000000/data.bin"]).code, 4);
}

#[test]
fn a_directory_of_mds_shards_is_one_dataset_compressed_or_not() {
    let (directory, packed) = (temp_dir(), temp_dir());
    let long = text(1, 50_000);
    let long = String::from_utf8_lossy(&long);
    for first in [0, 3] {
        let samples = [("a", first), ("", first + 1), (&*long, first + 2)];
        let name = format!("shard.0000{}.mds", first / 3);
        let bytes = shard(&samples);
        if have(Need::Program("zstd")) {
            let zstd = through("zstd", &["-c", "-q"], &bytes);
            file_in(&packed, &format!("{name}.zstd"), zstd);
        }
        file_in(&directory, &name, bytes);
    }
    let look = |source: &Path| {
        for_each_transport(|transport| {
            for _ in 0..2 {
                let mount = Mount::new(transport, source, &[]);
                for number in 0..6_i64 {
                    let found = mount.read(format!("{number:06}/n.npy")).unwrap();
                    assert_eq!(elements(&found), number.to_le_bytes());
                }
                assert_eq!(mount.read("000004/t.txt").unwrap(), b"");
                assert!(mount.read("000005/t.txt").unwrap() == long.as_bytes());
            }
        });
    };
    look(directory.path());
    if have(Need::Program("zstd")) {
        look(packed.path());
    }
}

#[test]
fn a_cut_file_of_records_is_refused_with_the_byte_and_served_up_to_there_if_damage_is_allowed() {
    let directory = temp_dir();
    let bytes = fs::read(fixture("alike.tfrecord")).unwrap();
    let source = file_in(&directory, "cut.tfrecord", &bytes[..bytes.len() - 100]);
    let refused = ffrfs(&["info", source.to_str().unwrap()]);
    assert_eq!(refused.code, 3);
    for word in ["cut.tfrecord", "at byte", "truncated", "--allow-damaged"] {
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    let served = ffrfs(&["ls", "--allow-damaged", source.to_str().unwrap()]).ok().text();
    assert_eq!(served.lines().count(), 5, "{served}");
}

#[test]
fn records_of_different_fields_lie_in_directories_of_so_many() {
    let source = fixture("mixed.tfrecord");
    for_each_transport(|transport| {
        let flat = tree(Mount::new(transport, &source, &["index=none"]).point());
        let above = |path: &str| format!("{:03}/{path}", path[..6].parse::<u64>().unwrap() / 3);
        let expected: BTreeMap<_, _> =
            flat.into_iter().map(|(path, bytes)| (above(&path), bytes)).collect();
        assert!(expected.keys().any(|path| path.starts_with("001/")));
        let mount = Mount::new(transport, &source, &["fanout=3", "index=none"]);
        assert!(tree(mount.point()) == expected);
    });
    let archive = fixture("packed_folder.ffr");
    let said = super::refused(&archive, &["fanout=3"]).stderr;
    assert!(said.contains("--fanout also for records") && said.contains("--flat"), "{said}");
}

#[test]
fn a_compressed_file_of_no_records_is_an_empty_directory() {
    let directory = temp_dir();
    for name in ["a.tfrecord.gz", "a.tfrecord-00000-of-00002.gz", "a.rec.gz"] {
        let source = file_in(&directory, name, through("gzip", &["-c"], b""));
        for_each_transport(|transport| {
            assert!(tree(Mount::new(transport, &source, &[]).point()).is_empty(), "{name}");
        });
    }
    let source = file_in(&directory, "a.txt.gz", through("gzip", &["-c"], b""));
    for_each_transport(|transport| {
        assert_eq!(Mount::new(transport, &source, &[]).read("a.txt").unwrap(), b"");
    });
}

#[test]
fn shards_of_a_codec_that_is_not_read_are_named_with_what_to_do() {
    let directory = temp_dir();
    let shard = file_in(&directory, "shard.00000.mds.br", noise(1, 300));
    for source in [directory.path(), &shard] {
        let outcome = ffrfs(&["ls".as_ref(), source.as_os_str()]);
        let said = outcome.stderr;
        assert!(outcome.code != 0 && said.contains("shard.00000.mds.br"), "{said}");
        assert!(said.contains("brotli is not read: decompress"), "{said}");
    }
}

#[test]
fn what_is_said_of_several_shards_is_said_once() {
    let directory = temp_dir();
    for number in 0..3 {
        let text = String::from_utf8(shard(&[])).unwrap().replace("\"int\"", "\"foo\"");
        file_in(&directory, &format!("shard.{number:05}.mds"), text);
    }
    let said = ffrfs(&["ls".as_ref(), directory.path().as_os_str()]).ok().stderr;
    assert_eq!(said.matches("unknown encoding").count(), 1, "{said}");
    let names = [0, 1, 2].map(|number| format!("shard.{number:05}.mds"));
    assert!(names.iter().all(|name| said.matches(name).count() == 1), "{said}");
    // `info` has a line for each shard, and the warnings stand below the first shard that has them.
    let said = ffrfs(&["info".as_ref(), directory.path().as_os_str()]).ok().text();
    assert_eq!(said.matches("unknown encoding").count(), 1, "{said}");
    let warning = said.lines().nth(1).unwrap();
    assert!(names.iter().all(|name| warning.matches(name).count() == 1), "{said}");
}

#[test]
fn a_file_of_names_that_does_not_fit_records_tells_their_files() {
    let directory = temp_dir();
    let source = fixture("alike.tfrecord");
    let names = file_in(&directory, "names", "one\ntwo\n");
    let said = ffrfs(&["ls", source.to_str().unwrap(), "--names", names.to_str().unwrap()]).stderr;
    let first = tree_of_first(&source);
    assert!(said.contains("--names") && said.contains("2 names for"), "{said}");
    assert!(said.contains("each file of a record is a sample") && said.contains(&first), "{said}");
    let said = ffrfs(&["ls", source.to_str().unwrap(), "--names", "image"]).stderr;
    assert!(said.contains("--names: image: No such file"), "{said}");
}

/// The path of a file in the first record.
fn tree_of_first(source: &Path) -> String {
    let listed = ffrfs(&["ls".as_ref(), "-R".as_ref(), source.as_os_str()]).ok().text();
    let line = listed.lines().find(|line| line.starts_with("000000/") && !line.ends_with('/'));
    line.unwrap().trim_start_matches("000000/").to_owned()
}
