//! How often a password may be tried: five wrong ones a minute for each name, and for each address.
//!
//! A try counts as a failure when it begins and is taken back when it succeeds, so that a hundred at once are not a hundred free guesses. Both tables are bounded; when
//! one is full the entry that was silent for longest goes. An address is an IPv4 address or an IPv6 /64, which is what one customer gets. Behind
//! a proxy everybody has the proxy's address. Time is an argument.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

pub const FAILURES_MAX: usize = 5;
const WINDOW_MS: u64 = 60_000;
/// Names and addresses that are remembered: 4096 of some 100 bytes.
const ENTRIES_MAX: usize = 4096;

/// The last failures of a key, oldest first.
struct Table<K> {
    failures: HashMap<K, Vec<u64>>,
}

impl<K: Eq + Hash + Clone> Table<K> {
    fn new() -> Table<K> {
        Table { failures: HashMap::new() }
    }

    /// How many milliseconds this key has to wait.
    fn wait_ms(&self, key: &K, now_ms: u64) -> Option<u64> {
        let recent: Vec<u64> =
            self.failures.get(key)?.iter().copied().filter(|at| at + WINDOW_MS > now_ms).collect();
        (recent.len() >= FAILURES_MAX).then(|| recent[0] + WINDOW_MS - now_ms)
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

/// All tries of late.
pub struct Attempts {
    names: Table<[u8; 32]>,
    addresses: Table<IpAddr>,
}

/// One customer's.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => IpAddr::V4(mapped),
            None => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        },
        v4 => v4,
    }
}

/// A fixed size, whatever somebody types as a name.
fn digest(name: &str) -> [u8; 32] {
    Sha256::digest(name.to_ascii_lowercase().as_bytes()).into()
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts { names: Table::new(), addresses: Table::new() }
    }
}

impl Attempts {
    /// A try begins, and counts as a failure until it has succeeded; or it must wait for so many seconds.
    pub fn begin(&mut self, name: &str, address: Option<IpAddr>, now_ms: u64) -> Result<(), u64> {
        let (name, address) = (digest(name), address.map(network));
        let by_name = self.names.wait_ms(&name, now_ms);
        let by_address = address.as_ref().and_then(|address| self.addresses.wait_ms(address, now_ms));
        if let Some(wait_ms) = by_name.max(by_address) {
            return Err(wait_ms.div_ceil(1000));
        }
        self.names.add(name, now_ms);
        if let Some(address) = address {
            self.addresses.add(address, now_ms);
        }
        Ok(())
    }

    /// The try that began was right: the name's failures are forgiven, the address's others are not.
    pub fn succeeded(&mut self, name: &str, address: Option<IpAddr>) {
        self.names.failures.remove(&digest(name));
        if let Some(address) = address {
            self.addresses.take_back(&network(address));
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
    fn five_failures_a_minute_for_a_name_from_wherever() {
        let mut attempts = Attempts::default();
        for n in 0..5 {
            attempts.begin("anna", address(n), u64::from(n) * 1000).unwrap();
        }
        assert_eq!(attempts.begin("anna", address(9), 5000), Err(55));
        assert_eq!(attempts.begin("ANNA", address(9), 5001), Err(55), "capitals are no other name");
        attempts.begin("bert", address(9), 5000).unwrap();
        assert_eq!(attempts.begin("anna", address(9), 59_999), Err(1));
        attempts.begin("anna", address(9), 60_000).unwrap();
        // The five that count are now those of seconds 1 to 4, and this one.
        assert_eq!(attempts.begin("anna", address(9), 60_000), Err(1));
    }

    #[test]
    fn five_failures_a_minute_for_an_address_whatever_the_names() {
        let mut attempts = Attempts::default();
        for n in 0..5 {
            attempts.begin(&format!("name{n}"), address(1), 0).unwrap();
        }
        assert_eq!(attempts.begin("other", address(1), 0), Err(60));
        attempts.begin("other", address(2), 0).unwrap();
        let v6 = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        for n in 0..5 {
            attempts.begin(&format!("six{n}"), v6(&format!("2001:db8:1:2::{n}")), 0).unwrap();
        }
        assert!(attempts.begin("six", v6("2001:db8:1:2:ffff::1"), 0).is_err(), "one customer's network");
        attempts.begin("six", v6("2001:db8:1:3::1"), 0).unwrap();
        assert!(attempts.begin("x", v6("::ffff:192.0.2.1"), 0).is_err(), "an IPv4 address in other clothes");
    }

    #[test]
    fn who_succeeds_has_not_failed() {
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            attempts.begin("anna", address(1), 0).unwrap();
            attempts.succeeded("anna", address(1));
        }
        for _ in 0..4 {
            attempts.begin("bert", address(1), 0).unwrap();
        }
        attempts.begin("anna", address(1), 0).unwrap();
        attempts.succeeded("anna", address(1));
        attempts.begin("bert", address(1), 0).unwrap();
        assert!(
            attempts.begin("anna", address(1), 0).is_err(),
            "one's own login does not forgive guesses at others"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut attempts = Attempts::default();
        for n in 0..3 * ENTRIES_MAX as u32 {
            let address = IpAddr::from(n.to_be_bytes());
            attempts.begin(&format!("name{n}"), Some(address), u64::from(n)).unwrap();
        }
        assert_eq!(attempts.names.failures.len(), ENTRIES_MAX);
        assert_eq!(attempts.addresses.failures.len(), ENTRIES_MAX);
        let largest = attempts.names.failures.values().map(Vec::len).max();
        assert_eq!(largest, Some(1));
    }
}
