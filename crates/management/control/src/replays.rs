//! Idempotency keys: a POST that is sent again gets the first answer again.
//!
//! A client that lost the connection cannot know whether its request was done. With a key it sends the same request
//! once more: if the first try succeeded its answer is returned, if it still runs the second is refused, if it failed
//! the second is tried. Only successes are kept. A key belongs to one principal and to one exact request; the same
//! key with another request is a mistake and is told so. Memory is bounded: the oldest answers go first, and so a key
//! protects for the last [`ANSWERS_MAX`] requests, not for ever.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use forebay_api::{Code, Problem};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

const ANSWERS_MAX: usize = 512;
/// Larger answers are not kept; no POST of the API gives one. 512 × 32 KiB = 16 MiB at worst.
pub const ANSWER_BYTES_MAX: usize = 32 << 10;
const KEY_BYTES_MAX: usize = forebay_api::IDEMPOTENCY_KEY_BYTES_MAX;

/// An answer to give again.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(PartialEq, Eq, Clone)]
struct Owner {
    principal: String,
    key: String,
}

struct Entry {
    owner: Owner,
    /// SHA-256 of the request.
    request: [u8; 32],
    /// `None` while the first try runs.
    answer: Option<Answer>,
}

#[derive(Default)]
pub struct Replays {
    entries: Mutex<VecDeque<Entry>>,
}

/// What to do with a request that carries a key.
pub enum Begin {
    /// Do it, and tell the ticket.
    First(Ticket),
    Again(Answer),
}

/// The right to answer for a key. Dropped without an answer, the key is free again.
pub struct Ticket {
    replays: Arc<Replays>,
    owner: Option<Owner>,
}

impl Replays {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().expect("no holder of this lock panics")
    }

    pub fn begin(self: &Arc<Self>, principal: &str, key: &str, request: [u8; 32]) -> Result<Begin, Problem> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Problem::new(Code::Invalid, "the idempotency key is empty or too long")
                .field("Idempotency-Key")
                .remedy("Use 1 to 128 characters, a UUID for instance."));
        }
        let owner = Owner { principal: principal.into(), key: key.into() };
        let mut entries = self.lock();
        if let Some(entry) = entries.iter().find(|entry| entry.owner == owner) {
            return match &entry.answer {
                _ if entry.request != request => Err(Problem::new(
                    Code::KeyReused,
                    "this idempotency key was used before, with another request",
                )
                .field("Idempotency-Key")
                .remedy(
                    "Use a new key for each request. Repeat a key only to repeat its request unchanged.",
                )),
                None => Err(Problem::new(Code::Conflict, "the first request with this key is still running")
                    .field("Idempotency-Key")
                    .remedy("Try again in a moment.")),
                Some(answer) => Ok(Begin::Again(answer.clone())),
            };
        }
        if entries.len() >= ANSWERS_MAX {
            match entries.iter().position(|entry| entry.answer.is_some()) {
                Some(oldest) => drop(entries.remove(oldest)),
                None => {
                    return Err(Problem::new(
                        Code::Busy,
                        "too many requests with idempotency keys are running already",
                    )
                    .remedy("Try again in a moment."));
                }
            }
        }
        entries.push_back(Entry { owner: owner.clone(), request, answer: None });
        Ok(Begin::First(Ticket { replays: self.clone(), owner: Some(owner) }))
    }
}

impl Ticket {
    /// Keeps the answer.
    pub fn answer(mut self, answer: Answer) {
        let owner = self.owner.take().expect("a ticket is answered once");
        let mut entries = self.replays.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.owner == owner) {
            entry.answer = Some(answer);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            self.replays.lock().retain(|entry| entry.owner != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static str) -> Answer {
        Answer { status: StatusCode::CREATED, headers: HeaderMap::new(), body: text.into() }
    }

    fn first(replays: &Arc<Replays>, key: &str, request: u8) -> Ticket {
        match replays.begin("me", key, [request; 32]) {
            Ok(Begin::First(ticket)) => ticket,
            Ok(Begin::Again(_)) => panic!("{key} was answered before"),
            Err(problem) => panic!("{}", problem.detail),
        }
    }

    fn refused(replays: &Arc<Replays>, key: &str, request: u8) -> Code {
        replays.begin("me", key, [request; 32]).err().expect("refused").code
    }

    #[test]
    fn a_repeat_gets_the_first_answer_and_a_failure_frees_the_key() {
        let replays = Arc::new(Replays::default());
        let ticket = first(&replays, "a", 1);
        assert_eq!(refused(&replays, "a", 1), Code::Conflict);
        ticket.answer(answer("made"));
        match replays.begin("me", "a", [1; 32]) {
            Ok(Begin::Again(again)) => assert_eq!(again.body, "made"),
            _ => panic!("the answer was kept"),
        }
        assert_eq!(refused(&replays, "a", 2), Code::KeyReused);
        assert!(matches!(replays.begin("you", "a", [2; 32]), Ok(Begin::First(_))), "keys are per principal");
        drop(first(&replays, "b", 1));
        drop(first(&replays, "b", 2));
        assert_eq!(refused(&replays, "", 1), Code::Invalid);
        assert_eq!(refused(&replays, &"x".repeat(129), 1), Code::Invalid);
    }

    #[test]
    fn memory_is_bounded() {
        let replays = Arc::new(Replays::default());
        let held: Vec<Ticket> = (0..ANSWERS_MAX).map(|n| first(&replays, &n.to_string(), 1)).collect();
        assert_eq!(refused(&replays, "more", 1), Code::Busy);
        held.into_iter().for_each(|ticket| ticket.answer(answer("made")));
        for n in 0..3 * ANSWERS_MAX {
            first(&replays, &format!("later-{n}"), 1).answer(answer("made"));
        }
        assert_eq!(replays.lock().len(), ANSWERS_MAX);
        // The first ones are forgotten, the last are not.
        drop(first(&replays, "0", 1));
        assert_eq!(refused(&replays, &format!("later-{}", 3 * ANSWERS_MAX - 1), 2), Code::KeyReused);
    }
}
