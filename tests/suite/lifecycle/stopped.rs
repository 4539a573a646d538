//! A daemon that is stopped: commands give up, say so, and say what helps.

use super::*;

/// The time that commands wait for a daemon, and that a busy machine takes besides.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// The variable with the mount point, in the environment of all processes of commands.
const ASKED: &str = "FFRFS_TEST_ASKED";

/// The processes that commands on a mount have left behind.
fn left_behind(point: &str) -> Vec<i32> {
    let asked = format!("{ASKED}={point}");
    let is_of_it = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        is_running(*pid)
            && environment.split(|&byte| byte == 0).any(|line| line == asked.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(is_of_it).collect()
}

/// Whether a process would end if the kernel let it.
fn is_killed(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks =
        status.lines().filter(|line| line.starts_with("SigPnd") || line.starts_with("ShdPnd"));
    let kills = |mask: &str| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 0x100 != 0);
    status.is_empty() || masks.filter_map(|line| line.split_whitespace().last()).any(kills)
}

#[test]
fn commands_give_up_on_a_stopped_daemon_say_what_helps_and_leave_nothing_behind() {
    // A list opens all mounts for a moment, so that those of other tests could not be unmounted.
    own_namespace();
    for_each_transport(|transport| {
        let mount = mount(transport);
        let point = mount.point().to_str().unwrap();
        let pid = mount.pid();
        let stopped = Stopped::new(&mount);
        let (container, others) = (mount.container(), temp_dir());
        let other = |name: &str| others.path().join(name).to_str().unwrap().to_owned();
        let (link, output) = (other("link"), other("output.ffr"));
        std::os::unix::fs::symlink(mount.point(), &link).unwrap();
        let inside = format!("{link}/000001");
        let pattern = format!("{}/*/000001", mount.point().parent().unwrap().display());
        let list = format!("{point}/{{000000..000002}}");
        let (whole, new) = (container.to_str().unwrap(), format!("{point}/new"));
        let (socket, config) = (format!("unix:{new}"), format!("--config={inside}"));
        let commands: [&[&str]; 44] = [
            &["stats", point],
            &["set", point, "verify=once"],
            &["trace", point, "--seconds=1"],
            &["umount", point],
            &["warmup", point],
            &["mount", whole, point],
            &["mount", whole, &inside],
            &["mount", whole, others.path().to_str().unwrap(), "--log-file", &new],
            &["mount", &inside, others.path().to_str().unwrap()],
            &["mount", &inside],
            &["mount", &config],
            &["mount", "--config", &inside],
            &["mount", whole, others.path().to_str().unwrap(), "--metrics", &socket],
            &["umount", "--config", &inside],
            &["info", point],
            &["info", &inside],
            &["info", &pattern],
            &["ls", &list],
            &["ls", &link],
            &["verify", point],
            &["sum", "--container", point],
            &["cat", point, "000001"],
            &["bench", point],
            &["pack", point, &output],
            &["pack", others.path().to_str().unwrap(), &format!("{new}.ffr")],
            &["convert", point, &other("a.zip")],
            &["convert", &inside, &other("b.zip")],
            &["convert", whole, &format!("{new}.zip")],
            &["convert", whole, &format!("{link}/"), "--shards=2", "--to=tar"],
            &["extract", &inside, &other("c")],
            &["extract", whole, &new],
            &["sum", whole, "-o", &new],
            &["sum", "--sidecar", whole, "-o", &new],
            &["sum", "--check", &inside, whole],
            &["info", whole, "--index-dir", point],
            &["ls", whole, "--names", &inside],
            &["sum", whole, "--names", &inside],
            &["index", whole, "--names", &inside],
            &["mount", whole, others.path().to_str().unwrap(), "--names", &inside],
            &["info", whole, "--ca", &inside],
            &["doctor", "http://localhost:1/x.ffr", "--ca", &inside],
            &["bench", whole, "--svg", &new],
            &["doctor", &inside],
            &["list"],
        ];
        std::thread::scope(|scope| {
            for command in commands {
                scope.spawn(move || {
                    let start = Instant::now();
                    let outcome = run(Command::new(FFRFS).args(command).env(ASKED, point));
                    assert!(start.elapsed() < GIVEN_UP, "{command:?}: {:?}", start.elapsed());
                    let said = |words: &[&str]| {
                        let text = outcome.text();
                        let line = text.lines().find(|line| line.contains(point));
                        let has_all = |line: &str| words.iter().all(|&words| line.contains(words));
                        assert!(line.is_some_and(has_all), "{command:?}: {outcome:?}");
                    };
                    if command == ["list"] {
                        return said(&["stopped"]);
                    }
                    assert_eq!(outcome.code, 5, "{command:?}: {}", outcome.stderr);
                    let continues = format!("kill -CONT {pid}");
                    if command[0] == "doctor" && command.len() == 2 {
                        return said(&["no answer within 5 s", &continues, "ffrfs umount --force"]);
                    }
                    for words in ["has not answered for 5 s", &continues, "ffrfs umount --force"] {
                        assert!(outcome.stderr.contains(words), "{command:?}: {}", outcome.stderr);
                    }
                });
            }
        });
        wait_until("only those are left that the kernel holds", IN_TIME, || {
            left_behind(point).into_iter().all(is_killed)
        });
        if transport == Transport::DevFuse {
            wait_until("nothing is left", IN_TIME, || left_behind(point).is_empty());
        }
        drop(stopped);
        wait_until("nothing is left behind", IN_TIME, || left_behind(point).is_empty());
        assert!(mount.is_mounted());
        assert_eq!(mount.read("000000").unwrap(), some()[0]);
        umount(&[mount.point()]).ok();
        mount.wait_for_end();
    });
}

#[test]
fn a_mount_on_or_from_a_stopped_one_gives_up_after_the_time_for_one_answer() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let container = mount.container();
        let inside = mount.path("000001");
        let stopped = Stopped::new(&mount);
        for paths in [&[container.as_path(), mount.point()][..], &[inside.as_path()]] {
            // On a busy machine a command may take long once.
            wait_until("it is quick", Duration::from_secs(60), || {
                let start = Instant::now();
                assert_eq!(run(Command::new(FFRFS).arg("mount").args(paths)).code, 5);
                start.elapsed() < Duration::from_secs(9)
            });
        }
        drop(stopped);
        mount.unmount();
    });
}

/// A mount that shows a directory, on which another mount can lie, and the directory's name.
fn mount_of_a_directory(transport: Transport) -> (Mount, &'static str) {
    let directory = temp_dir();
    let packed = directory.path().join("files");
    fs::create_dir_all(packed.join("inner")).unwrap();
    fs::write(packed.join("inner/file"), "text").unwrap();
    let container = directory.path().join("packed.ffr");
    ffrfs(&[Path::new("pack"), &packed, &container]).ok();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    (Mount::at(transport, &[&container], &[], directory, point), "inner")
}

#[test]
fn commands_give_up_on_a_stopped_mount_that_lies_in_another_one_and_name_that() {
    for_each_transport(|transport| {
        let (outer, name) = mount_of_a_directory(transport);
        let directory = temp_dir();
        let container = container_in(&directory, some());
        let inner = Mount::at(transport, &[&container], &[], directory, outer.path(name));
        let stopped = Stopped::new(&inner);
        let point = inner.point().to_str().unwrap();
        let sample = format!("{point}/000001");
        for command in [&["umount", point][..], &["stats", point], &["info", &sample]] {
            let outcome = ffrfs(command);
            assert_eq!(outcome.code, 5, "{command:?}: {}", outcome.stderr);
            let force = format!("ffrfs umount --force {point}");
            assert!(outcome.stderr.contains(&force), "{command:?}: {}", outcome.stderr);
        }
        drop(stopped);
        // The message names the outer mount if that one is stopped.
        let stopped = Stopped::new(&outer);
        let outcome = ffrfs(&["umount", point]);
        let force = format!("ffrfs umount --force {} ", outer.point().display());
        assert!(outcome.stderr.contains(&force), "{}", outcome.stderr);
        drop(stopped);
        inner.unmount();
        outer.unmount();
    });
}

#[test]
fn umount_by_force_ends_a_stopped_mount_and_whoever_waits_for_it() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let stopped = Stopped::new(&mount);
        let path = mount.path("000002");
        let (started, result) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            started.send(()).unwrap();
            fs::read(path)
        });
        result.recv().unwrap();
        // By then the kernel has the reader's request, or the request comes to a mount that is gone: in both cases it ends.
        std::thread::sleep(Duration::from_millis(200));
        ffrfs(&[Path::new("umount"), Path::new("--force"), mount.point()]).ok();
        assert!(!mount.is_mounted());
        wait_until("the reader ends", IN_TIME, || reader.is_finished());
        assert!(reader.join().unwrap().is_err());
        drop(stopped);
        mount.wait_for_end();
    });
}

#[test]
fn umount_by_force_ends_a_daemon_that_runs_though_files_are_open() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let file = File::open(mount.path("000001")).unwrap();
        ffrfs(&[Path::new("umount"), Path::new("-f"), mount.point()]).ok();
        assert!(!mount.is_mounted());
        wait_until("the daemon ends", IN_TIME, || !mount.is_served());
        assert!(file.read_at(&mut [0; 10], 5 << 20).is_err());
    });
}

/// A process with a mount namespace of its own, which holds one mount of these tests. It ends when the value is dropped.
struct OtherNamespace(Child);

impl OtherNamespace {
    fn new(kept: &Path) -> Self {
        let sleep = || Command::new("sleep").arg("300").spawn().unwrap();
        Self(in_own_namespace_with(Some(kept), sleep))
    }
}

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn umount_does_not_wait_for_a_daemon_that_serves_another_namespace() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let mount = mount(transport);
        let other = OtherNamespace::new(mount.point());
        let outcome = umount(&[mount.point()]).ok();
        assert_eq!(outcome.stderr, "", "it does not say that the daemon has not ended yet");
        assert!(!mount.is_mounted() && is_running(mount.pid()));
        drop(other);
        mount.wait_for_end();
    });
}

#[test]
fn when_umount_ends_so_has_the_daemon() {
    own_namespace();
    for_each_transport(|transport| {
        for _ in 0..10 {
            let mount = mount(transport);
            mount.read("000001").unwrap();
            umount(&[mount.point()]).ok();
            assert!(!is_running(mount.pid()));
        }
    });
}
