//! Replaces `objects` in a program that was built without clients of stores: URLs are refused, and objects do not
//! exist.

use crate::failure::Failure;
use crate::format::PartName;
use crate::store::Part;
use crate::store::remote::{Counters, Diagnosis, RemoteOptions};
use std::convert::Infallible;
use std::sync::Arc;

/// No store can be reached.
pub(crate) struct Objects;

/// No object exists.
#[derive(Debug, Clone)]
pub(crate) struct Place(Infallible);

/// No file lies beside an object.
pub(crate) struct Neighbours(Infallible);

impl Objects {
    pub(crate) fn new(_: &RemoteOptions) -> Self {
        Self
    }

    pub(crate) fn counters(&self) -> Option<Arc<Counters>> {
        None
    }

    pub(crate) fn diagnose(&self, url: &str) -> Result<Diagnosis, Failure> {
        Err(without_remote(url))
    }

    pub(crate) fn expand(&self, texts: &[String], _: &str) -> Result<Vec<Place>, Failure> {
        Err(without_remote(texts.first().map_or("", String::as_str)))
    }

    pub(crate) fn open(&self, place: Place, _: bool) -> Result<(Part, Neighbours), Failure> {
        match place.0 {}
    }
}

fn without_remote(url: &str) -> Failure {
    let why = "this program was built without its feature `remote`, which reads URLs";
    Failure::usage(format!("{url}: {why}"))
}

impl Neighbours {
    pub(crate) fn may_have_sidecar(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn sidecar(&self) -> Result<Option<(PartName, Vec<u8>)>, Failure> {
        match self.0 {}
    }

    pub(crate) fn index(&self) -> Result<Option<(PartName, Vec<u8>)>, Failure> {
        match self.0 {}
    }
}
