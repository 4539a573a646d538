//! `ffrfs convert` to formats whose samples have fields: TFRecord, MDS, Syrah and FFCV. In tests/python/test_written.py,
//! the formats' own packages read the output.

use super::convert;
use crate::common::{Need, TempDir, ffrfs, fixture, have, noise, temp_dir, write_container};
use crate::formats::tree;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

type Contents = BTreeMap<String, Vec<u8>>;

const SAMPLES: u64 = 30;

/// The files that a container shows, by way of a directory.
#[track_caller]
fn shown(work: &TempDir, container: &str) -> Contents {
    let name = format!("shown-{}", container.replace('/', "-"));
    convert(work, &format!("{container} {name}/")).ok();
    tree(&work.path().join(name))
}

/// The bytes that `numpy.save` writes.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    [&b"\x93NUMPY\x01\0\x76\0"[..], format!("{text:117}\n").as_bytes(), elements].concat()
}

/// The header of a JPEG image of this width, and noise behind it.
fn jpeg(width: u16, number: u64) -> Vec<u8> {
    let head = [&b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc0\0\x0b\x08\0\x07"[..], &width.to_be_bytes()];
    [&head.concat()[..], b"\x01\x01\x11\0\xff\xda", &noise(number, 900)].concat()
}

/// The fields of a sample as files.
fn sample(number: u64) -> [(&'static str, Vec<u8>); 5] {
    let floats: Vec<u8> =
        [0.5, number as f32, 3.0, -1.0].iter().flat_map(|v: &f32| v.to_le_bytes()).collect();
    [
        ("box.npy", npy("<f4", "(4,)", &floats)),
        ("image.jpg", jpeg(8 + number as u16, number)),
        ("label.npy", npy("<i8", "()", &(number as i64 - 3).to_le_bytes())),
        ("meta.json", format!("{{\"n\": {number}}}").into_bytes()),
        ("text.txt", format!("käse {number}").into_bytes()),
    ]
}

fn records() -> TempDir {
    let work = temp_dir();
    for number in 0..SAMPLES {
        let directory = work.path().join(format!("in/{number:06}"));
        fs::create_dir_all(&directory).unwrap();
        sample(number)
            .iter()
            .for_each(|(name, bytes)| fs::write(directory.join(name), bytes).unwrap());
    }
    work
}

#[track_caller]
fn assert_same(found: &Contents, expected: &Contents) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let other: Vec<_> = expected.iter().filter(|(path, bytes)| found[*path] != **bytes).collect();
    assert!(other.is_empty(), "{other:?}");
}

/// The files of all samples, each as a format shows it after `change`.
fn expected(change: impl Fn(&str, Vec<u8>) -> (String, Vec<u8>)) -> Contents {
    let of = |number| {
        sample(number).map(|(name, bytes)| {
            let (name, bytes) = change(name, bytes);
            (format!("{number:06}/{name}"), bytes)
        })
    };
    (0..SAMPLES).flat_map(of).collect()
}

/// The number in a `.npy` file as a vector of one number.
fn vector(file: &[u8]) -> Vec<u8> {
    npy("<i8", "(1,)", &file[128..])
}

#[test]
fn fields_of_records_come_back_from_each_format_as_it_can_hold_them() {
    let work = records();
    for format in ["tfrecord", "mds", "syr", "beton"] {
        convert(&work, &format!("in out.{format}")).ok();
        let verified =
            ffrfs(&["verify", work.path().join(format!("out.{format}")).to_str().unwrap()]);
        assert_eq!(verified.code, 0, "{format}: {}", verified.stderr);
    }
    let same = |name: &str, bytes| (name.to_owned(), bytes);
    assert_same(
        &shown(&work, "out.tfrecord"),
        &expected(|name, bytes| match name {
            "label.npy" => same(name, vector(&bytes)),
            _ => same(name, bytes),
        }),
    );
    assert_same(&shown(&work, "out.mds/shard.00000.mds"), &expected(same));
    assert_same(
        &shown(&work, "out.syr"),
        &expected(|name, bytes| match name {
            "label.npy" => same(name, vector(&bytes)),
            "image.jpg" => same("image.npy", npy("|u1", &format!("({},)", bytes.len()), &bytes)),
            "meta.json" => same("meta.txt", bytes),
            _ => same(name, bytes),
        }),
    );
    assert_same(
        &shown(&work, "out.beton"),
        &expected(|name, bytes| match name {
            "text.txt" => same("text.bin", bytes),
            "box.npy" => same("box.bin", bytes),
            _ => same(name, bytes),
        }),
    );
}

#[test]
fn samples_that_are_one_file_are_records_of_one_field() {
    let work = temp_dir();
    let samples: Vec<_> = (0..20).map(|number| noise(number, 100 + number as usize)).collect();
    write_container(&work.path().join("in.ffr"), &samples);
    for (format, path) in
        [("tfrecord", ""), ("mds", "/data.bin"), ("syr", "/data.npy"), ("beton", "/data.bin")]
    {
        convert(&work, &format!("in.ffr out.{format}")).ok();
        let source =
            if format == "mds" { "out.mds/shard.00000.mds" } else { &format!("out.{format}") };
        let found = shown(&work, source);
        assert_eq!(found.len(), 20, "{format}");
        for (number, bytes) in samples.iter().enumerate() {
            assert!(found[&format!("{number:06}{path}")].ends_with(bytes), "{format} {number}");
        }
    }
}

#[test]
fn files_that_differ_behind_their_first_dot_are_a_sample_that_keeps_its_name() {
    let work = temp_dir();
    fs::create_dir_all(work.path().join("in/cat")).unwrap();
    for number in 0..9 {
        let file = |ending: &str| work.path().join(format!("in/cat/{number}.{ending}"));
        fs::write(file("jpg"), jpeg(5, number)).unwrap();
        fs::write(file("seg.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    }
    for format in ["tfrecord", "beton"] {
        convert(&work, &format!("in out.{format}")).ok();
        let found = shown(&work, &format!("out.{format}"));
        let name = if format == "beton" { "__key__.bin" } else { "__key__.txt" };
        assert_eq!(found[&format!("000007/{name}")], b"cat/7");
        assert_eq!(found["000007/jpg.jpg"], jpeg(5, 7));
        assert_eq!(found.len(), 27);
    }
}

/// Writes files with these names, in this order, to `in.tar`; each holds its name.
fn tar_in_order(work: &TempDir, names: &[&str]) {
    for name in names {
        let path = work.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let tar =
        Command::new("tar").arg("cf").arg("in.tar").args(names).current_dir(work.path()).status();
    assert!(tar.unwrap().success());
}

#[test]
fn files_of_a_sample_that_stand_apart_in_an_archive_come_together() {
    if !have(Need::Program("tar")) {
        return;
    }
    let work = temp_dir();
    let names = ["b.txt", "d/a.txt", "c.txt", "b.bin", "c.bin", "d/a.bin"];
    tar_in_order(&work, &names);
    for (format, ending) in [("tfrecord", "txt"), ("mds", "txt"), ("beton", "bin")] {
        convert(&work, &format!("in.tar out.{format}")).ok();
        let source = if format == "mds" { "out.mds/shard.*.mds" } else { &format!("out.{format}") };
        let found = shown(&work, source);
        assert_eq!(found.len(), 9, "{format}");
        for (number, key) in ["b", "d/a", "c"].iter().enumerate() {
            let file = |name: &str| found[&format!("{number:06}/{name}")].as_slice();
            assert_eq!(file(&format!("__key__.{ending}")), key.as_bytes(), "{format}");
            assert_eq!(file(&format!("txt.{ending}")), format!("{key}.txt").as_bytes());
            let of_bin = if format == "tfrecord" { "bin.txt" } else { "bin.bin" };
            assert_eq!(file(of_bin), format!("{key}.bin").as_bytes());
        }
    }
    // Also the fields of a numbered directory, which is whole in its shard.
    let work = temp_dir();
    let names = ["000000/a.txt", "000001/a.txt", "000000/b.txt", "000001/b.txt"];
    tar_in_order(&work, &names);
    convert(&work, "in.tar part.tfrecord --shards 2").ok();
    for (shard, directory) in ["000000", "000001"].iter().enumerate() {
        let found = shown(&work, &format!("part-{shard:06}.tfrecord"));
        let expected = ["a", "b"].map(|name| {
            (format!("000000/{name}.txt"), format!("{directory}/{name}.txt").into_bytes())
        });
        assert_same(&found, &expected.into_iter().collect());
    }
}

#[test]
fn tfrecords_come_back_with_lists_of_several_values() {
    let work = temp_dir();
    for name in ["alike", "mixed"] {
        fs::copy(
            fixture(&format!("{name}.tfrecord")),
            work.path().join(format!("{name}.tfrecord")),
        )
        .unwrap();
        convert(&work, &format!("{name}.tfrecord again-{name}.tfrecord")).ok();
        let again = format!("again-{name}.tfrecord");
        assert_same(&shown(&work, &again), &shown(&work, &format!("{name}.tfrecord")));
    }
    let said = convert(&work, "mixed.tfrecord mixed.syr");
    assert!(said.code == 6 && said.stderr.contains("first sample has"), "{}", said.stderr);
}

#[test]
fn a_list_of_more_than_ten_values_in_a_directory_is_one_list_in_a_tfrecord() {
    let work = records();
    let words = work.path().join("in/000000/words");
    fs::create_dir(&words).unwrap();
    for number in 0..12 {
        fs::write(words.join(format!("{number}.txt")), format!("word {number}")).unwrap();
    }
    convert(&work, "in out.tfrecord").ok();
    let written = fs::read(work.path().join("out.tfrecord")).unwrap();
    assert!(!written.windows(6).any(|bytes| bytes == b"words/"));
    let shown = shown(&work, "out.tfrecord");
    let found = shown.iter().filter(|(path, _)| format!("{path:?}").contains("words/"));
    assert_eq!(found.count(), 12);
}

#[test]
fn shards_of_records_keep_each_record_whole() {
    let work = records();
    convert(&work, "in part.tfrecord --shards 4").ok();
    convert(&work, "in parts/ --to mds --shard-size 8K").ok();
    let index = fs::read_to_string(work.path().join("parts/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let shards = index["shards"].as_array().unwrap();
    assert!(shards.len() > 3, "{}", shards.len());
    let samples: u64 = shards.iter().map(|shard| shard["samples"].as_u64().unwrap()).sum();
    assert_eq!(samples, SAMPLES);
    for shard in shards {
        let path = work.path().join("parts").join(shard["raw_data"]["basename"].as_str().unwrap());
        assert_eq!(fs::metadata(path).unwrap().len(), shard["raw_data"]["bytes"].as_u64().unwrap());
    }
    let all = "part-{000000..000003}.tfrecord";
    let count = shown(&work, all).len() as u64;
    assert_eq!(count, SAMPLES * 5);
    assert_same(
        &shown(&work, "parts/shard.*.mds"),
        &expected(|name, bytes| (name.to_owned(), bytes)),
    );
}

#[test]
fn what_a_format_cannot_hold_names_the_sample_and_nothing_is_written() {
    let work = records();
    fs::write(work.path().join("in/000011/image.jpg"), b"no image").unwrap();
    let said = convert(&work, "in out.beton");
    assert!(said.code == 6 && said.stderr.contains("000011"), "{}", said.stderr);
    assert!(said.stderr.contains("no JPEG image"), "{}", said.stderr);
    fs::remove_file(work.path().join("in/000012/text.txt")).unwrap();
    for out in ["out.mds", "out.syr"] {
        let said = convert(&work, &format!("in {out}"));
        assert!(said.code == 6 && said.stderr.contains("sample 000012"), "{}", said.stderr);
        assert!(!work.path().join(out).exists());
    }
    // The samples of a TFRecord may have different fields.
    convert(&work, "in out.tfrecord").ok();
}

#[test]
fn no_two_values_of_a_beton_have_one_pointer() {
    let work = temp_dir();
    for number in 0..4 {
        let sample = work.path().join(format!("in/{number:06}"));
        fs::create_dir_all(&sample).unwrap();
        fs::write(sample.join("a.bin"), &b"\xff\xfe"[..number % 3]).unwrap();
        fs::write(sample.join("b.bin"), b"\xff").unwrap();
    }
    convert(&work, "in out.beton").ok();
    let file = fs::read(work.path().join("out.beton")).unwrap();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let table = &file[word(&file[16..]) as usize..];
    let pointers: BTreeSet<u64> = table.chunks(24).map(|row| word(&row[8..])).collect();
    // FFCV's own reader finds a value's size by its pointer, so the pointers must differ.
    assert_eq!((pointers.len(), table.len() / 24), (8, 8));
    assert_eq!(shown(&work, "out.beton")["000000/a.bin"], b"");
}

#[test]
fn a_directory_of_lmdb_or_mds_is_the_dataset_that_a_mount_shows() {
    let work = temp_dir();
    let lmdb = work.path().join("lmdb");
    fs::create_dir(&lmdb).unwrap();
    fs::copy(fixture("data.mdb"), lmdb.join("data.mdb")).unwrap();
    // The index that is kept beside a database is none of its values.
    ffrfs(&["index".as_ref(), lmdb.as_os_str()]).ok();
    for (number, source) in [lmdb, fixture("mds")].into_iter().enumerate() {
        let extracted = work.path().join(format!("extracted-{number}"));
        ffrfs(&["extract".as_ref(), source.as_os_str(), extracted.as_os_str()]).ok();
        let expected = tree(&extracted);
        assert!(expected.len() > 1);
        convert(&work, &format!("{} out-{number}.zip", source.display())).ok();
        assert_same(&shown(&work, &format!("out-{number}.zip")), &expected);
        convert(&work, &format!("{} out-{number}/", source.display())).ok();
        assert_same(&tree(&work.path().join(format!("out-{number}"))), &expected);
    }
}
