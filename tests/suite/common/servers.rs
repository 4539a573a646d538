//! Real storage servers, which `scripts/storage-server` runs.

use super::{TempDir, skip, temp_dir, write_container};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running server, which has no objects at first. It ends with the value, or with the test.
pub(crate) struct Server {
    child: Child,
    /// The pipe for commands, which is closed to end the server.
    commands: Option<ChildStdin>,
    answers: RefCell<BufReader<ChildStdout>>,
    settings: BTreeMap<String, String>,
    directory: TempDir,
}

impl Server {
    /// Starts a server of this kind; if it is not installed, says so and returns `None`.
    #[track_caller]
    pub(crate) fn start(kind: &str) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/storage-server");
        let mut child = Command::new(script)
            .args(["run", kind])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("scripts/storage-server");
        let (commands, answers) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (settings, directory) = (BTreeMap::new(), temp_dir());
        let answers = RefCell::new(BufReader::new(answers));
        let mut server = Self { child, commands, answers, settings, directory };
        loop {
            let line = server.answer();
            if line == "ready" {
                return Some(server);
            }
            let Some((name, value)) = line.split_once('=') else { break };
            server.settings.insert(name.to_owned(), value.to_owned());
        }
        let status = server.child.wait().expect("its status");
        let mut said = String::new();
        server.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
        assert_eq!(status.code(), Some(3), "{kind} does not start: {said}");
        skip(&format!("needs a storage server: {}", said.trim()));
        None
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        self.answers.borrow_mut().read_line(&mut line).expect("UTF-8");
        line.trim_end().to_owned()
    }

    /// A setting that clients must know.
    #[track_caller]
    pub(crate) fn setting(&self, name: &str) -> &str {
        self.settings.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}", self.settings))
    }

    /// All settings whose names begin with `beginning`, for the environment of a client.
    pub(crate) fn environment(&self, beginning: &str) -> Vec<(String, String)> {
        let all = self.settings.iter().filter(|(name, _)| name.starts_with(beginning));
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Sends the server a command from the script's help, and waits until it is done.
    #[track_caller]
    pub(crate) fn tell(&self, command: &str) {
        writeln!(self.commands.as_ref().expect("a pipe"), "{command}").expect("it listens");
        assert_eq!(self.answer(), "ok", "{command}");
    }

    /// Stores a container of these samples under a key.
    #[track_caller]
    pub(crate) fn put(&self, key: &str, samples: &[Vec<u8>]) {
        let path = self.directory.path().join("upload");
        write_container(&path, samples);
        self.tell(&format!("put {} {key}", path.display()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}
