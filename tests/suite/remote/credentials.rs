//! Credentials that a program of the user prints.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// Makes a pipe, which no confined process can, and logs each run. Its credentials have expired, so that it is run for
/// each request.
const PROGRAM: &str = r#"#!/bin/sh
set -e
mkfifo "$0.$$"
echo run >>"$0.log"
printf '{"Version":1,"AccessKeyId":"id","SecretAccessKey":"s","Expiration":"2001-01-01T00:00:00Z"}'
"#;

/// Harms the process that runs it as files beside it say, once or always.
const HARMFUL: &str = r#"#!/bin/sh
echo $PPID >>"$0.log"
for signal in KILL STOP; do
    if [ -e "$0.$signal" ]; then
        [ -e "$0.always" ] || rm "$0.$signal"
        kill -$signal $PPID
    fi
done
if [ -e "$0.HANG" ]; then
    rm "$0.HANG"
    sleep 1000 &
    echo "$$ $!" >"$0.hangs"
    kill -KILL $PPID
    wait
fi
printf '{"Version":1,"AccessKeyId":"id","SecretAccessKey":"s","Expiration":"2001-01-01T00:00:00Z"}'
"#;

const LIMIT: Duration = Duration::from_secs(30);

/// A store whose credentials a program prints.
struct Printed {
    remote: Remote,
    samples: Vec<Vec<u8>>,
    home: TempDir,
}

impl Printed {
    fn by(program: &str, samples: usize) -> Self {
        let samples = even_samples(samples, 2_000_000);
        let (remote, home) = (Remote::with_samples(&samples), temp_dir());
        let path = home.path().join("program");
        fs::write(&path, program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // No shell stands between the program and the process that runs it.
        let profile = format!("[default]\ncredential_process = exec {}\n", path.display());
        fs::write(home.path().join("config"), profile).unwrap();
        Self { remote, samples, home }
    }

    #[track_caller]
    fn mount(&self, transport: Transport, patience: Option<Duration>) -> Mount {
        let endpoint = format!("endpoint={}", self.remote.store.endpoint());
        let cache = format!("cache-dir={}", self.remote.cache().display());
        let options = [&*endpoint, &*cache, "region=us-east-1", "restarts=5"];
        let url = self.remote.s3("data.ffr");
        Mount::started(transport, &[Path::new(&url)], &options, |mut command| {
            if let Some(patience) = patience {
                command.env("FFRFS_TEST_PROGRAM_MS", patience.as_millis().to_string());
            }
            command.env("AWS_CONFIG_FILE", self.home.path().join("config"));
            command.env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
            command
        })
    }

    /// The lines that the program has logged, one for each run.
    fn runs(&self) -> Vec<String> {
        let log = fs::read_to_string(self.home.path().join("program.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    /// The process that has run the program last.
    fn runner(&self) -> i32 {
        self.runs().last().unwrap().parse().unwrap()
    }

    fn set(&self, what: &str, is_set: bool) {
        let path = self.home.path().join(format!("program.{what}"));
        if is_set { fs::write(path, "").unwrap() } else { fs::remove_file(path).unwrap() }
    }

    #[track_caller]
    fn check(&self, mount: &Mount, number: usize) {
        check(mount, &self.samples, number..number + 1);
    }
}

fn sample(number: usize) -> String {
    format!("{number:06}")
}

#[test]
fn the_program_for_credentials_may_need_anything_and_the_daemon_is_confined_all_the_same() {
    for_each_transport(|transport| {
        let printed = Printed::by(PROGRAM, 20);
        let mount = printed.mount(transport, None);
        let before = printed.runs().len();
        check(&mount, &printed.samples, 0..printed.samples.len());
        let runs = printed.runs().len();
        assert!(runs > before, "it was run while the daemon was confined: {}", mount.log());
        let local = Mount::with_samples(transport, &printed.samples, &[]);
        assert_eq!(mount.info()["sandbox"], local.info()["sandbox"]);
        mount.unmount();
    });
}

#[test]
fn the_process_that_runs_the_program_for_credentials_is_started_again_when_it_dies() {
    for_each_transport(|transport| {
        let printed = Printed::by(HARMFUL, 30);
        let mount = printed.mount(transport, None);
        let first = printed.runner();
        printed.set("KILL", true);
        printed.check(&mount, 3);
        assert_ne!(printed.runner(), first, "{}", mount.log());
        // The process is not started again for ever over one question.
        printed.set("always", true);
        printed.set("KILL", true);
        mount.read(sample(27)).unwrap_err();
        assert!(mount.log().contains("was killed each time"), "{}", mount.log());
        // In this order: who is killed only once removes the file itself.
        printed.set("KILL", false);
        printed.set("always", false);
        // A failure is remembered for a moment.
        wait_until("it can be read", LIMIT, || mount.read(sample(27)).is_ok());
        printed.check(&mount, 27);
        // The process that runs the program goes on without the one that would start it again.
        let runner = Pid::from_raw(printed.runner());
        kill(Pid::from_raw(parent_of(runner.as_raw())), Signal::SIGKILL).unwrap();
        printed.check(&mount, 12);
        kill(runner, Signal::SIGKILL).unwrap();
        wait_until("it has ended", LIMIT, || !is_running(runner.as_raw()));
        mount.read(sample(20)).unwrap_err();
        assert!(mount.log().contains("mount it again"), "{}", mount.log());
    });
}

#[test]
fn the_process_that_runs_the_program_for_credentials_is_started_again_when_it_hangs() {
    for_each_transport(|transport| {
        let printed = Printed::by(HARMFUL, 10);
        let mount = printed.mount(transport, Some(Duration::from_secs(6)));
        let first = printed.runner();
        // A process that hangs is noticed in time also right after a question that was answered.
        printed.check(&mount, 3);
        printed.set("STOP", true);
        printed.check(&mount, 8);
        assert_ne!(printed.runner(), first, "{}", mount.log());
        wait_until("the one that hung has ended", LIMIT, || !is_running(first));
    });
}

#[test]
fn a_program_for_credentials_ends_with_the_process_that_runs_it() {
    for_each_transport(|transport| {
        let printed = Printed::by(HARMFUL, 10);
        let mount = printed.mount(transport, None);
        printed.set("HANG", true);
        printed.check(&mount, 8);
        let hung = fs::read_to_string(printed.home.path().join("program.hangs")).unwrap();
        let processes: Vec<i32> = hung.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(processes.len(), 2);
        wait_until("all of its processes have ended", LIMIT, || {
            !processes.iter().any(|&process| is_running(process))
        });
        mount.unmount();
    });
}

#[test]
fn what_a_program_for_credentials_has_left_running_ends_with_the_mount() {
    let program = PROGRAM.replacen(
        '\n',
        "\nsleep 1000 </dev/null >/dev/null 2>&1 & echo $! >>\"$0.left\"\n",
        1,
    );
    for_each_transport(|transport| {
        let printed = Printed::by(&program, 10);
        let mount = printed.mount(transport, None);
        printed.check(&mount, 8);
        let left = fs::read_to_string(printed.home.path().join("program.left")).unwrap();
        let left: Vec<i32> = left.lines().map(|pid| pid.parse().unwrap()).collect();
        assert!(left.iter().any(|&process| is_running(process)));
        mount.unmount();
        // Processes from the mount command's own helper are not the daemon's, and end, too.
        wait_until("all of them have ended", LIMIT, || !left.iter().any(|&pid| is_running(pid)));
    });
}
