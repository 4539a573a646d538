//! An object store for tests: S3 (path style) and plain HTTP on loopback, with faults that a test chooses. It stands
//! on hyper, and knows nothing of ffrfs. The key `bucket/a/b` is `s3://bucket/a/b` with this endpoint, and
//! `http://127.0.0.1:PORT/bucket/a/b`.
#![allow(dead_code, unused_imports, reason = "the program and the tests each use a part")]

mod answer;
mod body;
mod control;
mod draw;
mod objects;
mod record;
mod rules;
mod text;
mod xml;

pub(crate) use record::{Request, RequestKind, Summary};
pub(crate) use rules::{Fault, Rule};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use objects::Objects;
use record::Record;
use rules::Rules;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::Instant;

/// The store; it stops with the value, and all its connections with it.
pub(crate) struct Store {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

/// The state that all connections share.
struct Shared {
    objects: Mutex<Objects>,
    rules: Rules,
    record: Record,
    /// The token that requests must carry in `Authorization` or `x-amz-security-token`; `None`: any request is accepted.
    token: Mutex<Option<String>>,
    /// The number of objects in one page of a listing.
    page: AtomicUsize,
    /// Whether connections are closed as soon as they are made.
    down: AtomicBool,
    /// Changes when hanging requests may go on.
    released: watch::Sender<u64>,
}

/// One connection, as the answers on it see it.
struct Connection {
    /// The socket, for a reset.
    socket: OwnedFd,
    /// The time at which the connection will have sent all that was asked for, at its bandwidth.
    free_at: Mutex<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// An empty store without faults, on a free port.
    pub(crate) fn new() -> Self {
        Self::start(0, 2, None)
    }

    /// Starts a store on this port (0: a free one) with `threads` threads, which also shows the files below `root`.
    pub(crate) fn start(port: u16, threads: usize, root: Option<&Path>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = runtime.block_on(TcpListener::bind(address)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            objects: Mutex::new(Objects::new(root)),
            rules: Rules::default(),
            record: Record::default(),
            token: Mutex::new(None),
            page: AtomicUsize::new(1000),
            down: AtomicBool::new(false),
            released: watch::channel(0).0,
        });
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Self { shared, address, runtime: Some(runtime) }
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The HTTP URL of a key.
    pub(crate) fn http(&self, key: &str) -> String {
        format!("http://{}/{key}", self.address)
    }

    /// Puts an object, or a new version of one, as `bucket/key`.
    pub(crate) fn put(&self, key: &str, bytes: impl Into<bytes::Bytes>) {
        lock(&self.shared.objects).put(key, bytes.into(), SystemTime::now());
    }

    /// As [`Store::put`], with the bytes of a file, which stay on disk; it must not be made shorter.
    pub(crate) fn put_file(&self, key: &str, path: &Path) {
        let (bytes, modified) = objects::mapped(path).expect("map a file");
        lock(&self.shared.objects).put(key, bytes, modified);
    }

    /// Removes an object with all its versions.
    pub(crate) fn remove(&self, key: &str) {
        lock(&self.shared.objects).remove(key);
    }

    /// Gives ids to versions from now on, so that each can be asked for.
    pub(crate) fn keep_versions(&self) {
        lock(&self.shared.objects).keep_versions();
    }

    /// Applies this rule, too, from now on.
    pub(crate) fn rule(&self, rule: Rule) {
        self.shared.rules.add(rule);
    }

    /// Ends all faults; hanging requests go on.
    pub(crate) fn heal(&self) {
        self.shared.replace_rules(Vec::new());
    }

    /// Refuses requests without this token.
    pub(crate) fn require_token(&self, token: Option<&str>) {
        *lock(&self.shared.token) = token.map(str::to_owned);
    }

    /// Sets the number of objects in a page of a listing.
    pub(crate) fn page_by(&self, objects: usize) {
        self.shared.page.store(objects, Ordering::Relaxed);
    }

    /// Takes the store down or up: while it is down, connections are closed as soon as they are made.
    pub(crate) fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::Relaxed);
    }

    /// All requests so far, in the order in which they came.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.record.requests()
    }

    /// GETs of objects so far, in the order in which they came.
    pub(crate) fn gets(&self) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.kind == RequestKind::Get);
        requests
    }

    /// Figures about all requests so far.
    pub(crate) fn summary(&self) -> Summary {
        self.shared.record.summary()
    }

    /// Requests that are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.shared.record.in_flight()
    }

    /// Forgets all requests so far, and counts anew.
    pub(crate) fn forget_requests(&self) {
        self.shared.record.forget();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn replace_rules(&self, rules: Vec<Rule>) {
        self.rules.replace(rules);
        self.released.send_modify(|generation| *generation += 1);
    }

    /// Waits until the rules are replaced.
    async fn hang(&self) {
        let mut released = self.released.subscribe();
        let _ = released.changed().await;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if !shared.down.load(Ordering::Relaxed) => {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
            Ok(_) => {}
            Err(error) => eprintln!("store: accept: {error}"),
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(socket) = stream.as_fd().try_clone_to_owned() else { return };
    let connection = Arc::new(Connection { socket, free_at: Mutex::new(Instant::now()) });
    let service = service_fn(move |request| {
        let (shared, connection) = (Arc::clone(&shared), Arc::clone(&connection));
        async move {
            // While the store is down, connections that are kept alive end, too.
            match shared.down.load(Ordering::Relaxed) {
                true => Err(std::io::ErrorKind::ConnectionAborted.into()),
                false => answer::answer(&shared, connection, request).await,
            }
        }
    });
    let http = hyper::server::conn::http1::Builder::new();
    // The call fails if a fault ends the connection, or if the client closes it.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
