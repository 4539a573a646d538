//! Roles of AWS that are assumed with other credentials.

use super::aws_answer;
use super::credentials::{Provider, Source, inner};
use super::profile::Section;
use super::renewed::Issued;
use super::request::signed;
use super::token_service::{FORM, TokenService, form, refused};
use crate::store::remote::{Location, RemoteOptions, StoreError};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::Method;
use reqwest::header::HeaderValue;

/// A role, and how it is assumed.
pub(super) struct Role {
    service: TokenService,
    location: Location,
    /// The credentials that assume the role.
    source: Provider<AwsCredential>,
    /// The URL of the security token service, and its region.
    endpoint: (String, String),
    /// The parameters of the request.
    parameters: Vec<(&'static str, String)>,
    /// For messages.
    name: String,
}

impl Role {
    /// The role that these settings of the profile `name` describe.
    pub(super) fn new(
        (location, options): (&Location, &RemoteOptions),
        source: Provider<AwsCredential>,
        endpoint: (String, String),
        (name, settings): (&str, &Section),
    ) -> Result<Self, StoreError> {
        let own = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
        let arn = own("role_arn").unwrap_or_default();
        let mut parameters = vec![
            ("Action", "AssumeRole".to_owned()),
            ("Version", "2011-06-15".to_owned()),
            ("RoleArn", arn.clone()),
            ("RoleSessionName", own("role_session_name").unwrap_or_else(|| "ffrfs".to_owned())),
        ];
        let others = [("DurationSeconds", "duration_seconds"), ("ExternalId", "external_id")];
        parameters.extend(others.iter().filter_map(|(to, from)| Some((*to, own(from)?))));
        Ok(Self {
            service: TokenService::new(location, options)?,
            location: location.clone(),
            source,
            endpoint,
            parameters,
            name: format!("the role {arn} of the profile {name}"),
        })
    }
}

impl Source for Role {
    type Credential = AwsCredential;

    async fn issue(&self) -> Result<Issued<AwsCredential>, StoreError> {
        let denied = |why: String| refused(&self.name, why);
        let source = self.source.get_credential().await;
        let source = source.map_err(|e| denied(format!("its source: {}", inner(&e))))?;
        let (url, region) = &self.endpoint;
        let pairs: Vec<_> = self.parameters.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let mut request = HttpRequest::new(HttpRequestBody::from(form(&pairs)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() =
            url.parse().map_err(|_| denied(format!("`{url}` is no URL of a service")))?;
        request.headers_mut().insert(FORM.0, HeaderValue::from_static(FORM.1));
        super::s3::check_credential(&self.location, &source)?;
        AwsAuthorizer::new(&source, "sts", region)
            .try_authorize(&mut request, None)
            .map_err(|e| denied(e.to_string()))?;
        let request = signed(&self.location, request)?;
        let answer = self.service.ask(&self.name, &request).await?;
        aws_answer::of_xml(&answer)
            .ok_or_else(|| denied(format!("{url} gives no credentials: is this an STS?")))
    }
}
