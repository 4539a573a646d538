//! The Python package `ffrfs`: its own checks over real mounts, in tests/python/package.py.

use super::common::{FFRFS, Need, have, own_namespace, run, temp_dir};
use std::process::Command;

#[test]
fn the_python_package_mounts_announces_warms_up_and_reports() {
    if ![Need::Fuse, Need::Program("zip"), Need::Python("numpy")].into_iter().all(have) {
        return;
    }
    own_namespace();
    let root = env!("CARGO_MANIFEST_DIR");
    let place = temp_dir();
    run(Command::new("python3")
        .arg(format!("{root}/tests/python/package.py"))
        .env("FFRFS", FFRFS)
        .env("PYTHONPATH", format!("{root}/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TMPDIR", place.path()))
    .ok();
}
