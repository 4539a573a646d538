//! Identities of Google Cloud that a JSON file describes: users, workloads of other clouds and clusters, and service
//! accounts that any of these act as.

use super::provider::{Provider, Source, inner, provider_of};
use super::renewed::Issued;
use super::token_service::{FORM, TokenService, form, refused, request};
use crate::store::remote::clients::answer::parse_timestamp;
use crate::store::remote::{Location, RemoteOptions, StoreError};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object_store::gcp::GcpCredential;
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const JSON: (HeaderName, &str) = (CONTENT_TYPE, "application/json");

/// A provider for the identity in `key`; `None` for the key of a service account, which is of another kind.
/// `of_account` makes the provider for such a key, where it acts as another account.
pub(in crate::store::remote::clients) fn provider(
    location: &Location,
    options: &RemoteOptions,
    key: &Value,
    of_account: &dyn Fn(&Value) -> Result<Provider<GcpCredential>, StoreError>,
) -> Result<Option<Provider<GcpCredential>>, StoreError> {
    let service = || TokenService::new(location, options);
    let acting = |source, url| Ok::<_, StoreError>(acting(service()?, source, key, url));
    match text(key, "type") {
        Some("authorized_user") => {
            Ok(Some(provider_of(User { service: service()?, key: key.clone() })))
        }
        Some("external_account") => {
            let federated = Federated::new(service()?, key)?;
            let account = text(key, "service_account_impersonation_url");
            let federated = provider_of(federated);
            Ok(Some(match account {
                Some(url) => acting(federated, url)?,
                None => federated,
            }))
        }
        Some("impersonated_service_account") => {
            let source = key.get("source_credentials").unwrap_or(&Value::Null);
            if text(source, "type") == Some("impersonated_service_account") {
                return Err(refused(
                    "source_credentials",
                    "they must not act as an account themselves",
                ));
            }
            let url = needed(key, "service_account_impersonation_url")?;
            let source = match provider(location, options, source, of_account)? {
                Some(source) => source,
                None => of_account(source)?,
            };
            Ok(Some(acting(source, url)?))
        }
        _ => Ok(None),
    }
}

/// The file with a token and the URLs of services that such a file names.
pub(in crate::store::remote::clients) fn names(key: &Value) -> (Option<PathBuf>, Vec<String>) {
    let source = key.get("source_credentials").unwrap_or(key);
    let at = |place: &str| source.pointer(place).and_then(Value::as_str);
    let urls = [
        "/token_url",
        "/token_uri",
        "/credential_source/url",
        "/service_account_impersonation_url",
    ];
    let urls = urls.iter().filter_map(|place| at(place));
    let urls = urls.chain(text(key, "service_account_impersonation_url"));
    (at("/credential_source/file").map(PathBuf::from), urls.map(str::to_owned).collect())
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

fn needed<'a>(value: &'a Value, name: &str) -> Result<&'a str, StoreError> {
    text(value, name).ok_or_else(|| refused("the credentials file", format!("`{name}` is missing")))
}

/// The token in a response, and when it expires.
fn token_of(name: &str, answer: &str) -> Result<Issued<GcpCredential>, StoreError> {
    let wrong = || refused(name, "the response has no access token");
    let answer: Value = serde_json::from_str(answer).map_err(|_| wrong())?;
    let bearer = text(&answer, "access_token").or_else(|| text(&answer, "accessToken"));
    let bearer = bearer.ok_or_else(wrong)?.to_owned();
    let life = answer.get("expires_in").and_then(|seconds| {
        let seconds = seconds.as_u64().or_else(|| seconds.as_str()?.parse().ok())?;
        SystemTime::now().checked_add(Duration::from_secs(seconds))
    });
    let expires = life.or_else(|| parse_timestamp(text(&answer, "expireTime")?));
    Ok(Issued { credential: GcpCredential { bearer }, expires })
}

/// A user who has logged in with `gcloud auth application-default login`.
struct User {
    service: TokenService,
    key: Value,
}

impl Source for User {
    type Credential = GcpCredential;

    async fn issue(&self) -> Result<Issued<GcpCredential>, StoreError> {
        let name = "the token service of Google";
        let url = text(&self.key, "token_uri").unwrap_or("https://oauth2.googleapis.com/token");
        let body = form(&[
            ("grant_type", "refresh_token"),
            ("client_id", needed(&self.key, "client_id")?),
            ("client_secret", needed(&self.key, "client_secret")?),
            ("refresh_token", needed(&self.key, "refresh_token")?),
        ]);
        let request = request(name, (Method::POST, url), &[FORM], body)?;
        token_of(name, &self.service.ask(name, &request).await?)
    }
}

/// A workload of another cloud or cluster, by workload identity federation.
struct Federated {
    service: TokenService,
    key: Value,
}

impl Federated {
    fn new(service: TokenService, key: &Value) -> Result<Self, StoreError> {
        let source = key.get("credential_source").unwrap_or(&Value::Null);
        if text(source, "file").is_none() && text(source, "url").is_none()
            || text(source, "environment_id").is_some()
        {
            let why = "only tokens from a file or a URL can be used (`credential_source` with `file` or `url`), not \
                       those of a program, a certificate or AWS";
            return Err(refused("external_account", why));
        }
        for name in ["audience", "subject_token_type", "token_url"] {
            needed(key, name)?;
        }
        Ok(Self { service, key: key.clone() })
    }

    /// The token that proves the workload's identity, read for each request.
    async fn subject(&self) -> Result<String, StoreError> {
        let source = self.key.get("credential_source").unwrap_or(&Value::Null);
        let (name, found) = if let Some(path) = text(source, "file") {
            let found = std::fs::read_to_string(path);
            let found = found.map_err(|e| refused("credential_source", format!("{path}: {e}")))?;
            (path, found)
        } else {
            let url = needed(source, "url")?;
            let headers = source.get("headers").and_then(Value::as_object);
            let header = |(name, value): (&String, &Value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                Some((name, value.as_str()?.to_owned()))
            };
            let headers: Vec<_> = headers.into_iter().flatten().filter_map(header).collect();
            let headers: Vec<_> = headers.iter().map(|(n, v)| (n.clone(), v.as_str())).collect();
            let request = request(url, (Method::GET, url), &headers, String::new())?;
            (url, self.service.ask(url, &request).await?)
        };
        let format = source.get("format").unwrap_or(&Value::Null);
        if text(format, "type") != Some("json") {
            return Ok(found.trim().to_owned());
        }
        let field = needed(format, "subject_token_field_name")?;
        let found: Option<Value> = serde_json::from_str(&found).ok();
        let token = found.as_ref().and_then(|found| text(found, field));
        token
            .map(str::to_owned)
            .ok_or_else(|| refused(name, format!("this is not JSON with `{field}`")))
    }
}

impl Source for Federated {
    type Credential = GcpCredential;

    async fn issue(&self) -> Result<Issued<GcpCredential>, StoreError> {
        let name = "the token exchange of Google";
        let key = &self.key;
        let subject = self.subject().await?;
        let project = text(key, "workforce_pool_user_project");
        let project = project.map(|id| json!({ "userProject": id }).to_string());
        let mut pairs = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("audience", needed(key, "audience")?),
            ("scope", SCOPE),
            ("subject_token_type", needed(key, "subject_token_type")?),
            ("subject_token", &subject),
        ];
        let client = text(key, "client_id").map(|id| {
            let pair = format!("{id}:{}", text(key, "client_secret").unwrap_or_default());
            format!("Basic {}", BASE64_STANDARD.encode(pair))
        });
        let mut headers = vec![FORM];
        match (&client, &project) {
            (Some(client), _) => headers.push((AUTHORIZATION, client)),
            (None, Some(project)) => pairs.push(("options", project)),
            (None, None) => {}
        }
        let url = needed(key, "token_url")?;
        let request = request(name, (Method::POST, url), &headers, form(&pairs))?;
        token_of(name, &self.service.ask(name, &request).await?)
    }
}

/// A service account that another identity acts as.
struct Acting {
    service: TokenService,
    source: Provider<GcpCredential>,
    url: String,
    body: String,
}

fn acting(
    service: TokenService,
    source: Provider<GcpCredential>,
    key: &Value,
    url: &str,
) -> Provider<GcpCredential> {
    let seconds = key.pointer("/service_account_impersonation/token_lifetime_seconds");
    let seconds = seconds.and_then(Value::as_u64).unwrap_or(3600);
    let mut body = json!({ "scope": [SCOPE], "lifetime": format!("{seconds}s") });
    if let Some(delegates) = key.get("delegates").filter(|delegates| delegates.is_array()) {
        body["delegates"] = delegates.clone();
    }
    let (url, body) = (url.to_owned(), body.to_string());
    provider_of(Acting { service, source, url, body })
}

impl Source for Acting {
    type Credential = GcpCredential;

    async fn issue(&self) -> Result<Issued<GcpCredential>, StoreError> {
        let name = "the service account that is to be used";
        let source = self.source.get_credential().await.map_err(|e| refused(name, inner(&e)))?;
        let bearer = format!("Bearer {}", source.bearer);
        let headers = [JSON, (AUTHORIZATION, &*bearer)];
        let request = request(name, (Method::POST, &self.url), &headers, self.body.clone())?;
        token_of(name, &self.service.ask(name, &request).await?)
    }
}
