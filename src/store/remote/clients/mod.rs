//! Clients that speak HTTP: S3, GCS, Azure, the Hugging Face Hub, plain servers. `object_store` finds credentials and
//! signs requests; requests, responses and their checks are here, so that one set of rules holds for all clients.

mod answer;
mod aws;
mod azure;
mod credentials;
mod environment;
mod gcs;
mod http;
mod http_secrets;
mod hugging_face;
mod listing;
mod profile;
mod redirect;
mod request;
mod s3;
#[cfg(test)]
mod tests;
mod web;
mod web_store;

pub(super) use aws::profile_of;
pub(super) use azure::Azure;
pub(super) use environment::Environment;
pub(super) use gcs::Gcs;
pub(super) use http::Http;
pub(super) use hugging_face::HuggingFace;
pub(super) use s3::S3;
