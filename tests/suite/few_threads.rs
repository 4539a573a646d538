//! Commands of a user who may have few threads, or only the first one.

use super::common::{
    FFRFS, Need, Outcome, Store, TempDir, container_in, for_each_transport, have, noise, run,
    samples, temp_dir, temp_dir_in_memory,
};
use super::user::{Sandbox, have_sandbox, options};
use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

const SAMPLES: usize = 60;

/// A container, and a user who has no process yet.
struct User {
    id: u32,
    directory: TempDir,
}

impl User {
    /// Each test has another `number`.
    fn new(number: u32) -> Option<Self> {
        let programs = ["cp", "prlimit", "setpriv"].map(Need::Program);
        if !have(Need::Root) || !programs.into_iter().all(have) {
            return None;
        }
        // Other runs of these tests have other users.
        let id = 20_000 + (std::process::id() * 3 + number) % 40_000;
        let directory = temp_dir();
        let container = container_in(&directory, &samples(SAMPLES, 9000));
        // Other users may not enter the directory where the program was built. This process must not write the program that
        // it runs: a child that another test has just forked would have it open, too.
        let program = directory.path().join("ffrfs");
        run(Command::new("cp").arg(FFRFS).arg(&program)).ok();
        for path in [directory.path(), &container, &program] {
            chown(path, Some(id), Some(id)).unwrap();
        }
        Some(Self { id, directory })
    }

    /// Runs `ffrfs` with these words as arguments; the user may have `most` processes and threads.
    fn run(&self, most: u32, args: &str) -> Outcome {
        let (id, here) = (self.id, self.directory.path());
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={id}"), format!("--regid={id}")]);
        command.args(["--clear-groups", "--", "prlimit"]).arg(format!("--nproc={most}"));
        run(command.arg("./ffrfs").args(args.split(' ')).current_dir(here).env("HOME", here))
    }
}

#[test]
fn commands_do_their_work_on_the_threads_that_they_can_have() {
    let Some(user) = User::new(0) else { return };
    for most in [1, 4] {
        let verified = user.run(most, "verify -j8 data.ffr").ok();
        assert!(verified.stderr.starts_with("60 samples checked"), "{}", verified.stderr);
        user.run(most, &format!("extract -j8 data.ffr out-{most}")).ok();
        let written = fs::read_dir(user.directory.path().join(format!("out-{most}"))).unwrap();
        assert_eq!(written.count(), SAMPLES);
    }
    assert_eq!(user.run(4, "sum -j8 data.ffr").ok().text().lines().count(), SAMPLES);
    user.run(4, "convert -j8 data.ffr out.tar").ok();
    assert_eq!(user.run(4, "ls out.tar").ok().text().lines().count(), SAMPLES);
}

#[test]
fn commands_that_cannot_do_without_more_threads_say_so_and_end() {
    let Some(user) = User::new(1) else { return };
    user.run(1, "extract data.ffr out").ok();
    for args in [
        "sum -j8 data.ffr",
        "convert -j8 data.ffr out.tar",
        "bench -j8 --mode=shuffled out",
        "bench -j8 --mode=loader out",
    ] {
        let outcome = user.run(1, args);
        assert_eq!(outcome.code, 2, "{args}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("no thread can be started (ulimit -u"), "{args}");
    }
    assert!(!user.directory.path().join("out.tar").exists());
}

/// Requests to stores need a few threads.
#[test]
fn objects_are_fetched_on_the_threads_that_there_can_be_or_it_is_said_that_there_are_none() {
    let Some(user) = User::new(2) else { return };
    let (store, cache) = (Store::new(), temp_dir_in_memory());
    chown(cache.path(), Some(user.id), Some(user.id)).unwrap();
    for key in 0..16 {
        store.put(&format!("bucket/{key}"), noise(1, 1 << 16));
    }
    let add = format!(
        "cache add s3://bucket/{{0..15}} --endpoint {} --anonymous --region us-east-1 --cache-dir {}",
        store.endpoint(),
        cache.path().display()
    );
    for most in [1, 14, 30] {
        let outcome = user.run(most, &add);
        let is_refused = outcome.stderr.contains("no thread can be started (ulimit -u");
        // With 14, threads that look objects up may leave none for the requests.
        let code = if most == 1 || most == 14 && is_refused { 8 } else { 0 };
        assert_eq!((outcome.code, is_refused), (code, code == 8), "{most}: {}", outcome.stderr);
    }
    store.put("bucket/large", noise(2, 1 << 22));
    let doctor = format!(
        "doctor s3://bucket/large --endpoint {} --anonymous --region us-east-1 --cache none",
        store.endpoint()
    );
    let outcome = user.run(30, &doctor);
    let text = outcome.text();
    let measured = text.lines().find(|line| line.contains("32 requests of ")).unwrap_or_default();
    assert!(measured.contains("not measured: no thread can be started (ulimit -u"), "{outcome:?}");
}

#[test]
fn whichever_of_its_threads_cannot_be_started_a_command_that_asks_a_store_says_so_and_ends() {
    if !have(Need::Program("strace")) {
        return;
    }
    let store = Store::new();
    store.put("bucket/one", noise(1, 1 << 16));
    let endpoint = store.endpoint();
    let add = format!("s3://bucket/one --endpoint {endpoint} --anonymous --region us-east-1");
    for number in 1..=60 {
        let cache = temp_dir_in_memory();
        let fails = format!("inject=clone3,clone:error=EAGAIN:when={number}");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=clone3,clone", "-e", &fails]);
        command.args([FFRFS, "cache", "add"]).args(add.split(' '));
        let outcome = run(command.arg("--cache-dir").arg(cache.path()));
        if outcome.code == 0 {
            assert!(number > 3, "{number}");
            return;
        }
        let is_refused = outcome.stderr.contains("no thread can be started (ulimit -u");
        let lines = outcome.stderr.lines().count();
        assert_eq!((outcome.code, is_refused, lines), (8, true, 1), "{number}: {}", outcome.stderr);
    }
    panic!("every thread counts");
}

#[test]
fn where_no_process_can_be_made_that_asks_a_mount_it_is_listed_and_commands_say_so() {
    if !have_sandbox() || !have(Need::Program("prlimit")) {
        return;
    }
    for_each_transport(|transport| {
        let options = options(transport, "");
        let outcome = Sandbox::new("").run(&format!(
            "alone() {{ somebody prlimit --nproc=1 \"$@\"; }}
             somebody ./ffrfs mount data.ffr mnt -o {options} || exit 1
             said='no process can be made that asks its daemon (ulimit -u'
             alone ./ffrfs list >out 2>errors; [ $? = 5 ] || exit 2
             grep \"$1/mnt \" out | grep -q ' stopped ' || exit 3
             grep -qF \"ffrfs: $1/mnt: $said\" errors || exit 4
             alone ./ffrfs umount --dead mnt 2>errors; [ $? = 5 ] || exit 5
             grep -qF \"$1/mnt: $said\" errors || exit 6
             alone ./ffrfs doctor mnt >out; [ $? = 5 ] || exit 7
             grep -F \"mnt: $said\" out | grep -q 'raise that limit' || exit 8
             somebody ./ffrfs umount mnt || exit 9
             code=0"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}
