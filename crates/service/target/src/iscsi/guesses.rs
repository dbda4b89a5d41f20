//! Logins that were refused for who they claimed to be, and how long the next ones wait.
//!
//! A login that is refused before authentication may be a guess: of a secret, or of a name for which none is asked. Each counts against
//! its initiator name, known or not, and against its address. [`FREE`] from an address are free; from then on one from that address is answered each
//! [`INTERVAL`], and it waits for those of its name from other such addresses, too. They are answered in the order in which they came; the limit of a
//! login's time ends what waits too long. Right answers wait as wrong ones do, or waiting would tell them apart; once in, they cost nothing.
//!
//! Guessing at a host's name must not keep that host out. So an address that has had no more than its free ones does not wait for anybody's guesses
//! at the name: the free ones of any number of addresses do not find a secret of 12 bytes. And a name that has logged in from an address counts apart
//! from then on: it waits for its own wrong answers only, whatever comes from that address. Such pairs, names and addresses are kept in tables of
//! [`ENTRIES_MAX`]; of those that wait, the one that waits least makes room.
//!
//! Lives on core 0, where all logins are.

use forebay_base::Nanos;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Wrong logins in a row that cost no time: a mistyped secret on each of some paths.
pub const FREE: u32 = 10;
/// One wrong login a second is 86 400 a day: of secrets of 12 random bytes, nothing.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// As many as there may be connections; an entry has up to 300 bytes.
const ENTRIES_MAX: usize = 1024;

/// Who claims to be whom. An IPv6 client has all addresses of its /64.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claim {
    initiator: String,
    address: Option<IpAddr>,
}

impl Claim {
    /// `peer` as a connection names it.
    pub fn new(initiator: &str, peer: &str) -> Claim {
        let address = peer.parse().ok().map(|peer: SocketAddr| match peer.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
            address => address,
        });
        Claim { initiator: initiator.to_owned(), address }
    }
}

#[derive(Default)]
pub struct Guesses(RefCell<Tables>);

/// When what was refused is paid for, at one per [`INTERVAL`].
#[derive(Clone, Copy, Default)]
struct Debt {
    paid: Nanos,
    /// That it waits was told, since it last owed nothing.
    is_told: bool,
}

impl Debt {
    /// When the next may be answered.
    fn ready(self) -> Nanos {
        Nanos(self.paid.0.saturating_sub(u64::from(FREE - 1) * INTERVAL.as_nanos() as u64))
    }

    /// One more; whether that is the first that makes others wait.
    fn charge(&mut self, now: Nanos) -> bool {
        self.is_told &= self.paid > now;
        self.paid = self.paid.max(now).after(INTERVAL);
        let waits = self.ready() > now;
        waits && !std::mem::replace(&mut self.is_told, true)
    }
}

#[derive(Default)]
struct Tables {
    initiators: HashMap<String, Debt>,
    addresses: HashMap<Option<IpAddr>, Debt>,
    /// Names where they have logged in, and when they last did.
    proven: HashMap<Claim, (Debt, Nanos)>,
}

/// Makes room for one more, unless the key is there.
fn make_room<K: Clone + Hash + Eq, V>(table: &mut HashMap<K, V>, key: &K, order: impl Fn(&V) -> Nanos) {
    if table.len() >= ENTRIES_MAX
        && !table.contains_key(key)
        && let Some(least) = table.iter().min_by_key(|(_, value)| order(value)).map(|(key, _)| key.clone())
    {
        table.remove(&least);
    }
}

fn charge<K: Clone + Hash + Eq>(table: &mut HashMap<K, Debt>, key: K, now: Nanos) -> bool {
    make_room(table, &key, |debt| debt.paid);
    table.entry(key).or_default().charge(now)
}

impl Guesses {
    /// When a login with this claim may be answered: in the past, for nearly all.
    pub fn ready(&self, now: Nanos, claim: &Claim) -> Nanos {
        let tables = self.0.borrow();
        if let Some((debt, _)) = tables.proven.get(claim) {
            return debt.ready();
        }
        let ready = |debt: Option<&Debt>| debt.map(|debt| debt.ready()).unwrap_or_default();
        let by_address = ready(tables.addresses.get(&claim.address));
        if by_address <= now {
            return by_address;
        }
        by_address.max(ready(tables.initiators.get(&claim.initiator)))
    }

    /// A login with this claim was refused; whether that is the first that makes others wait.
    pub fn refused(&self, now: Nanos, claim: &Claim) -> bool {
        let mut tables = self.0.borrow_mut();
        if let Some((debt, _)) = tables.proven.get_mut(claim) {
            return debt.charge(now);
        }
        let by_name = charge(&mut tables.initiators, claim.initiator.clone(), now);
        charge(&mut tables.addresses, claim.address, now) || by_name
    }

    /// A login with this claim has succeeded.
    pub fn proven(&self, now: Nanos, claim: &Claim) {
        let mut tables = self.0.borrow_mut();
        make_room(&mut tables.proven, claim, |(_, last)| *last);
        tables.proven.entry(claim.clone()).or_default().1 = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Guesses as fast as may be until `end`; how many were answered.
    fn guess(guesses: &Guesses, claim: &Claim, begin: Nanos, end: Nanos) -> u64 {
        let (mut now, mut count) = (begin, 0);
        while now < end {
            guesses.refused(now, claim);
            count += 1;
            now = now.max(guesses.ready(now, claim));
        }
        count
    }

    #[test]
    fn guesses_are_slowed_by_name_and_by_address() {
        let guesses = Guesses::default();
        let claim = Claim::new("iqn.a", "10.0.0.1:5000");
        assert_eq!(guess(&guesses, &claim, Nanos(0), Nanos(60 * SECOND)), 9 + 60);
        // Another port is the same address, and another name does not help. An address that has guessed at another name waits for those at this one.
        let now = Nanos(60 * SECOND - 1);
        guess(&guesses, &Claim::new("iqn.c", "10.0.0.3:5000"), Nanos(55 * SECOND), now);
        for (initiator, peer, expected) in [
            ("iqn.a", "10.0.0.1:6000", true),
            ("iqn.a", "10.0.0.3:5000", true),
            ("iqn.b", "10.0.0.1:5000", true),
            ("iqn.b", "[::ffff:10.0.0.1]:5000", true),
            ("iqn.b", "10.0.0.2:5000", false),
        ] {
            let claim = Claim::new(initiator, peer);
            assert_eq!(guesses.ready(now, &claim) > now, expected, "{initiator} {peer}");
        }
        assert_eq!(Claim::new("iqn.a", "[fe80::1]:1"), Claim::new("iqn.a", "[fe80::2:3]:9"));
        // Time is paid back.
        assert!(guesses.ready(now, &claim) <= Nanos(62 * SECOND));
    }

    #[test]
    fn an_address_without_guesses_does_not_wait_for_those_at_its_name() {
        let guesses = Guesses::default();
        let now = Nanos(30 * SECOND);
        guess(&guesses, &Claim::new("iqn.host", "10.6.6.6:1"), Nanos(0), now);
        let host = Claim::new("iqn.host", "10.0.0.1:1");
        assert!(guesses.ready(now, &host) <= now);
        // It has some free ones of its own: a mistyped secret is no reason yet.
        (0..FREE - 1).for_each(|_| _ = guesses.refused(now, &host));
        assert!(guesses.ready(now, &host) <= now);
        guesses.refused(now, &host);
        assert!(guesses.ready(now, &host) > Nanos(now.0 + SECOND), "from here on its name counts, too");
    }

    #[test]
    fn a_host_that_has_been_in_is_not_kept_out_by_guesses_at_its_name_or_from_its_address() {
        let guesses = Guesses::default();
        let host = Claim::new("iqn.host", "10.0.0.1:1");
        guesses.proven(Nanos(0), &host);
        for stranger in [Claim::new("iqn.host", "10.6.6.6:1"), Claim::new("iqn.x", "10.0.0.1:1")] {
            guess(&guesses, &stranger, Nanos(0), Nanos(30 * SECOND));
        }
        assert!(guesses.ready(Nanos(0), &host) <= Nanos(0));
        // It is slowed by its own.
        assert_eq!(guess(&guesses, &host, Nanos(30 * SECOND), Nanos(40 * SECOND)), 9 + 10);
    }

    #[test]
    fn the_first_that_waits_is_told_of() {
        let (guesses, claim) = (Guesses::default(), Claim::new("iqn.a", "10.0.0.1:1"));
        let mut now = Nanos(0);
        let tell = |now: &mut Nanos| {
            let told = (0..20).map(|_| {
                *now = guesses.ready(*now, &claim).max(*now);
                guesses.refused(*now, &claim)
            });
            told.collect::<Vec<bool>>()
        };
        for _ in 0..2 {
            let told = tell(&mut now);
            assert_eq!(told.iter().position(|told| *told), Some(FREE as usize - 1));
            assert_eq!(told.iter().filter(|told| **told).count(), 1);
            // When all is paid for, it is news again.
            now = Nanos(now.0 + 60 * SECOND);
        }
    }

    #[test]
    fn tables_are_bounded_and_those_that_wait_longest_stay() {
        let guesses = Guesses::default();
        let worst = Claim::new("iqn.worst", "10.0.0.1:1");
        guess(&guesses, &worst, Nanos(0), Nanos(30 * SECOND));
        for number in 0..3 * ENTRIES_MAX {
            let peer = format!("10.{}.{}.9:1", number >> 8, number & 255);
            let claim = Claim::new(&format!("iqn.{number}"), &peer);
            guesses.refused(Nanos(30 * SECOND), &claim);
            guesses.proven(Nanos(number as u64), &claim);
        }
        let tables = guesses.0.borrow();
        let sizes = [tables.initiators.len(), tables.addresses.len(), tables.proven.len()];
        assert_eq!(sizes, [ENTRIES_MAX; 3]);
        drop(tables);
        assert!(guesses.ready(Nanos(0), &worst) >= Nanos(30 * SECOND));
    }
}
