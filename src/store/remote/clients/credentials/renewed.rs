//! Temporary credentials, which are requested again before they expire. Imports nothing of the project.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long before their expiry credentials are renewed, as in `object_store`.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Credentials that never expire are still requested again after this time, as there may be newer ones.
const RENEW_ANYWAY: Duration = Duration::from_secs(3600);
/// The pause after a failed renewal, while the old credentials are still valid.
const RESPITE: Duration = Duration::from_secs(10);
/// A credential that expires within this time is not used while a new one is requested: it might expire on the way to the
/// store.
const LEAST_LEFT: Duration = Duration::from_secs(10);

/// A credential as it was issued.
#[derive(Debug)]
pub(super) struct Issued<T> {
    pub(super) credential: T,
    /// `None` if it never expires.
    pub(super) expires: Option<SystemTime>,
}

/// The credential that was issued last.
pub(super) struct Renewed<T>(Arc<State<T>>);

struct State<T> {
    kept: Mutex<Option<Kept<T>>>,
    /// Locked while a credential is requested.
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Kept<T> {
    issuer: String,
    renew_at: SystemTime,
    expires: Option<SystemTime>,
    credential: Arc<T>,
}

impl<T> Kept<T> {
    fn lasts_until(&self, time: SystemTime) -> bool {
        self.expires.is_none_or(|expires| time < expires)
    }
}

impl<T> Default for Renewed<T> {
    fn default() -> Self {
        Self(Arc::new(State { kept: Mutex::new(None), turn: Arc::default() }))
    }
}

impl<T: Send + Sync + 'static> Renewed<T> {
    /// The credential of this issuer, by a request if there is no usable one. One that soon expires is renewed by a task, and
    /// used meanwhile, also if the renewal fails. There is one request at a time.
    pub(super) async fn get<E: Send + 'static>(
        &self,
        issuer: &str,
        request: impl Future<Output = Result<Issued<T>, E>> + Send + 'static,
    ) -> Result<Arc<T>, E> {
        let (state, issuer) = (Arc::clone(&self.0), issuer.to_owned());
        let turn = Arc::clone(&state.turn);
        if let Some((credential, is_old)) = state.usable(&issuer) {
            if is_old && let Ok(turn) = turn.try_lock_owned() {
                tokio::spawn(async move {
                    drop(state.renew(issuer, request).await);
                    drop(turn);
                });
            }
            return Ok(credential);
        }
        let _turn = turn.lock_owned().await;
        match state.usable(&issuer) {
            // Another request has renewed the credential meanwhile.
            Some((credential, _)) => Ok(credential),
            None => state.renew(issuer, request).await,
        }
    }
}

impl<T> State<T> {
    fn kept(&self) -> MutexGuard<'_, Option<Kept<T>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The credential of this issuer if it can be used, and whether it is to be renewed.
    fn usable(&self, issuer: &str) -> Option<(Arc<T>, bool)> {
        let (now, place) = (SystemTime::now(), self.kept());
        let kept = place.as_ref().filter(|kept| kept.issuer == issuer)?;
        let is_new = now < kept.renew_at && kept.lasts_until(now);
        let is_usable = is_new || kept.lasts_until(now + LEAST_LEFT);
        is_usable.then(|| (Arc::clone(&kept.credential), !is_new))
    }

    /// Requests a credential and keeps it. If that fails, the old one is not renewed again at once.
    async fn renew<E>(
        &self,
        issuer: String,
        request: impl Future<Output = Result<Issued<T>, E>>,
    ) -> Result<Arc<T>, E> {
        let issued = request.await;
        let (now, mut place) = (SystemTime::now(), self.kept());
        match issued {
            Ok(Issued { credential, expires }) => {
                let credential = Arc::new(credential);
                let (renew_at, new) = (now + pause(expires, now), Arc::clone(&credential));
                *place = Some(Kept { issuer, renew_at, expires, credential: new });
                Ok(credential)
            }
            Err(error) => {
                if let Some(kept) = place.as_mut().filter(|kept| kept.issuer == issuer) {
                    kept.renew_at = now + RESPITE;
                }
                Err(error)
            }
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
            runtime.block_on(async {
                let credential = renewed.get(issuer, std::future::ready(answer)).await;
                // A task may still renew it.
                drop(renewed.0.turn.lock().await);
                credential.map(|c| *c)
            })
        };
        let valid = |credential| Ok(Issued { credential, expires: after(3600) });
        assert_eq!(get("a", Err("no")), Err("no"));
        assert_eq!(get("a", valid(1)), Ok(1));
        assert_eq!(get("a", valid(2)), Ok(1));
        assert_eq!(get("b", Err("no")), Err("no"));
        assert_eq!(get("b", valid(3)), Ok(3));
        let place = |kept: fn(&mut Kept<u8>)| kept(renewed.0.kept().as_mut().unwrap());
        place(|kept| kept.renew_at = SystemTime::UNIX_EPOCH);
        assert_eq!(get("b", Err("no")), Ok(3));
        place(|kept| assert_ne!(kept.renew_at, SystemTime::UNIX_EPOCH, "there is a pause"));
        place(|kept| {
            kept.renew_at = SystemTime::UNIX_EPOCH;
            kept.expires = Some(SystemTime::UNIX_EPOCH);
        });
        assert_eq!(get("b", Err("no")), Err("no"));
        // Not even in the pause after that failure.
        assert_eq!(get("b", Err("no")), Err("no"));
    }

    /// The credential; a request for `next` would take a minute.
    async fn get_slowly(renewed: &Renewed<u8>, next: u8) -> u8 {
        let issued = async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok::<_, &'static str>(Issued { credential: next, expires: None })
        };
        *renewed.get("a", issued).await.expect("a credential")
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_is_used_while_one_task_renews_it() {
        let renewed = Renewed::default();
        assert_eq!(get_slowly(&renewed, 1).await, 1);
        renewed.0.kept().as_mut().unwrap().renew_at = SystemTime::UNIX_EPOCH;
        let start = tokio::time::Instant::now();
        for next in [2, 3] {
            assert_eq!(get_slowly(&renewed, next).await, 1);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop(renewed.0.turn.lock().await);
        assert_eq!(get_slowly(&renewed, 4).await, 2);
    }
}
