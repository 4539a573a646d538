//! Providers of AWS credentials: profiles, roles, and the sources that the environment of the process names.

use super::container::Container;
use super::environment::Environment;
use super::profile::{Profile, Section};
use super::provider::{Provider, provider_of};
use super::role::{Proof, Role};
use super::token_service::refused;
use crate::store::remote::clients::web::{Connector, chain, credential_retry};
use crate::store::remote::{ErrorKind, Location, RemoteOptions, StoreError};
use object_store::aws::{AmazonS3Builder, AwsCredential};
use std::path::PathBuf;
use std::sync::Arc;

/// A provider, and where its credentials come from, in words.
pub(super) type Found = (Provider<AwsCredential>, String);

/// Variables that select a source of credentials.
const SELECTORS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// The context in which providers are found.
pub(super) struct Finder<'a> {
    pub(super) location: &'a Location,
    /// How services are reached.
    pub(super) web: &'a RemoteOptions,
    pub(super) environment: &'a Environment,
    /// The file with credentials, in place of the usual one.
    pub(super) file: Option<PathBuf>,
    /// The region of the security token service.
    pub(super) region: &'a str,
}

impl Finder<'_> {
    /// The profile of this name.
    pub(super) fn profile(&self, name: &str) -> Profile {
        Profile::new(name, self.file.clone(), self.environment)
    }

    /// The credentials of a profile. `users`: the profiles that assume their roles with it.
    pub(super) fn of_profile(&self, name: &str, users: &[&str]) -> Result<Found, StoreError> {
        let profile = self.profile(name);
        let said = profile.settings()?;
        let setting = |name: &str| said.get(name).filter(|value| !value.is_empty()).cloned();
        let denied = |why: String| refused(&format!("profile {name}"), why);
        let Some(arn) = setting("role_arn") else {
            let origin = format!("profile {name} in {}", profile.files());
            return Ok((Arc::new(profile), origin));
        };
        if let Some(file) = setting("web_identity_token_file") {
            let origin = format!("web identity in {file}, by the profile {name}");
            let proof = Proof::Token(file);
            return Ok((self.role(proof, (&format!("the profile {name}"), &said))?, origin));
        }
        if setting("mfa_serial").is_some() {
            return Err(denied(format!(
                "a role that asks for a code cannot be assumed here: use a profile with the line `credential_process = \
                 aws configure export-credentials --profile {name} --format process`"
            )));
        }
        let (source, source_name): Found =
            match (setting("source_profile"), setting("credential_source")) {
                (Some(source), _) if source == name => (Arc::new(profile), "its keys".to_owned()),
                (Some(source), _) if users.contains(&&*source) => {
                    return Err(denied(format!(
                        "source_profile = {source} makes a circle of profiles"
                    )));
                }
                (Some(source), _) => self.of_profile(&source, &[users, &[name]].concat())?,
                (None, Some(source)) => self.of_source(name, &source)?,
                (None, None) => {
                    let why = "role_arn needs source_profile or credential_source";
                    return Err(denied(why.to_owned()));
                }
            };
        let user = format!("the profile {name}");
        let role = self.role(Proof::Credentials(source), (&user, &said))?;
        Ok((role, format!("role {arn} of the profile {name}, by {source_name}")))
    }

    /// The provider that a role's `credential_source` names.
    fn of_source(&self, profile: &str, source: &str) -> Result<Found, StoreError> {
        let mut environment = self.environment.clone();
        let kept: &[&str] = match source {
            "Environment" => &SELECTORS[..2],
            "EcsContainer" => &SELECTORS[3..],
            "Ec2InstanceMetadata" => &[],
            _ => {
                let why = format!(
                    "credential_source = {source} is unknown: use Environment, EcsContainer or Ec2InstanceMetadata"
                );
                return Err(refused(&format!("profile {profile}"), why));
            }
        };
        for name in SELECTORS.iter().filter(|name| !kept.contains(name)) {
            environment.unset(name);
        }
        if !kept.is_empty() && environment.first(kept).is_none() {
            let why = format!("credential_source = {source}, but {} is not set", kept.join(" or "));
            return Err(refused(&format!("profile {profile}"), why));
        }
        Finder { environment: &environment, file: None, ..*self }.of_environment(&Section::new())
    }

    /// The role that these settings of `user` describe.
    fn role(
        &self,
        proof: Proof,
        (user, said): (&str, &Section),
    ) -> Result<Provider<AwsCredential>, StoreError> {
        let endpoint = (self.sts(said), self.region.to_owned());
        let role = Role::new((self.location, self.web), proof, endpoint, (user, said))?;
        Ok(provider_of(role))
    }

    /// Credentials from keys in the environment, web identity, ECS, EKS, or the metadata service of the machine. The
    /// profile in use may name the security token service.
    pub(super) fn of_environment(&self, said: &Section) -> Result<Found, StoreError> {
        let set = |name| self.environment.first(&[name]);
        let identity = (set("AWS_WEB_IDENTITY_TOKEN_FILE"), set("AWS_ROLE_ARN"));
        if set("AWS_ACCESS_KEY_ID").or(set("AWS_SECRET_ACCESS_KEY")).is_some() {
            return Ok((
                self.of_object_store()?,
                "AWS_ACCESS_KEY_ID in the environment".to_owned(),
            ));
        }
        if let (Some(file), Some(arn)) = identity {
            let mut settings = said.clone();
            settings.insert("role_arn".to_owned(), arn.to_owned());
            let session = set("AWS_ROLE_SESSION_NAME").unwrap_or_default();
            settings.insert("role_session_name".to_owned(), session.to_owned());
            let role = self.role(Proof::Token(file.to_owned()), ("AWS_ROLE_ARN", &settings))?;
            return Ok((role, "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)".to_owned()));
        }
        if let Some(container) = Container::new(self.location, self.web, self.environment)? {
            return Ok((provider_of(container), Container::origin(self.environment).to_owned()));
        }
        if set("AWS_EC2_METADATA_DISABLED") == Some("true") {
            return Err(refused(&self.location.to_string(), NONE));
        }
        Ok((self.of_object_store()?, "the metadata service of this machine (IMDS)".to_owned()))
    }

    /// Keys in the environment, or else the metadata service.
    fn of_object_store(&self) -> Result<Provider<AwsCredential>, StoreError> {
        let mut environment = self.environment.clone();
        for name in &SELECTORS[2..] {
            environment.unset(name);
        }
        let metadata = environment.first(&["AWS_EC2_METADATA_SERVICE_ENDPOINT"]);
        let is_6 = environment.first(&["AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"]);
        let is_6 = is_6.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
        let metadata = metadata.or(is_6.then_some("http://[fd00:ec2::254]")).map(str::to_owned);
        if let Some(metadata) = metadata {
            environment.set("AWS_METADATA_ENDPOINT", metadata.trim_end_matches('/'));
        }
        let mut builder = AmazonS3Builder::new();
        for (name, value) in environment.starting_with("AWS_") {
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        let builder = builder
            .with_region(self.region)
            .with_bucket_name(&self.location.authority)
            .with_retry(credential_retry())
            .with_http_connector(Connector::new(self.web)?);
        let store = builder.build().map_err(|e| {
            StoreError::new(self.location.to_string(), ErrorKind::Refused, chain(&e))
        })?;
        Ok(Arc::clone(store.credentials()))
    }

    /// The URL of the security token service.
    fn sts(&self, said: &Section) -> String {
        let given = self.environment.first(&["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"]);
        let given = given.or_else(|| said.get("endpoint_url").map(String::as_str));
        let given = given.map(|url| format!("{}/", url.trim_end_matches('/')));
        given.unwrap_or_else(|| {
            let china = if self.region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://sts.{}.amazonaws.com{china}/", self.region)
        })
    }
}

/// The message if there are no credentials.
const NONE: &str = "no credentials in the environment or in ~/.aws, and AWS_EC2_METADATA_DISABLED forbids to ask the \
                    metadata service. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (option \
                    `profile`), or give the option `anonymous` for a public bucket";
