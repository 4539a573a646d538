//! The environment variables of the process, which the stores' own programs read too, and credential files, which are
//! read again when they change.

use crate::store::remote::{ErrorKind, Location, RemoteOptions, Scheme, StoreError};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// How often a file is checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Variables by name; tests make their own.
#[derive(Clone, Default)]
pub(in crate::store::remote) struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of the process, except those that are not UTF-8.
    pub(in crate::store::remote) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// Sets a variable for this copy of the environment.
    pub(in crate::store::remote::clients) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// Removes a variable from this copy of the environment.
    pub(super) fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    #[cfg(test)]
    pub(in crate::store::remote) fn of(variables: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: variables.iter().map(own).collect() }
    }

    /// The value of the first of these variables that is set and not empty.
    pub(in crate::store::remote) fn first(&self, names: &[&str]) -> Option<&str> {
        let mut values = names.iter().filter_map(|name| self.variables.get(*name));
        values.find(|value| !value.is_empty()).map(String::as_str)
    }

    /// All variables whose names begin with a prefix.
    pub(in crate::store::remote) fn starting_with<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.variables.range(prefix.to_owned()..);
        all.take_while(move |(name, _)| name.starts_with(prefix)).map(|(n, v)| (&**n, &**v))
    }

    /// The path of a file or directory in the home directory.
    pub(in crate::store::remote) fn in_home(&self, path: &str) -> Option<PathBuf> {
        Some(Path::new(self.first(&["HOME"])?).join(path))
    }

    /// The credentials file for the scheme of `location`: the one that the option names, possibly in systemd's
    /// credentials directory; without the option, the one in that directory with the scheme's name.
    pub(in crate::store::remote) fn credentials(
        &self,
        location: &Location,
        options: &RemoteOptions,
    ) -> Option<PathBuf> {
        let directory = self.first(&["CREDENTIALS_DIRECTORY"]).map(Path::new);
        let inside = |name: &Path| {
            let path = directory?.join(name);
            path.is_file().then_some(path)
        };
        if let Some(path) = &options.credentials {
            let is_name = path.components().count() == 1 && !path.exists();
            return is_name.then(|| inside(path)).flatten().or_else(|| Some(path.clone()));
        }
        let scheme = match location.scheme {
            Scheme::Http => Scheme::Https,
            scheme => scheme,
        };
        inside(Path::new(scheme.name()))
    }
}

/// A parsed file, parsed again when the file changes.
pub(in crate::store::remote::clients) struct Watched<T> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, String>,
    kept: Mutex<Option<Kept<T>>>,
}

struct Kept<T> {
    looked: Instant,
    version: Version,
    value: Arc<T>,
    /// Whether it was logged that the file cannot be read any more.
    is_denied: bool,
}

/// When a file was modified, and its length.
type Version = (Option<SystemTime>, u64);

impl<T> Watched<T> {
    pub(in crate::store::remote::clients) fn new(
        path: PathBuf,
        parse: fn(&str) -> Result<T, String>,
    ) -> Self {
        Self { path, parse, kept: Mutex::new(None) }
    }

    /// The file's path.
    pub(in crate::store::remote::clients) fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the file, at most a second old; if this process may not read it any more, its last content.
    pub(in crate::store::remote::clients) fn get(&self) -> Result<Arc<T>, StoreError> {
        self.get_by(|known| self.read(known))
    }

    fn get_by(
        &self,
        read: impl FnOnce(Option<Version>) -> io::Result<Option<(Version, String)>>,
    ) -> Result<Arc<T>, StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.looked.elapsed() < LOOK_EVERY) {
            return Ok(Arc::clone(&kept.value));
        }
        let wrong =
            |why: String| StoreError::new(self.path.display().to_string(), ErrorKind::Denied, why);
        let read = read(kept.as_ref().map(|kept| kept.version));
        let looked = Instant::now();
        let ((version, text), kept) = match (read, &mut *kept) {
            (Ok(Some(changed)), kept) => (changed, kept),
            (Ok(None), Some(kept)) => {
                kept.looked = looked;
                return Ok(Arc::clone(&kept.value));
            }
            // A confined process does not see a file that was put in its place in some directories.
            (Err(error), Some(kept)) if error.kind() == io::ErrorKind::PermissionDenied => {
                kept.looked = looked;
                if !std::mem::replace(&mut kept.is_denied, true) {
                    let path = self.path.display();
                    tracing::warn!("{path}: {error}: its former content is used on");
                }
                return Ok(Arc::clone(&kept.value));
            }
            (Ok(None), None) => return Err(wrong("not read".to_owned())),
            (Err(error), _) => return Err(wrong(error.to_string())),
        };
        let value = Arc::new((self.parse)(&text).map_err(wrong)?);
        *kept = Some(Kept { looked, version, value: Arc::clone(&value), is_denied: false });
        Ok(value)
    }

    /// The version and the text of the file; `None` if the version is the `known` one.
    fn read(&self, known: Option<Version>) -> io::Result<Option<(Version, String)>> {
        let metadata = std::fs::metadata(&self.path)?;
        let version = (metadata.modified().ok(), metadata.len());
        match known == Some(version) {
            true => Ok(None),
            false => Ok(Some((version, std::fs::read_to_string(&self.path)?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        std::fs::write(&path, "first").expect("write");
        let watched = Watched::new(path.clone(), |text| Ok(text.trim().to_owned()));
        assert_eq!(*watched.get().expect("a token"), "first");
        std::fs::write(&path, "the second").expect("write");
        std::thread::sleep(LOOK_EVERY + Duration::from_millis(50));
        assert_eq!(*watched.get().expect("a token"), "the second");
    }

    #[test]
    fn a_file_that_may_not_be_read_any_more_is_used_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        std::fs::write(&path, "first").expect("write");
        let watched = Watched::new(path.clone(), |text| Ok(text.to_owned()));
        let denied = |_| Err(io::ErrorKind::PermissionDenied.into());
        assert!(watched.get_by(denied).is_err());
        assert_eq!(*watched.get().expect("a token"), "first");
        std::thread::sleep(LOOK_EVERY + Duration::from_millis(50));
        assert_eq!(*watched.get_by(denied).expect("the token before"), "first");
        std::thread::sleep(LOOK_EVERY + Duration::from_millis(50));
        std::fs::remove_file(&path).expect("remove");
        assert!(watched.get().is_err());
    }

    #[test]
    fn credentials_are_found_by_name_in_the_directory_of_systemd() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("s3"), "").expect("write");
        std::fs::write(directory.path().join("other"), "").expect("write");
        let path = directory.path().to_string_lossy().into_owned();
        let environment = Environment::of(&[("CREDENTIALS_DIRECTORY", &path)]);
        let location = |url| Location::parse(url).expect("a URL").expect("a location");
        let find = |url, name: Option<&str>| {
            let credentials = name.map(PathBuf::from);
            environment
                .credentials(&location(url), &RemoteOptions { credentials, ..Default::default() })
        };
        assert_eq!(find("s3://b/k", None), Some(directory.path().join("s3")));
        assert_eq!(find("gs://b/k", None), None);
        assert_eq!(find("gs://b/k", Some("other")), Some(directory.path().join("other")));
        assert_eq!(find("gs://b/k", Some("/etc/other")), Some(PathBuf::from("/etc/other")));
    }
}
