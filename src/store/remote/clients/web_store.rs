//! The interface of a store behind HTTP: three requests make it a client. Imports listings.

use super::listing::{self, Page};
use super::web::Web;
use crate::store::remote::{Body, Client, Location, Object, StoreError};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::ops::Range;

/// A store that lists its objects in pages. Its methods have the duties of those of [`Client`].
pub(super) trait WebStore: Send + Sync {
    /// See [`Client::head`].
    fn look_up(
        &self,
        location: &Location,
    ) -> impl Future<Output = Result<Object, StoreError>> + Send;

    /// See [`Client::get`].
    fn read(
        &self,
        object: &Object,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Body, StoreError>> + Send;

    /// A page of [`Client::list`]: the first page, or the one of the previous page's `token`.
    fn page(
        &self,
        prefix: &Location,
        token: Option<String>,
    ) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// See [`Client::identity`].
    fn identity(
        &self,
        location: &Location,
    ) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// The connections.
    fn web(&self) -> &Web;
}

impl<S: WebStore> Client for S {
    fn head<'a>(&'a self, location: &'a Location) -> BoxFuture<'a, Result<Object, StoreError>> {
        Box::pin(self.look_up(location))
    }

    fn get<'a>(
        &'a self,
        object: &'a Object,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Body, StoreError>> {
        Box::pin(self.read(object, range))
    }

    fn list<'a>(&'a self, prefix: &'a Location) -> BoxStream<'a, Result<Vec<Object>, StoreError>> {
        listing::pages(prefix, move |token| Box::pin(self.page(prefix, token)))
    }

    fn identity<'a>(
        &'a self,
        location: &'a Location,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(WebStore::identity(self, location))
    }

    fn clock_ahead_seconds(&self) -> Option<i64> {
        self.web().clock_ahead_seconds()
    }
}
