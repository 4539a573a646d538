//! Roles of AWS that are assumed with other credentials, or with a token that another service has issued.

use super::aws_answer;
use super::profile::Section;
use super::provider::{Provider, Source, check_aws, inner};
use super::renewed::Issued;
use super::token_service::{FORM, TokenService, form, refused, request};
use crate::store::remote::clients::request::signed;
use crate::store::remote::{Location, RemoteOptions, StoreError};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::Method;
use reqwest::header::HeaderValue;

/// Optional parameters of a request, and the settings that they come from.
const OPTIONAL: [(&str, &str); 2] =
    [("DurationSeconds", "duration_seconds"), ("ExternalId", "external_id")];

/// The proof that entitles to a role.
pub(super) enum Proof {
    Credentials(Provider<AwsCredential>),
    /// A file with a token, which is read for each request.
    Token(String),
}

/// A role, and how it is assumed.
pub(super) struct Role {
    service: TokenService,
    location: Location,
    proof: Proof,
    /// The URL of the security token service, and its region.
    endpoint: (String, String),
    /// The parameters of the request.
    parameters: Vec<(&'static str, String)>,
    /// The name of the role in messages.
    name: String,
}

impl Role {
    /// The role that these settings of a profile describe; `user` is that profile, in words.
    pub(super) fn new(
        (location, options): (&Location, &RemoteOptions),
        proof: Proof,
        endpoint: (String, String),
        (user, settings): (&str, &Section),
    ) -> Result<Self, StoreError> {
        let own = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
        let arn = own("role_arn").unwrap_or_default();
        let (action, others) = match proof {
            Proof::Credentials(_) => ("AssumeRole", &OPTIONAL[..]),
            Proof::Token(_) => ("AssumeRoleWithWebIdentity", &OPTIONAL[..1]),
        };
        let mut parameters = vec![
            ("Action", action.to_owned()),
            ("Version", "2011-06-15".to_owned()),
            ("RoleArn", arn.clone()),
            ("RoleSessionName", own("role_session_name").unwrap_or_else(|| "ffrfs".to_owned())),
        ];
        parameters.extend(others.iter().filter_map(|(to, from)| Some((*to, own(from)?))));
        Ok(Self {
            service: TokenService::new(location, options)?,
            location: location.clone(),
            proof,
            endpoint,
            parameters,
            name: format!("the role {arn} of {user}"),
        })
    }
}

impl Source for Role {
    type Credential = AwsCredential;

    async fn issue(&self) -> Result<Issued<AwsCredential>, StoreError> {
        let denied = |why: String| refused(&self.name, why);
        let (url, region) = &self.endpoint;
        let mut pairs: Vec<_> = self.parameters.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let request = match &self.proof {
            Proof::Token(path) => {
                let token = std::fs::read_to_string(path);
                let token = token.map_err(|e| denied(format!("its token in {path}: {e}")))?;
                pairs.push(("WebIdentityToken", token.trim()));
                request(&self.name, (Method::POST, url), &[FORM], form(&pairs))?
            }
            Proof::Credentials(source) => {
                let source = source.get_credential().await;
                let source = source.map_err(|e| denied(format!("its source: {}", inner(&e))))?;
                check_aws(&self.location, &source)?;
                let mut request = HttpRequest::new(HttpRequestBody::from(form(&pairs)));
                *request.method_mut() = Method::POST;
                *request.uri_mut() =
                    url.parse().map_err(|_| denied(format!("`{url}` is no URL of a service")))?;
                request.headers_mut().insert(FORM.0, HeaderValue::from_static(FORM.1));
                AwsAuthorizer::new(&source, "sts", region)
                    .try_authorize(&mut request, None)
                    .map_err(|e| denied(e.to_string()))?;
                signed(&self.location, request)?
            }
        };
        let answer = self.service.ask(&self.name, &request).await?;
        aws_answer::of_xml(&answer)
            .ok_or_else(|| denied(format!("{url} gives no credentials: is this an STS?")))
    }
}
