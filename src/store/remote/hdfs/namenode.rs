//! Requests to the NameNode, and the lifetime of the `hdfs-native` client that makes them.

use super::super::runtime::for_namenodes;
use super::super::{ErrorKind, Location, Object, StoreError};
use super::error::store_error;
use super::kerberos::{Identity, Proof};
use hdfs_native::client::FileStatus;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

/// The NameNode's port, if neither the URL nor the configuration has one.
const DEFAULT_PORT: u16 = 8020;
/// The number of failovers to the next NameNode of a name service, enough to try each; all of it is one attempt.
const FAILOVERS: &str = "5";
/// The first and the longest pause of a failover that has tried all NameNodes, in milliseconds.
const FAILOVER_PAUSE: (&str, &str) = ("20", "100");

/// A name service, or one NameNode.
pub(super) struct NameNode {
    /// Empty for the default file system of the configuration.
    authority: String,
    identity: Option<Identity>,
    /// How long a request may make no progress.
    timeout: Duration,
    /// Made by the first request, on that request's runtime.
    current: Mutex<Option<Arc<Native>>>,
}

/// A client with its connections.
struct Native {
    client: Client,
    /// Whether a NameNode has responded to it.
    answered: AtomicBool,
}

impl NameNode {
    pub(super) fn new(authority: &str, identity: Option<Identity>, timeout: Duration) -> Self {
        Self { authority: authority.to_owned(), identity, timeout, current: Mutex::default() }
    }

    /// The user of the requests, in words.
    pub(super) fn identity(&self) -> String {
        match &self.identity {
            Some(Identity { principal, proof: Proof::Keytab(path) | Proof::Tickets(path) }) => {
                format!("Kerberos: {principal}, from {path}")
            }
            None => match std::env::var("HADOOP_USER_NAME") {
                Ok(name) => format!("the user {name} (HADOOP_USER_NAME)"),
                Err(_) => "the user of this process, or its Kerberos ticket".to_owned(),
            },
        }
    }

    /// The current status of the file at `location`.
    pub(super) async fn status(&self, location: &Location) -> Result<Object, StoreError> {
        let path = path(location);
        let status = self
            .ask(location, move |native| async move { native.get_file_info(&path).await })
            .await?;
        if status.isdir {
            let why = "this is a directory";
            return Err(StoreError::new(location.to_string(), ErrorKind::NotFound, why));
        }
        Ok(object(location, &status))
    }

    /// Sends a request to the NameNode, in a task of another runtime that goes on after the caller has given up: a connection attempt to a
    /// NameNode whose machine is off then still fails in the end, and the next NameNode is used.
    ///
    /// If the NameNode has responded before and is now silent, the client is dropped with its connection.
    pub(super) async fn ask<T, F>(
        &self,
        location: &Location,
        request: impl FnOnce(Client) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = hdfs_native::Result<T>> + Send + 'static,
    {
        let native = self.native().map_err(|error| store_error(location, &error))?;
        let asked = Arc::clone(&native);
        let runtime = for_namenodes().map_err(|error| {
            StoreError::new(location.to_string(), ErrorKind::Unavailable, error.to_string())
        })?;
        let task = runtime.spawn(async move {
            let answer = request(asked.client.clone()).await;
            if matches!(answer, Ok(_) | Err(HdfsError::RPCError(..) | HdfsError::FileNotFound(_))) {
                asked.answered.store(true, Ordering::Relaxed);
            }
            answer
        });
        // Shorter than the caller's timeout.
        let patience = self.timeout.mul_f32(0.8);
        match tokio::time::timeout(patience, task).await {
            Ok(Ok(answer)) => answer.map_err(|error| store_error(location, &error)),
            Ok(Err(_)) => Err(StoreError::new(
                location.to_string(),
                ErrorKind::Malformed,
                "the answer of the NameNode cannot be understood",
            )),
            Err(_) => {
                self.give_up(&native);
                let why = "the NameNode does not answer, or with Kerberos perhaps the KDC";
                Err(StoreError::new(location.to_string(), ErrorKind::TimedOut, why))
            }
        }
    }

    fn give_up(&self, native: &Arc<Native>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, native));
        if is_current && native.answered.load(Ordering::Relaxed) {
            *current = None;
        }
    }

    fn native(&self) -> hdfs_native::Result<Arc<Native>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(native) = &*current {
            return Ok(Arc::clone(native));
        }
        let native = Native { client: self.build()?, answered: AtomicBool::new(false) };
        Ok(Arc::clone(current.insert(Arc::new(native))))
    }

    fn build(&self) -> hdfs_native::Result<Client> {
        if self.authority.is_empty() {
            return self.builder().build();
        }
        let url = format!("hdfs://{}", self.authority);
        match self.builder().with_url(&url).build() {
            Err(HdfsError::InvalidArgument(why)) if why.contains("No NameNode hosts") => {
                self.builder().with_url(format!("{url}:{DEFAULT_PORT}")).build()
            }
            built => built,
        }
    }

    /// The settings that all clients share.
    fn builder(&self) -> ClientBuilder {
        // A silent DataNode is given up after at most twice the socket timeout, before the caller gives up: the client then
        // takes another replica, and remembers it.
        let socket_timeout = (self.timeout / 3).as_millis().max(1).to_string();
        let mut config = vec![
            ("dfs.client.socket-timeout", socket_timeout.as_str()),
            ("dfs.client.failover.max.attempts", FAILOVERS),
            ("dfs.client.failover.sleep.base.millis", FAILOVER_PAUSE.0),
            ("dfs.client.failover.sleep.max.millis", FAILOVER_PAUSE.1),
        ];
        let mut builder = ClientBuilder::new().with_io_runtime(Handle::current());
        if let Some(Identity { principal, proof }) = &self.identity {
            config.push(("hadoop.security.authentication", "kerberos"));
            if ["HADOOP_CONF_DIR", "HADOOP_HOME"]
                .iter()
                .all(|name| std::env::var_os(name).is_none())
            {
                // Without the cluster's configuration: DataNodes of clusters with Kerberos either have a port below
                // 1024, for which this means nothing, or protect their connections.
                config.push(("dfs.data.transfer.protection", "authentication,integrity,privacy"));
            }
            builder = builder.with_kerberos_principal(principal);
            builder = match proof {
                Proof::Keytab(path) => builder.with_kerberos_keytab(path),
                Proof::Tickets(path) => builder.with_kerberos_cache(format!("FILE:{path}")),
            };
        }
        builder.with_config(config)
    }
}

/// The path of a location within its file system.
pub(super) fn path(location: &Location) -> String {
    format!("/{}", location.key)
}

/// The object for a file in the file system of `location`.
pub(super) fn object(location: &Location, status: &FileStatus) -> Object {
    let key = status.path.trim_start_matches('/').to_owned();
    let modified = Duration::from_millis(status.modification_time);
    Object {
        location: Location { key, ..location.clone() },
        length_bytes: status.length as u64,
        modified: SystemTime::UNIX_EPOCH.checked_add(modified),
        version_id: None,
        etag: None,
    }
}
