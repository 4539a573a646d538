//! The units in systemd/: systemd itself looks at them.

use crate::common::{FFRFS, Need, Outcome, TempDir, have, run, temp_dir};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most exposure that the service may have, of 100. Settings that would lower it further would hide the
/// mount from everybody else: the unit names them and says why.
const MAX_EXPOSURE: u32 = 33;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

/// A unit as it is where the program is installed: the program under test stands for the installed one.
fn installed(directory: &TempDir, name: &str) -> PathBuf {
    let text = fs::read_to_string(shipped(name)).unwrap();
    let path = directory.path().join(name);
    let text =
        text.replace("=ffrfs ", &format!("={FFRFS} ")).replace("=-ffrfs ", &format!("=-{FFRFS} "));
    fs::write(&path, text).unwrap();
    path
}

/// `None` if there is no systemd-analyze here.
fn analyze(args: &[&str], unit: &Path) -> Option<Outcome> {
    if !have(Need::Program("systemd-analyze")) {
        return None;
    }
    Some(run(Command::new("systemd-analyze").args(args).arg(unit)))
}

#[test]
fn systemd_finds_nothing_wrong_with_any_unit() {
    let directory = temp_dir();
    let names: Vec<_> = fs::read_dir(shipped("")).unwrap().map(|entry| entry.unwrap()).collect();
    let names = names.iter().map(|entry| entry.file_name().into_string().unwrap());
    let endings = [".service", ".mount", ".automount"];
    let units: Vec<_> =
        names.filter(|name| endings.iter().any(|ending| name.ends_with(ending))).collect();
    assert_eq!(units.len(), 3, "{units:?}");
    // Installs all units first: one may name another.
    let paths: Vec<_> = units.iter().map(|name| installed(&directory, name)).collect();
    for path in paths {
        let Some(outcome) = analyze(&["verify", "--man=no"], &path) else { return };
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{}", path.display());
    }
}

#[test]
fn systemd_finds_mistakes_in_a_unit_that_has_some() {
    let directory = temp_dir();
    let path = installed(&directory, "ffrfs@.service");
    let text = fs::read_to_string(&path).unwrap().replace("Type=notify", "Type=whatever");
    fs::write(&path, text).unwrap();
    let Some(outcome) = analyze(&["verify", "--man=no"], &path) else { return };
    assert!(outcome.stderr.contains("whatever"), "{}", outcome.stderr);
}

#[test]
fn the_service_is_exposed_as_little_as_a_mount_for_all_can_be() {
    let directory = temp_dir();
    let path = installed(&directory, "ffrfs@.service");
    let threshold = format!("--threshold={MAX_EXPOSURE}");
    let args = ["security", "--no-pager", "--offline=true", &threshold];
    let Some(outcome) = analyze(&args, &path) else { return };
    assert_eq!(outcome.code, 0, "{}", outcome.text());
    let text = outcome.text();
    let overall = text.lines().last().unwrap_or_default();
    assert!(overall.contains("Overall exposure level"), "{text}");
    // The report of the tests keeps this line.
    println!("{overall}");
}
