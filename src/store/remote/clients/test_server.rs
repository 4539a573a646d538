//! A server for the tests of clients, which says what a test wants it to say.

use crate::store::remote::{Location, RemoteOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// The version of all objects.
pub(super) const TAG: &str = "ETag: \"a\"";

/// A server that responds to one request per connection with a text of the test, which sees the request in lower case.
pub(super) struct Server {
    /// `http://127.0.0.1:PORT`
    pub(super) url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn new(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if !stream.read(&mut byte).is_ok_and(|n| n == 1) {
                        break;
                    }
                    head.push(byte[0]);
                }
                let mut head = String::from_utf8_lossy(&head).to_lowercase();
                let length = head.split_once("\r\ncontent-length: ").map(|(_, rest)| rest);
                let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                let _ = stream.read_exact(&mut body);
                head.push_str(&String::from_utf8_lossy(&body).to_lowercase());
                let answer = answer(&head);
                seen.lock().expect("the list").push(head);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { url, heads }
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("the list").clone()
    }

    pub(super) fn options(&self) -> RemoteOptions {
        RemoteOptions { endpoint: Some(self.url.clone()), ..RemoteOptions::default() }
    }
}

/// A response with this status, headers and body.
pub(super) fn answer(status: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{headers}\r\n{body}")
}

pub(super) fn location(url: &str) -> Location {
    Location::parse(url).expect("a URL").expect("a location")
}

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime").block_on(future)
}
