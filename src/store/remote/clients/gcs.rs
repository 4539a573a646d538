//! Google Cloud Storage, by its XML interface, with the credentials of `object_store`.

use super::answer::header;
use super::credentials::gcs_identity;
use super::credentials::{Credentials, OfFile, Provider, missing};
use super::credentials::{Environment, Watched};
use super::listing::{self, Page};
use super::request::{KEY, VALUE, headers_of, range_header, s3_list_query, value};
use super::web::{Connector, Web, checked_body, credential_retry, described};
use super::web_store::WebStore;
use crate::store::remote::{Body, ErrorKind, Location, Object, RemoteOptions, StoreError};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use percent_encoding::utf8_percent_encode;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, RANGE};
use reqwest::{Method, Request, Response, Url};
use serde_json::Value;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Advice for users without credentials.
const ADVICE: &str = "Set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or give the option \
                      `anonymous` for a public bucket";

/// A bucket.
pub(in crate::store::remote) struct Gcs {
    web: Web,
    endpoint: String,
    /// `None` for requests without a token.
    credentials: Option<Credentials<GcpCredential>>,
}

impl Gcs {
    pub(in crate::store::remote) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let emulator = environment.first(&["STORAGE_EMULATOR_HOST"]).map(|host| {
            if host.contains("://") { host.to_owned() } else { format!("http://{host}") }
        });
        let key = key_file(location, options, environment, emulator.is_none());
        let key = key.filter(|_| !options.anonymous).map(|path| Watched::new(path, parse_key));
        let content = key.as_ref().map(|key| key.get()).transpose().map_err(|e| {
            let why = format!("the credentials in {}: {}", e.url, e.message);
            StoreError::new(location.to_string(), ErrorKind::Denied, why)
        })?;
        let of_key = content.as_ref().and_then(|key| key.get("gcs_base_url")?.as_str());
        let endpoint = options.endpoint.clone().or_else(|| emulator.clone());
        let endpoint = endpoint.or_else(|| of_key.map(str::to_owned));
        let endpoint = endpoint.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        let is_anonymous = options.anonymous || (emulator.is_some() && key.is_none());
        let credentials = match is_anonymous {
            true => None,
            false => Some(credentials(location, options, (environment, key))?),
        };
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let web = Web::for_endpoint(&endpoint, options)?;
        Ok(Self { web, endpoint, credentials })
    }

    async fn send(
        &self,
        location: &Location,
        query: &str,
        (method, range): (Method, Option<&Range<u64>>),
    ) -> Result<Response, StoreError> {
        let key = utf8_percent_encode(&location.key, KEY);
        let url = format!("{}/{}/{key}{query}", self.endpoint, location.authority);
        let url = Url::parse(&url).map_err(|e| {
            StoreError::new(location.to_string(), ErrorKind::Refused, e.to_string())
        })?;
        let mut request = Request::new(method, url);
        // Without this, the server decompresses objects that are stored compressed, and ignores ranges.
        *request.headers_mut() = headers_of(location, &[(ACCEPT_ENCODING, "gzip")])?;
        if let Some(range) = range {
            request.headers_mut().insert(RANGE, value(location, &range_header(range))?);
        }
        if let Some(provider) = &self.credentials {
            let credential = provider.get(location).await?;
            if !credential.bearer.is_empty() {
                let bearer = value(location, &format!("Bearer {}", credential.bearer))?;
                request.headers_mut().insert(AUTHORIZATION, bearer);
            }
        }
        let answer = self.web.send(location, request).await?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => {
                let why = "the server redirects: check the endpoint";
                Err(StoreError::new(location.to_string(), ErrorKind::Refused, why))
            }
        }
    }
}

impl WebStore for Gcs {
    async fn identity(&self, location: &Location) -> Result<Option<String>, StoreError> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        credentials.get(location).await?;
        Ok(Some(credentials.origin().to_owned()))
    }

    fn web(&self) -> &Web {
        &self.web
    }

    async fn look_up(&self, location: &Location) -> Result<Object, StoreError> {
        let answer = match self.send(location, "", (Method::HEAD, None)).await {
            // An error response to HEAD has no body with the reason.
            Err(error) if matches!(error.status, Some(400 | 401 | 403)) => {
                return match self.send(location, "", (Method::GET, Some(&(0..1)))).await {
                    Err(said) if said.status == error.status => Err(said),
                    _ => Err(error),
                };
            }
            answer => answer?,
        };
        let object = described(location, answer.headers())?;
        match header(answer.headers(), "x-goog-generation") {
            // The ETag of a generation can change with the object's metadata.
            Some(id) => Ok(Object { version_id: Some(id.to_owned()), etag: None, ..object }),
            None => Ok(object),
        }
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Body, StoreError> {
        let location = &object.location;
        let id = object.version_id.as_deref();
        let query = id
            .map_or(String::new(), |id| format!("?generation={}", utf8_percent_encode(id, VALUE)));
        let answer = self.send(location, &query, (Method::GET, Some(&range))).await?;
        let found = header(answer.headers(), "x-goog-generation");
        if id.is_some() && found.is_some() && found != id {
            let why = "the object has changed: it is of another generation";
            return Err(StoreError::new(location.to_string(), ErrorKind::Changed, why));
        }
        checked_body(object, &range, answer)
    }

    async fn page(&self, prefix: &Location, token: Option<String>) -> Result<Page, StoreError> {
        let bucket = Location { key: String::new(), ..prefix.clone() };
        let query = s3_list_query(prefix, token);
        let answer = self.send(&bucket, &query, (Method::GET, None)).await;
        let answer = answer.map_err(|e| StoreError { url: prefix.to_string(), ..e })?;
        let mut page =
            listing::s3_page(prefix, &Web::text(prefix, answer, listing::PAGE_BYTES).await?)?;
        for object in page.objects.iter_mut().filter(|object| object.version_id.is_some()) {
            object.etag = None;
        }
        Ok(page)
    }
}

/// The file with the identity; `usual`: also the file that `gcloud` writes.
fn key_file(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
    usual: bool,
) -> Option<PathBuf> {
    let given = environment.credentials(location, options);
    let given =
        given.or_else(|| environment.first(&["GOOGLE_APPLICATION_CREDENTIALS"]).map(PathBuf::from));
    given.or_else(|| usual_key(environment).filter(|_| usual))
}

/// The names in the file with the identity: a file with a token, and URLs of services.
pub(in crate::store::remote) fn names_of_identity(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> (Option<PathBuf>, Vec<String>) {
    let text = key_file(location, options, environment, true)
        .and_then(|path| std::fs::read_to_string(path).ok());
    let key: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
    gcs_identity::names(&key)
}

/// The file that `gcloud auth application-default login` writes, unless the environment names a service account.
fn usual_key(environment: &Environment) -> Option<PathBuf> {
    if environment.starting_with("GOOGLE_SERVICE_ACCOUNT").next().is_some() {
        return None;
    }
    const NAME: &str = "application_default_credentials.json";
    let directory = environment.first(&["CLOUDSDK_CONFIG"]).map(PathBuf::from);
    let directory = directory.or_else(|| environment.in_home(".config/gcloud"))?;
    Some(directory.join(NAME)).filter(|path| path.is_file())
}

fn parse_key(text: &str) -> Result<Value, String> {
    let key: Value =
        serde_json::from_str(text).map_err(|_| "this is not a Google key in JSON".to_owned())?;
    match key.get("type").and_then(Value::as_str) {
        None | Some("service_account") => Ok(key),
        Some("authorized_user" | "external_account" | "impersonated_service_account") => Ok(key),
        Some(kind) => Err(format!(
            "`{kind}` cannot be used: take a key of a service account, a configuration of workload identity \
             federation, or what `gcloud auth application-default login` writes"
        )),
    }
}

fn credentials(
    location: &Location,
    options: &RemoteOptions,
    (environment, key): (&Environment, Option<Watched<Value>>),
) -> Result<Credentials<GcpCredential>, StoreError> {
    let Some(key) = key else {
        let origin = "the metadata service of this machine, or GOOGLE_… in the environment";
        let provider = of_object_store(location, options, environment, None)?;
        return Ok(Credentials::new(provider, origin.to_owned(), ADVICE));
    };
    let origin = key.path().display().to_string();
    let (location, options) = (location.clone(), options.clone());
    let environment = environment.clone();
    let provider = OfFile::new(key, move |key: &Value| {
        let of_account =
            |key: &Value| of_object_store(&location, &options, &environment, Some(key));
        match gcs_identity::provider(&location, &options, key, &of_account)? {
            Some(provider) => Ok(provider),
            None => of_account(key),
        }
    });
    // Now, not with the first request: credentials that cannot be used are refused before the mount.
    provider.current()?;
    Ok(Credentials::new(Arc::new(provider), origin, ADVICE))
}

/// The provider for the service account of a key; without a key, for the environment or the metadata service of the machine.
fn of_object_store(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
    key: Option<&Value>,
) -> Result<Provider<GcpCredential>, StoreError> {
    let mut builder = GoogleCloudStorageBuilder::new();
    for (name, value) in environment.starting_with("GOOGLE_") {
        if name == "GOOGLE_APPLICATION_CREDENTIALS" || key.is_some() {
            continue;
        }
        if let Ok(config) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(config, value);
        }
    }
    builder = match key {
        Some(key) => builder.with_service_account_key(key.to_string()),
        None => builder,
    };
    let builder = builder.with_bucket_name(&location.authority).with_retry(credential_retry());
    let store = builder.with_http_connector(Connector::new(options)?).build();
    let store = store.map_err(|e| missing(location, ADVICE, &e))?;
    Ok(Arc::clone(store.credentials()))
}
