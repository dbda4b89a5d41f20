//! Places for what lasts: so many in all, and so many for one user, token or the owner, so that none of them takes all.
//!
//! A request in progress of a known client keeps its connection, so all that may last has places, and all of these together are fewer than the
//! [`CONNECTIONS_MAX`](crate::connections::CONNECTIONS_MAX) of a listener: streams of events, of statistics and of snapshots, requests that wait for news, and reports on
//! their way to a client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Requests that wait for news (`wait_seconds`) at a time; and of one user, token or the owner.
const WAITS_MAX: usize = 64;
const WAITS_EACH_MAX: usize = WAITS_MAX / 2;
/// Reports on their way to clients, of up to 4 MiB each, which a client that reads slowly keeps in memory.
const DOWNLOADS_MAX: usize = 16;
const DOWNLOADS_EACH_MAX: usize = DOWNLOADS_MAX / 2;

pub fn waits() -> Arc<Seats> {
    Seats::new(WAITS_MAX, WAITS_EACH_MAX)
}

pub fn downloads() -> Arc<Seats> {
    Seats::new(DOWNLOADS_MAX, DOWNLOADS_EACH_MAX)
}

/// Of one kind.
pub struct Seats {
    most: usize,
    most_each: usize,
    taken: Mutex<HashMap<String, usize>>,
}

impl Seats {
    pub fn new(most: usize, most_each: usize) -> Arc<Seats> {
        Arc::new(Seats { most, most_each, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.taken.lock().expect("no holder of this lock panics")
    }

    /// A place for the one with this name, until it is dropped.
    pub fn take(self: &Arc<Self>, who: String) -> Option<Seat> {
        let mut taken = self.taken();
        let own = taken.get(&who).copied().unwrap_or(0);
        if own >= self.most_each || taken.values().sum::<usize>() >= self.most {
            return None;
        }
        taken.insert(who.clone(), own + 1);
        drop(taken);
        Some(Seat { seats: self.clone(), who })
    }
}

pub struct Seat {
    seats: Arc<Seats>,
    who: String,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        let own = taken.get_mut(&self.who).expect("it has been counted");
        *own -= 1;
        if *own == 0 {
            taken.remove(&self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_and_places_come_back() {
        let seats = Seats::new(3, 2);
        let first = seats.take("anna".into()).unwrap();
        let _second = seats.take("anna".into()).unwrap();
        assert!(seats.take("anna".into()).is_none());
        let third = seats.take("bert".into()).unwrap();
        assert!(seats.take("carl".into()).is_none(), "all are taken");
        drop(third);
        drop(first);
        seats.take("anna".into()).unwrap();
        assert_eq!(seats.taken().len(), 1, "who has none is not kept");
    }
}
