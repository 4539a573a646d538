//! Finds credentials, regions and endpoints of S3 where the programs of AWS do.

use super::aws_providers::{Finder, Found};
use super::environment::Environment;
use super::profile::{Profile, Section};
use super::provider::Credentials;
use crate::store::remote::{Location, RemoteOptions, StoreError};
use object_store::aws::AwsCredential;

/// Advice for users without credentials.
const ADVICE: &str = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (option `profile`), or give the \
                      option `anonymous` for a public bucket";

/// The connection settings of a bucket.
pub(in crate::store::remote::clients) struct Settings {
    /// A server other than AWS.
    pub(in crate::store::remote::clients) endpoint: Option<String>,
    pub(in crate::store::remote::clients) region: String,
    /// Whether the bucket is in the URL's path instead of the host name.
    pub(in crate::store::remote::clients) path_style: bool,
    pub(in crate::store::remote::clients) requester_pays: bool,
    /// `None` for unsigned requests.
    pub(in crate::store::remote::clients) credentials: Option<Credentials<AwsCredential>>,
    /// The options, completed with the connection settings of the environment.
    pub(in crate::store::remote::clients) web: RemoteOptions,
}

/// The sections in the files of AWS for the profile in use, for the profile that its role is assumed with, and so on. Empty
/// ones if the files cannot be read.
pub(in crate::store::remote) fn profiles_of(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> Vec<Section> {
    let file = environment.credentials(location, options);
    let mut name = name_of_profile(options, environment).1.to_owned();
    let mut found = Vec::new();
    // A circle of profiles has an end here, too.
    while !options.anonymous && found.len() < 10 {
        let profile = Profile::new(&name, file.clone(), environment);
        let said = profile.settings().unwrap_or_default();
        let source = said.get("source_profile").cloned();
        found.push(said);
        match source {
            Some(source) => name = source,
            None => break,
        }
    }
    found
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
pub(in crate::store::remote::clients) fn settings(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> Result<Settings, StoreError> {
    let file = environment.credentials(location, options);
    // The user has named the profile; it is not just the default one.
    let is_explicit = options.profile.is_some() || file.is_some();
    let (name, shown) = name_of_profile(options, environment);
    let profile = Profile::new(shown, file.clone(), environment);
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

    let has_keys =
        environment.first(&["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"]).is_some();
    let finder = Finder { location, web: &web, environment, file, region: &region };
    let found: Option<Found> =
        match is_explicit || (!has_keys && (name.is_some() || gives_credentials(&said))) {
            _ if options.anonymous => None,
            true => Some(finder.of_profile(shown, &[])?),
            false => Some(finder.of_environment(&said)?),
        };
    let payer = environment.first(&["AWS_REQUEST_PAYER"]);
    Ok(Settings {
        endpoint,
        path_style: options.path_style.unwrap_or(path_style),
        requester_pays: payer.is_some_and(|payer| payer == "requester" || payer == "true"),
        credentials: found.map(|(provider, origin)| Credentials::new(provider, origin, ADVICE)),
        region,
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
