//! Credentials, regions and endpoints of S3, where the programs of AWS find them.

use super::environment::Environment;
use super::web::{Connector, chain};
use crate::store::remote::{ErrorKind, Location, RemoteOptions, StoreError};
use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AwsCredential};
use object_store::client::CredentialProvider;
use std::sync::Arc;
use std::time::Duration;

/// How a bucket is reached.
pub(super) struct Settings {
    /// Another server than that of AWS.
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    /// Whether the bucket stands in the path, not in the host name.
    pub(super) path_style: bool,
    pub(super) requester_pays: bool,
    /// `None`: requests are not signed.
    pub(super) credentials: Option<Arc<dyn CredentialProvider<Credential = AwsCredential>>>,
    /// The options, with what the environment says of connections.
    pub(super) web: RemoteOptions,
}

/// What the options, the environment and the files of AWS say.
pub(super) fn settings(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> Result<Settings, StoreError> {
    let endpoint = options.endpoint.as_deref();
    let endpoint =
        endpoint.or_else(|| environment.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
    let endpoint = endpoint.map(str::to_owned);
    let region = options.region.as_deref();
    let region = region.or_else(|| environment.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
    let region = region.unwrap_or("us-east-1").to_owned();
    // A certificate for *.s3.amazonaws.com does not fit two names.
    let path_style = endpoint.is_some() || location.authority.contains('.');
    let mut web = options.clone();
    web.ca = web.ca.or_else(|| environment.first(&["AWS_CA_BUNDLE"]).map(Into::into));
    let credentials = match options.anonymous {
        true => None,
        false => Some(of_environment(location, &web, (environment, &region))?),
    };
    let payer = environment.first(&["AWS_REQUEST_PAYER"]);
    Ok(Settings {
        endpoint,
        region,
        path_style: options.path_style.unwrap_or(path_style),
        requester_pays: payer.is_some_and(|payer| payer == "requester" || payer == "true"),
        credentials,
        web,
    })
}

/// Keys of the environment, web identity, ECS, EKS, or the metadata service of the machine.
fn of_environment(
    location: &Location,
    options: &RemoteOptions,
    (environment, region): (&Environment, &str),
) -> Result<Arc<dyn CredentialProvider<Credential = AwsCredential>>, StoreError> {
    let retry = RetryConfig {
        max_retries: 2,
        retry_timeout: Duration::from_secs(5),
        ..RetryConfig::default()
    };
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment.starting_with("AWS_") {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    let builder = builder
        .with_region(region)
        .with_bucket_name(&location.authority)
        .with_retry(retry)
        .with_http_connector(Connector::new(options)?);
    let store = builder
        .build()
        .map_err(|e| StoreError::new(location.to_string(), ErrorKind::Refused, chain(&e)))?;
    Ok(Arc::clone(store.credentials()))
}

/// Credentials that do not come.
pub(super) fn missing(location: &Location, error: &object_store::Error) -> StoreError {
    let why = format!(
        "no AWS credentials: {}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (option `profile`), or \
         give the option `anonymous` for a public bucket",
        chain(error)
    );
    StoreError::new(location.to_string(), ErrorKind::Denied, why)
}
