//! Lists objects page by page: each page is a request, with a time of its own. Imports the engine and its retries.

use super::Engine;
use super::retry::Retries;
use crate::store::remote::client::{Client, Object};
use crate::store::remote::counters::add;
use crate::store::remote::error::{ErrorKind, StoreError};
use crate::store::remote::location::Location;
use crate::store::remote::requests::{RequestKind, Steps};
use futures_util::StreamExt;
use std::sync::atomic::AtomicU64;
use tokio::time::{Instant, timeout};

/// The maximum number of objects of a listing; each takes some 500 bytes.
const MOST_LISTED: usize = 4_000_000;
/// The maximum number of pages without an object, one behind the other. Some stores send a few.
const MOST_EMPTY: u32 = 1000;

impl Engine {
    /// All objects whose keys begin with that of `prefix`. A failed listing starts over.
    pub(in crate::store::remote) async fn list(
        &self,
        client: &dyn Client,
        prefix: &Location,
    ) -> Result<Vec<Object>, StoreError> {
        let (start, mut retries) = (Instant::now(), Retries::default());
        let (mut counter, mut attempt) = (&self.counters.lists, 1);
        loop {
            match self.pages(client, prefix, (attempt, counter)).await {
                Ok(objects) => return Ok(objects),
                Err(error) => counter = self.again(&error, &mut retries, start.elapsed()).await?,
            }
            attempt += 1;
        }
    }

    /// The objects of all pages. `counter` counts the request for the first page.
    async fn pages<'a>(
        &'a self,
        client: &dyn Client,
        prefix: &Location,
        (attempt, mut counter): (u32, &'a AtomicU64),
    ) -> Result<Vec<Object>, StoreError> {
        let (mut objects, mut pages) = (Vec::<Object>::new(), client.list(prefix));
        let mut empty = 0;
        loop {
            let mut steps = Steps::new();
            steps.note_sent();
            let page = match timeout(self.timeout, pages.next()).await {
                // The last page has come: no request was sent.
                Ok(None) => return Ok(objects),
                Ok(Some(page)) => page,
                Err(_) => Err(self.silence_of(prefix)),
            };
            add(counter, 1);
            counter = &self.counters.lists;
            self.note_plain((RequestKind::List, prefix), attempt, steps, page.as_ref().err());
            let page = page?;
            empty = if page.is_empty() { empty + 1 } else { 0 };
            if empty > MOST_EMPTY {
                let why = format!("the list has {empty} pages without an object, and no end");
                return Err(StoreError::new(prefix.to_string(), ErrorKind::Malformed, why));
            }
            let is_unversioned = |one: &&Object| {
                one.etag.is_none() && one.version_id.is_none() && one.modified.is_none()
            };
            if let Some(object) = page.iter().find(is_unversioned) {
                let why = "the list gives neither ETag nor date: nobody would see that it changes";
                return Err(StoreError::new(
                    object.location.to_string(),
                    ErrorKind::Malformed,
                    why,
                ));
            }
            objects.extend(page);
            if objects.len() > MOST_LISTED {
                return Err(too_many(prefix));
            }
        }
    }
}

fn too_many(prefix: &Location) -> StoreError {
    let why = format!("more than {MOST_LISTED} objects begin with this prefix: give a longer one");
    StoreError::new(prefix.to_string(), ErrorKind::Refused, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::counters::Counters;
    use crate::store::remote::testing::{MemoryStore, location};
    use crate::store::remote::{RemoteFigures, RemoteOptions};
    use std::sync::Arc;
    use std::time::Duration;

    /// Lists pages, each of which takes so many seconds and has so many objects: the number of all objects, and what was
    /// counted.
    async fn listed(pages: &[(u64, usize)]) -> (Result<usize, ErrorKind>, RemoteFigures) {
        let store = MemoryStore::new(1);
        store.set_pages(pages.iter().map(|(time, objects)| (Duration::from_secs(*time), *objects)));
        let engine = Engine::new(&RemoteOptions::default(), Arc::new(Counters::default()));
        let objects = engine.list(&*store, &location()).await;
        (objects.map(|all| all.len()).map_err(|e| e.kind), engine.counters.figures())
    }

    #[tokio::test(start_paused = true)]
    async fn each_page_has_the_time_of_a_request_and_counts_as_one() {
        // Pages without an object take their time, too.
        let (objects, figures) = listed(&[(6, 0), (6, 0), (6, 2), (6, 0), (6, 1)]).await;
        assert_eq!(objects, Ok(3));
        assert_eq!((figures.lists, figures.retries()), (5, 0));
        // The second page is late in each of four attempts, which are all that a minute has room for.
        let (objects, figures) = listed(&[(6, 1), (11, 1)]).await;
        assert_eq!(objects, Err(ErrorKind::TimedOut));
        assert_eq!((figures.lists, figures.retries_timed_out, figures.failures), (5, 3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn pages_without_an_object_and_without_end_are_refused() {
        let pages = |empty: usize| {
            let mut pages = vec![(0, 0); empty];
            pages.push((0, 1));
            pages
        };
        assert_eq!(listed(&pages(1000)).await.0, Ok(1));
        assert_eq!(listed(&pages(1001)).await.0, Err(ErrorKind::Malformed));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_which_nobody_would_see_that_they_change_are_refused() {
        let store = MemoryStore::new(1);
        store.set_pages([(Duration::ZERO, 1)]);
        store.forget_version();
        let engine = Engine::new(&RemoteOptions::default(), Arc::new(Counters::default()));
        let refused = engine.list(&*store, &location()).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Malformed);
        assert!(refused.to_string().contains("neither ETag nor date"), "{refused}");
    }
}
