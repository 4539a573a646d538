//! Azure Blob Storage, including blobs written through its Data Lake interface, with the credentials of `object_store`.

use super::credentials::{Credentials, OfFile, Provider, missing};
use super::credentials::{Environment, Watched};
use super::listing::{self, Page};
use super::request::{KEY, VALUE, range_header, signed, value};
use super::web::{Connector, Web, checked_body, credential_retry, described, malformed};
use super::web_store::WebStore;
use crate::store::remote::{Body, ErrorKind, Location, Object, RemoteOptions, StoreError};
use object_store::azure::{AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder};
use object_store::client::{HttpRequest, HttpRequestBody};
use percent_encoding::utf8_percent_encode;
use reqwest::header::{HeaderMap, HeaderValue, IF_MATCH, RANGE};
use reqwest::{Method, Response};
use std::ops::Range;
use std::sync::Arc;

/// Advice for users without credentials.
const ADVICE: &str = "Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, AZURE_TENANT_ID and \
                      AZURE_CLIENT_SECRET, or give the option `anonymous` for a public container";

/// A container.
pub(in crate::store::remote) struct Azure {
    web: Web,
    endpoint: String,
    account: String,
    container: String,
    /// `None` for unsigned requests.
    credentials: Option<Credentials<AzureCredential>>,
}

impl Azure {
    pub(in crate::store::remote) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let file = environment.credentials(location, options);
        let file = file.map(|path| Watched::new(path, parse_file));
        let bare = environment;
        let environment = &match &file {
            Some(file) => completed(bare, &readable(location, file)?),
            None => completed(bare, &[]),
        };
        let (container, host) = match location.authority.split_once('@') {
            Some((container, host)) => (container, Some(host)),
            None => (&*location.authority, None),
        };
        let named = host.and_then(|host| host.split('.').next());
        let is_emulator =
            environment.first(&["AZURE_STORAGE_USE_EMULATOR"]).is_some_and(|v| v != "false");
        let names = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"];
        let account = named.or_else(|| environment.first(&names));
        let account = account.or_else(|| is_emulator.then_some("devstoreaccount1"));
        let account = account.ok_or_else(|| {
            let why = "the account is missing: set AZURE_STORAGE_ACCOUNT_NAME, or use \
                       abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY";
            StoreError::new(location.to_string(), ErrorKind::Refused, why)
        })?;
        let of_host = host
            .filter(|host| host.contains('.'))
            .map(|host| format!("https://{}", host.replacen(".dfs.", ".blob.", 1)));
        let names = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"];
        let given = options.endpoint.as_deref().or_else(|| environment.first(&names));
        let endpoint = match given.or_else(|| is_emulator.then_some("http://127.0.0.1:10000")) {
            // The URL of a server without the account in its host name has the account in its path.
            Some(given) => with_account(given, account),
            None => of_host.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net")),
        };
        let credentials = match options.anonymous {
            true => None,
            false => Some(credentials((location, options), (bare, account), file)?),
        };
        Ok(Self {
            web: Web::for_endpoint(&endpoint, options)?,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            account: account.to_owned(),
            container: container.to_owned(),
            credentials,
        })
    }

    async fn send(
        &self,
        location: &Location,
        (key, query): (&str, &str),
        (method, headers): (Method, HeaderMap),
    ) -> Result<Response, StoreError> {
        let refused = |why: String| StoreError::new(location.to_string(), ErrorKind::Refused, why);
        let key = utf8_percent_encode(key, KEY);
        let slash = if key.to_string().is_empty() { "" } else { "/" };
        let url = format!("{}/{}{slash}{key}{query}", self.endpoint, self.container);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method;
        *request.uri_mut() =
            url.parse().map_err(|_| refused("this key cannot be part of a URL".into()))?;
        *request.headers_mut() = headers;
        request.headers_mut().insert("x-ms-version", HeaderValue::from_static("2023-11-03"));
        if let Some(provider) = &self.credentials {
            let credential = provider.get(location).await?;
            check_credential(location, &credential)?;
            AzureAuthorizer::new(&credential, &self.account)
                .try_authorize(&mut request)
                .map_err(|e| refused(e.to_string()))?;
        }
        let answer = self.web.send(location, signed(location, request)?).await?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(refused("the server redirects: check the endpoint".into())),
        }
    }
}

impl WebStore for Azure {
    async fn identity(&self, location: &Location) -> Result<Option<String>, StoreError> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        let kind = match &*credentials.get(location).await? {
            AzureCredential::AccessKey(_) => "a key of the account",
            AzureCredential::SASToken(_) => "a SAS token",
            AzureCredential::BearerToken(_) => "a token of Entra ID",
        };
        Ok(Some(format!("{kind}, from {}", credentials.origin())))
    }

    fn web(&self) -> &Web {
        &self.web
    }

    async fn look_up(&self, location: &Location) -> Result<Object, StoreError> {
        let asked = (Method::HEAD, HeaderMap::new());
        let answer = self.send(location, (&location.key, ""), asked).await?;
        let object = described(location, answer.headers())?;
        match object.etag {
            Some(_) => Ok(object),
            None => Err(malformed(location, "the store gives no ETag")),
        }
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Body, StoreError> {
        let location = &object.location;
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, value(location, &range_header(&range))?);
        if let Some(etag) = &object.etag {
            headers.insert(IF_MATCH, value(location, etag)?);
        }
        let answer = self.send(location, (&location.key, ""), (Method::GET, headers)).await?;
        checked_body(object, &range, answer)
    }

    async fn page(&self, prefix: &Location, token: Option<String>) -> Result<Page, StoreError> {
        let encoded = utf8_percent_encode(&prefix.key, VALUE);
        let mut query = format!("?restype=container&comp=list&prefix={encoded}");
        if let Some(token) = token {
            query += &format!("&marker={}", utf8_percent_encode(&token, VALUE));
        }
        let answer = self.send(prefix, ("", &query), (Method::GET, HeaderMap::new())).await?;
        listing::azure_page(prefix, &Web::text(prefix, answer, listing::PAGE_BYTES).await?)
    }
}

/// Variables and their values.
type Variables = Vec<(String, String)>;

/// Variables in the lines of a file, which may be a shell script's.
fn parse_file(text: &str) -> Result<Variables, String> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("export "));
    let pair = |(name, value): (&str, &str)| {
        (name.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned())
    };
    Ok(lines.filter_map(|line| line.split_once('=').map(pair)).collect())
}

fn readable(location: &Location, file: &Watched<Variables>) -> Result<Arc<Variables>, StoreError> {
    file.get().map_err(|e| {
        let why = format!("the credentials in {}: {}", e.url, e.message);
        StoreError::new(location.to_string(), ErrorKind::Denied, why)
    })
}

/// The environment, completed from the credentials file, for a look at its variables.
pub(in crate::store::remote) fn environment_of(
    location: &Location,
    options: &RemoteOptions,
    environment: &Environment,
) -> Environment {
    let file = environment.credentials(location, options);
    let text = file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    completed(environment, &parse_file(&text).unwrap_or_default())
}

/// The environment, completed from the credentials file and the connection string.
fn completed(environment: &Environment, file: &[(String, String)]) -> Environment {
    let mut environment = environment.clone();
    for (name, value) in file {
        environment.set(name, value);
    }
    let connection = environment.first(&["AZURE_STORAGE_CONNECTION_STRING"]).map(str::to_owned);
    for (name, value) in
        connection.iter().flat_map(|c| c.split(';')).filter_map(|p| p.split_once('='))
    {
        match name.trim() {
            "AccountName" => environment.set("AZURE_STORAGE_ACCOUNT_NAME", value),
            "AccountKey" => environment.set("AZURE_STORAGE_ACCOUNT_KEY", value),
            "SharedAccessSignature" => environment.set("AZURE_STORAGE_SAS_TOKEN", value),
            "BlobEndpoint" => environment.set("AZURE_STORAGE_ENDPOINT", value),
            _ => {}
        }
    }
    // Kubernetes sets this variable with a slash at the end, to which another one would be added.
    if let Some(host) = environment.first(&["AZURE_AUTHORITY_HOST"]).map(str::to_owned) {
        environment.set("AZURE_AUTHORITY_HOST", host.trim_end_matches('/'));
    }
    environment
}

fn with_account(endpoint: &str, account: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    let host = endpoint.split("://").nth(1).unwrap_or_default();
    let is_whole =
        host.starts_with(&format!("{account}.")) || host.ends_with(&format!("/{account}"));
    if is_whole { endpoint.to_owned() } else { format!("{endpoint}/{account}") }
}

fn credentials(
    (location, options): (&Location, &RemoteOptions),
    (environment, account): (&Environment, &str),
    file: Option<Watched<Variables>>,
) -> Result<Credentials<AzureCredential>, StoreError> {
    let Some(file) = file else {
        let environment = completed(environment, &[]);
        let is_of_environment = environment.starting_with("AZURE_").any(|(name, _)| {
            ["KEY", "TOKEN", "SECRET", "TOKEN_FILE"].iter().any(|end| name.ends_with(end))
        });
        let origin = match is_of_environment {
            true => "AZURE_… in the environment",
            false => "the managed identity of this machine",
        };
        let provider = of_environment(location, options, (&environment, account))?;
        return Ok(Credentials::new(provider, origin.to_owned(), ADVICE));
    };
    let origin = file.path().display().to_string();
    let (location, options) = (location.clone(), options.clone());
    let (environment, account) = (environment.clone(), account.to_owned());
    let provider = OfFile::new(file, move |variables: &Variables| {
        let environment = completed(&environment, variables);
        of_environment(&location, &options, (&environment, &account))
    });
    // Now, not with the first request: credentials that cannot be used are refused before the mount.
    provider.current()?;
    Ok(Credentials::new(Arc::new(provider), origin, ADVICE))
}

fn of_environment(
    location: &Location,
    options: &RemoteOptions,
    (environment, account): (&Environment, &str),
) -> Result<Provider<AzureCredential>, StoreError> {
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in environment.starting_with("AZURE_") {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    for (name, key) in
        [("IDENTITY_ENDPOINT", "identity_endpoint"), ("MSI_ENDPOINT", "msi_endpoint")]
    {
        if let (Some(value), Ok(key)) = (environment.first(&[name]), key.parse()) {
            builder = builder.with_config(key, value);
        }
    }
    let builder = builder.with_account(account).with_container_name("-");
    let builder = builder.with_retry(credential_retry());
    let store = builder.with_http_connector(Connector::new(options)?).build();
    let store = store.map_err(|e| missing(location, ADVICE, &e))?;
    Ok(Arc::clone(store.credentials()))
}

/// The signer assumes that a token is a valid header value.
fn check_credential(location: &Location, credential: &AzureCredential) -> Result<(), StoreError> {
    match credential {
        AzureCredential::BearerToken(token) if HeaderValue::from_str(token).is_err() => {
            let why = "the Azure token has characters that no token can have";
            Err(StoreError::new(location.to_string(), ErrorKind::Denied, why))
        }
        _ => Ok(()),
    }
}
