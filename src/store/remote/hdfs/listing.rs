//! The files below a prefix, in the order of their keys, as an object store lists them.

use super::super::{ErrorKind, Location, Object, StoreError};
use super::namenode::{NameNode, object};
use futures_util::stream::{self, Stream};
use hdfs_native::client::FileStatus;

/// The directories that are being listed, the innermost last, each with its remaining entries.
type Levels = Vec<std::vec::IntoIter<FileStatus>>;
/// The directory that is read next (`None` for the one that the prefix names) and those around it; `None` at the end.
type Rest = Option<(Option<String>, Levels)>;

/// All files whose keys begin with that of `prefix`. Each directory is read when the listing reaches it; an item has the
/// files up to the next one.
pub(super) fn list<'a>(
    name_node: &'a NameNode,
    prefix: &'a Location,
) -> impl Stream<Item = Result<Vec<Object>, StoreError>> + Send + 'a {
    stream::try_unfold(Some((None, Levels::new())), move |rest| read_next(name_node, prefix, rest))
}

/// Reads one directory. Its files come with those behind it, up to the next directory.
async fn read_next(
    name_node: &NameNode,
    prefix: &Location,
    rest: Rest,
) -> Result<Option<(Vec<Object>, Rest)>, StoreError> {
    let Some((path, mut levels)) = rest else { return Ok(None) };
    let found = match path {
        Some(path) => directory(name_node, prefix, path).await?,
        None => first_level(name_node, prefix).await?,
    };
    levels.push(found.into_iter());
    let mut objects = Vec::new();
    while let Some(level) = levels.last_mut() {
        match level.next() {
            None => drop(levels.pop()),
            Some(status) if status.isdir => {
                return Ok(Some((objects, Some((Some(status.path), levels)))));
            }
            Some(status) => objects.push(object(prefix, &status)),
        }
    }
    Ok(Some((objects, None)))
}

/// The entries that begin with the prefix, in the directory that the prefix's last slash ends.
async fn first_level(
    name_node: &NameNode,
    prefix: &Location,
) -> Result<Vec<FileStatus>, StoreError> {
    let path = format!("/{}", prefix.key);
    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
    let parent = if parent.is_empty() { "/" } else { parent };
    let mut found = directory(name_node, prefix, parent.to_owned()).await?;
    found.retain(|status| sort_key(status).starts_with(&path));
    Ok(found)
}

/// The entries of a directory, in order; empty if the directory does not exist, or no longer.
async fn directory(
    name_node: &NameNode,
    prefix: &Location,
    path: String,
) -> Result<Vec<FileStatus>, StoreError> {
    let found = name_node.ask(prefix, move |native| async move {
        let mut found = native.list_status(&path, false).await?;
        // For a file, HDFS lists the file itself.
        found.retain(|status| status.path.len() > path.len());
        Ok(found)
    });
    match found.await {
        Ok(mut found) => {
            found.sort_by_cached_key(sort_key);
            Ok(found)
        }
        Err(error) if error.kind == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A path; a directory's path with the trailing slash that all keys below it contain.
fn sort_key(status: &FileStatus) -> String {
    format!("{}{}", status.path, if status.isdir { "/" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(path: &str, isdir: bool) -> FileStatus {
        FileStatus {
            path: path.to_owned(),
            length: 1,
            isdir,
            permission: 0o644,
            owner: String::new(),
            group: String::new(),
            modification_time: 0,
            access_time: 0,
            replication: None,
            blocksize: None,
        }
    }

    #[test]
    fn a_directory_stands_where_the_keys_below_it_stand() {
        let mut found = [status("/a", true), status("/a-b", false), status("/a.b", false)];
        found.sort_by_cached_key(sort_key);
        let paths: Vec<&str> = found.iter().map(|status| status.path.as_str()).collect();
        assert_eq!(paths, ["/a-b", "/a.b", "/a"]);
    }
}
