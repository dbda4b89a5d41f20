//! Browsers that are logged in: kept in memory, by the hash of what their cookie says.
//!
//! A cookie has 256 random bits, of which only the SHA-256 is kept. A login ends after [`IDLE_MS`] without a request, after [`LIFE_MS`] in any case, with a logout, when its
//! user's role or password changes, and with the daemon. What a change has to carry besides the cookie (`X-CSRF-Token`) is
//! another hash of the cookie: a page that makes a browser send the cookie cannot read it, and so cannot send the hash. Numbers are bounded: one
//! login too many ends the one that was silent for longest, of the same user first. Time is an argument.

use crate::tokens::hex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// A working day, and it is over the next morning.
pub const IDLE_MS: u64 = 12 * 3600 * 1000;
/// Each user logs in once a week.
pub const LIFE_MS: u64 = 7 * 24 * 3600 * 1000;
/// All tabs of a browser have one.
const LOGINS_PER_USER_MAX: usize = 16;
/// Some 200 bytes each.
const LOGINS_MAX: usize = 1024;

/// What is kept of a cookie.
pub type CookieHash = [u8; 32];

struct Login {
    user: String,
    begun_ms: u64,
    used_ms: u64,
}

impl Login {
    fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.used_ms.saturating_add(IDLE_MS) || now_ms >= self.begun_ms.saturating_add(LIFE_MS)
    }
}

/// All that are logged in.
#[derive(Default)]
pub struct Logins {
    logins: HashMap<CookieHash, Login>,
}

pub fn hash(cookie: &str) -> CookieHash {
    Sha256::digest(cookie.as_bytes()).into()
}

/// What a change with this cookie has to carry.
pub fn csrf(cookie: &str) -> String {
    let mut hash = Sha256::new();
    hash.update("forebay csrf ");
    hash.update(cookie);
    hex(&hash.finalize())
}

impl Logins {
    /// A user has logged in; returns the cookie. `random` is from the system.
    pub fn begin(&mut self, user: &str, random: [u8; 32], now_ms: u64) -> String {
        self.logins.retain(|_, login| !login.is_over(now_ms));
        let own = self.logins.values().filter(|login| login.user == user).count();
        if own >= LOGINS_PER_USER_MAX {
            self.end_silent(|login| login.user == user);
        } else if self.logins.len() >= LOGINS_MAX {
            self.end_silent(|_| true);
        }
        let cookie = hex(&random);
        let login = Login { user: user.into(), begun_ms: now_ms, used_ms: now_ms };
        self.logins.insert(hash(&cookie), login);
        cookie
    }

    fn end_silent(&mut self, of: impl Fn(&Login) -> bool) {
        let silent = self.logins.iter().filter(|(_, login)| of(login)).min_by_key(|(_, login)| login.used_ms);
        if let Some(hash) = silent.map(|(hash, _)| *hash) {
            self.logins.remove(&hash);
        }
    }

    /// The UUID of the user whose cookie this is; the login counts as used now.
    pub fn used(&mut self, hash: &CookieHash, now_ms: u64) -> Option<String> {
        let login = self.logins.get_mut(hash)?;
        if login.is_over(now_ms) {
            self.logins.remove(hash);
            return None;
        }
        login.used_ms = now_ms;
        Some(login.user.clone())
    }

    /// Whether it still lasts; looking is not using.
    pub fn lasts(&self, hash: &CookieHash, now_ms: u64) -> bool {
        self.logins.get(hash).is_some_and(|login| !login.is_over(now_ms))
    }

    pub fn end(&mut self, hash: &CookieHash) {
        self.logins.remove(hash);
    }

    pub fn end_all_of(&mut self, user: &str) {
        self.logins.retain(|_, login| login.user != user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(n: u32) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        bytes
    }

    #[test]
    fn a_login_ends_when_it_is_idle_and_in_any_case() {
        let mut logins = Logins::default();
        let idle = hash(&logins.begin("anna", random(1), 0));
        let busy = hash(&logins.begin("anna", random(2), 0));
        assert_eq!(logins.used(&idle, IDLE_MS - 1).as_deref(), Some("anna"));
        assert!(logins.lasts(&idle, 2 * IDLE_MS - 2));
        assert_eq!(logins.used(&idle, 2 * IDLE_MS - 1), None);
        assert_eq!(logins.used(&idle, 2 * IDLE_MS - 2), None, "what is over does not come back");
        let mut now = 0;
        while now + 1000 * 3600 < LIFE_MS {
            now += 1000 * 3600;
            let lasts = logins.used(&busy, now).is_some();
            // Forgotten above, had it been idle; it was used in time.
            assert!(lasts, "after {now}");
        }
        assert!(logins.lasts(&busy, LIFE_MS - 1));
        assert!(!logins.lasts(&busy, LIFE_MS));
        assert_eq!(logins.used(&busy, LIFE_MS), None);
    }

    #[test]
    fn logging_out_ends_one_and_a_new_password_all() {
        let mut logins = Logins::default();
        let [a, b, other] =
            [("anna", 1), ("anna", 2), ("bert", 3)].map(|(user, n)| hash(&logins.begin(user, random(n), 0)));
        logins.end(&a);
        assert_eq!([&a, &b, &other].map(|hash| logins.lasts(hash, 0)), [false, true, true]);
        logins.end_all_of("anna");
        assert_eq!([&a, &b, &other].map(|hash| logins.lasts(hash, 0)), [false, false, true]);
    }

    #[test]
    fn the_cookie_is_not_kept_and_its_token_is_not_it() {
        let mut logins = Logins::default();
        let cookie = logins.begin("anna", random(7), 0);
        assert_eq!(cookie.len(), 64);
        assert!(!logins.logins.keys().any(|key| hex(key) == cookie));
        assert_ne!(csrf(&cookie), cookie);
        assert_ne!(csrf(&cookie), hex(&hash(&cookie)));
        assert_ne!(csrf(&cookie), csrf(&hex(&random(8))));
    }

    #[test]
    fn numbers_are_bounded_and_nobody_pushes_others_out_alone() {
        let mut logins = Logins::default();
        let other = hash(&logins.begin("bert", random(0), 0));
        let first = hash(&logins.begin("anna", random(1), 1));
        for n in 2..100 {
            logins.begin("anna", random(n), u64::from(n));
        }
        assert_eq!(logins.logins.len(), LOGINS_PER_USER_MAX + 1);
        assert!(logins.lasts(&other, 100) && !logins.lasts(&first, 100));
        for n in 100..3000 {
            logins.begin(&format!("user{n}"), random(n), u64::from(n));
        }
        assert_eq!(logins.logins.len(), LOGINS_MAX);
    }
}
