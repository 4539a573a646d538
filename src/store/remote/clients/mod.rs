//! Clients that speak HTTP: S3, GCS, Azure, the Hugging Face Hub, plain servers. `object_store` finds credentials and
//! signs requests; requests, responses and their checks are here, so that one set of rules holds for all clients.

mod answer;
mod azure;
mod credentials;
mod gcs;
mod http;
mod hugging_face;
mod listing;
mod redirect;
mod request;
mod s3;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
mod web;
mod web_store;

pub(super) use azure::{Azure, environment_of as azure_environment};
pub(super) use credentials::Environment;
pub(super) use credentials::aws::profiles_of;
pub(super) use credentials::program::{
    run_outside as programs_run_outside, start_outside as start_programs_outside,
};
pub(super) use gcs::{Gcs, names_of_identity as identity_of_google};
pub(super) use http::Http;
pub(super) use hugging_face::HuggingFace;
pub(super) use s3::S3;
