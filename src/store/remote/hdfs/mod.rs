//! HDFS, through `hdfs-native`: statuses and listings from the NameNode, bytes from the DataNodes.
//!
//! Name services and the default file system come from `HADOOP_CONF_DIR` (else `$HADOOP_HOME/etc/hadoop`). The user is
//! `HADOOP_USER_NAME`, or the user of the process; if `core-site.xml` requires Kerberos, the ticket is that of
//! `KRB5CCNAME`. The option `credentials` names a keytab or a ticket cache, and always turns Kerberos on.
//!
//! HDFS has no id of a file's version. A version is identified by its blocks, which never change: a reader keeps the
//! blocks that the file had when the reader was opened, and returns no other bytes ([`readers`]).
//!
//! Imports the types of the remote parts from [`super`].

mod error;
mod kerberos;
mod listing;
mod namenode;
mod readers;

use super::{Body, Client, ErrorKind, Location, Object, StoreError};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use namenode::NameNode;
use readers::Readers;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A client of the name service or NameNode of `location`, with the identity in the credentials file, if there is one.
/// A response may make no progress for `timeout`. Makes no request.
///
/// # Errors
/// The credentials file cannot be read, or is neither a keytab nor a ticket cache.
pub(super) fn connect(
    location: &Location,
    credentials: Option<&Path>,
    timeout: Duration,
) -> Result<Arc<dyn Client>, StoreError> {
    let identity = credentials.map(kerberos::identity).transpose();
    let identity = identity.map_err(|why| {
        StoreError::new(format!("hdfs://{}/", location.authority), ErrorKind::Refused, why)
    })?;
    let name_node = NameNode::new(&location.authority, identity, timeout);
    Ok(Arc::new(Hdfs { name_node: Arc::new(name_node), readers: Readers::default() }))
}

/// One name service, or one NameNode.
struct Hdfs {
    name_node: Arc<NameNode>,
    readers: Readers,
}

impl Client for Hdfs {
    fn head<'a>(&'a self, location: &'a Location) -> BoxFuture<'a, Result<Object, StoreError>> {
        self.name_node.status(location).boxed()
    }

    fn get<'a>(
        &'a self,
        object: &'a Object,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Body, StoreError>> {
        self.readers.get(&self.name_node, object, range).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a Location) -> BoxStream<'a, Result<Vec<Object>, StoreError>> {
        listing::list(&self.name_node, prefix).boxed()
    }

    fn identity<'a>(
        &'a self,
        _: &'a Location,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let identity = self.name_node.identity();
        std::future::ready(Ok(Some(identity))).boxed()
    }
}
