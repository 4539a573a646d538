//! The identity of this program at a store: credentials from the environment, profiles, programs and services of clouds, and
//! how they are renewed.

pub(super) mod aws;
mod aws_answer;
mod aws_providers;
mod container;
mod environment;
pub(super) mod gcs_identity;
mod http_secrets;
mod profile;
pub(super) mod program;
mod provider;
mod renewed;
mod role;
#[cfg(test)]
mod tests;
mod token_service;

pub(in crate::store::remote) use environment::Environment;
pub(super) use environment::Watched;
pub(super) use http_secrets::Secrets;
pub(super) use provider::{Credentials, OfFile, Provider, check_aws, missing};
