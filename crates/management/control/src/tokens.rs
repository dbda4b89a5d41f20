//! Access tokens: random secrets, of which only the SHA-256 is kept.
//!
//! A secret has 256 random bits, so a plain hash is enough (there is nothing to guess) and looking the hash up
//! tells an attacker nothing by its timing. Every token has a role and an end. Revoking takes effect with the
//! next request.

use crate::directory::DataDir;
use crate::rules;
use forebay_api::{Code, Problem, Token, TokenCreate, TokenCreated, show_duration};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, MutexGuard};

const FILE: &str = "tokens";
/// Each is looked at by every request; a thousand take microseconds.
const TOKENS_MAX: usize = 1000;
const LIFE_SECONDS_DEFAULT: u64 = 90 * 24 * 3600;
const LIFE_SECONDS_MAX: u64 = 365 * 24 * 3600;
/// Tells people and secret scanners what the text is.
const PREFIX: &str = "forebay_";

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    token: Token,
    /// SHA-256 of the secret, in hexadecimal.
    sha256: String,
}

/// The daemon's tokens.
pub struct Tokens {
    dir: Arc<DataDir>,
    stored: Mutex<Vec<Stored>>,
}

fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_free(stored: &[Stored], name: &str) -> Result<(), Problem> {
    if stored.iter().all(|s| s.token.name != name) {
        return Ok(());
    }
    Err(Problem::new(Code::Conflict, "a token with this name exists")
        .object(name)
        .field("name")
        .remedy("Choose another name, or revoke it with `forebay token delete NAME`."))
}

impl Tokens {
    pub fn open(dir: Arc<DataDir>) -> Result<Tokens, Problem> {
        let damaged = |detail: String| {
            Problem::new(Code::Corrupt, detail).object(dir.file(FILE).display().to_string()).remedy(
                "Move the file away and start the daemon again. Then create new tokens with `forebay token create NAME`.",
            )
        };
        let stored = match dir.read(FILE).map_err(|error| damaged(format!("it cannot be read: {error}")))? {
            None => Vec::new(),
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| damaged(format!("it is not a list of tokens: {error}")))?,
        };
        Ok(Tokens { dir, stored: Mutex::new(stored) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stored>> {
        self.stored.lock().expect("no holder of this lock panics")
    }

    pub fn list(&self) -> Vec<Token> {
        self.lock().iter().map(|s| s.token.clone()).collect()
    }

    /// Checks a request for a token; returns its life in seconds.
    pub fn validate(&self, request: &TokenCreate) -> Result<u64, Problem> {
        rules::name("name", &request.name)?;
        let life = request.expires_in_seconds.unwrap_or(LIFE_SECONDS_DEFAULT);
        if !(1..=LIFE_SECONDS_MAX).contains(&life) {
            return Err(Problem::new(
                Code::Invalid,
                format!("a token cannot be valid for {}", show_duration(life)),
            )
            .field("expires_in_seconds")
            .remedy("Give 1 second to 1 year."));
        }
        let stored = self.lock();
        check_free(&stored, &request.name)?;
        if stored.len() >= TOKENS_MAX {
            return Err(Problem::new(Code::Busy, format!("there are {TOKENS_MAX} tokens already"))
                .remedy("Revoke some with `forebay token delete NAME`."));
        }
        Ok(life)
    }

    /// Refuses a new name that a token cannot have.
    pub fn check_name(&self, token: &Token, name: &str) -> Result<(), Problem> {
        rules::name("name", name)?;
        if token.name == name { Ok(()) } else { check_free(&self.lock(), name) }
    }

    /// Renames a token, which keeps its secret. Blocks on the disk.
    pub fn rename(&self, token: &Token, name: &str) -> Result<Token, Problem> {
        rules::name("name", name)?;
        self.save(|stored| {
            if token.name != name {
                check_free(stored, name)?;
            }
            let own = stored.iter_mut().filter(|s| s.token.id == token.id);
            own.for_each(|s| s.token.name = name.into());
            Ok(())
        })?;
        self.find(&token.id)
    }

    /// Makes a token. Blocks on the disk.
    pub fn create(&self, request: &TokenCreate, now_ms: u64) -> Result<TokenCreated, Problem> {
        self.save(|stored| {
            stored.retain(|s| s.token.expires_unix_ms > now_ms);
            Ok(())
        })?;
        let life = self.validate(request)?;
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| {
            Problem::new(Code::Internal, format!("the system gives no random numbers: {error}"))
        })?;
        let secret = format!("{PREFIX}{}", hex(&random));
        let token = Token {
            id: crate::random_id(),
            name: request.name.clone(),
            role: request.role,
            created_unix_ms: now_ms,
            expires_unix_ms: now_ms.saturating_add(life * 1000),
        };
        let entry = Stored { token: token.clone(), sha256: hash(&secret) };
        self.save(|stored| {
            check_free(stored, &entry.token.name)?;
            stored.push(entry);
            Ok(())
        })?;
        Ok(TokenCreated { token, secret })
    }

    /// Revokes the token with this name or UUID. Blocks on the disk.
    pub fn delete(&self, name: &str) -> Result<Token, Problem> {
        let token = self.find(name)?;
        self.save(|stored| {
            stored.retain(|s| s.token.id != token.id);
            Ok(())
        })?;
        Ok(token)
    }

    pub fn find(&self, name: &str) -> Result<Token, Problem> {
        let stored = self.lock();
        let found = stored.iter().find(|s| s.token.name == name || s.token.id == name);
        found.map(|s| s.token.clone()).ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such token")
                .object(name)
                .remedy("`forebay token list` shows them.")
        })
    }

    /// Whose secret this is; `None` when it is unknown or has expired.
    pub fn check(&self, secret: &str, now_ms: u64) -> Option<Token> {
        let sha256 = hash(secret);
        let stored = self.lock();
        let found = stored.iter().find(|s| s.sha256 == sha256)?;
        (found.token.expires_unix_ms > now_ms).then(|| found.token.clone())
    }

    /// Whether the token with this UUID is neither revoked nor expired.
    pub fn lasts(&self, id: &str, now_ms: u64) -> bool {
        self.lock().iter().any(|s| s.token.id == id && s.token.expires_unix_ms > now_ms)
    }

    fn save(&self, change: impl FnOnce(&mut Vec<Stored>) -> Result<(), Problem>) -> Result<(), Problem> {
        let mut stored = self.lock();
        let mut next = stored.clone();
        change(&mut next)?;
        if next == *stored {
            return Ok(());
        }
        let mut text = serde_json::to_vec_pretty(&next).expect("tokens are plain data");
        text.push(b'\n');
        self.dir.write(FILE, &text).map_err(|error| self.dir.cannot_write("the tokens", FILE, &error))?;
        *stored = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;
    use forebay_api::Access;

    fn request(name: &str, seconds: Option<u64>) -> TokenCreate {
        TokenCreate { name: name.into(), role: Access::Operator, expires_in_seconds: seconds }
    }

    #[test]
    fn a_secret_is_known_only_by_its_hash_and_only_while_it_lives() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let tokens = Tokens::open(dir.clone()).unwrap();
        let made = tokens.create(&request("ci", Some(10)), 1000).unwrap();
        let file = String::from_utf8(dir.read("tokens").unwrap().unwrap()).unwrap();
        assert!(!file.contains(made.secret.strip_prefix("forebay_").unwrap()));
        let again = Tokens::open(dir).unwrap();
        for tokens in [&tokens, &again] {
            let found = tokens.check(&made.secret, 10_999).unwrap();
            assert_eq!((found.name.as_str(), found.role), ("ci", Access::Operator));
            assert!(tokens.lasts(&found.id, 10_999) && !tokens.lasts(&found.id, 11_000));
            assert_eq!(tokens.check(&made.secret, 11_000), None, "expired");
            assert_eq!(tokens.check("", 1000), None);
            assert_eq!(tokens.check(&made.secret[..made.secret.len() - 1], 1000), None);
            let hash = file.split('"').find(|part| part.len() == 64).unwrap();
            assert_eq!(tokens.check(hash, 1000), None, "the stored hash is not a secret");
        }
        again.delete("ci").unwrap();
        assert_eq!(again.check(&made.secret, 1000), None, "revoked");
        assert!(!again.lasts(&made.token.id, 1000));
        assert_eq!(again.delete("ci").unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn names_and_lives_are_checked() {
        let temp = test_directory();
        let tokens = Tokens::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        tokens.create(&request("ci", Some(1)), 0).unwrap();
        assert_eq!(tokens.create(&request("ci", None), 0).err().unwrap().code, Code::Conflict);
        tokens.create(&request("ci", None), 1000).expect("the expired one made room");
        for (name, seconds, field) in
            [("", None, "name"), ("a/b", None, "name"), ("x", Some(0), "expires_in_seconds")]
        {
            let problem = tokens.create(&request(name, seconds), 0).err().unwrap();
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some(field)));
        }
        assert!(tokens.create(&request("x", Some(LIFE_SECONDS_MAX + 1)), 0).is_err());
    }
}
