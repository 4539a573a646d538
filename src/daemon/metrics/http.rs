//! The part of HTTP/1.1 that a scraper needs: one request a connection, within bounds of size and time.

use super::address::Stream;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// The time for a whole connection.
const PATIENCE: Duration = Duration::from_secs(5);

const PLAIN: &str = "text/plain; charset=utf-8";
const HINT: &str = "Metrics are at /metrics.\n";

/// An answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    /// Whether the body is the metrics, or the hint, or the status itself.
    what: What,
    /// The request was HEAD: no body is sent.
    is_head: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Metrics,
    Hint,
    Status,
}

/// Answers a connection's request, metrics with `body`.
pub(crate) fn answer(
    mut stream: Stream,
    content_type: &str,
    body: &dyn Fn() -> String,
) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let answer = match read_head(&mut stream, deadline)? {
        Some(head) => answer_to(&head),
        None => Answer::status("431 Request Header Fields Too Large"),
    };
    let (kind, body) = match answer.what {
        What::Metrics => (content_type, body()),
        What::Hint => (PLAIN, HINT.to_owned()),
        What::Status => (PLAIN, format!("{}\n", answer.status)),
    };
    send(&mut stream, &answer, kind, &body, deadline)?;
    drain(&mut stream, deadline)
}

/// Answers that there are too many connections.
pub(crate) fn refuse(mut stream: Stream) {
    let answer = Answer::status("503 Service Unavailable");
    let deadline = Instant::now() + Duration::from_millis(100);
    let _ = send(&mut stream, &answer, PLAIN, "too many connections\n", deadline);
}

fn send(
    stream: &mut Stream,
    answer: &Answer,
    content_type: &str,
    body: &str,
    deadline: Instant,
) -> io::Result<()> {
    let allow = if answer.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        answer.status,
        body.len(),
    );
    if !answer.is_head {
        text.push_str(body);
    }
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        stream.set_timeout(left(deadline)?)?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    stream.end()
}

/// Reads the bytes that the client sent beyond its request: closing with unread bytes would discard the answer.
fn drain(stream: &mut Stream, deadline: Instant) -> io::Result<()> {
    let mut buffer = [0; 1024];
    for _ in 0..MAX_REQUEST_BYTES / buffer.len() {
        stream.set_timeout(left(deadline)?)?;
        if stream.read(&mut buffer)? == 0 {
            break;
        }
    }
    Ok(())
}

/// The time that a connection has left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The request up to its empty line; `None` if it is too long.
fn read_head(stream: &mut Stream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while head.len() <= MAX_REQUEST_BYTES {
        stream.set_timeout(left(deadline)?)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(Some(head)),
            Ok(count) => head.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n")
            || head.windows(2).any(|end| end == b"\n\n")
        {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

impl Answer {
    fn status(status: &'static str) -> Self {
        Self { status, what: What::Status, is_head: false }
    }
}

fn answer_to(head: &[u8]) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Answer::status("431 Request Header Fields Too Large");
        }
        _ => return Answer::status("400 Bad Request"),
    }
    let is_head = request.method == Some("HEAD");
    if !is_head && request.method != Some("GET") {
        return Answer::status("405 Method Not Allowed");
    }
    let path = request.path.unwrap_or_default().split('?').next();
    let (status, what) = match path {
        Some("/metrics") => ("200 OK", What::Metrics),
        Some("/") => ("200 OK", What::Hint),
        _ => ("404 Not Found", What::Status),
    };
    Answer { status, what, is_head }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> &'static str {
        &answer_to(head.as_bytes()).status[..3]
    }

    #[test]
    fn requests_have_the_answers_that_they_should() {
        assert_eq!(answer_to(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").what, What::Metrics);
        assert_eq!(answer_to(b"GET /metrics?a=b HTTP/1.0\r\n\r\n").what, What::Metrics);
        assert!(answer_to(b"HEAD /metrics HTTP/1.1\r\n\r\n").is_head);
        assert_eq!(answer_to(b"GET / HTTP/1.1\r\n\r\n").what, What::Hint);
        assert_eq!(status("GET /metricsx HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status("GET /metrics HTTP/1.1\r\n"), "400", "it has no end");
        assert_eq!(status("\x16\x03\x01 what a TLS client says"), "400");
        let many = "a: b\r\n".repeat(MAX_HEADERS + 1);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), "431");
    }
}
