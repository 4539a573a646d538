//! Finds credentials, regions and endpoints of S3 where the programs of AWS do.

use super::credentials::{Credentials, Provider};
use super::environment::Environment;
use super::profile::{Profile, Section};
use super::web::{Connector, chain, credential_retry};
use crate::store::remote::{ErrorKind, Location, RemoteOptions, StoreError};
use object_store::aws::{AmazonS3Builder, AwsCredential};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Advice for users without credentials.
const ADVICE: &str = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (option `profile`), or give the \
                      option `anonymous` for a public bucket";

/// The connection settings of a bucket.
pub(super) struct Settings {
    /// A server other than AWS.
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    /// Whether the bucket is in the URL's path instead of the host name.
    pub(super) path_style: bool,
    pub(super) requester_pays: bool,
    /// `None` for unsigned requests.
    pub(super) credentials: Option<Credentials<AwsCredential>>,
    /// The options, completed with the connection settings of the environment.
    pub(super) web: RemoteOptions,
}

/// What the files of AWS say of the profile in use; empty if they say nothing, or cannot be read.
pub(in crate::store::remote) fn profile_of(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> BTreeMap<String, String> {
    let file = environment.credentials(location, options);
    let profile = Profile::new(name_of_profile(options, environment).1, file, environment);
    if options.anonymous { Section::new() } else { profile.settings().unwrap_or_default() }
}

/// The name of the profile that the user has chosen, and of the one that is used.
fn name_of_profile<'a>(
    options: &'a RemoteOptions,
    environment: &'a Environment,
) -> (Option<&'a str>, &'a str) {
    let name = options.profile.as_deref().or_else(|| environment.first(&["AWS_PROFILE"]));
    (name, name.unwrap_or("default"))
}

/// The settings from the options, the environment and the files of AWS, in this order.
pub(super) fn settings(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> Result<Settings, StoreError> {
    let file = environment.credentials(location, options);
    // The user has named the profile; it is not just the default one.
    let is_explicit = options.profile.is_some() || file.is_some();
    let (name, shown) = name_of_profile(options, environment);
    let profile = Profile::new(shown, file, environment);
    let said = if options.anonymous { Section::new() } else { profile.settings()? };
    let of_profile = |name: &str| said.get(name).map(String::as_str).filter(|v| !v.is_empty());

    let endpoint = options.endpoint.as_deref();
    let endpoint =
        endpoint.or_else(|| environment.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
    let endpoint = endpoint.or_else(|| of_profile("endpoint_url")).map(str::to_owned);
    let region = options.region.as_deref();
    let region = region.or_else(|| environment.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
    let region = region.or_else(|| of_profile("region")).unwrap_or("us-east-1").to_owned();
    // A certificate for *.s3.amazonaws.com does not cover a bucket's name with a dot.
    let path_style = endpoint.is_some() || location.authority.contains('.');
    let mut web = options.clone();
    let ca = environment.first(&["AWS_CA_BUNDLE"]).or_else(|| of_profile("ca_bundle"));
    web.ca = web.ca.or_else(|| ca.map(Into::into));

    let mut environment = environment.clone();
    let has_keys =
        environment.first(&["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"]).is_some();
    let counts = is_explicit || !has_keys;
    let identity = (of_profile("web_identity_token_file"), of_profile("role_arn"));
    let found: Option<(Provider<AwsCredential>, String)> = match identity {
        _ if options.anonymous => None,
        (Some(file), Some(role)) if counts => {
            environment.set("AWS_WEB_IDENTITY_TOKEN_FILE", file);
            environment.set("AWS_ROLE_ARN", role);
            for key in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
                environment.unset(key);
            }
            let origin = format!("web identity in {file}, by the profile {shown}");
            Some((of_environment(location, &web, (&environment, &region))?, origin))
        }
        _ if is_explicit || (counts && (name.is_some() || gives_credentials(&said))) => {
            let origin = format!("profile {shown} in {}", profile.files());
            Some((Arc::new(profile), origin))
        }
        _ => {
            let origin = origin_of_environment(&environment).to_owned();
            Some((of_environment(location, &web, (&environment, &region))?, origin))
        }
    };
    let payer = environment.first(&["AWS_REQUEST_PAYER"]);
    Ok(Settings {
        endpoint,
        region,
        path_style: options.path_style.unwrap_or(path_style),
        requester_pays: payer.is_some_and(|payer| payer == "requester" || payer == "true"),
        credentials: found.map(|(provider, origin)| Credentials::new(provider, origin, ADVICE)),
        web,
    })
}

/// Whether a profile is meant to provide credentials, not only a region.
fn gives_credentials(profile: &Section) -> bool {
    let is_one = |name: &String| {
        name.starts_with("sso_")
            || ["aws_access_key_id", "credential_process", "role_arn"].contains(&name.as_str())
    };
    profile.keys().any(is_one)
}

/// The source of [`of_environment`] that `object_store` uses.
fn origin_of_environment(environment: &Environment) -> &'static str {
    let is_set = |name| environment.first(&[name]).is_some();
    if is_set("AWS_ACCESS_KEY_ID") && is_set("AWS_SECRET_ACCESS_KEY") {
        "AWS_ACCESS_KEY_ID in the environment"
    } else if is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ROLE_ARN") {
        "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)"
    } else if is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        "the role of the ECS task"
    } else if is_set("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        "the identity of the EKS pod"
    } else {
        "the metadata service of this machine (IMDS)"
    }
}

/// Credentials from keys in the environment, web identity, ECS, EKS, or the metadata service of the machine.
fn of_environment(
    location: &Location,
    options: &RemoteOptions,
    (environment, region): (&Environment, &str),
) -> Result<Provider<AwsCredential>, StoreError> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in environment.starting_with("AWS_") {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    let builder = builder
        .with_region(region)
        .with_bucket_name(&location.authority)
        .with_retry(credential_retry())
        .with_http_connector(Connector::new(options)?);
    let store = builder
        .build()
        .map_err(|e| StoreError::new(location.to_string(), ErrorKind::Refused, chain(&e)))?;
    Ok(Arc::clone(store.credentials()))
}
