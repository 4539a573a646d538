//! Credentials of the task or pod that this process runs in: ECS, EKS, and services that offer the same interface.

use super::aws_answer;
use super::environment::Environment;
use super::provider::Source;
use super::renewed::Issued;
use super::token_service::{TokenService, refused, request};
use crate::store::remote::{Location, RemoteOptions, StoreError};
use object_store::aws::AwsCredential;
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, Url};
use std::net::IpAddr;

/// The service of ECS.
const OF_ECS: &str = "http://169.254.170.2";
/// The addresses that may be asked without TLS beside those of this machine: ECS's and EKS's.
const LINK_LOCAL: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];
const NAME: &str = "the service that gives containers their credentials";

/// The service that gives a container its credentials.
pub(super) struct Container {
    service: TokenService,
    url: String,
    /// The value of `Authorization`.
    token: Option<String>,
    /// A file with that value, which is read for each request.
    token_file: Option<String>,
}

impl Container {
    /// The service that the environment names, if there is one.
    pub(super) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Result<Option<Self>, StoreError> {
        let own = |name: &str| environment.first(&[name]).map(str::to_owned);
        let relative = own("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let relative = relative.map(|path| format!("{OF_ECS}{path}"));
        let Some(url) = relative.or_else(|| own("AWS_CONTAINER_CREDENTIALS_FULL_URI")) else {
            return Ok(None);
        };
        check(&url)?;
        Ok(Some(Self {
            service: TokenService::new(location, options)?,
            url,
            token: own("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
            token_file: own("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        }))
    }

    /// The origin of the credentials, in words.
    pub(super) fn origin(environment: &Environment) -> &'static str {
        match environment.first(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]) {
            Some(_) => "the role of the ECS task",
            None => "the role of the container (AWS_CONTAINER_CREDENTIALS_FULL_URI)",
        }
    }

    fn token(&self) -> Result<Option<String>, StoreError> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        match std::fs::read_to_string(path) {
            Ok(token) => Ok(Some(token.trim().to_owned())),
            Err(error) => {
                let why = format!("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: {path}: {error}");
                Err(refused(NAME, why))
            }
        }
    }
}

/// The token is a secret: without TLS it may go to this machine and to its host only.
fn check(url: &str) -> Result<(), StoreError> {
    let parsed = Url::parse(url).ok();
    let host = parsed.as_ref().and_then(Url::host_str).unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let is_loopback = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    match parsed.as_ref().map(Url::scheme) {
        Some("https") => Ok(()),
        Some("http") if is_loopback || LINK_LOCAL.contains(&host) => Ok(()),
        _ => Err(refused(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            format!(
                "`{url}` cannot be used: it must be https://, or http:// to this machine or to one of {}",
                LINK_LOCAL.join(", ")
            ),
        )),
    }
}

impl Source for Container {
    type Credential = AwsCredential;

    async fn issue(&self) -> Result<Issued<AwsCredential>, StoreError> {
        let token = self.token()?;
        let headers: Vec<_> = token.iter().map(|token| (AUTHORIZATION, token.as_str())).collect();
        let request = request(NAME, (Method::GET, &self.url), &headers, String::new())?;
        let answer = self.service.ask(NAME, &request).await?;
        aws_answer::of_json(answer.as_bytes())
            .ok_or_else(|| refused(NAME, format!("{} gives no credentials", self.url)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_without_tls_to_this_machine_and_its_host_only() {
        for good in [
            "https://host/x",
            "http://127.0.0.1:81/x",
            "http://[::1]/x",
            "http://localhost:1/",
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["http://host/x", "http://127.evil.org/", "ftp://localhost/", "/x", ""] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
