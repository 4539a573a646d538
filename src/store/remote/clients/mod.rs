//! Clients that speak HTTP: S3, plain servers. `object_store` gives credentials and signatures; requests,
//! answers and their checks are here, so that one set of rules holds for all.

mod answer;
mod aws;
#[allow(dead_code)]
mod environment;
mod http;
mod listing;
mod redirect;
mod s3;
mod web;

pub(super) use environment::Environment;
pub(super) use http::Http;
pub(super) use s3::S3;
