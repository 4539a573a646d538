//! Everything but `read`: listings, lookups, attributes, control files.

use super::*;
use crate::catalog::TreeBuilder;

fn names(vfs: &Vfs, ino: u64, from: u64) -> Vec<(Vec<u8>, u64, u64)> {
    let mut found = Vec::new();
    vfs.readdir(ino, from, &mut |entry| {
        found.push((entry.name.to_vec(), entry.ino, entry.next));
        true
    })
    .unwrap();
    found
}

fn lookup(vfs: &Vfs, parent: u64, name: &[u8]) -> Attr {
    match vfs.lookup(parent, name).unwrap() {
        Lookup::Found(attr) | Lookup::Passing(attr) => attr,
        Lookup::Absent => panic!("{name:?} is absent"),
    }
}

#[test]
fn a_listing_goes_on_at_every_cursor_and_agrees_with_lookups() {
    let mut builder = TreeBuilder::default();
    for (sample, path) in
        ["b", "d/x", "d/y", "a", "d/e/z", "c", "d/é", "d/e/f/g", "h"].iter().enumerate()
    {
        builder.add(path.as_bytes(), sample as u64).unwrap();
    }
    let (samples, options) = (vec![vec![1, 2, 3]; 9], options(Verify::Always, 0));
    let world = World::named(&[samples], options, 0, |_| builder.build().unwrap().into());
    let vfs = &world.vfs;
    let mut directories = vec![(1, 1)];
    let mut seen = 0;
    while let Some((directory, parent)) = directories.pop() {
        let all = names(vfs, directory, 0);
        assert_eq!((&all[0].0[..], all[0].1), (&b"."[..], directory));
        assert_eq!((&all[1].0[..], all[1].1), (&b".."[..], parent));
        for (place, (_, _, next)) in all.iter().enumerate() {
            assert_eq!(names(vfs, directory, *next), all[place + 1..]);
        }
        for (name, ino, _) in &all[2..] {
            let attr = lookup(vfs, directory, name);
            assert_eq!((attr.ino, vfs.getattr(*ino).unwrap()), (*ino, attr));
            if attr.kind == FileKind::Directory {
                directories.push((*ino, directory));
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 9 + 3);
    assert_eq!((vfs.totals().bytes, vfs.totals().files), (27, 9 + 4));
    assert_eq!(vfs.lookup(1, b"nothing"), Ok(Lookup::Absent));
    assert_eq!(vfs.lookup(ino_of(0), b"x"), Err(Errno::ENOTDIR));
    assert_eq!(vfs.getattr(ino_of(9)), Err(Errno::ENOENT));
    assert_eq!(vfs.getattr(0), Err(Errno::ENOENT));
    assert!(vfs.readdir(ino_of(0), 0, &mut |_| true) == Err(Errno::ENOTDIR));
    assert_eq!(world.drive(world.vfs.read(1, 0, 10)), Err(Errno::EISDIR));
}

#[test]
fn attributes_are_those_that_were_asked_for_and_times_those_of_the_container() {
    let chosen = Options {
        uid: 7,
        gid: 8,
        file_mode: 0o440,
        directory_mode: 0o550,
        ..options(Verify::Always, 0)
    };
    let world = World::new(&[vec![vec![1; 5]], vec![vec![]]], chosen);
    let file = world.vfs.getattr(ino_of(0)).unwrap();
    assert_eq!((file.size, file.mode, file.links, file.uid, file.gid), (5, 0o440, 1, 7, 8));
    assert_eq!(file.modified, SystemTime::UNIX_EPOCH + Duration::from_secs(100));
    assert_eq!(
        world.vfs.getattr(ino_of(1)).unwrap().modified,
        file.modified + Duration::from_secs(1)
    );
    let root = world.vfs.getattr(1).unwrap();
    assert_eq!((root.kind == FileKind::Directory, root.mode, root.links), (true, 0o550, 2));
}

#[test]
fn extended_attributes_tell_where_a_sample_lies_and_whether_it_was_checked() {
    let parts = [vec![noise(1, 5)], vec![noise(2, 6), noise(3, 7)]];
    let mut world = World::new(&parts, options(Verify::Always, 1 << 20));
    world.flip(1, 0);
    let get = |world: &World, sample, name: &str| {
        let value = world.vfs.getxattr(ino_of(sample), format!("{XATTR_PREFIX}{name}").as_bytes());
        String::from_utf8(value.unwrap()).unwrap()
    };
    let offset = (header_bytes(2) + 6).to_string();
    let crc = format!("{:08x}", crc32fast::hash(&parts[1][1]));
    for (name, value) in [
        ("container", "/part1.ffr"),
        ("index", "1"),
        ("offset", &offset),
        ("length", "7"),
        ("crc32", &crc),
        ("verified", "no"),
    ] {
        assert_eq!(get(&world, 2, name), value, "{name}");
    }
    let _ = (world.read(2, 0, 1), world.read(1, 0, 1));
    assert_eq!(
        (get(&world, 2, "verified"), get(&world, 1, "verified")),
        ("yes".into(), "bad".into())
    );
    for (ino, name, errno) in [
        (ino_of(0), "user.ffrfs.x", Errno::ENODATA),
        (1, "user.ffrfs.index", Errno::ENODATA),
        (ino_of(0), "security.capability", Errno::EOPNOTSUPP),
        (1, "system.posix_acl_access", Errno::EOPNOTSUPP),
    ] {
        assert_eq!(world.vfs.getxattr(ino, name.as_bytes()), Err(errno), "{name}");
    }
}

#[test]
fn control_files_are_snapshots_that_forget_frees() {
    let world = World::of(&[vec![1]], options(Verify::Always, 0));
    let vfs = &world.vfs;
    assert!(names(vfs, 1, 0).iter().all(|(name, ..)| name != b".ffrfs"), "it is not listed");
    let directory = lookup(vfs, 1, b".ffrfs");
    assert!(
        directory.kind == FileKind::Directory
            && vfs.is_control(directory.ino)
            && vfs.is_control_name(1, b".ffrfs")
    );
    let listed = names(vfs, directory.ino, 0);
    assert_eq!(listed.len(), 8);
    assert_eq!(vfs.lookup(directory.ino, b"nothing"), Ok(Lookup::Absent));

    let first = lookup(vfs, directory.ino, b"stats.json");
    let content = world.drive(vfs.read(first.ino, 0, u64::MAX)).unwrap();
    assert_eq!(content.len() as u64, first.size);
    assert!(world.read(0, 0, 1).is_ok());
    let second = lookup(vfs, directory.ino, b"stats.json");
    assert_ne!(first.ino, second.ino);
    let shown = [first.shown_ino, second.shown_ino, vfs.getattr(first.ino).unwrap().shown_ino];
    let place = listed.iter().find(|(name, ..)| name == b"stats.json").unwrap();
    assert_eq!(shown, [place.1; 3], "to programs it is one file");
    assert_ne!(world.drive(vfs.read(second.ino, 0, u64::MAX)).unwrap(), content);
    assert_eq!(
        world.drive(vfs.read(first.ino, 0, u64::MAX)).unwrap(),
        content,
        "it stays as it was"
    );
    assert_eq!(world.drive(vfs.read(first.ino, 10, 5)).unwrap(), content[10..15]);
    assert_eq!(world.drive(vfs.read(first.ino, u64::MAX, 5)).unwrap(), b"");

    assert_eq!(vfs.control().snapshots(), 2);
    vfs.forget(first.ino, 1);
    assert_eq!(vfs.control().snapshots(), 1);
    assert_eq!(world.drive(vfs.read(first.ino, 0, 1)), Err(Errno::ESTALE));
    assert_eq!(vfs.getattr(first.ino), Err(Errno::ESTALE));
    vfs.forget(first.ino, 1);
    vfs.forget(second.ino, u64::MAX);
    for ino in [1, ino_of(0), directory.ino] {
        vfs.forget(ino, 1);
    }
    assert_eq!(vfs.control().snapshots(), 0);
    assert!(vfs.getattr(1).is_ok() && vfs.getattr(directory.ino).is_ok());
}
