//! The connections of one listener: who has a place, and who makes room for the newest.
//!
//! A listener serves [`CONNECTIONS_MAX`] connections at a time, at most [`CONNECTIONS_PER_ADDRESS_MAX`] of them from one address. A connection that comes when these
//! are taken is let in, and another ends for it, so that clients that hold connections keep no other client out. The first that makes room is
//! a stranger's: one on which no request has shown a token or a login yet, whatever it is doing; all that strangers may ask for is quick. Of those it is one of the
//! address that has most of them, so that an address that comes again and again displaces itself; of these the one that came, or was last answered, longest ago. After the strangers come known clients that have no request in progress, the one that has been idle longest. A request of
//! a known client in progress, streams included, never makes room; where such requests have all places, the new connection is closed.
//!
//! A [`Place`] is held for as long as the connection lasts, also after it has become a WebSocket. Connections on the owner's socket have no address and are known from
//! the beginning. The age of a connection is its place in the order of events, not a time, so that there are no two of one age.

use crate::attempts::network;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// A browser opens six; scripts one. Each costs some 32 KiB and a descriptor. The two listeners have so many each.
pub const CONNECTIONS_MAX: usize = 256;
/// Half, so that one address never has all of them. Enough for a proxy in front: fifty browsers with two streams each.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;
/// How long an answer may wait for a client that does not read. With [`UNSENT_BYTES_MAX`], that is a rate of 2 KiB a second at least.
pub const STALL: Duration = Duration::from_secs(30);

/// All connections of a listener.
#[derive(Default)]
pub struct Connections {
    table: Mutex<Table>,
    /// A connection has ended.
    left: Notify,
}

#[derive(Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    /// Of the next event: a connection that comes, or ends a request.
    next: u64,
}

struct Entry {
    address: Option<IpAddr>,
    is_known: bool,
    /// Requests in progress: one, or two for a moment while a WebSocket begins.
    requests: usize,
    /// When it came or was last answered.
    since: u64,
    shared: Arc<Signals>,
}

/// What a connection and those who serve it tell each other without the table.
struct Signals {
    hangup: Notify,
    is_stalled: AtomicBool,
    stall_ms: AtomicU64,
}

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// A place for a connection that has just come, from an address or on the owner's socket. `None`: all places are taken by requests of known clients.
    pub fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let address = address.map(network);
        let mut table = self.table();
        let from_here = |entry: &Entry| entry.address == address;
        if address.is_some()
            && table.entries.values().filter(|entry| from_here(entry)).count() >= CONNECTIONS_PER_ADDRESS_MAX
        {
            table.make_room(from_here)?;
        }
        if table.entries.len() >= CONNECTIONS_MAX {
            table.make_room(|_| true)?;
        }
        let number = table.tick();
        let shared = Arc::new(Signals {
            hangup: Notify::new(),
            is_stalled: AtomicBool::new(false),
            stall_ms: AtomicU64::new(STALL.as_millis() as u64),
        });
        let is_known = address.is_none();
        let entry = Entry { address, is_known, requests: 0, since: number, shared: shared.clone() };
        table.entries.insert(number, entry);
        drop(table);
        Some(Place(Arc::new(Held { connections: self.clone(), number, shared })))
    }

    /// Ends the connection that would make room for another, if there is one: the process has no descriptors left.
    pub fn make_room(&self) {
        // Without one, the next look is in a moment.
        let _ = self.table().make_room(|_| true);
    }

    /// Waits until no connection has a place.
    pub async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.table().entries.is_empty() {
                return;
            }
            left.await;
        }
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Ends one of these connections, unless all are in the middle of a known client's request.
    fn make_room(&mut self, among: impl Fn(&Entry) -> bool) -> Option<()> {
        let is_busy = |entry: &Entry| entry.requests > 0 || entry.shared.is_stalled.load(Ordering::Relaxed);
        let mut strangers: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for entry in self.entries.values().filter(|entry| !entry.is_known) {
            *strangers.entry(entry.address).or_default() += 1;
        }
        let candidates = self.entries.iter().filter(|(_, entry)| among(entry));
        let candidates = candidates.filter(|(_, entry)| !entry.is_known || !is_busy(entry));
        let order = |entry: &Entry| match entry.is_known {
            true => (true, Reverse(0), entry.since),
            false => (false, Reverse(strangers[&entry.address]), entry.since),
        };
        let number = *candidates.min_by_key(|(_, entry)| order(entry))?.0;
        let entry = self.entries.remove(&number).expect("it was found just now");
        entry.shared.hangup.notify_one();
        Some(())
    }
}

/// A connection's place. The last copy gives it back.
#[derive(Clone)]
pub struct Place(Arc<Held>);

struct Held {
    connections: Arc<Connections>,
    number: u64,
    shared: Arc<Signals>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // It may have made room already.
        self.connections.table().entries.remove(&self.number);
        self.connections.left.notify_waiters();
    }
}

impl Place {
    fn change(&self, change: impl FnOnce(&mut Entry, u64)) {
        let mut table = self.0.connections.table();
        let now = table.tick();
        if let Some(entry) = table.entries.get_mut(&self.0.number) {
            change(entry, now);
        }
    }

    /// A request on it has shown who the client is.
    pub fn set_known(&self) {
        self.change(|entry, _| entry.is_known = true);
    }

    /// A request begins; it ends when what is returned is dropped.
    pub fn begin_request(&self) -> Request {
        self.change(|entry, _| entry.requests += 1);
        Request(self.clone())
    }

    /// Ends the connection, also while its client reads nothing.
    pub fn hang_up(&self) {
        self.0.shared.hangup.notify_one();
    }

    /// Until the connection has to end.
    pub async fn hung_up(&self) {
        self.0.shared.hangup.notified().await;
    }

    /// From now on answers may wait so long for the client: it has something to do with what it has read.
    pub fn set_stall(&self, stall: Duration) {
        self.0.shared.stall_ms.store(stall.as_millis() as u64, Ordering::Relaxed);
    }

    pub fn stall(&self) -> Duration {
        Duration::from_millis(self.0.shared.stall_ms.load(Ordering::Relaxed))
    }

    /// Whether an answer waits for the client to read.
    pub fn set_stalled(&self, is_stalled: bool) {
        self.0.shared.is_stalled.store(is_stalled, Ordering::Relaxed);
    }
}

/// A request in progress.
pub struct Request(Place);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.change(|entry, now| {
            entry.requests -= 1;
            entry.since = now;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn address(n: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, n]))
    }

    fn has_ended(place: &Place) -> bool {
        place.hung_up().now_or_never().is_some()
    }

    #[test]
    fn an_address_has_its_share_and_its_oldest_stranger_makes_room() {
        let connections = Arc::new(Connections::default());
        let other = connections.admit(address(2)).unwrap();
        let mut places: Vec<Place> =
            (0..CONNECTIONS_PER_ADDRESS_MAX).map(|_| connections.admit(address(1)).unwrap()).collect();
        assert!(!places.iter().any(has_ended));
        // The first has just been answered, so the second is the oldest.
        drop(places[0].begin_request());
        places.push(connections.admit(address(1)).unwrap());
        let ended: Vec<usize> =
            places.iter().enumerate().filter(|(_, place)| has_ended(place)).map(|(nth, _)| nth).collect();
        assert_eq!(ended, [1]);
        assert!(!has_ended(&other), "another address's, although it is older");
        let mapped = "::ffff:192.0.2.1".parse().ok();
        connections.admit(mapped).unwrap();
        assert!(has_ended(&places[2]), "an IPv4 address in other clothes");
    }

    #[test]
    fn strangers_go_before_known_clients_and_requests_of_those_never() {
        let connections = Arc::new(Connections::default());
        let known: Vec<Place> =
            (0..CONNECTIONS_PER_ADDRESS_MAX).map(|_| connections.admit(address(1)).unwrap()).collect();
        known.iter().for_each(Place::set_known);
        let mut requests: Vec<Request> = known.iter().skip(1).map(Place::begin_request).collect();
        let stranger = connections.admit(address(1)).expect("the idle one makes room");
        assert!(has_ended(&known[0]) && !known.iter().skip(1).any(has_ended));
        // In the middle of its request, and still the only one that makes room.
        let _asking = stranger.begin_request();
        let next = connections.admit(address(1)).expect("the stranger makes room");
        assert!(has_ended(&stranger));
        next.set_known();
        requests.push(next.begin_request());
        assert!(connections.admit(address(1)).is_none(), "all are in the middle of a request");
        assert!(connections.admit(address(2)).is_some(), "others are not concerned");
        // Its answer is not read yet.
        next.set_stalled(true);
        requests.pop();
        assert!(connections.admit(address(1)).is_none());
        next.set_stalled(false);
        assert!(connections.admit(address(1)).is_some());
        assert!(has_ended(&next));
    }

    #[test]
    fn all_together_are_bounded_and_the_oldest_of_all_makes_room() {
        let connections = Arc::new(Connections::default());
        let places: Vec<Place> = (0..CONNECTIONS_MAX)
            .map(|n| connections.admit(address((n % 8) as u8)).expect("a place"))
            .collect();
        let newest = connections.admit(address(200)).expect("a place");
        assert!(has_ended(&places[0]) && !places.iter().skip(1).any(has_ended) && !has_ended(&newest));
        assert_eq!(connections.table().entries.len(), CONNECTIONS_MAX);
        connections.make_room();
        assert!(has_ended(&places[1]));
    }

    /// Few addresses that come again and again do not displace a client that is about to log in.
    #[test]
    fn the_address_with_most_strangers_makes_room() {
        let connections = Arc::new(Connections::default());
        let modest = connections.admit(address(9)).unwrap();
        let mut churn: Vec<Place> = Vec::new();
        for n in 0..20 * CONNECTIONS_MAX {
            churn.push(connections.admit(address((n % 4) as u8)).expect("one of those makes room"));
            churn.retain(|place| !has_ended(place));
            assert!(!has_ended(&modest), "displaced by number {n}");
        }
        assert_eq!(churn.len(), CONNECTIONS_MAX - 1);
    }

    #[test]
    fn the_owner_has_no_share_and_is_known() {
        let connections = Arc::new(Connections::default());
        let places: Vec<Place> = (0..CONNECTIONS_MAX).map(|_| connections.admit(None).unwrap()).collect();
        let requests: Vec<Request> = places.iter().map(Place::begin_request).collect();
        assert!(connections.admit(None).is_none());
        drop(requests);
        connections.admit(None).unwrap();
        assert!(has_ended(&places[0]));
    }

    #[tokio::test]
    async fn the_last_copy_gives_the_place_back() {
        let connections = Arc::new(Connections::default());
        let place = connections.admit(address(1)).unwrap();
        let copy = place.clone();
        drop(place);
        assert!(connections.empty().now_or_never().is_none());
        let (by, waits) = (connections.clone(), tokio::spawn(async move { connections.empty().await }));
        drop(copy);
        waits.await.unwrap();
        assert!(by.table().entries.is_empty());
    }
}
