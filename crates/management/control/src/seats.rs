//! Places for streams: so many in all, and so many for one user, token or the owner, so that none of them takes all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Of one kind of stream.
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
