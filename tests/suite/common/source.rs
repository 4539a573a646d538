//! A source that can hang: a file on another mount, whose daemon is stopped.

use super::{Mount, Transport, drop_cached, run, temp_dir};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mount that shows one file.
pub(crate) struct Source {
    mount: Mount,
    name: OsString,
}

impl Source {
    /// Shows a copy of this file.
    pub(crate) fn of(file: &Path) -> Self {
        let scratch = temp_dir();
        let (outer, point) = (scratch.path().join("outer.tar"), scratch.path().join("mnt"));
        let name = file.file_name().unwrap();
        let mut pack = Command::new("tar");
        pack.arg("-cf").arg(&outer).arg("-C").arg(file.parent().unwrap()).arg(name);
        run(&mut pack).ok();
        fs::create_dir(&point).unwrap();
        let mount = Mount::at(Transport::DevFuse, &[&outer], &["memory=8M"], scratch, point);
        Self { mount, name: name.to_owned() }
    }

    /// The path of the file.
    pub(crate) fn file(&self) -> PathBuf {
        self.mount.path(&self.name)
    }

    /// From now on reads of the file hang, and no byte of it is cached.
    pub(crate) fn stop(&self) {
        drop_cached(&File::open(self.file()).unwrap());
        self.mount.stop();
    }

    /// Reads of the file are answered again.
    pub(crate) fn go_on(&self) {
        kill(Pid::from_raw(self.mount.pid()), Signal::SIGCONT).unwrap();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.go_on();
    }
}
