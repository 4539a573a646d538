//! The body of an answer: at the connection's bandwidth, and with the end that a fault gives it.

use super::record::Underway;
use super::rules::{End, Plan};
use super::{Connection, Shared, lock};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use nix::sys::socket::{setsockopt, sockopt::Linger};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The most bytes that one write carries.
const CHUNK_BYTES: usize = 256 << 10;

/// Timers count milliseconds: bytes that are due sooner are sent now.
const SLACK: Duration = Duration::from_micros(500);

/// A body that is sent at once.
pub(super) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

struct Sending {
    rest: Bytes,
    sent_bytes: u64,
    plan: Plan,
    /// Until the last bytes are sent: a client that has them may ask for more at once.
    underway: Option<Underway>,
    shared: Arc<Shared>,
    connection: Arc<Connection>,
}

/// The bytes of an object.
pub(super) fn sending(
    bytes: Bytes,
    plan: Plan,
    underway: Underway,
    shared: Arc<Shared>,
    connection: Arc<Connection>,
) -> Body {
    let underway = Some(underway);
    let sending = Sending { rest: bytes, sent_bytes: 0, plan, underway, shared, connection };
    let frames = futures_util::stream::unfold(Some(sending), |sending| async {
        let mut sending = sending?;
        match sending.next().await {
            Some(Ok(bytes)) => Some((Ok(Frame::data(bytes)), Some(sending))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Sending {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut length = self.rest.len().min(CHUNK_BYTES);
        if let Some(End::Reset(after) | End::Short(after) | End::Hang(after)) = self.plan.end {
            let left = after.saturating_sub(self.sent_bytes);
            length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 && !self.rest.is_empty() {
                if let Err(error) = self.end().await {
                    return Some(Err(error));
                }
                length = self.rest.len().min(CHUNK_BYTES);
            }
        }
        if length == 0 {
            return None;
        }
        if let Some(bandwidth) = self.plan.bandwidth {
            self.pace(length, bandwidth).await;
        }
        self.sent_bytes += length as u64;
        if let Some(underway) = &self.underway {
            underway.sent(length as u64);
        }
        let bytes = self.rest.split_to(length);
        if self.rest.is_empty() {
            self.underway = None;
        }
        Some(Ok(bytes))
    }

    /// Ends the body here, or lets it go on after a hang.
    async fn end(&mut self) -> io::Result<()> {
        let end = self.plan.end.take();
        if let Some(End::Hang(_)) = end {
            self.shared.hang().await;
            return Ok(());
        }
        // The bytes written so far must arrive: hyper, and a reset, throw away bytes that wait.
        tokio::time::sleep(Duration::from_millis(5)).await;
        match end {
            Some(End::Reset(_)) => {
                let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(&self.connection.socket, Linger, &linger)?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Waits until the connection has carried `bytes` bytes.
    async fn pace(&self, bytes: usize, bandwidth: u64) {
        let takes = Duration::from_secs_f64(bytes as f64 / bandwidth as f64);
        let due = {
            let mut free_at = lock(&self.connection.free_at);
            *free_at = (*free_at).max(Instant::now()) + takes;
            *free_at
        };
        if due > Instant::now() + SLACK {
            sleep_until(due).await;
        }
    }
}
