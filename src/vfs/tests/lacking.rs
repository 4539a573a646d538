//! Reads for which this machine lacks memory at the moment.

use super::*;

#[test]
fn a_sample_that_there_is_no_memory_to_read_is_not_bad() {
    let world = World::of(&[noise(8, 100)], options(Verify::Always, 1 << 20));
    let lacks = || Err(ReadError::Io(io::Error::from_raw_os_error(libc::ENOMEM)));
    let Step::Read(again) = world.vfs.resume(world.lead(0), lacks()) else {
        panic!("it is tried again")
    };
    assert_eq!(world.drive(world.vfs.resume(again, lacks())), Err(Errno::EIO));
    assert_eq!(world.vfs.bad_list(), "");
    assert_eq!(world.snapshot()["io_errors"], 2);
    assert_eq!(world.read(0, 0, 1).unwrap(), noise(8, 100)[..1]);
}
