//! Clients that speak HTTP: S3, GCS, Azure, the Hugging Face Hub, plain servers. `object_store` finds credentials and
//! signs requests; requests, responses and their checks are here, so that one set of rules holds for all clients.

mod answer;
mod aws;
mod aws_answer;
mod aws_providers;
mod azure;
mod container;
#[cfg(test)]
mod credential_tests;
mod credentials;
mod environment;
mod gcs;
mod gcs_identity;
mod http;
mod http_secrets;
mod hugging_face;
mod listing;
mod profile;
mod program;
mod redirect;
mod renewed;
mod request;
mod role;
mod s3;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
mod token_service;
mod web;
mod web_store;

pub(super) use aws::profiles_of;
pub(super) use azure::{Azure, environment_of as azure_environment};
pub(super) use environment::Environment;
pub(super) use gcs::{Gcs, names_of_identity as identity_of_google};
pub(super) use http::Http;
pub(super) use hugging_face::HuggingFace;
pub(super) use program::{
    run_outside as programs_run_outside, start_outside as start_programs_outside,
};
pub(super) use s3::S3;
