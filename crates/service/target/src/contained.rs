//! A protocol's state, whose calls may panic without taking more along than their session.
//!
//! Protocol crates are written so that nothing a peer sends panics. Should one panic all the same, its state is half changed and is never
//! used again: further calls do nothing, and the session that owns it ends, with an event. What the session has begun in the engine is
//! not in here and goes on to its end. Which panics end the process instead: [`forebay_base::panics`].

use forebay_base::panics::{Panicked, contain};

pub struct Contained<P> {
    state: Option<P>,
    panicked: Option<Panicked>,
}

impl<P> Contained<P> {
    pub fn new(state: P) -> Contained<P> {
        Contained { state: Some(state), panicked: None }
    }

    /// Makes a call; nothing comes of it if it panics, or one before it did.
    pub fn call<T: Default>(&mut self, call: impl FnOnce(&mut P) -> T) -> T {
        let Some(state) = &mut self.state else { return T::default() };
        contain(|| call(state)).unwrap_or_else(|panicked| {
            self.panicked = Some(panicked);
            // What its fields hold is given back, as far as they are whole.
            let state = self.state.take();
            let _ = contain(|| drop(state));
            T::default()
        })
    }

    /// Makes the last call.
    pub fn finish<T>(self, call: impl FnOnce(P) -> T) -> Result<T, Panicked> {
        match (self.state, self.panicked) {
            (Some(state), _) => contain(|| call(state)),
            (None, panicked) => Err(panicked.expect("only a panic takes the state away")),
        }
    }

    /// The panic that ended it.
    pub fn panicked(&self) -> Option<&Panicked> {
        self.panicked.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_panic_nothing_is_called_any_more() {
        let mut numbers = Contained::new(vec![1]);
        assert_eq!(numbers.call(|numbers| numbers.len()), 1);
        assert_eq!(numbers.call(|numbers| numbers[7]), 0);
        assert!(numbers.panicked().expect("it panicked").0.contains("index"));
        numbers.call(|_| -> () { unreachable!("it is gone") });
    }
}
