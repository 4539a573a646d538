//! Datasets on the Hugging Face Hub. A revision is pinned to its commit; the Hub redirects reads to other servers, by
//! signed URLs that expire.

use super::answer::{self, header};
use super::credentials::{Environment, Watched};
use super::listing::{self, Page};
use super::redirect::{self, Ask, Redirects};
use super::request::{KEY, VALUE, headers_of, range_header, value};
use super::web::{Web, described, malformed, object_of};
use super::web_store::WebStore;
use crate::store::remote::{Body, ErrorKind, Location, Object, RemoteOptions, StoreError};
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, LINK, RANGE};
use reqwest::{Method, Request, Response, Url};
use serde_json::Value;
use std::ops::Range;
use std::path::PathBuf;

/// The Hub redirects from a renamed dataset to its new name.
const MOST_RENAMES: usize = 5;

/// A dataset.
pub(in crate::store::remote) struct HuggingFace {
    web: Web,
    servers: Redirects,
    endpoint: String,
    /// `datasets/ORG/NAME`.
    dataset: String,
    /// A branch, tag or commit, percent-encoded.
    revision: String,
    token: Token,
}

/// The token for private and gated datasets.
enum Token {
    None,
    Fixed(String),
    File(Watched<String>),
}

impl Token {
    fn find(location: &Location, options: &RemoteOptions, environment: &Environment) -> Self {
        if options.anonymous {
            return Token::None;
        }
        let file =
            |path: PathBuf| Token::File(Watched::new(path, |text| Ok(text.trim().to_owned())));
        if let Some(path) = environment.credentials(location, options) {
            return file(path);
        }
        if let Some(token) = environment.first(&["HF_TOKEN"]) {
            return Token::Fixed(token.trim().to_owned());
        }
        let path = environment.first(&["HF_TOKEN_PATH"]).map(PathBuf::from);
        let path =
            path.or_else(|| Some(PathBuf::from(environment.first(&["HF_HOME"])?).join("token")));
        let path = path.or_else(|| environment.in_home(".cache/huggingface/token"));
        path.filter(|path| path.is_file()).map_or(Token::None, file)
    }
}

impl HuggingFace {
    pub(in crate::store::remote) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let endpoint = options.endpoint.as_deref().or_else(|| environment.first(&["HF_ENDPOINT"]));
        let endpoint = endpoint.unwrap_or("https://huggingface.co").trim_end_matches('/');
        let (dataset, revision) =
            location.authority.split_once('@').unwrap_or((&location.authority, "main"));
        let revision = percent_decode_str(revision).decode_utf8_lossy();
        let web = Web::new(options)?;
        Ok(Self {
            servers: Redirects::new(web.clone()),
            web,
            endpoint: endpoint.to_owned(),
            dataset: dataset.to_owned(),
            revision: utf8_percent_encode(&revision, VALUE).to_string(),
            token: Token::find(location, options, environment),
        })
    }

    fn secrets(&self, location: &Location) -> Result<HeaderMap, StoreError> {
        let bearer = |token: &str| {
            let mut bearer = value(location, &format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            Ok(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
        };
        match &self.token {
            Token::None => Ok(HeaderMap::new()),
            Token::Fixed(token) => bearer(token),
            Token::File(file) => bearer(&file.get()?),
        }
    }

    fn url(&self, location: &Location, revision: &str) -> Result<Url, StoreError> {
        let key = utf8_percent_encode(&location.key, KEY);
        parse(location, &format!("{}/{}/resolve/{revision}/{key}", self.endpoint, self.dataset))
    }

    async fn send(
        &self,
        location: &Location,
        method: Method,
        url: Url,
    ) -> Result<Response, StoreError> {
        let mut request = Request::new(method, url);
        *request.headers_mut() = self.secrets(location)?;
        request.headers_mut().insert(ACCEPT_ENCODING, value(location, "identity")?);
        self.web.send(location, request).await.map_err(|mut error| {
            if error.kind == ErrorKind::Denied {
                error.message +=
                    "; for a private or gated dataset set HF_TOKEN, or run `hf auth login`";
            }
            error
        })
    }

    async fn json(&self, prefix: &Location, url: &str) -> Result<(HeaderMap, Value), StoreError> {
        let answer = self.send(prefix, Method::GET, parse(prefix, url)?).await?;
        let headers = answer.headers().clone();
        let text = Web::text(prefix, answer, listing::PAGE_BYTES).await?;
        let json =
            serde_json::from_str(&text).map_err(|_| malformed(prefix, "the Hub gives no JSON"))?;
        Ok((headers, json))
    }
}

impl WebStore for HuggingFace {
    async fn identity(&self, location: &Location) -> Result<Option<String>, StoreError> {
        self.secrets(location)?;
        Ok(match &self.token {
            Token::None => None,
            Token::Fixed(_) => Some("HF_TOKEN in the environment".to_owned()),
            Token::File(file) => Some(file.path().display().to_string()),
        })
    }

    fn web(&self) -> &Web {
        &self.web
    }

    async fn look_up(&self, location: &Location) -> Result<Object, StoreError> {
        let mut url = self.url(location, &self.revision)?;
        for _ in 0..MOST_RENAMES {
            let answer = self.send(location, Method::HEAD, url.clone()).await?;
            let headers = answer.headers();
            let linked = header(headers, "x-linked-size").and_then(|size| size.parse().ok());
            let object = match linked {
                Some(length) => object_of(location, headers, length),
                None if answer.status().is_success() => described(location, headers)?,
                None => {
                    let next = redirect::next(location, &url, headers)?;
                    if next.origin() != url.origin() {
                        return Err(malformed(
                            location,
                            "the Hub does not say how long the file is",
                        ));
                    }
                    url = next;
                    continue;
                }
            };
            let commit = header(headers, "x-repo-commit");
            let commit =
                commit.ok_or_else(|| malformed(location, "the Hub does not name the commit"))?;
            let linked = header(headers, "x-linked-etag").and_then(answer::quoted);
            let (version_id, etag) = (Some(commit.to_owned()), linked.or(object.etag));
            return Ok(Object { version_id, etag, modified: None, ..object });
        }
        Err(malformed(location, "the Hub redirects too often"))
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Body, StoreError> {
        let location = &object.location;
        let revision = object.version_id.as_deref().unwrap_or(&self.revision);
        let pairs = [(RANGE, &*range_header(&range)), (ACCEPT_ENCODING, "identity")];
        let ask = Ask {
            location,
            url: self.url(location, revision)?,
            headers: headers_of(location, &pairs)?,
            secrets: self.secrets(location)?,
        };
        let answer = self.servers.get(&ask).await.map_err(|refused| refused.error)?;
        // The commit pins the bytes; the ETag is the Hub's, not the one of the server with the bytes.
        answer.body(&Object { etag: None, ..object.clone() }, &range)
    }

    async fn page(&self, prefix: &Location, next: Option<String>) -> Result<Page, StoreError> {
        let tree = format!("{}/api/{}/tree/", self.endpoint, self.dataset);
        let url = match next {
            Some(next) => next,
            None => {
                let api =
                    format!("{}/api/{}/revision/{}", self.endpoint, self.dataset, self.revision);
                let (_, info) = self.json(prefix, &api).await?;
                let commit = info.get("sha").and_then(Value::as_str);
                let commit =
                    commit.ok_or_else(|| malformed(prefix, "the Hub does not name the commit"))?;
                let folder = prefix.key.rsplit_once('/').map_or(String::new(), |(folder, _)| {
                    format!("/{}", utf8_percent_encode(folder, KEY))
                });
                format!("{tree}{}{folder}?recursive=true", utf8_percent_encode(commit, VALUE))
            }
        };
        // Checked before the token goes there.
        let commit = url.strip_prefix(&tree).and_then(|rest| rest.split(['/', '?']).next());
        let commit =
            commit.ok_or_else(|| malformed(prefix, "the Hub's next page is on another server"))?;
        let (headers, entries) = self.json(prefix, &url).await?;
        let entries =
            entries.as_array().ok_or_else(|| malformed(prefix, "the Hub gives no list"))?;
        let objects = entries.iter().filter_map(|entry| listed(prefix, commit, entry)).collect();
        Ok(Page { objects, next: header(&headers, LINK.as_str()).and_then(next_link) })
    }
}

fn parse(location: &Location, url: &str) -> Result<Url, StoreError> {
    Url::parse(url)
        .map_err(|e| StoreError::new(location.to_string(), ErrorKind::Refused, e.to_string()))
}

/// `<https://...>; rel="next"`.
fn next_link(links: &str) -> Option<String> {
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.trim().strip_prefix('<')?.split_once('>')?.0.to_owned())
}

fn listed(prefix: &Location, commit: &str, entry: &Value) -> Option<Object> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let key = text(entry, "path").filter(|path| path.starts_with(&prefix.key))?;
    if text(entry, "type")? != "file" {
        return None;
    }
    let lfs = entry.get("lfs").filter(|lfs| lfs.is_object()).unwrap_or(entry);
    Some(Object {
        location: Location { key, ..prefix.clone() },
        length_bytes: lfs.get("size").and_then(Value::as_u64)?,
        modified: None,
        version_id: Some(commit.to_owned()),
        etag: text(lfs, "oid").and_then(|oid| answer::quoted(&oid)),
    })
}
