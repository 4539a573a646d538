//! Credentials that `object_store`, a profile or a [`Source`] provides and renews.

use super::environment::Watched;
use super::renewed::{Issued, Renewed};
use crate::store::remote::clients::web::chain;
use crate::store::remote::{ErrorKind, Location, StoreError};
use object_store::aws::AwsCredential;
use object_store::client::CredentialProvider;
use reqwest::header::HeaderValue;
use std::fmt;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Instant;

/// Provides credentials of the type `T`.
pub(in crate::store::remote::clients) type Provider<T> =
    Arc<dyn CredentialProvider<Credential = T>>;

/// The credentials of a store.
pub(in crate::store::remote::clients) struct Credentials<T> {
    provider: Provider<T>,
    /// Where the credentials come from, in words.
    origin: String,
    /// Advice if there are no credentials.
    advice: &'static str,
    /// Whether there were credentials before.
    were_there: AtomicBool,
    /// Locked while the provider is asked; has its last answer if that was a failure.
    turn: Arc<tokio::sync::Mutex<Option<Failure>>>,
}

/// When and why a provider gave no credentials.
type Failure = (Instant, Arc<object_store::Error>);

impl<T: Send + Sync + 'static> Credentials<T> {
    pub(in crate::store::remote::clients) fn new(
        provider: Provider<T>,
        origin: String,
        advice: &'static str,
    ) -> Self {
        let (were_there, turn) = (AtomicBool::new(false), Arc::default());
        Self { provider, origin, advice, were_there, turn }
    }

    /// Where the credentials come from, in words.
    pub(in crate::store::remote::clients) fn origin(&self) -> &str {
        &self.origin
    }

    /// The current credentials.
    pub(in crate::store::remote::clients) async fn get(
        &self,
        location: &Location,
    ) -> Result<Arc<T>, StoreError> {
        match self.provided().await {
            Ok(credential) => {
                if !self.were_there.load(Relaxed) {
                    self.were_there.store(true, Relaxed);
                }
                Ok(credential)
            }
            Err(error) => {
                let mut error = missing(location, self.advice, &error);
                let from = format!("no credentials from {}: ", self.origin);
                error.message = error.message.replacen("no credentials: ", &from, 1);
                // Credentials that worked once will most likely be renewed at the next attempt.
                let kind = match self.were_there.load(Relaxed) {
                    true => ErrorKind::Unavailable,
                    false => error.kind,
                };
                Err(StoreError { kind, ..error })
            }
        }
    }

    /// Asks the provider. If it does not answer at once, a task waits for the answer, also when this request is given up: a
    /// program or a service may take longer than a request may. One request asks at a time, and a failure is the answer to all
    /// requests that have waited for it.
    async fn provided(&self) -> Result<Arc<T>, Arc<object_store::Error>> {
        let asked = Instant::now();
        let mut turn = Arc::clone(&self.turn).lock_owned().await;
        if let Some((_, error)) = turn.as_ref().filter(|(failed, _)| *failed > asked) {
            return Err(Arc::clone(error));
        }
        let provider = Arc::clone(&self.provider);
        let mut asking = Box::pin(async move {
            let answer = provider.get_credential().await.map_err(Arc::new);
            *turn = answer.as_ref().err().map(|error| (Instant::now(), Arc::clone(error)));
            answer
        });
        let first = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = first {
            return answer;
        }
        // The question that has begun goes on there.
        let task = tokio::spawn(asking);
        task.await.unwrap_or_else(|died| resume_unwind(died.into_panic()))
    }
}

/// The error for missing credentials.
pub(in crate::store::remote::clients) fn missing(
    location: &Location,
    advice: &str,
    error: &object_store::Error,
) -> StoreError {
    let why = format!("no credentials: {}. {advice}", inner(error).trim_end_matches('.'));
    StoreError::new(location.to_string(), ErrorKind::Denied, why)
}

/// The cause of an error: "Generic S3 error" tells users nothing.
pub(super) fn inner(error: &object_store::Error) -> String {
    let said = match error {
        object_store::Error::Generic { source, .. } => chain(&**source),
        other => chain(other),
    };
    plain(&said).unwrap_or(said)
}

/// `GET URL fails: CAUSE` for a request of `object_store`: without its query, time, policy of retries, and layers.
fn plain(said: &str) -> Option<String> {
    let (request, rest) = said.rsplit_once("Error performing ")?.1.split_once(" in ")?;
    let (_, cause) = rest.split_once(" - ")?;
    let layers = ["HTTP error: ", "error sending request: ", "client error (Connect): "];
    let cause =
        layers.iter().fold(cause, |cause, layer| cause.strip_prefix(layer).unwrap_or(cause));
    let cause = cause.strip_prefix("tcp connect error: ").unwrap_or(cause);
    let request = request.split('?').next().unwrap_or_default();
    (request.split(' ').count() == 2).then(|| format!("{request} fails: {cause}"))
}

/// Issues temporary credentials.
pub(super) trait Source: Send + Sync + 'static {
    type Credential: Send + Sync + 'static;

    /// Requests a new credential.
    fn issue(&self) -> impl Future<Output = Result<Issued<Self::Credential>, StoreError>> + Send;
}

/// Provides the credentials of a source, and renews them.
pub(super) fn provider_of<S: Source>(source: S) -> Provider<S::Credential> {
    Arc::new(OfSource { source: Arc::new(source), renewed: Renewed::default() })
}

struct OfSource<S: Source> {
    source: Arc<S>,
    renewed: Renewed<S::Credential>,
}

/// Makes a provider from the content of a file.
type Make<V, T> = Box<dyn Fn(&V) -> Result<Provider<T>, StoreError> + Send + Sync>;

/// Credentials that a file describes, made again when it changes.
pub(in crate::store::remote::clients) struct OfFile<V, T> {
    file: Watched<V>,
    make: Make<V, T>,
    made: Mutex<Option<(Arc<V>, Provider<T>)>>,
}

impl<V, T> OfFile<V, T> {
    pub(in crate::store::remote::clients) fn new(
        file: Watched<V>,
        make: impl Fn(&V) -> Result<Provider<T>, StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self { file, make: Box::new(make), made: Mutex::new(None) }
    }

    /// The provider for the present content; the last one while the file is missing or unusable.
    pub(in crate::store::remote::clients) fn current(&self) -> Result<Provider<T>, StoreError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let content = match (self.file.get(), &*made) {
            (Ok(content), Some((of, provider))) if Arc::ptr_eq(&content, of) => {
                return Ok(Arc::clone(provider));
            }
            (Ok(content), _) => content,
            (Err(_), Some((_, provider))) => return Ok(Arc::clone(provider)),
            (Err(error), None) => return Err(error),
        };
        match ((self.make)(&content), &*made) {
            (Ok(provider), _) => {
                *made = Some((content, Arc::clone(&provider)));
                Ok(provider)
            }
            (Err(_), Some((_, provider))) => Ok(Arc::clone(provider)),
            (Err(error), None) => Err(error),
        }
    }
}

impl<S: Source> fmt::Debug for OfSource<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("temporary credentials")
    }
}

impl<V, T> fmt::Debug for OfFile<V, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "credentials in {}", self.file.path().display())
    }
}

/// An error of ours as one of `object_store`.
pub(super) fn generic(error: StoreError) -> object_store::Error {
    object_store::Error::Generic { store: "credentials", source: Box::new(error) }
}

// Written out in place of the attribute `async_trait`, here and below.
impl<S: Source> CredentialProvider for OfSource<S> {
    type Credential = S::Credential;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<S::Credential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let source = Arc::clone(&self.source);
        let issued = async move { source.issue().await };
        Box::pin(async move { self.renewed.get("", issued).await.map_err(generic) })
    }
}

impl<V: Send + Sync, T: Send + Sync> CredentialProvider for OfFile<V, T> {
    type Credential = T;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<T>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.current().map_err(generic)?.get_credential().await })
    }
}

/// The signer assumes that these are valid header values.
pub(in crate::store::remote::clients) fn check_aws(
    location: &Location,
    credential: &AwsCredential,
) -> Result<(), StoreError> {
    let token = credential.token.as_deref().unwrap_or_default();
    if [&credential.key_id, token].iter().all(|text| HeaderValue::from_str(text).is_ok()) {
        return Ok(());
    }
    let why = "the AWS credentials have characters that cannot be part of credentials";
    Err(StoreError::new(location.to_string(), ErrorKind::Denied, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::clients::test_server::location;
    use futures_util::FutureExt;
    use object_store::StaticCredentialProvider;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Takes 25 s for each credential, which is the number of the request; the first `failures` requests fail.
    struct Slow {
        asked: Arc<AtomicUsize>,
        failures: usize,
    }

    impl Source for Slow {
        type Credential = usize;

        async fn issue(&self) -> Result<Issued<usize>, StoreError> {
            let credential = self.asked.fetch_add(1, Relaxed) + 1;
            tokio::time::sleep(Duration::from_secs(25)).await;
            match credential > self.failures {
                true => Ok(Issued { credential, expires: None }),
                false => Err(StoreError::new("slow", ErrorKind::Denied, "not today")),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_may_take_longer_than_requests_and_later_requests_have_the_outcome() {
        let place = location("s3://b/k");
        for failures in [0, 1] {
            let asked = Arc::new(AtomicUsize::new(0));
            let provider = provider_of(Slow { asked: Arc::clone(&asked), failures });
            let credentials = Credentials::new(provider, "a test".to_owned(), "");
            let get = || timeout(Duration::from_secs(10), credentials.get(&place));
            assert!(get().await.is_err() && get().await.is_err(), "these are given up");
            match (get().await.expect("in time"), failures) {
                (Ok(credential), 0) => assert_eq!(*credential, 1),
                (outcome, _) => {
                    let error = outcome.expect_err("a failure");
                    assert!(error.message.contains("not today"), "{error}");
                }
            }
            assert_eq!(asked.load(Relaxed), 1);
            let last = credentials.get(&place).await.expect("a credential");
            assert_eq!((*last, asked.load(Relaxed)), (1 + failures, 1 + failures));
        }
    }

    #[test]
    fn credentials_that_are_there_need_no_task() {
        let fixed: Provider<usize> = Arc::new(StaticCredentialProvider::new(7));
        let place = location("s3://b/k");
        let credentials = Credentials::new(fixed, "a test".to_owned(), "");
        // Outside of a runtime there are no tasks.
        let got = credentials.get(&place).now_or_never().expect("at once");
        assert_eq!(*got.expect("a credential"), 7);
    }

    #[test]
    fn a_failed_request_for_credentials_is_told_without_its_layers() {
        let said = "Error performing token request: Error performing GET http://169.254.169.254/x/token?a=b in 26.9ms, \
            after 2 retries, max_retries: 2, retry_timeout: 5s - HTTP error: error sending request: client error \
            (Connect): tcp connect error: Connection refused (os error 111)";
        let wanted = "GET http://169.254.169.254/x/token fails: Connection refused (os error 111)";
        let inner = said.split_once("token request: ").map(|(_, inner)| inner);
        assert_eq!(plain(inner.unwrap_or_default()).as_deref(), Some(wanted));
        assert_eq!(plain(said).as_deref(), Some(wanted));
        let refused = "Error performing POST http://h/t in 2ms - Server returned non-2xx status code: 401: no";
        let wanted = "POST http://h/t fails: Server returned non-2xx status code: 401: no";
        assert_eq!(plain(refused).as_deref(), Some(wanted));
        assert_eq!(plain("the private key is invalid"), None);
    }
}
