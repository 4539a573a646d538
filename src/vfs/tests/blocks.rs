//! Blocks around small samples: how long they are held.

use super::ahead::world_of;
use super::*;

const TENSORS: u64 = 400;

/// A safetensors file of tensors of 8 bytes, each shown as an array with a much longer header.
fn tensors() -> Vec<u8> {
    let tensor = |number: u64| {
        let (start, end) = (number * 8, number * 8 + 8);
        format!(r#""{number}":{{"dtype":"U8","shape":[8],"data_offsets":[{start},{end}]}}"#)
    };
    let header = format!("{{{}}}", (0..TENSORS).map(tensor).collect::<Vec<_>>().join(","));
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &noise(1, TENSORS as usize * 8)].concat()
}

#[test]
fn a_block_is_held_until_its_stored_bytes_were_given_out_however_long_the_files_are() {
    let world = world_of("x.safetensors", tensors(), 64 << 20, 1);
    let size = world.vfs.getattr(ino_of(0)).unwrap().size;
    assert!(size * TENSORS > world.disk[0].len() as u64, "all files have {size} bytes");
    let Step::Read(task) = world.vfs.read(ino_of(0), 0, size) else {
        panic!("nothing is in memory")
    };
    world.drive(world.vfs.must_wait(task)).unwrap();
    for sample in 1..TENSORS {
        let step = world.vfs.read(ino_of(sample), 0, size);
        assert!(matches!(step, Step::Done(_)), "sample {sample} must be fetched");
        assert_eq!(world.drive(step).unwrap().len() as u64, size);
    }
    assert_eq!(world.vfs.mount_stats().blocks.fetched, 1);
}
