//! Mount options: with `-o` and as long flags.

use super::super::common::{
    FFRFS, Mount, container_in, ffrfs, fixture, for_each_transport, is_mount_point, mounts_at, run,
    temp_dir, write_container,
};
use super::refused;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
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
        // These options need a line in /etc/fuse.conf.
        options.retain(|option| !option.starts_with("allow_o") && !option.starts_with("allow_r"));
    }
    for_each_transport(|transport| {
        for option in &options {
            // `Mount` asserts that the mount succeeds.
            Mount::new(transport, fixture("basic.ffr"), &[option]);
            // As a flag, the option is read before the mount point, which does not exist.
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
    // All options are read before the mount point, the last path, is found to be missing.
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
        ("control=rw,no_control", "--control cannot be used with --no-control"),
        ("allow_root,uid=77777", "--uid 77777 cannot be used with --allow-root"),
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

#[test]
fn whoever_forgets_mount_is_told_so() {
    let directory = temp_dir();
    let source = container_in(&directory, &["x"]);
    let outcome = ffrfs(&[source.as_os_str(), "/mnt".as_ref()]);
    let line = format!("did you mean: ffrfs mount {} /mnt", source.display());
    refused(&outcome, 1, &[&line]);
    let odd = directory.path().join("a b & c.zip");
    fs::write(&odd, "x").unwrap();
    let outcome = ffrfs(&[odd.as_os_str(), "/mnt".as_ref()]);
    refused(&outcome, 1, &[&format!("did you mean: ffrfs mount '{}' /mnt", odd.display())]);
    refused(&ffrfs(&["s3://bucket/a.tar", "/mnt"]), 1, &["ffrfs mount s3://bucket/a.tar /mnt"]);
    for options in [&["-o", "ro"][..], &["-f"], &["--verify", "once"]] {
        let outcome = run(Command::new(FFRFS).args(options).arg(&source).arg("/mnt"));
        let line = format!("ffrfs mount {} {} /mnt", options.join(" "), source.display());
        refused(&outcome, 1, &[&format!("did you mean: {line}")]);
    }
    // A command that `ffrfs mount` would refuse is not proposed, and the password is not shown.
    let path = source.to_str().unwrap();
    for args in [
        &["--password", "hunter2", path, "/mnt"][..],
        &[path, "/mnt", "--password", "hunter2"],
        &[path, "/mnt", "-o", "password=hunter2"],
        &["-t", "ffrfs", path, "/mnt"],
    ] {
        let outcome = ffrfs(args);
        let is_refused = outcome.code == 1 && !outcome.stderr.contains("did you mean: ");
        assert!(is_refused && !outcome.stderr.contains("hunter2"), "{args:?}: {}", outcome.stderr);
    }
    // Here the option is wrong.
    for args in [&["-o", "ro", "info"][..], &["--frob"]] {
        let outcome = ffrfs(args);
        assert!(outcome.code == 1 && !outcome.stderr.contains("mean: "), "{}", outcome.stderr);
    }
    let alone = ffrfs(&[directory.path()]);
    let line = format!("did you mean: ffrfs mount {} MOUNTPOINT", directory.path().display());
    refused(&alone, 1, &[&line]);
    let typo = ffrfs(&["moutn", "x"]);
    assert!(typo.code == 1 && typo.stderr.contains("mount?"), "{}", typo.stderr);
}

#[test]
fn a_mount_option_that_is_wrong_is_named_with_what_would_do() {
    let directory = temp_dir();
    let source = container_in(&directory, &["x"]);
    let mount = |options: &str| {
        let args = ["mount".as_ref(), source.as_os_str(), directory.path().as_os_str()];
        run(Command::new(FFRFS).args(args).args(["-o", options]))
    };
    for (options, says) in [
        ("alow_other", &["unknown mount option `alow_other`", "did you mean allow_other?"][..]),
        ("readonly", &["unknown mount option `readonly`", "did you mean ro?"]),
        ("auto_unmount", &["auto_unmount", "ffrfs umount --dead"]),
        ("max_read=131072", &["max_read=131072", "itself"]),
        ("uid=x", &["--uid x: not a whole number"]),
        ("threads=0", &["--threads 0: it must be from 1 to 1024"]),
        ("fanout=0", &["--fanout 0: it must be at least 1"]),
        ("umask=9", &["--umask 9: not an octal number"]),
        ("encoding=foo", &["--encoding foo", "cp437"]),
        ("memory=0", &["memory=0", "at least 1M"]),
        ("memory=99999T", &["memory=99999T: this machine has"]),
        ("ro, verify=once", &["` verify=once`: no blank may stand"]),
        ("ro, password=hush", &["password is a secret"]),
        ("memory=64M,cache_size=1G", &["cache_size=1G", "memory, which is 64M"]),
    ] {
        let place = format!("ffrfs: {} on {}: ", source.display(), directory.path().display());
        let outcome = mount(options);
        refused(&outcome, 1, says);
        assert!(outcome.stderr.starts_with(&place), "{}", outcome.stderr);
    }
    refused(&mount("nofial"), 1, &["did you mean nofail?"]);
    let log = format!("log_file={}", directory.path().display());
    refused(&mount(&log), 6, &["--log-file ", "Is a directory"]);
    for (option, named) in [
        ("password_file=/nowhere", "--password-file /nowhere: No such file or directory\n"),
        ("password_fd=99", "--password-fd 99: descriptor 99 is not open (99< FILE opens it)\n"),
    ] {
        let place = format!("{} on {}: {named}", source.display(), directory.path().display());
        refused(&mount(option), 2, &[&place]);
    }
    let frob = mount("frobnicate");
    assert!(!frob.stderr.contains("did you mean"), "{}", frob.stderr);
}

#[test]
fn wrong_usage_of_a_mount_begins_with_the_source_and_the_mount_point() {
    let directory = temp_dir();
    let helper = directory.path().join("mount.ffrfs");
    std::os::unix::fs::symlink(FFRFS, &helper).unwrap();
    for (program, args, says) in [
        (FFRFS.as_ref(), &["mount", "--alow-other", "/a.zip", "/m"][..], "unknown option"),
        (FFRFS.as_ref(), &["mount", "/a.zip", "/m", "--verify"], "--verify"),
        (FFRFS.as_ref(), &["mount", "/a.zip", "/m", "-o"], "-o needs"),
        (helper.as_os_str(), &["/a.zip", "/m", "--frob"], "unknown option --frob"),
        (helper.as_os_str(), &["/a.zip", "/m", "/n"], "unexpected argument /n"),
        (helper.as_os_str(), &["/a.zip", "/m", "-o", "frob"], "unknown mount option `frob`"),
    ] {
        let outcome = run(Command::new(program).args(args));
        let line = format!("ffrfs: /a.zip on /m: {says}");
        assert!(outcome.code == 1 && outcome.stderr.starts_with(&line), "{}", outcome.stderr);
    }
    for (args, says) in [
        (&["--memory", "-5"][..], "--memory -5: "),
        (&["--uid", "-1"], "--uid -1: it must be from 0 to"),
        (&["--password", "x"], "password is a secret"),
        (&["-o", "include={a,b}"], "unknown mount option `b}`"),
    ] {
        let outcome = run(Command::new(FFRFS).args(["mount", "/a.zip", "/m"]).args(args));
        refused(&outcome, 1, &[&format!("ffrfs: /a.zip on /m: {says}")]);
    }
    let help = run(Command::new(FFRFS).args(["mount", "/a.zip", "/m", "--help"]));
    assert!(help.code == 0 && help.text().contains("Usage"), "{}", help.stderr);
}

#[test]
fn an_error_of_a_mount_names_the_source_and_the_mount_point() {
    let directory = temp_dir();
    let (source, text) = (container_in(&directory, &["x"]), directory.path().join("text.zip"));
    fs::write(&text, "no container").unwrap();
    let nowhere = directory.path().join("nowhere");
    for (source, target) in [
        (&source, &nowhere),
        (&directory.path().join("missing.ffr"), &directory.path().to_owned()),
        (&text, &directory.path().to_owned()),
    ] {
        let outcome = run(Command::new(FFRFS).arg("mount").args([source, target]));
        let (source, target) = (source.display().to_string(), target.display().to_string());
        assert!(
            outcome.code > 1 && outcome.stderr.contains(&format!("{source} on {target}: ")),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn an_error_of_a_relative_source_names_it_and_the_mount_point_once() {
    let directory = temp_dir();
    let directory = directory.path().canonicalize().unwrap();
    fs::write(directory.join("train.zip"), "no container").unwrap();
    let (source, target) = (directory.join("train.zip"), directory.join("train"));
    let place = format!("ffrfs: {} on {}: not a usable", source.display(), target.display());
    let mounted =
        |args: &[&str]| run(Command::new(FFRFS).current_dir(&directory).arg("mount").args(args));
    // The source's name begins with that of the mount point beside it.
    for args in [&["train.zip"][..], &["train.zip", "train"], &["./train.zip", "train"]] {
        let outcome = mounted(args);
        assert!(outcome.code == 3 && outcome.stderr.starts_with(&place), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.matches("train.zip").count(), 1, "{}", outcome.stderr);
        let _ = fs::create_dir(&target);
    }
    symlink(FFRFS, directory.join("mount.ffrfs")).unwrap();
    for args in [&["-f", "train.zip", "train"][..], &["train.zip", "train"]] {
        let helper = directory.join("mount.ffrfs");
        let outcome = run(Command::new(helper).current_dir(&directory).args(args));
        let place = format!("train.zip on {}: not a usable", target.display());
        assert!(outcome.code == 32 && outcome.stderr.contains(&place), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.matches("train.zip").count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn an_error_about_a_file_names_the_option_that_names_the_file() {
    let directory = temp_dir();
    let source = container_in(&directory, &["x"]);
    for option in ["--names", "--checksums"] {
        let outcome =
            ffrfs(&["ls".as_ref(), source.as_os_str(), option.as_ref(), "/nowhere".as_ref()]);
        refused(&outcome, 2, &[&format!("{option}: /nowhere: No such file")]);
    }
    let set = ffrfs(&["set", "/nowhere", "verfy=off"]);
    refused(&set, 1, &["verfy: not a setting", "did you mean verify?"]);
    let set = ffrfs(&["set", "/nowhere", "verify=onc"]);
    refused(&set, 1, &["is not one of always, once, off; did you mean once?"]);
    // Without a mount point, too, the message is about the foreign format.
    let foreign = directory.path().join("a.7z");
    fs::write(&foreign, b"7z\xbc\xaf\x27\x1c\0\x04").unwrap();
    refused(&ffrfs(&["mount".as_ref(), foreign.as_os_str()]), 3, &["a.7z is a 7z archive"]);
    let list = directory.path().join("list");
    fs::write(&list, b"\x01\x02\x03").unwrap();
    let neither = ffrfs(&["mount".as_ref(), list.as_os_str()]);
    refused(&neither, 1, &["list: a container whose name has no ending", "SOURCE… MOUNTPOINT"]);
}

#[test]
fn an_error_about_the_mount_point_names_it_once() {
    let (directory, point) = (temp_dir(), temp_dir());
    let source = container_in(&directory, &["x"]);
    let other = directory.path().join("other.ffr");
    fs::copy(&source, &other).unwrap();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &[]);
        let place = mount.point().display().to_string();
        for sources in [&[&other][..], &[&other, &source], &[&source]] {
            let outcome = run(Command::new(FFRFS).arg("mount").args(sources).arg(mount.point()));
            assert_eq!(outcome.code, 5, "{}", outcome.stderr);
            let said = format!("{place}: {} is already mounted there", source.display());
            assert_eq!(outcome.stderr.matches(&said).count(), 1, "{}", outcome.stderr);
            let before = outcome.stderr.split(&said).next().unwrap_or_default();
            assert!(!before.contains(&place), "{}", outcome.stderr);
            assert!(
                sources
                    .iter()
                    .any(|source| { outcome.stderr.contains(&source.display().to_string()) })
            );
        }
    });
    // A source below the mount point is not taken for it.
    let inner = point.path().join("missing.zip");
    let outcome = run(Command::new(FFRFS).arg("mount").arg(&inner).arg(point.path()));
    let said = format!("{} on {}: ", inner.display(), point.path().display());
    assert!(outcome.stderr.contains(&said), "{}", outcome.stderr);
}

#[test]
fn pack_does_not_write_another_format_under_a_name_that_says_so() {
    let (directory, out) = (temp_dir(), temp_dir());
    fs::write(directory.path().join("x"), "x").unwrap();
    let target = out.path().join("x.zip");
    let outcome = ffrfs(&["pack".as_ref(), directory.path().as_os_str(), target.as_os_str()]);
    refused(&outcome, 1, &["x.zip", "ffrfs convert"]);
    assert!(!target.exists());
    for name in ["x.tar.gz", "x.tgz", "x.zip.gz", "x.h5", "x.parquet", "x.7z", "x.ISO"] {
        let target = out.path().join(name);
        let outcome = ffrfs(&["pack".as_ref(), directory.path().as_os_str(), target.as_os_str()]);
        refused(&outcome, 1, &[name, "pack writes FFRecord", ".ffr"]);
        assert!(!target.exists());
    }
    for name in ["x.ffr", "x.bin", "x"] {
        let target = out.path().join(name);
        ffrfs(&["pack".as_ref(), directory.path().as_os_str(), target.as_os_str()]).ok();
    }
}

#[test]
fn umask_is_for_files_and_directories_and_fmask_goes_before_it() {
    let source = fixture("packed_folder.ffr");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &source, &["umask=077", "fmask=007", "nonempty"]);
        let mode = |path: &str| fs::metadata(mount.path(path)).unwrap().mode() & 0o777;
        assert_eq!((mode("a.txt"), mode("train")), (0o440, 0o500));
    });
}

#[test]
fn many_shards_are_mounted_with_few_descriptors() {
    let directory = temp_dir();
    for number in 0..200 {
        write_container(&directory.path().join(format!("{number:03}.ffr")), &[[number; 9]]);
    }
    for_each_transport(|transport| {
        let few = |command: Command| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""]);
            shell.arg(command.get_program()).args(command.get_args());
            shell
        };
        let mount = Mount::started(transport, &[directory.path()], &[], few);
        for number in [0, 7, 199_u8] {
            assert_eq!(mount.read(format!("{number:06}")).unwrap(), [number; 9]);
        }
    });
}

#[test]
fn the_options_of_mount_stand_in_groups() {
    let help = ffrfs(&["mount", "--help"]).ok().text();
    let heading = |option: &str| {
        let begins = |line: &str| {
            line.trim().trim_start_matches('-').split([' ', '=']).next() == Some(option)
        };
        let mut at = 0;
        let found = help.split_inclusive('\n').any(|line| {
            at += line.len();
            line.trim_start().starts_with('-') && begins(line)
        });
        assert!(found, "no {option}: {help}");
        let lines = help[..at].lines().rev();
        let mut headings = lines.filter(|line| line.ends_with(':') && !line.starts_with(' '));
        headings.next().unwrap_or_default().trim_end_matches(':').to_owned()
    };
    for (option, group) in [
        ("suffix", "Names"),
        ("include", "Names"),
        ("allow-other", "Sharing"),
        ("umask", "Sharing"),
        ("ro", "Kernel"),
        ("no-control", "Kernel"),
        ("transport", "Kernel"),
        ("memory", "Memory and I/O"),
        ("threads", "Memory and I/O"),
        ("restarts", "The daemon"),
        ("sandbox", "The daemon"),
        ("log-file", "The daemon"),
        ("log-level", "The daemon"),
        ("verify", "Checks"),
        ("endpoint", "Remote sources (s3:// gs:// az:// https:// hdfs:// hf://)"),
        ("cache-dir", "The cache of remote sources"),
        ("index-dir", "Indexes and compressed data"),
        ("digest", "Checks"),
        ("password-file", "Containers"),
    ] {
        assert_eq!(heading(option), group, "{option}");
    }
}

#[test]
fn the_short_help_of_mount_has_what_most_people_need_and_the_long_one_all_options_in_groups() {
    let short = ffrfs(&["mount", "-h"]).ok().text();
    let long = ffrfs(&["mount", "--help"]).ok().text();
    let options = |text: &str| -> Vec<String> {
        let words = text.lines().filter(|line| line.trim_start().starts_with('-'));
        words
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")))
            .map(str::to_owned)
            .collect()
    };
    assert!(short.lines().count() <= 75, "{short}");
    for common in ["--options", "--password-file", "--allow-other", "--verify", "--memory"] {
        assert!(options(&short).iter().any(|option| option == common), "{common}: {short}");
    }
    assert!(options(&short).len() < 30 && options(&long).len() > 60, "{short}{long}");
    assert!(
        !short.contains("--readdirplus") && short.contains("see more with '--help'"),
        "{short}"
    );
    for group in ["Sharing:", "Kernel:", "Memory and I/O:", "The daemon:", "Containers:"] {
        assert!(long.contains(group), "{group}");
    }
}
