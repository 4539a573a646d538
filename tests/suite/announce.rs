//! The control file `.ffrfs/prefetch` on real mounts: who may announce, and how programs write to it.

use crate::common::{
    Mount, Need, Transport, assert_errno, fixture, for_each_transport, have, python, run, samples,
    temp_dir, wait_until,
};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::Duration;

const PREFETCH: &str = ".ffrfs/prefetch";

fn mount(transport: Transport) -> Mount {
    Mount::new(transport, fixture("packed_folder.ffr"), &["rw"])
}

/// Waits until `samples` samples have been announced in all, and checks that there are not more.
#[track_caller]
fn assert_announced(mount: &Mount, samples: u64) {
    let announced = || mount.stats()["prefetch"]["announced"].as_u64().expect("a number");
    wait_until("all is announced", Duration::from_secs(30), || announced() >= samples);
    assert_eq!(announced(), samples);
}

fn writer(mount: &Mount) -> File {
    File::options().append(true).open(mount.path(PREFETCH)).expect("open to announce")
}

#[test]
fn the_shell_announces_with_all_its_redirections() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        for (place, script) in [
            "echo 3 > .ffrfs/prefetch",
            "echo train/cat/001.jpg >> .ffrfs/prefetch",
            // No newline at the end; the writer's close must not lose it.
            "printf ./train/cat/001.jpg > .ffrfs/prefetch",
            "printf '5\\r\\n' | tee .ffrfs/prefetch",
            "echo 1 | dd of=.ffrfs/prefetch conv=fsync",
            "exec 3>>.ffrfs/prefetch; echo 1 >&3; sync .ffrfs/prefetch; exec 3>&-",
        ]
        .iter()
        .enumerate()
        {
            let outcome = run(Command::new("sh").arg("-ec").arg(script).current_dir(mount.point()));
            assert_eq!(outcome.code, 0, "{script}: {}", outcome.stderr);
            assert_announced(&mount, place as u64 + 1);
        }
        let find = "find . -type f -size +0 | shuf > .ffrfs/prefetch";
        run(Command::new("sh").arg("-ec").arg(find).current_dir(mount.point())).ok();
        let found = run(Command::new("sh")
            .args(["-c", "find . -type f -size +0 | wc -l"])
            .current_dir(mount.point()));
        assert_announced(&mount, 6 + found.text().trim().parse::<u64>().unwrap());
    });
}

#[test]
fn python_announces_a_whole_epoch_in_one_write() {
    if !have(Need::Python("array")) {
        return;
    }
    const ANNOUNCE: &str = "
import array, os, sys
epoch = array.array('Q', (i * 7919 % 20 for i in range(300_000))).tobytes()
text = ''.join(f'{i % 20}\\n' for i in range(300_000))
with open(sys.argv[1], 'wb') as file:
    file.write(epoch)
with open(sys.argv[1], 'wb', buffering=0) as file:
    assert file.write(epoch) == len(epoch)
with open(sys.argv[1], 'ab') as file:
    file.write(epoch)
with open(sys.argv[1], 'w') as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
with open(sys.argv[1], 'r+') as file:
    file.write('5')
";
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(400_000, 3), &["rw"]);
        python(ANNOUNCE, &[mount.path(PREFETCH)]).ok();
        assert_announced(&mount, 4 * 300_000 + 1);
    });
}

#[test]
fn a_line_without_newline_counts_once_the_file_is_closed() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let mut file = writer(&mount);
        file.write_all(b"1\n2\n").unwrap();
        assert_announced(&mount, 2);
        file.write_all(b"3").unwrap();
        drop(file);
        assert_announced(&mount, 3);
    });
}

#[test]
fn a_last_line_without_newline_that_can_name_nothing_is_an_error() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        for (line, errno) in [
            (&b"1\ntrain/cat/none"[..], libc::ENOENT),
            (b"nothing", libc::ENOENT),
            (b"train/none/", libc::ENOENT),
            (b"999999", libc::EINVAL),
        ] {
            let shown = String::from_utf8_lossy(line);
            let refused = writer(&mount).write(line).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(errno)), "{shown}");
        }
        // Bytes that may still become a name wait for the rest.
        let mut file = writer(&mount);
        for part in [&b"tr"[..], b"ain", b"/", b"cat/001", b".jpg"] {
            file.write_all(part).unwrap();
        }
        drop(file);
        assert_announced(&mount, 2);
        let script = "printf nothing > .ffrfs/prefetch";
        let outcome = run(Command::new("sh").args(["-c", script]).current_dir(mount.point()));
        assert_ne!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn a_last_line_that_could_have_become_a_name_is_an_error_at_close() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        // An earlier read of the sample does not change that.
        mount.read("train/cat/001.jpg").unwrap();
        for (parts, errno) in [
            ([&b"1\n"[..], b"train/cat/00"], libc::ENOENT),
            ([b"", b"train"], libc::EISDIR),
            ([b"\x01\0\0\0\0\0\0\0", b"\x02"], libc::EINVAL),
        ] {
            let mut file = writer(&mount);
            parts.iter().for_each(|part| file.write_all(part).unwrap());
            assert_eq!(nix::unistd::close(file), Err(nix::Error::from_raw(errno)), "{parts:?}");
        }
        let mut file = writer(&mount);
        file.write_all(b"train/cat/001.jpg").unwrap();
        assert_eq!(nix::unistd::close(file), Ok(()));
        let directory = temp_dir();
        let order = directory.path().join("order");
        fs::write(&order, "train/cat/001.jp").unwrap();
        let outcome = run(Command::new("cp").arg(&order).arg(mount.path(".ffrfs/prefetch")));
        assert_ne!(outcome.code, 0, "{}", outcome.stderr);
    });
}

#[test]
fn of_ten_thousand_files_that_are_closed_the_kernel_tells_and_of_no_more() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(100, 3), &["rw"]);
        let closes = || mount.requests()["flush"];
        for number in (0..100).cycle().take(10_000) {
            mount.read(format!("{number:06}")).unwrap();
        }
        assert_eq!(closes(), 10_000);
        for _ in 0..100 {
            mount.read("000000").unwrap();
        }
        assert_eq!(closes(), 10_001);
    });
}

#[test]
fn two_writers_at_a_time_do_not_mix() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let (mut one, mut two) = (writer(&mount), writer(&mount));
        one.write_all(b"train/cat/").unwrap();
        two.write_all(&[4u64, 5].map(u64::to_le_bytes).concat()).unwrap();
        one.write_all(b"001.jpg\n").unwrap();
        assert_announced(&mount, 3);
    });
}

#[test]
fn bad_input_is_refused_and_logged_once_and_what_was_before_it_counts() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let mut file = writer(&mount);
        assert_errno(file.write(b"1\ntrain/cat/none.jpg\n2\n"), libc::ENOENT);
        assert_announced(&mount, 1);
        assert_errno(file.write(b"train\n"), libc::EISDIR);
        assert_errno(file.write(b"999\n"), libc::EINVAL);
        assert_eq!(file.write(b"2\n").unwrap(), 2);
        assert_errno(writer(&mount).write(&999u64.to_le_bytes()), libc::EINVAL);
        assert_errno(writer(&mount).write(b"\0\x01junk"), libc::EINVAL);
        // The kernel cuts a write anywhere. Each part could begin the path of a sample, until the path gets too long.
        let too_long = [&b"train"[..], &[b'/'; 70_000]].concat();
        assert_errno(writer(&mount).write_all(&too_long), libc::EINVAL);
        assert_announced(&mount, 2);
        let log = mount.log();
        let warnings: Vec<_> = log.lines().filter(|line| line.contains("prefetch: ")).collect();
        assert_eq!(warnings.len(), 4, "one a writer: {log}");
        assert!(warnings[0].contains("WARN"), "{}", warnings[0]);
        assert!(warnings[0].contains("line 2: \"train/cat/none.jpg\""), "{}", warnings[0]);
        assert!(warnings[1].contains("number 1: 999"), "{}", warnings[1]);
    });
}

#[test]
fn where_in_the_file_is_written_means_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let file = File::options().write(true).open(mount.path(PREFETCH)).unwrap();
        file.set_len(0).unwrap();
        file.write_all_at(b"3\n", 100_000).unwrap();
        file.write_all_at(b"4\n", 0).unwrap();
        file.set_len(12345).unwrap();
        file.sync_all().unwrap();
        assert_announced(&mount, 2);
    });
}

#[test]
fn reading_it_tells_what_it_takes_and_how_much_is_waiting() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let text = String::from_utf8(mount.read(PREFETCH).unwrap()).unwrap();
        assert!(text.contains("sample numbers") && text.contains("\nwaiting: 0\n"), "{text}");
        let metadata = fs::metadata(mount.path(PREFETCH)).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.len()), (0o666, text.len() as u64));
        let mut both = File::options().read(true).write(true).open(mount.path(PREFETCH)).unwrap();
        let mut again = String::new();
        both.read_to_string(&mut again).unwrap();
        assert_eq!(again, text);
        let stats = mount.stats();
        for figure in ["announced", "waiting", "in_flight", "done", "failed"] {
            assert_eq!(stats["prefetch"][figure], 0, "{figure}");
        }
    });
}

#[test]
fn an_ioctl_announces_where_the_kernel_lets_nothing_be_written() {
    if !have(Need::Python("fcntl")) {
        return;
    }
    const ANNOUNCE: &str = "
import array, errno, fcntl, sys
def announce(path, data):
    with open(path, 'rb') as file:
        fcntl.ioctl(file, 1 << 30 | len(data) << 16 | 0xf101, bytearray(data))
prefetch, other, sample = sys.argv[1:]
announce(prefetch, array.array('Q', range(5)).tobytes())
announce(prefetch, array.array('Q', [1] * 2047).tobytes())
announce(prefetch, b'3\\ntrain/cat/001.jpg')
for path, data, expected in [(prefetch, b'7\\n', errno.EINVAL), (prefetch, b'no\\n', errno.ENOENT),
                             (other, b'1\\n', errno.ENOTTY), (sample, b'1\\n', errno.ENOTTY)]:
    try:
        announce(path, data)
    except OSError as error:
        assert error.errno == expected, (path, data, error)
    else:
        raise AssertionError((path, data))
";
    for_each_transport(|transport| {
        for option in ["control=ro", "ro", "control=rw"] {
            let mount = Mount::new(transport, fixture("packed_folder.ffr"), &[option]);
            let paths = [PREFETCH, ".ffrfs/bad", "train/cat/001.jpg"].map(|name| mount.path(name));
            python(ANNOUNCE, &paths).ok();
            assert_announced(&mount, 5 + 2047 + 2);
        }
    });
}

#[test]
fn masks_take_the_right_to_announce_too() {
    for_each_transport(|transport| {
        let masked = Mount::new(transport, fixture("packed_folder.ffr"), &["fmask=027"]);
        assert_eq!(fs::metadata(masked.path(PREFETCH)).unwrap().mode() & 0o7777, 0o640);
    });
}

#[test]
fn other_users_may_announce_where_they_may_read() {
    if !have(Need::Root) || !have(Need::Program("setpriv")) {
        return;
    }
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(9, 9), &["allow_other", "rw"]);
        // The test's own directory is private: the mount in it is reached from within.
        let as_nobody = |script: &str| {
            run(Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
                .current_dir(mount.point()))
        };
        as_nobody("echo 3 >> .ffrfs/prefetch").ok();
        assert_announced(&mount, 1);
        assert_ne!(as_nobody("echo 3 >> 000003").code, 0);
        assert_ne!(as_nobody("echo 3 >> .ffrfs/bad").code, 0);
    });
}

#[test]
fn listing_asks_for_attributes_as_the_option_says() {
    for_each_transport(|transport| {
        let samples = samples(3000, 3);
        for (option, plain, plus) in [
            (None, true, true),
            (Some("readdirplus=auto"), true, true),
            (Some("readdirplus=yes"), false, true),
            (Some("readdirplus=no"), true, false),
        ] {
            let options: Vec<&str> = option.into_iter().collect();
            let mount = Mount::with_samples(transport, &samples, &options);
            assert_eq!(mount.list("").len(), 3000);
            let requests = mount.requests();
            let seen = (requests["readdir"] > 0, requests["readdirplus"] > 0);
            assert_eq!(seen, (plain, plus), "{option:?}: {requests:?}");
        }
    });
}
