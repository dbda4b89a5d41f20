//! The link that makes the first administrator.
//!
//! There is no password that everybody knows. As long as there is no user, the daemon holds the hash of one secret, which it printed at its start, or gave to the owner of its
//! socket since. It is over when it was used, after [`LIFE`], or when another took its place.

use crate::tokens::hex;
use sha2::{Digest, Sha256};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

pub const LIFE: Duration = Duration::from_secs(24 * 3600);

struct Secret {
    hash: [u8; 32],
    made: Instant,
}

/// The secret that counts, if there is one.
#[derive(Default)]
pub struct Setup {
    secret: Mutex<Option<Secret>>,
}

impl Setup {
    fn lock(&self) -> MutexGuard<'_, Option<Secret>> {
        self.secret.lock().expect("no holder of this lock panics")
    }

    /// A new secret, in the place of the one before.
    pub fn renew(&self, random: [u8; 32], now: Instant) -> String {
        let secret = hex(&random);
        *self.lock() = Some(Secret { hash: Sha256::digest(&secret).into(), made: now });
        secret
    }

    pub fn is_right(&self, secret: &str, now: Instant) -> bool {
        let hash: [u8; 32] = Sha256::digest(secret).into();
        self.lock().as_ref().is_some_and(|known| {
            bool::from(known.hash.ct_eq(&hash)) && now.saturating_duration_since(known.made) < LIFE
        })
    }

    /// There is an administrator: no secret is right any more.
    pub fn done(&self) {
        *self.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_secret_counts_until_it_is_used_replaced_or_a_day_old() {
        let setup = Setup::default();
        let start = Instant::now();
        assert!(!setup.is_right("", start));
        let first = setup.renew([1; 32], start);
        assert!(setup.is_right(&first, start) && !setup.is_right(&first[1..], start));
        assert!(setup.is_right(&first, start + LIFE - Duration::from_secs(1)));
        assert!(!setup.is_right(&first, start + LIFE));
        let second = setup.renew([2; 32], start + LIFE);
        assert!(setup.is_right(&second, start + LIFE) && !setup.is_right(&first, start));
        setup.done();
        assert!(!setup.is_right(&second, start + LIFE));
    }
}
