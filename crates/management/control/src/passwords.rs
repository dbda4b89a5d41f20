//! Passwords: how they are kept, and that checking them cannot be used to wear the daemon out.
//!
//! Argon2id with the parameters that OWASP's Password Storage Cheat Sheet names (19 MiB, two passes, one lane); each hash carries its
//! own salt and parameters. A check takes some 30 ms of a processor and 19 MiB, so at most [`RUNNING_MAX`] run at once, on threads
//! that may block, and at most [`WAITING_MAX`] wait. A name of no user is checked against [`NOBODY`], so that the answer comes as late as for
//! a wrong password.

use crate::blocking;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use forebay_api::{Code, Problem};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// NIST SP 800-63B asks for 8; where there is nothing but a password, 12.
const CHARACTERS_MIN: usize = 12;
/// A sentence, not a book: everything is hashed.
const BYTES_MAX: usize = 1024;
/// 2 × 19 MiB, and a second processor is left to those who work.
const RUNNING_MAX: usize = 2;
/// A second's worth of checks; more are told to come again.
const WAITING_MAX: usize = 32;
/// A hash with our parameters of a random password that was thrown away.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$TnSgk6nXZR0EkM8Xo2ovbA$3vDJbyxQ0IeURVaqpTd4mfYfVFtCD6mZUexU8Qy1v1A";

/// The right to hash, which is shared out.
pub struct Passwords {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Default for Passwords {
    fn default() -> Passwords {
        Passwords { running: Arc::new(Semaphore::new(RUNNING_MAX)), waiting: Semaphore::new(WAITING_MAX) }
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(19 << 10, 2, 1, None).expect("OWASP's parameters are valid");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Refuses a password that is too short or too long; never quotes it.
pub fn check_form(field: &str, password: &str) -> Result<(), Problem> {
    let refused = |detail: &str| {
        let remedy =
            "Use 12 characters or more, at most 1024 bytes. A few unrelated words are a good choice.";
        Err(Problem::new(Code::Invalid, detail).field(field).remedy(remedy))
    };
    if password.len() > BYTES_MAX {
        return refused("the password is too long");
    }
    if password.chars().count() < CHARACTERS_MIN {
        return refused("the password is too short");
    }
    Ok(())
}

impl Passwords {
    /// Hashes a password that [`check_form`] has admitted; returns what is kept of it.
    pub async fn hash(&self, password: String) -> Result<String, Problem> {
        self.run(move || {
            argon2().hash_password(password.as_bytes()).map(|hash| hash.to_string()).map_err(|error| {
                Problem::new(Code::Internal, format!("the password cannot be hashed: {error}"))
            })
        })
        .await
    }

    /// Whether it is the password of which `kept` was kept. `None` belongs to no user, and takes as long.
    pub async fn verify(&self, password: String, kept: Option<String>) -> Result<bool, Problem> {
        self.run(move || {
            let is_somebody = kept.is_some() && password.len() <= BYTES_MAX;
            let password = &password.as_bytes()[..password.len().min(BYTES_MAX)];
            let hash = kept.as_deref().unwrap_or(NOBODY);
            let is_right =
                PasswordHash::new(hash).is_ok_and(|hash| argon2().verify_password(password, &hash).is_ok());
            Ok(is_right && is_somebody)
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let busy = || {
            Problem::new(Code::Busy, "too many passwords wait to be checked").remedy("Try again in a moment.")
        };
        let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let turn = self.running.clone().acquire_owned().await.expect("the semaphore is never closed");
        // The turn ends with the work, also when the client has gone.
        blocking(move || {
            let result = work();
            drop(turn);
            result
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_kept_as_a_hash_and_only_it_fits() {
        let passwords = Passwords::default();
        let kept = passwords.hash("correct horse battery".into()).await.unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert_ne!(kept, passwords.hash("correct horse battery".into()).await.unwrap(), "each has its salt");
        let fits = async |text: &str, kept: Option<&String>| {
            passwords.verify(text.to_string(), kept.cloned()).await.unwrap()
        };
        assert!(fits("correct horse battery", Some(&kept)).await);
        assert!(!fits("correct horse batterz", Some(&kept)).await);
        assert!(!fits("", Some(&kept)).await);
        assert!(!fits("correct horse battery", None).await);
        assert!(!fits("correct horse battery", Some(&"damaged".to_string())).await);
    }

    #[test]
    fn nobody_costs_as_much_as_somebody() {
        let hash = PasswordHash::new(NOBODY).unwrap();
        let params = Params::try_from(&hash).unwrap();
        let ours = argon2();
        assert_eq!(
            (params.m_cost(), params.t_cost(), params.p_cost()),
            (ours.params().m_cost(), ours.params().t_cost(), ours.params().p_cost())
        );
        assert_eq!(hash.hash.unwrap().len(), 32);
    }

    #[test]
    fn short_and_long_passwords_are_refused_and_not_quoted() {
        check_form("password", "twelve chars").unwrap();
        // Twelve characters of three bytes each.
        check_form("password", &"ａ".repeat(12)).unwrap();
        check_form("password", &"x".repeat(1024)).unwrap();
        for wrong in ["", "elevenchars", &"ａ".repeat(11), &"x".repeat(1025)] {
            let problem = check_form("password", wrong).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some("password")));
            assert!(wrong.is_empty() || !problem.detail.contains(wrong));
        }
    }

    #[tokio::test]
    async fn more_than_can_wait_are_told_to_come_again() {
        let passwords = Arc::new(Passwords::default());
        let held = passwords.running.acquire_many(RUNNING_MAX as u32).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let passwords = passwords.clone();
                tokio::spawn(async move { passwords.run(|| Ok(())).await })
            })
            .collect();
        while passwords.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(passwords.run(|| Ok(())).await.unwrap_err().code, Code::Busy);
        drop(held);
        for one in waiting {
            one.await.unwrap().unwrap();
        }
        passwords.run(|| Ok(())).await.unwrap();
    }
}
