//! How often a password may be tried: five wrong ones a minute for a name from one address, and bounds on what many do together.
//!
//! A guessing client must not lock others out, neither from elsewhere nor from the same address. So what an address did with a name counts for these two; the bounds on
//! an address, a name and all together are wider, and none of them holds where that name has logged in from that address before. A client that guesses at many names, or
//! from many addresses, slows down strangers for a minute, and not those who are known.
//!
//! A try counts as a failure when it begins and is taken back when it succeeds, so that a hundred at once are not a hundred free guesses. All tables are bounded; when
//! one is full the entry that was silent for longest goes. An address is an IPv4 address or an IPv6 /64, which is what one customer gets. Behind
//! a proxy everybody has the proxy's address. Who comes over the socket is the daemon's owner and waits for nothing. Time is an argument.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// Of a name from an address.
pub const FAILURES_MAX: usize = 5;
/// Of an address, with names that have not logged in from it: a third of what all may, so that it takes several addresses to keep strangers waiting everywhere, and
/// enough for people behind one router or proxy, one of whom guesses. A name alone is guessed at no faster by that.
const ADDRESS_FAILURES_MAX: usize = 100;
/// Of a name, from all addresses that it has not logged in from: guessing a thousand passwords takes an hour.
const NAME_FAILURES_MAX: usize = 20;
/// Of all: of a core's time checking takes a sixth.
const ALL_FAILURES_MAX: usize = 300;
const WINDOW_MS: u64 = 60_000;
/// In each table: 4096 of some 100 bytes.
const ENTRIES_MAX: usize = 4096;

/// The last failures of a key, oldest first.
struct Table<K> {
    failures: HashMap<K, Vec<u64>>,
    most: usize,
}

impl<K: Eq + Hash + Clone> Table<K> {
    fn new(most: usize) -> Table<K> {
        Table { failures: HashMap::new(), most }
    }

    /// How many milliseconds this key has to wait.
    fn wait_ms(&self, key: &K, now_ms: u64) -> Option<u64> {
        let recent: Vec<u64> =
            self.failures.get(key)?.iter().copied().filter(|at| at + WINDOW_MS > now_ms).collect();
        (recent.len() >= self.most).then(|| recent[0] + WINDOW_MS - now_ms)
    }

    fn add(&mut self, key: K, now_ms: u64) {
        if self.failures.len() >= ENTRIES_MAX && !self.failures.contains_key(&key) {
            self.failures.retain(|_, times| times.last().is_some_and(|at| at + WINDOW_MS > now_ms));
            if self.failures.len() >= ENTRIES_MAX
                && let Some(silent) = self.failures.iter().min_by_key(|(_, times)| times.last().copied())
            {
                let silent = silent.0.clone();
                self.failures.remove(&silent);
            }
        }
        let times = self.failures.entry(key).or_default();
        times.retain(|at| at + WINDOW_MS > now_ms);
        times.push(now_ms);
    }

    fn take_back(&mut self, key: &K) {
        if let Some(times) = self.failures.get_mut(key) {
            times.pop();
            if times.is_empty() {
                self.failures.remove(key);
            }
        }
    }
}

type Name = [u8; 32];

/// All tries of late, and who is known.
pub struct Attempts {
    pairs: Table<(Name, IpAddr)>,
    addresses: Table<IpAddr>,
    names: Table<Name>,
    all: Table<()>,
    /// When a name logged in from an address last.
    known: HashMap<(Name, IpAddr), u64>,
}

/// What one customer has: an IPv4 address, or an IPv6 /64.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => IpAddr::V4(mapped),
            None => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        },
        v4 => v4,
    }
}

/// A fixed size, whatever the name is.
fn digest(name: &str) -> Name {
    Sha256::digest(name.to_ascii_lowercase().as_bytes()).into()
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts {
            pairs: Table::new(FAILURES_MAX),
            addresses: Table::new(ADDRESS_FAILURES_MAX),
            names: Table::new(NAME_FAILURES_MAX),
            all: Table::new(ALL_FAILURES_MAX),
            known: HashMap::new(),
        }
    }
}

impl Attempts {
    /// A try begins, and counts as a failure until it has succeeded; or it must wait for so many seconds.
    pub fn begin(&mut self, name: &str, address: Option<IpAddr>, now_ms: u64) -> Result<(), u64> {
        let Some(address) = address.map(network) else { return Ok(()) };
        let pair = (digest(name), address);
        let is_stranger = !self.known.contains_key(&pair);
        let strangers = self.addresses.wait_ms(&address, now_ms);
        let strangers = strangers.max(self.names.wait_ms(&pair.0, now_ms)).max(self.all.wait_ms(&(), now_ms));
        let own = self.pairs.wait_ms(&pair, now_ms);
        if let Some(wait_ms) = own.max(strangers.filter(|_| is_stranger)) {
            return Err(wait_ms.div_ceil(1000));
        }
        self.pairs.add(pair, now_ms);
        if is_stranger {
            self.addresses.add(address, now_ms);
            self.names.add(pair.0, now_ms);
            self.all.add((), now_ms);
        }
        Ok(())
    }

    /// The try that began was right: what the name failed from here is forgiven, what others did is not.
    pub fn succeeded(&mut self, name: &str, address: Option<IpAddr>, now_ms: u64) {
        let Some(address) = address.map(network) else { return };
        let pair = (digest(name), address);
        self.pairs.failures.remove(&pair);
        if self.known.len() >= ENTRIES_MAX
            && !self.known.contains_key(&pair)
            && let Some(oldest) = self.known.iter().min_by_key(|(_, at)| **at).map(|(pair, _)| *pair)
        {
            self.known.remove(&oldest);
        }
        if self.known.insert(pair, now_ms).is_none() {
            self.addresses.take_back(&address);
            self.names.take_back(&pair.0);
            self.all.take_back(&());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, n]))
    }

    #[test]
    fn five_failures_a_minute_for_a_name_from_an_address() {
        let mut attempts = Attempts::default();
        for n in 0..5 {
            attempts.begin("anna", address(1), n * 1000).unwrap();
        }
        assert_eq!(attempts.begin("anna", address(1), 5000), Err(55));
        assert_eq!(attempts.begin("ANNA", address(1), 5001), Err(55), "capitals are no other name");
        attempts.begin("bert", address(1), 5000).unwrap();
        attempts.begin("anna", address(2), 5000).unwrap();
        assert_eq!(attempts.begin("anna", address(1), 59_999), Err(1));
        attempts.begin("anna", address(1), 60_000).unwrap();
        // The five that count are now those of seconds 1 to 4, and this one.
        assert_eq!(attempts.begin("anna", address(1), 60_000), Err(1));
    }

    #[test]
    fn who_guesses_from_elsewhere_locks_nobody_out() {
        let mut attempts = Attempts::default();
        attempts.begin("admin", address(1), 0).unwrap();
        attempts.succeeded("admin", address(1), 0);
        // From everywhere, for as long as they like.
        let mut tried = 0;
        for n in 0..100_000u32 {
            tried += u32::from(
                attempts.begin("admin", Some(IpAddr::from((n % 5000 + 7).to_be_bytes())), 10).is_ok(),
            );
        }
        assert_eq!(tried as usize, NAME_FAILURES_MAX, "and together they get no further than so many");
        assert!(
            attempts.begin("admin", address(2), 10).is_err(),
            "an address that nobody knows waits with them"
        );
        for _ in 0..4 {
            attempts.begin("admin", address(1), 10).unwrap();
        }
        attempts.succeeded("admin", address(1), 10);
        attempts.begin("admin", address(1), 10).unwrap();
        attempts.begin("admin", None, 10).unwrap();
    }

    #[test]
    fn an_address_and_all_together_are_bounded_whatever_the_names() {
        let mut attempts = Attempts::default();
        for n in 0..ADDRESS_FAILURES_MAX {
            attempts.begin(&format!("name{n}"), address(1), 0).unwrap();
        }
        assert_eq!(attempts.begin("other", address(1), 0), Err(60));
        assert!(
            attempts.begin("x", "::ffff:192.0.2.1".parse().ok(), 0).is_err(),
            "an IPv4 address in other clothes"
        );
        attempts.begin("other", address(2), 0).unwrap();
        let v6 = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        for n in 0..ADDRESS_FAILURES_MAX {
            attempts.begin(&format!("six{n}"), v6(&format!("2001:db8:1:2::{n:x}")), 0).unwrap();
        }
        assert!(attempts.begin("six", v6("2001:db8:1:2:ffff::1"), 0).is_err(), "one customer's network");
        attempts.begin("six", v6("2001:db8:1:3::1"), 0).unwrap();
        let begun = (0..2000u32).filter(|n| {
            let from = Some(IpAddr::from((n + 7).to_be_bytes()));
            attempts.begin(&format!("all{n}"), from, 0).is_ok()
        });
        assert_eq!(begun.count(), ALL_FAILURES_MAX - 2 * ADDRESS_FAILURES_MAX - 2);
        attempts.begin("late", address(9), 60_000).unwrap();
    }

    #[test]
    fn who_succeeds_has_not_failed() {
        let mut attempts = Attempts::default();
        for n in 0..100 {
            attempts.begin("anna", address(n), 0).unwrap();
            attempts.succeeded("anna", address(n), 0);
        }
        for n in 0..ADDRESS_FAILURES_MAX - 1 {
            attempts.begin(&format!("bert{n}"), address(1), 0).unwrap();
        }
        attempts.begin("dora", address(1), 0).unwrap();
        attempts.succeeded("dora", address(1), 0);
        attempts.begin("carl", address(1), 0).unwrap();
        assert!(
            attempts.begin("emil", address(1), 0).is_err(),
            "one's own login does not forgive guesses at others"
        );
    }

    #[test]
    fn who_guesses_at_an_address_does_not_lock_out_others_there() {
        let mut attempts = Attempts::default();
        attempts.begin("anna", address(1), 0).unwrap();
        attempts.succeeded("anna", address(1), 0);
        // Sixty names, and one of them again and again: oskar, who never logged in from there, still can.
        for n in 0..60 {
            attempts.begin(&format!("name{n}"), address(1), 10).unwrap();
        }
        let tried = (0..1000).filter(|_| attempts.begin("vera", address(1), 10).is_ok()).count();
        assert_eq!(tried, FAILURES_MAX, "the guess rate at a name stays bounded");
        attempts.begin("oskar", address(1), 10).unwrap();
        attempts.succeeded("oskar", address(1), 10);
        // As many names as there are: strangers wait, those who are known do not.
        let begun = (0..1000).filter(|n| attempts.begin(&format!("more{n}"), address(1), 20).is_ok()).count();
        assert!(begun < ADDRESS_FAILURES_MAX);
        for name in ["anna", "oskar"] {
            attempts.begin(name, address(1), 20).unwrap();
            attempts.succeeded(name, address(1), 20);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut attempts = Attempts::default();
        for n in 0..3 * ENTRIES_MAX as u32 {
            let (name, address) = (format!("name{n}"), Some(IpAddr::from(n.to_be_bytes())));
            attempts.begin(&name, address, u64::from(n) * 1000).unwrap();
            if n % 2 == 0 {
                attempts.succeeded(&name, address, u64::from(n) * 1000);
            }
        }
        let sizes = [
            attempts.pairs.failures.len(),
            attempts.addresses.failures.len(),
            attempts.names.failures.len(),
            attempts.known.len(),
        ];
        assert!(sizes.iter().all(|size| *size <= ENTRIES_MAX), "{sizes:?}");
        assert_eq!(attempts.known.len(), ENTRIES_MAX);
        assert!(attempts.all.failures[&()].len() <= ALL_FAILURES_MAX);
    }
}
