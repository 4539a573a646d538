//! Container files on a real file system.

use super::*;
use std::io::Write;

fn temporary(bytes: &[u8]) -> (tempfile::NamedTempFile, File) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let opened = File::open(file.path()).unwrap();
    (file, opened)
}

#[test]
fn a_read_gives_the_bytes_at_the_offset() {
    let (_keep, file) = temporary(b"0123456789");
    let mut buf = [0; 4];
    file.read(&mut buf, 3, 4).unwrap();
    assert_eq!(&buf, b"3456");
}

#[test]
fn a_read_without_waiting_gives_bytes_or_says_that_it_would_wait() {
    let (_keep, file) = temporary(b"0123456789");
    let mut buf = [0; 10];
    match file.read_cached(&mut buf, 0) {
        Ok(()) => assert_eq!(&buf, b"0123456789"),
        Err(e) => assert!(matches!(e, ReadError::WouldBlock)),
    }
}

#[test]
fn a_truncated_a_rewritten_and_a_deleted_file_are_told_apart() {
    let mut buf = [0; 4];
    let (keep, file) = temporary(b"0123456789");
    keep.as_file().set_len(5).unwrap();
    let error = file.read(&mut buf, 6, 4).unwrap_err();
    assert!(matches!(error, ReadError::Changed(Change::Truncated)));

    let (mut keep, file) = temporary(b"0123456789");
    keep.write_all(b"more").unwrap();
    let error = file.read(&mut buf, 0, 4).unwrap_err();
    assert!(matches!(error, ReadError::Changed(Change::Rewritten)));

    let (keep, file) = temporary(b"0123456789");
    drop(keep);
    let error = file.read(&mut buf, 0, 4).unwrap_err();
    assert!(matches!(error, ReadError::Changed(Change::Unlinked)));
    assert!(error.to_string().contains("replaced or deleted"), "{error}");
}

#[test]
fn files_of_a_pool_are_closed_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::new(2);
    let open = |number: u8| {
        let path = directory.path().join(number.to_string());
        fs::write(&path, [number; 10]).unwrap();
        let mut file = File::open(&path).unwrap();
        file.share(&pool).unwrap();
        file
    };
    let files: Vec<File> = (0..10).map(open).collect();
    let held = files[9].hold().unwrap();
    for (number, file) in files.iter().enumerate() {
        let mut buf = [99; 4];
        file.read(&mut buf, 3, 4).unwrap();
        assert_eq!(buf, [number as u8; 4]);
        file.check_unchanged().unwrap();
    }
    let open = files.iter().filter(|file| file.is_open()).count();
    assert_eq!(open, 2, "and what is held beside them");
    drop(held);
    // Another file of the same name, even one of the same size, is another file.
    fs::rename(directory.path().join("1"), directory.path().join("0")).unwrap();
    let error = files[0].read(&mut [0; 4], 0, 4).unwrap_err();
    assert!(matches!(error, ReadError::Changed(_)), "{error}");
    let error = files[1].check_unchanged().unwrap_err();
    assert!(matches!(error, ReadError::Changed(Change::Replaced)));
}

#[test]
fn a_directory_and_a_device_are_no_containers() {
    assert!(File::open(Path::new("/")).is_err());
    assert!(File::open(Path::new("/dev/null")).is_err());
}
