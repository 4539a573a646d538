//! Mount options: with `-o` and as long flags.

use super::super::common::{
    FFRFS, Mount, ffrfs, fixture, for_each_transport, is_mount_point, mounts_at, run, temp_dir,
};
use super::refused;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

#[test]
fn every_option_is_taken_with_o_and_as_a_long_flag() {
    let directory = temp_dir();
    let names = directory.path().join("names");
    let lines: Vec<_> = (0..60).map(|i| format!("class {}/{i}.jpg", i % 3)).collect();
    fs::write(&names, lines.join("\n")).unwrap();
    let names = format!("names={}", names.to_str().unwrap());
    let basic = fixture("basic.ffr");
    let mut options = vec![
        "allow_other",
        "allow_root",
        "default_permissions",
        "ro",
        "rw",
        "control=rw",
        "control=ro",
        "readdirplus=auto",
        "readdirplus=yes",
        "readdirplus=no",
        "nosuid",
        "nodev",
        "noexec",
        "fsname=a name",
        "uid=7",
        "gid=8",
        "fmask=0337",
        "dmask=022",
        "verify=always",
        "verify=once",
        "verify=off",
        "cache_size=0",
        "cache_size=64M",
        "threads=1",
        "suffix=.jpg",
        "suffix=auto",
        "fanout=7",
        "flat",
        "allow_damaged",
        "log_level=debug",
        "log_level=error",
        &names,
    ];
    if !nix::unistd::geteuid().is_root() {
        // Those need a line in /etc/fuse.conf.
        options.retain(|option| !option.starts_with("allow_o") && !option.starts_with("allow_r"));
    }
    for_each_transport(|transport| {
        for option in &options {
            // `Mount` asserts that it works.
            Mount::new(transport, fixture("basic.ffr"), &[option]);
            // As a flag it is read before the mount point, which is not there.
            let dashed = option.replace('_', "-");
            let also = (!option.starts_with("names")).then_some(&*dashed);
            for flag in [*option].into_iter().chain(also) {
                let flag = format!("--{flag}");
                let args = ["mount", "-f", &flag, basic.to_str().unwrap(), "/nowhere/at/all"];
                let outcome = ffrfs(&args);
                assert_eq!(outcome.code, 5, "{flag}: {}", outcome.stderr);
            }
        }
    });
}

#[test]
fn what_fstab_and_mount_add_is_accepted() {
    for_each_transport(|transport| {
        let list = "rw,defaults,noauto,auto,nofail,_netdev,user,users,nouser,owner,group,async,sync,\
                    relatime,noatime,strictatime,x-systemd.automount,x-systemd.requires=a.mount,\
                    X-mount.mkdir,comment=some text,suid,dev,exec,subtype=ffrfs,,";
        let mount = Mount::new(transport, fixture("basic.ffr"), &[list]);
        assert_eq!(mount.list("").len(), 60);
    });
}

#[test]
fn options_may_stand_anywhere() {
    let (first, second) = (fixture("basic.ffr"), fixture("pickled.ffr"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    // All is read before it turns out that the mount point, the last path, is not there.
    for args in [
        &["-o", "uid=3", "--ro", first, second, "/nowhere/at/all"][..],
        &[first, "-o", "uid=3", second, "--ro", "/nowhere/at/all"],
        &[first, second, "-ouid=3", "/nowhere/at/all", "--ro"],
        &[first, "/nowhere/at/all", "--options=uid=3", "-o", "ro"],
        &["-f", "--", first, "/nowhere/at/all"],
    ] {
        let outcome = run(Command::new(FFRFS).arg("mount").args(args));
        refused(&outcome, 5, &["/nowhere/at/all"]);
    }
}

#[test]
fn of_an_option_that_is_given_twice_the_last_counts() {
    for_each_transport(|transport| {
        let options = ["ro,ro,uid=1,noexec", "uid=7", "ro,noexec,suffix=.a,suffix=.b"];
        let mount = Mount::new(transport, fixture("basic.ffr"), &options);
        assert_eq!(fs::metadata(mount.path("000001.b")).unwrap().uid(), 7);
    });
}

#[test]
fn options_show_in_the_mount_table() {
    for_each_transport(|transport| {
        let options = ["noexec,fsname=a\\,b c"];
        let mount = Mount::new(transport, fixture("basic.ffr"), &options);
        let table = mounts_at(mount.point());
        let [(source, kind, options)] = &table[..] else { panic!("one mount: {table:?}") };
        assert_eq!((source.as_str(), kind.as_str()), ("a,b c", "fuse.ffrfs"));
        for option in ["ro", "nosuid", "nodev", "noexec", "default_permissions"] {
            assert!(options.split(',').any(|o| o == option), "{option}: {options}");
        }
        let plain = Mount::new(transport, fixture("basic.ffr"), &[]);
        let source = fixture("basic.ffr").canonicalize().unwrap();
        assert_eq!(Path::new(&mounts_at(plain.point())[0].0), source);
        assert!(!mounts_at(plain.point())[0].2.contains("noexec"));
        let (first, second) = (fixture("basic.ffr"), fixture("pickled.ffr"));
        let several = Mount::of(transport, &[&first, &second], &[]);
        let shown = mounts_at(several.point())[0].0.clone();
        assert!(shown.contains("basic.ffr") && shown.contains("1 more"), "{shown}");
    });
}

#[test]
fn an_option_that_is_unknown_or_senseless_is_refused_by_name() {
    let directory = temp_dir();
    for (option, says) in [
        ("frobnicate", "frobnicate"),
        ("ro,frobnicate=1,nodev", "frobnicate=1"),
        ("foreground", "foreground"),
        ("allow_other=yes", "allow-other takes no value"),
        ("uid", "uid"),
        ("uid=root", "--uid"),
        ("fmask=999", "--fmask"),
        ("verify=sometimes", "sometimes"),
        ("cache_size=much", "much"),
        ("threads=0", "--threads"),
        ("control=no", "--control"),
        ("readdirplus=maybe", "--readdirplus"),
        ("log_level=loud", "loud"),
        ("fanout=0", "--fanout"),
        ("suffix=a/b", "a/b"),
        ("allow_other,allow_root", "--allow-root"),
    ] {
        let outcome = run(Command::new(FFRFS)
            .arg("mount")
            .arg(fixture("basic.ffr"))
            .arg(directory.path())
            .args(["-o", option]));
        assert_eq!(outcome.code, 1, "{option}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{option}: {}", outcome.stderr);
    }
    assert!(!is_mount_point(directory.path()));
}
