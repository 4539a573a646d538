//! Containers that must be the named ones, and samples that must have checksums.

use super::*;

fn sha256sum(files: &[&Path]) -> String {
    run(Command::new("sha256sum").args(files)).ok().text()
}

#[test]
fn samples_without_checksums_are_refused_where_they_are_required() {
    let directory = temp_dir();
    let source = file_in(&directory, "x.tar", tar_of(&members().0));
    let words = ["x.tar", "7 of tar", "ffrfs sum --sidecar"];
    assert_words(&refused(&source, &["require_checksums"]), 3, &words);
    let words = ["features.syr", " of Syrah", "ffrfs sum --sidecar"];
    assert_words(&refused(&fixture("features.syr"), &["require-checksums"]), 3, &words);
    let on = |command: &str, source: &Path| {
        run(Command::new(FFRFS).arg(command).arg(source).arg("--require-checksums"))
    };
    for command in ["verify", "info", "ls", "sum"] {
        assert_words(&on(command, &source), 3, &["7 of tar"]);
        on(command, &container_in(&directory, &samples(3, 10))).ok();
    }
    sum(&source, &["--sidecar"]).ok();
    for_each_transport(|transport| {
        Mount::new(transport, &source, &["require_checksums"]).unmount();
    });
    let outcome = refused(&source, &["require_checksums", "verify=off"]);
    assert_words(&outcome, 1, &["--verify off"]);
}

#[test]
fn members_of_a_container_in_a_container_need_checksums_of_their_own() {
    let directory = temp_dir();
    let inner = tar(&[("a", b"1"), ("b", b"2")]);
    let ffr = fs::read(container_in(&directory, &samples(3, 10))).unwrap();
    let source = file_in(&directory, "x.tar", tar(&[("in.tar", &inner), ("in.ffr", &ffr)]));
    sum(&source, &["--sidecar"]).ok();
    let outcome = refused(&source, &["require_checksums", "nested=1"]);
    assert_words(&outcome, 3, &["2 of tar", "can have no sidecar"]);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["nested=1"]);
        assert_eq!(mount.read("in.tar/a").unwrap(), b"1");
        let flat = Mount::new(transport, &source, &["require_checksums"]);
        assert!(flat.read("in.ffr").unwrap() == ffr);
    });
}

#[test]
fn the_digest_of_a_container_is_its_sha256_and_no_other_one_is_mounted() {
    let directory = temp_dir();
    let source = container_in(&directory, &samples(30, 100_000));
    let line = sum(&source, &["--container"]).ok().text();
    assert_eq!(line.trim_end(), format!("digest=sha256:{}", &sha256sum(&[&source])[..64]));
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[line.trim_end(), "verify=once"]);
        assert!(mount.log().contains("digest as expected"), "{}", mount.log());
    });
    let other = directory.path().join("other.ffr");
    write_container(&other, &samples(31, 100_000));
    let found = format!("sha256:{}", &sha256sum(&[&other])[..64]);
    let expected = line.trim_end().strip_prefix("digest=").unwrap();
    let words = ["other.ffr", expected, &found];
    assert_words(&refused(&other, &[line.trim_end()]), 4, &words);
    // Also if the file is no container at all.
    let junk = file_in(&directory, "junk", noise(1, 100));
    assert_words(&refused(&junk, &[line.trim_end()]), 4, &["junk", expected]);
    let verify = run(Command::new(FFRFS).arg("verify").arg(&other).args(["--digest", expected]));
    assert_words(&verify, 4, &[expected, &found]);
    for wrong in ["digest=sha256:12", "digest=md5:12", "digest=", "digest=sha256:"] {
        assert_eq!(refused(&source, &[wrong]).code, 1, "{wrong}");
    }
}

#[test]
fn the_digest_of_several_containers_is_that_of_the_list_of_theirs() {
    let directory = temp_dir();
    let paths: Vec<_> = (0..3).map(|i| directory.path().join(format!("{i}.ffr"))).collect();
    for (number, path) in paths.iter().enumerate() {
        write_container(path, &[noise(number as u64, 5000)]);
    }
    let line = sum(directory.path(), &["--container"]).ok().text();
    let script = "sha256sum \"$@\" | cut -c1-64 | sha256sum";
    let by_hand = run(Command::new("sh").args(["-c", script, "sh"]).args(&paths)).ok().text();
    assert_eq!(line.trim_end(), format!("digest=sha256:{}", &by_hand[..64]));
    for_each_transport(|transport: Transport| {
        let mount = Mount::new(transport, directory.path(), &[line.trim_end()]);
        assert_eq!(mount.read("000002").unwrap(), noise(2, 5000));
    });
    fs::rename(&paths[0], directory.path().join("9.ffr")).unwrap();
    let outcome = refused(directory.path(), &[line.trim_end()]);
    assert_words(&outcome, 4, &["3 containers", "expected sha256:", "found sha256:"]);
}
