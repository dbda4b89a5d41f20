//! CHAP: proof that both know a secret (RFC 1994; RFC 7143, section 12.1.3; SHA-256 is number 7 of IANA's list).
//!
//! The side that wants proof sends a number and a challenge; the other answers with the hash of number, secret and
//! challenge. Each direction has a secret of its own. An attacker who has no secret could open a second
//! connection and let us answer our own challenge (reflection): so a challenge that we sent is never
//! answered, and one secret for both directions is refused.
//!
//! Challenges come from outside, from the operating system's random source. Hashes are compared in constant time.

use md5::{Digest, Md5};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of the challenges that we send: as many as the longest hash has.
pub const CHALLENGE_LEN: usize = 32;
/// Fewest bytes of a secret (12.1.3: 96 bits).
pub const SECRET_MIN: usize = 12;
/// Most bytes of a secret: the bound of the RFC for every CHAP value.
pub const SECRET_MAX: usize = 255;

/// From the weakest to the strongest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Algorithm {
    Md5 = 5,
    Sha256 = 7,
}

impl Algorithm {
    /// The first of an offered list (`CHAP_A`) that is known here and no weaker than `minimum`.
    pub fn choose(list: &str, minimum: Algorithm) -> Option<Algorithm> {
        let mut known = list.split(',').filter_map(|number| match number {
            "5" => Some(Algorithm::Md5),
            "7" => Some(Algorithm::Sha256),
            _ => None,
        });
        known.find(|algorithm| *algorithm >= minimum)
    }

    /// The answer to a challenge.
    pub fn answer(self, id: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(id: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
            D::new().chain_update([id]).chain_update(&secret.0).chain_update(challenge).finalize().to_vec()
        }
        match self {
            Algorithm::Md5 => hash::<Md5>(id, secret, challenge),
            Algorithm::Sha256 => hash::<Sha256>(id, secret, challenge),
        }
    }

    /// Whether `answer` proves knowledge of the secret.
    pub fn proves(self, answer: &[u8], id: u8, secret: &Secret, challenge: &[u8]) -> bool {
        self.answer(id, secret, challenge).ct_eq(answer).into()
    }
}

/// A secret of valid length; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// `None` when it is shorter than [`SECRET_MIN`] or longer than [`SECRET_MAX`] bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Secret> {
        let bytes = bytes.into();
        (SECRET_MIN..=SECRET_MAX).contains(&bytes.len()).then_some(Secret(bytes))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A name and the secret that goes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    pub user: String,
    pub secret: Secret,
}

/// Who must prove what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chap {
    /// How the initiator proves itself.
    pub initiator: Credentials,
    /// How the target proves itself to an initiator that asks; such an initiator is refused when this is `None`.
    pub target: Option<Credentials>,
}

/// A number and random bytes to be answered with a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge {
    pub id: u8,
    pub bytes: [u8; CHALLENGE_LEN],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hexadecimal;

    /// Computed with Python's hashlib over id + secret + challenge.
    #[test]
    fn answers_are_what_other_implementations_compute() {
        let secret = Secret::new("a secret of the host").unwrap();
        let challenge: Vec<u8> = (0..16).collect();
        let md5 = hexadecimal(&Algorithm::Md5.answer(23, &secret, &challenge));
        let sha = hexadecimal(&Algorithm::Sha256.answer(23, &secret, &challenge));
        assert_eq!(md5, "0x988612aa3009034d6664ac2e96ca8878");
        assert_eq!(sha, "0xb596e87c16dc5b481956c50fa31d56a36a4f5790bfbd94f2591a19d1020cb393");
        for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
            let mut answer = algorithm.answer(23, &secret, &challenge);
            assert!(algorithm.proves(&answer, 23, &secret, &challenge));
            assert!(!algorithm.proves(&answer, 24, &secret, &challenge));
            assert!(!algorithm.proves(&answer[1..], 23, &secret, &challenge));
            answer[3] ^= 1;
            assert!(!algorithm.proves(&answer, 23, &secret, &challenge));
        }
    }

    #[test]
    fn lists_and_lengths() {
        let (md5, sha256) = (Algorithm::Md5, Algorithm::Sha256);
        for (list, minimum, expected) in [
            ("6,7,5", md5, Some(sha256)),
            ("5,7", md5, Some(md5)),
            ("5,7", sha256, Some(sha256)),
            ("5", sha256, None),
            ("6,8", md5, None),
        ] {
            assert_eq!(Algorithm::choose(list, minimum), expected, "{list} from {minimum:?}");
        }
        assert!(Secret::new("elevenbytes").is_none() && Secret::new("twelve bytes").is_some());
        assert!(Secret::new([1; 255]).is_some() && Secret::new([1; 256]).is_none());
        assert_eq!(format!("{:?}", Secret::new("twelve bytes")), "Some(Secret(..))");
    }
}
