//! Who asked for what: counted on the core where it happens, taken once a second by management.
//!
//! A [`Watched`] is what one client does with one volume over one protocol, however many sessions it has for that. Sessions hold it and
//! count into it when a request is answered: no lock, no look-up, a few additions and three buckets. Memory follows what happened:
//! a kind of operation has its histograms only in seconds in which there was one.
//!
//! What is counted is what the client asked for and got an answer to; how long it took runs from when the request had been received
//! whole until its answer was ready, waiting at ceilings and for turns included. Of what failed there is only the number.
//!
//! Counting can be halted ([`halt_facts`]), for whoever wants to know what it costs: then an answer is one look at a flag of its core.

use crate::trace::Needle;
use forebay_base::{Id, Nanos};
use forebay_probe::Histogram;
use forebay_runtime::{Cores, Rt};
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A volume is looked at in so many parts of equal size.
pub const PLACES: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    Nbd,
    Iscsi,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read,
    Write,
    Flush,
    /// Also zeroing without data.
    Discard,
    Other,
}

impl Operation {
    pub const ALL: [Operation; 5] =
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard, Operation::Other];
}

/// What a request asks for, and where.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub operation: Operation,
    pub at: u64,
    pub bytes: u64,
    pub since: Nanos,
}

/// What was answered of one kind of operation.
#[derive(Debug)]
pub struct Facts {
    pub count: u64,
    /// Moved, not discarded.
    pub bytes: u64,
    /// Nanoseconds.
    pub latencies: Histogram,
    pub sizes: Histogram,
    /// In which part of the volume they began.
    pub places: [u32; PLACES],
}

/// What one client did with one volume since it was last taken.
#[derive(Debug)]
pub struct ClientFacts {
    pub protocol: Protocol,
    /// Over NBD an address, over iSCSI the initiator's name.
    pub client: String,
    pub volume: Id,
    /// Answered with an error.
    pub failed: u64,
    /// Of [`Operation::ALL`], those that there were.
    pub facts: Vec<(Operation, Box<Facts>)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    protocol: Protocol,
    client: String,
    volume: Id,
}

/// What a client does with a volume.
#[derive(Default)]
pub struct Watched {
    facts: RefCell<[Option<Box<Facts>>; Operation::ALL.len()]>,
    failed: Cell<u64>,
    /// Its core's.
    is_halted: Rc<Cell<bool>>,
    /// Nothing in tests.
    needle: Option<Needle>,
}

impl Watched {
    /// A request was answered, of a volume of so many bytes.
    pub fn answered(&self, asked: &Asked, volume_bytes: u64, now: Nanos, is_ok: bool) {
        if let Some(needle) = self.needle.as_ref().filter(|_| is_ok) {
            needle.note(asked, now);
        }
        if self.is_halted.get() {
            return;
        }
        if !is_ok {
            self.failed.set(self.failed.get() + 1);
            return;
        }
        let Asked { operation, at, bytes, since } = *asked;
        let mut facts = self.facts.borrow_mut();
        let facts = facts[operation as usize].get_or_insert_with(|| {
            let (latencies, sizes) = (Histogram::default(), Histogram::default());
            Box::new(Facts { count: 0, bytes: 0, latencies, sizes, places: [0; PLACES] })
        });
        facts.count += 1;
        facts.latencies.record(now.since(since));
        match operation {
            Operation::Read | Operation::Write => facts.bytes += bytes,
            Operation::Discard => {}
            Operation::Flush | Operation::Other => return,
        }
        facts.sizes.record(bytes);
        let part = u128::from(at) * PLACES as u128 / u128::from(volume_bytes.max(1));
        let count = &mut facts.places[(part as usize).min(PLACES - 1)];
        *count = count.saturating_add(1);
    }

    fn take(&self, key: &Key) -> Option<ClientFacts> {
        let facts = self.facts.take();
        let facts = Operation::ALL.into_iter().zip(facts);
        let facts: Vec<_> =
            facts.filter_map(|(operation, facts)| facts.map(|facts| (operation, facts))).collect();
        let failed = self.failed.take();
        let Key { protocol, client, volume } = key.clone();
        (failed > 0 || !facts.is_empty()).then_some(ClientFacts { protocol, client, volume, failed, facts })
    }
}

/// All that is watched on a core.
#[derive(Default)]
struct Watches {
    all: RefCell<HashMap<Key, Rc<Watched>>>,
    is_halted: Rc<Cell<bool>>,
}

/// What this client does with this volume, on this core.
pub fn watched(rt: &Rt, protocol: Protocol, client: &str, volume: Id) -> Rc<Watched> {
    let key = Key { protocol, client: client.into(), volume };
    rt.local::<Watches>().watched(key, || Some(Needle::new(rt, volume)))
}

impl Watches {
    fn watched(&self, key: Key, needle: impl FnOnce() -> Option<Needle>) -> Rc<Watched> {
        let new = || {
            let (is_halted, needle) = (self.is_halted.clone(), needle());
            Rc::new(Watched { is_halted, needle, ..Watched::default() })
        };
        self.all.borrow_mut().entry(key).or_insert_with(new).clone()
    }

    fn take(&self) -> Vec<ClientFacts> {
        let mut all = self.all.borrow_mut();
        let taken = all.iter().filter_map(|(key, watched)| watched.take(key)).collect();
        // Whose sessions have ended was told for the last time.
        all.retain(|_, watched| Rc::strong_count(watched) > 1);
        taken
    }
}

/// What clients did since this was last asked, on all cores. A core that is being torn down tells nothing.
pub async fn take_facts(cores: Cores) -> Vec<ClientFacts> {
    on_each::<Watches, _>(cores, |watches| watches.take()).await.into_iter().flatten().collect()
}

/// Has nothing be counted on any core, or goes on with it; returns when that is so.
pub async fn halt_facts(cores: Cores, is_halted: bool) {
    on_each::<Watches, _>(cores, move |watches| watches.is_halted.set(is_halted)).await;
}

/// Asks each core about what it keeps of this kind, one after the other.
pub(crate) async fn on_each<L: Default + 'static, T: Send + 'static>(
    cores: Cores,
    work: impl Fn(&L) -> T + Copy + Send + 'static,
) -> Vec<T> {
    let asked = (0..cores.count()).map(|core| {
        let (told, answer) = oneshot::channel();
        cores.core(core).run(move |rt| {
            // Whoever asked may have gone.
            let _ = told.send(work(&rt.local::<L>()));
        });
        answer
    });
    let mut all = Vec::new();
    for answer in asked.collect::<Vec<_>>() {
        all.extend(answer.await.ok());
    }
    all
}

/// Of a peer's address, what is the same for all its connections.
pub fn address_of(peer: &str) -> &str {
    let address = peer.rsplit_once(':').map_or(peer, |(address, _)| address);
    address.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: Operation, at: u64, bytes: u64, since: u64) -> Asked {
        Asked { operation, at, bytes, since: Nanos(since) }
    }

    #[test]
    fn what_is_answered_is_counted_once_and_where_it_was() {
        let watches = Watches::default();
        let key = Key { protocol: Protocol::Nbd, client: "10.0.0.7".into(), volume: Id(1) };
        let watched = watches.watched(key, || None);
        for nth in 0..128 {
            watched.answered(&asked(Operation::Read, nth << 13, 8192, 1000), 1 << 20, Nanos(51_000), true);
        }
        watched.answered(&asked(Operation::Write, (1 << 20) - 512, 512, 0), 1 << 20, Nanos(2000), true);
        watched.answered(&asked(Operation::Discard, 0, 1 << 20, 0), 1 << 20, Nanos(1), true);
        watched.answered(&asked(Operation::Flush, 0, 0, 0), 1 << 20, Nanos(1), true);
        watched.answered(&asked(Operation::Read, 0, 8192, 0), 1 << 20, Nanos(1), false);
        let [one] = &watches.take()[..] else { panic!("one client, one volume") };
        assert_eq!((one.client.as_str(), one.failed), ("10.0.0.7", 1));
        let of = |operation| one.facts.iter().find(|(is, _)| *is == operation).map(|(_, facts)| facts);
        let reads = of(Operation::Read).expect("there were reads");
        assert_eq!((reads.count, reads.bytes, reads.places), (128, 128 << 13, [2; PLACES]));
        assert!((50_000..=56_250).contains(&reads.latencies.quantile(500)));
        assert_eq!(
            reads.sizes.quantile(1000),
            9215,
            "8192 and what an eighth of its power of two has besides"
        );
        let writes = of(Operation::Write).expect("there was a write");
        assert_eq!((writes.count, writes.bytes, writes.places[PLACES - 1]), (1, 512, 1));
        assert_eq!(of(Operation::Discard).map(|facts| facts.bytes), Some(0));
        assert!(of(Operation::Flush).is_some() && of(Operation::Other).is_none());

        watches.is_halted.set(true);
        watched.answered(&asked(Operation::Read, 0, 8192, 0), 1 << 20, Nanos(1), true);
        assert!(watches.take().is_empty(), "nothing is counted");
        watches.is_halted.set(false);

        // A session is there still, and did nothing; then it has gone, and so has what was watched.
        assert!(watches.take().is_empty());
        assert_eq!(watches.all.borrow().len(), 1);
        drop(watched);
        assert!(watches.take().is_empty());
        assert!(watches.all.borrow().is_empty());
    }

    #[test]
    fn places_beyond_the_end_and_volumes_without_bytes_are_counted() {
        let watched = Watched::default();
        watched.answered(&asked(Operation::Read, u64::MAX, 1, 0), u64::MAX, Nanos(0), true);
        watched.answered(&asked(Operation::Read, 5, 1, 7), 0, Nanos(0), true);
        let facts = watched.facts.take();
        let reads = facts[Operation::Read as usize].as_ref().expect("there were two");
        assert_eq!((reads.count, reads.places[PLACES - 1]), (2, 2));
    }

    #[test]
    fn a_client_is_its_address() {
        let peers = ["127.0.0.2:40000", "[fe80::1]:3", "unix"];
        assert_eq!(peers.map(address_of), ["127.0.0.2", "fe80::1", "unix"]);
    }
}
