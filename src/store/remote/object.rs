//! An object as a part of a dataset. Imports the client and the seam.

use super::client::{Client, Object};
use super::counters::{Counters, add};
use super::error::{ErrorKind, StoreError};
use super::runtime;
use crate::io::{File, ReadError};
use crate::store::{Arrival, Cause, Pin, Remote};
use bytes::Bytes;
use futures_util::StreamExt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// One version of an object, and the client that reads it.
pub(super) struct RemoteObject {
    object: Object,
    client: Arc<dyn Client>,
    counters: Arc<Counters>,
}

impl RemoteObject {
    pub(super) fn new(object: Object, client: Arc<dyn Client>, counters: Arc<Counters>) -> Self {
        Self { object, client, counters }
    }
}

/// All bytes of a range.
pub(super) async fn fetch(
    client: &dyn Client,
    object: &Object,
    range: Range<u64>,
) -> Result<Vec<Bytes>, StoreError> {
    let mut body = client.get(object, range.clone()).await?;
    let (mut pieces, mut left) = (Vec::new(), range.end - range.start);
    while let Some(piece) = body.next().await {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
            let url = object.location.to_string();
            StoreError::new(url, ErrorKind::Malformed, "the answer is too long")
        })?;
        pieces.push(piece);
    }
    match left {
        0 => Ok(pieces),
        _ => {
            let url = object.location.to_string();
            Err(StoreError::new(url, ErrorKind::Broken, "the body ended early"))
        }
    }
}

impl Remote for RemoteObject {
    fn len_bytes(&self) -> u64 {
        self.object.length_bytes
    }

    fn file(&self) -> Option<&File> {
        None
    }

    fn pin(&self, _: &Range<u64>) -> Option<Pin> {
        None
    }

    fn begin(&self, range: Range<u64>, cause: Cause, arrival: Arrival) {
        if range.is_empty() {
            return arrival.deliver(Vec::new());
        }
        let counters = Arc::clone(&self.counters);
        add(&counters.used_bytes, range.end - range.start);
        add(&counters.misses, 1);
        let gets = match cause {
            Cause::Demand => &counters.gets_demand,
            Cause::Prefetch => &counters.gets_prefetch,
            Cause::Open => &counters.gets_open,
        };
        add(gets, 1);
        let (client, object) = (Arc::clone(&self.client), self.object.clone());
        let handle = match runtime::handle() {
            Ok(handle) => handle,
            Err(error) => return arrival.finish(Err(error.into())),
        };
        handle.spawn(async move {
            let start = Instant::now();
            let fetched = fetch(&*client, &object, range).await;
            counters.total.add(start.elapsed());
            match fetched {
                Ok(pieces) => arrival.deliver(pieces),
                Err(error) => arrival.finish(Err(ReadError::Io(io::Error::from(error)))),
            }
        });
    }
}
