//! Temporary credentials, which are requested again before they expire. Imports nothing of the project.

use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

/// How long before their expiry credentials are renewed, as in `object_store`.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Credentials that never expire are still requested again after this time, as there may be newer ones.
const RENEW_ANYWAY: Duration = Duration::from_secs(3600);
/// The pause after a failed renewal, while the old credentials are still valid.
const RESPITE: Duration = Duration::from_secs(10);

/// A credential as it was issued.
#[derive(Debug)]
pub(super) struct Issued<T> {
    pub(super) credential: T,
    /// `None`: never.
    pub(super) expires: Option<SystemTime>,
}

/// The credential that was issued last.
pub(super) struct Renewed<T>(Mutex<Option<Kept<T>>>);

struct Kept<T> {
    issuer: String,
    renew_at: SystemTime,
    expires: Option<SystemTime>,
    credential: Arc<T>,
}

impl<T> Default for Renewed<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Renewed<T> {
    /// The credential of this issuer, by a request if there is none yet or if it soon expires. There is one request at
    /// a time. If it fails, the old credential is used while it is valid.
    pub(super) async fn get<E>(
        &self,
        issuer: &str,
        request: impl Future<Output = Result<Issued<T>, E>>,
    ) -> Result<Arc<T>, E> {
        let mut place = self.0.lock().await;
        let now = SystemTime::now();
        let mut kept = place.as_mut().filter(|kept| kept.issuer == issuer);
        if let Some(kept) = kept.as_ref().filter(|kept| now < kept.renew_at) {
            return Ok(Arc::clone(&kept.credential));
        }
        match (request.await, &mut kept) {
            (Ok(Issued { credential, expires }), _) => {
                let credential = Arc::new(credential);
                let renew_at = now + pause(expires, now);
                let (issuer, new) = (issuer.to_owned(), Arc::clone(&credential));
                *place = Some(Kept { issuer, renew_at, expires, credential: new });
                Ok(credential)
            }
            (Err(_), Some(kept)) if kept.expires.is_none_or(|expires| now < expires) => {
                kept.renew_at = now + RESPITE;
                Ok(Arc::clone(&kept.credential))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// How long a new credential is used before the next request.
fn pause(expires: Option<SystemTime>, now: SystemTime) -> Duration {
    let Some(expires) = expires else { return RENEW_ANYWAY };
    let life = expires.duration_since(now).unwrap_or_default();
    // A credential with a short life is used for half of it.
    life.saturating_sub(RENEW_BEFORE).max(life / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_renewed_before_it_expires_and_kept_while_that_fails() {
        let now = SystemTime::now();
        let after = |seconds| now.checked_add(Duration::from_secs(seconds));
        assert_eq!(pause(None, now), RENEW_ANYWAY);
        assert_eq!(pause(after(3600), now), Duration::from_secs(3300));
        assert_eq!(pause(after(60), now), Duration::from_secs(30));
        assert_eq!(pause(now.checked_sub(RENEW_BEFORE), now), Duration::ZERO);

        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let renewed = Renewed::default();
        let get = |issuer: &'static str, answer: Result<Issued<u8>, &'static str>| {
            runtime.block_on(renewed.get(issuer, std::future::ready(answer))).map(|c| *c)
        };
        let valid = |credential| Ok(Issued { credential, expires: after(3600) });
        assert_eq!(get("a", Err("no")), Err("no"));
        assert_eq!(get("a", valid(1)), Ok(1));
        assert_eq!(get("a", valid(2)), Ok(1));
        assert_eq!(get("b", Err("no")), Err("no"));
        assert_eq!(get("b", valid(3)), Ok(3));
        let place = |kept: fn(&mut Kept<u8>)| kept(renewed.0.blocking_lock().as_mut().unwrap());
        place(|kept| kept.renew_at = SystemTime::UNIX_EPOCH);
        assert_eq!(get("b", Err("no")), Ok(3));
        place(|kept| {
            kept.renew_at = SystemTime::UNIX_EPOCH;
            kept.expires = Some(SystemTime::UNIX_EPOCH);
        });
        assert_eq!(get("b", Err("no")), Err("no"));
    }
}
