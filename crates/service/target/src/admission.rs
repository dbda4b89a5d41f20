//! Which connections a server has room for.
//!
//! A connection holds a [`Place`]. Places are few, because each costs a descriptor and some memory before the client has
//! shown any right to them, and clients that want them all must not get them:
//!
//! - No address has more than its share ([`ADDRESS_SHARE`]). A single client cannot keep the others out.
//! - A connection is *opening* until both sides agree, *silent* until it has taken an answer to a request, and *settled* from
//!   then on. Opening and silent connections can be displaced: when there is no place for a newcomer, the one that has got no
//!   further for longest makes room. A client that means it takes a step within milliseconds and settles after three, so it
//!   is displaced only by thousands of newcomers a second.
//! - At most [`HALF_OPEN_MAX`] connections are opening. They are the ones that a stranger gets for nothing.
//! - The address with most connections of that kind loses one. A flood from one address displaces itself.
//!
//! A connection that has proven itself and takes the place of an older one is *replacing* until that has left. It is not displaced, and not
//! counted in its address's share: when all connections of a host come again at once, the share has room for them.
//!
//! Settled connections are not displaced: a cut connection is an I/O error for somebody's file system. One whose client stops
//! in the middle of what it has begun is silent again, see [`crate::local`].
//!
//! All of this is behind one lock, which is taken when a connection comes, settles and goes, never for a request.

use futures_channel::oneshot;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

/// Connections of a server at a time, where the limit of open files allows that many.
pub const CONNECTIONS_MAX: usize = 1024;
/// One part in so many of the places is what an address may have: 256 of 1024, which is a host with 64 guests of four
/// connections each. It takes four hostile addresses to fill a server.
pub const ADDRESS_SHARE: usize = 4;
/// Connections that are opening at a time. An honest one takes milliseconds.
pub const HALF_OPEN_MAX: usize = 128;

/// Where connections come from: an IPv4 address, or the 64-bit prefix of an IPv6 one, as whoever has one address of a
/// prefix has all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin(IpAddr);

impl Origin {
    /// Of a peer's address with its port; `None` for a socket of this host's file system, which only its owner can open.
    pub fn of(peer: &str) -> Option<Origin> {
        let address: SocketAddr = peer.parse().ok()?;
        Some(Origin(match address.ip().to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            v4 => v4,
        }))
    }
}

/// Connections for each place, displaced ones included. One that is displaced has its descriptor and its memory until what it has begun is finished,
/// and on a disk that stands still that may be long.
const PRESENT_FACTOR: usize = 2;

/// The places of one server.
pub struct Admission {
    places: usize,
    per_address: usize,
    half_open: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Connections and listeners that have not gone, displaced ones included.
    present: usize,
    /// Those with a place; first those that have got no further for longest.
    holders: BTreeMap<u64, Holder>,
    /// How many of them each origin has, by stage.
    tallies: HashMap<Option<Origin>, [usize; STAGES]>,
    next: u64,
    stopping: bool,
    /// Told when there are no connections and no listeners any more.
    emptied: Vec<oneshot::Sender<()>>,
}

struct Holder {
    origin: Option<Origin>,
    stage: Stage,
    displace: oneshot::Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Opening,
    Silent,
    Replacing,
    Settled,
}

const STAGES: usize = 4;
const DISPLACEABLE: &[Stage] = &[Stage::Opening, Stage::Silent];

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// So many connections of the client's address are in use.
    Address(usize),
    /// So many connections are in use.
    Server(usize),
    /// So many connections are there, most of which have lost their places and have not ended.
    Leaving(usize),
    Stopping,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Address(count) => {
                write!(
                    f,
                    "refused: {count} connections of its address are in use, which is the maximum of an address"
                )
            }
            Full::Server(count) => write!(f, "refused: all {count} connections are in use"),
            Full::Leaving(count) => write!(
                f,
                "refused: of {count} open connections, most are closing and wait for the disks to finish"
            ),
            Full::Stopping => f.write_str("refused: the server is stopping"),
        }
    }
}

impl Admission {
    pub fn new(places: usize) -> Arc<Admission> {
        Arc::new(Admission {
            places,
            per_address: (places / ADDRESS_SHARE).max(1),
            half_open: HALF_OPEN_MAX.min(places / 2).max(1),
            taken: Mutex::default(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("no holder of this lock panics")
    }

    /// A place for a connection of this peer.
    pub fn admit(self: &Arc<Self>, peer: &str) -> Result<Place, Full> {
        let origin = Origin::of(peer);
        let mut taken = self.taken();
        if taken.stopping {
            return Err(Full::Stopping);
        }
        if taken.present >= PRESENT_FACTOR * self.places {
            return Err(Full::Leaving(taken.present));
        }
        let counted =
            |tally: &[usize; STAGES]| tally.iter().sum::<usize>() - tally[Stage::Replacing as usize];
        let own = taken.tallies.get(&origin).map_or(0, counted);
        if origin.is_some() && own >= self.per_address {
            if !taken.displace(DISPLACEABLE, |from| from == origin) {
                return Err(Full::Address(self.per_address));
            }
        } else if taken.holders.len() >= self.places && !taken.displace(DISPLACEABLE, |_| true) {
            return Err(Full::Server(self.places));
        }
        let opening: usize = taken.tallies.values().map(|tally| tally[Stage::Opening as usize]).sum();
        if opening >= self.half_open {
            taken.displace(&[Stage::Opening], |_| true);
        }
        let (displace, displaced) = oneshot::channel();
        let id = taken.next;
        taken.next += 1;
        taken.present += 1;
        taken.holders.insert(id, Holder { origin, stage: Stage::Opening, displace });
        taken.tallies.entry(origin).or_default()[Stage::Opening as usize] += 1;
        Ok(Place { admission: self.clone(), id, displaced: Some(displaced) })
    }

    /// The presence of a listener.
    pub fn listen(self: &Arc<Self>) -> Listening {
        self.taken().present += 1;
        Listening(self.clone())
    }

    /// Admits no more.
    pub fn stop(&self) {
        self.taken().stopping = true;
    }

    pub fn is_stopping(&self) -> bool {
        self.taken().stopping
    }

    /// Told when all connections and listeners have gone; `None` when they have.
    pub fn emptied(&self) -> Option<oneshot::Receiver<()>> {
        let mut taken = self.taken();
        if taken.present == 0 {
            return None;
        }
        let (told, emptied) = oneshot::channel();
        taken.emptied.push(told);
        Some(emptied)
    }
}

impl Taken {
    /// Has a connection in one of these stages make room: the one that has got no further for longest, of the origins with most of them among those that are
    /// meant. False when there is none.
    fn displace(&mut self, stages: &[Stage], is_meant: impl Fn(Option<Origin>) -> bool) -> bool {
        let count =
            |tally: &[usize; STAGES]| stages.iter().map(|&stage| tally[stage as usize]).sum::<usize>();
        let meant = self.tallies.iter().filter(|&(&origin, _)| is_meant(origin));
        let most = meant.map(|(_, tally)| count(tally)).max().unwrap_or(0);
        let found = self.holders.iter().find(|(_, holder)| {
            stages.contains(&holder.stage)
                && is_meant(holder.origin)
                && count(&self.tallies[&holder.origin]) == most
        });
        let Some((&id, _)) = found else { return false };
        let holder = self.remove(id).expect("it was found just now");
        // The connection may be ending by itself.
        let _ = holder.displace.send(());
        true
    }

    fn remove(&mut self, id: u64) -> Option<Holder> {
        let holder = self.holders.remove(&id)?;
        let tally = self.tallies.get_mut(&holder.origin).expect("a holder is counted");
        tally[holder.stage as usize] -= 1;
        if *tally == [0; STAGES] {
            self.tallies.remove(&holder.origin);
        }
        Some(holder)
    }

    /// Puts a connection, which has got further, behind all others. False when it was displaced already.
    fn advance(&mut self, id: &mut u64, stage: Option<Stage>) -> bool {
        let Some(mut holder) = self.holders.remove(id) else { return false };
        let stage = stage.unwrap_or(holder.stage);
        let tally = self.tallies.get_mut(&holder.origin).expect("a holder is counted");
        tally[holder.stage as usize] -= 1;
        tally[stage as usize] += 1;
        holder.stage = stage;
        *id = self.next;
        self.next += 1;
        self.holders.insert(*id, holder);
        true
    }

    fn leave(&mut self) {
        self.present -= 1;
        if self.present == 0 {
            for told in self.emptied.drain(..) {
                // Whoever waited may have given up.
                let _ = told.send(());
            }
        }
    }
}

/// A place among the connections; given up when dropped.
pub struct Place {
    admission: Arc<Admission>,
    id: u64,
    /// Nothing once it is settled, or knows that it was displaced.
    displaced: Option<oneshot::Receiver<()>>,
}

impl Place {
    /// Ready when the connection has to make room for a newcomer.
    pub fn poll_displaced(&mut self, context: &mut Context) -> Poll<()> {
        let Some(displaced) = &mut self.displaced else { return Poll::Pending };
        let poll = Pin::new(displaced).poll(context).map(|_| ());
        if poll.is_ready() {
            self.displaced = None;
        }
        poll
    }

    /// The client has taken a step towards an agreement.
    pub fn progress(&mut self) {
        self.admission.taken().advance(&mut self.id, None);
    }

    /// Both sides agree.
    pub fn agree(&mut self) {
        self.admission.taken().advance(&mut self.id, Some(Stage::Silent));
    }

    /// From now on the connection stays. False when it was displaced already.
    pub fn settle(&mut self) -> bool {
        let stays = self.admission.taken().advance(&mut self.id, Some(Stage::Settled));
        if stays {
            self.displaced = None;
        }
        stays
    }

    /// It stays, and until [`Place::settle`] it has the part in its address's share of an older one, which leaves.
    pub fn replace(&mut self) {
        self.admission.taken().advance(&mut self.id, Some(Stage::Replacing));
    }

    /// The client has stopped in the middle of something: the connection may be displaced again.
    pub fn unsettle(&mut self) {
        let (displace, displaced) = oneshot::channel();
        let mut taken = self.admission.taken();
        if taken.advance(&mut self.id, Some(Stage::Silent)) {
            taken.holders.get_mut(&self.id).expect("it advanced just now").displace = displace;
            self.displaced = Some(displaced);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.admission.taken();
        taken.remove(self.id);
        taken.leave();
    }
}

/// A listener's presence; ends when dropped.
pub struct Listening(Arc<Admission>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.taken().leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_displaced(place: &mut Place) -> bool {
        std::future::poll_fn(|context| place.poll_displaced(context)).now_or_never().is_some()
    }

    fn peer(address: usize, port: usize) -> String {
        format!("10.0.{}.{}:{port}", address / 256, address % 256)
    }

    fn settled(admission: &Arc<Admission>, address: usize) -> Place {
        let mut place = admission.admit(&peer(address, 1)).expect("there is room");
        assert!(place.settle());
        place
    }

    #[test]
    fn an_origin_is_what_one_client_has() {
        let of = |peer| Origin::of(peer).map(|origin| origin.0.to_string());
        let cases = [
            ("10.0.0.1:5", Some("10.0.0.1")),
            ("[::ffff:10.0.0.1]:5", Some("10.0.0.1")),
            ("[2001:db8:1:2:3:4:5:6]:7", Some("2001:db8:1:2::")),
            ("unix", None),
        ];
        for (peer, expected) in cases {
            assert_eq!(of(peer).as_deref(), expected, "{peer}");
        }
    }

    #[test]
    fn an_address_has_its_share_and_no_more() {
        let admission = Admission::new(16);
        let own: Vec<_> = (0..4).map(|_| settled(&admission, 1)).collect();
        assert_eq!(admission.admit(&peer(1, 9)).err(), Some(Full::Address(4)));
        let others: Vec<_> = (0..12).map(|number| settled(&admission, 2 + number)).collect();
        assert_eq!(admission.admit(&peer(99, 1)).err(), Some(Full::Server(16)));
        drop(own);
        let _place = settled(&admission, 1);
        drop(others);
        // The owner's socket has no address, and no share.
        let _local: Vec<_> =
            (0..15).map(|_| admission.admit("unix").expect("there is room").settle()).collect();
    }

    #[test]
    fn what_has_not_settled_makes_room_oldest_first() {
        let admission = Admission::new(8);
        let mut silent: Vec<_> = (0..2).map(|_| admission.admit(&peer(1, 1)).expect("room")).collect();
        silent.iter_mut().for_each(Place::agree);
        let mut third = admission.admit(&peer(1, 2)).expect("the first made room");
        assert!(is_displaced(&mut silent[0]) && !is_displaced(&mut silent[1]) && !is_displaced(&mut third));
        assert!(!silent[0].settle(), "too late");
        assert!(silent[1].settle());
        let mut fourth = admission.admit(&peer(1, 3)).expect("the third made room");
        assert!(is_displaced(&mut third) && !is_displaced(&mut silent[1]));
        assert!(fourth.settle());
        assert_eq!(admission.admit(&peer(1, 4)).err(), Some(Full::Address(2)));
        silent[1].unsettle();
        assert!(!is_displaced(&mut silent[1]));
        let _fifth = admission.admit(&peer(1, 5)).expect("one that has stopped makes room");
        assert!(is_displaced(&mut silent[1]) && !is_displaced(&mut fourth));
    }

    /// One that goes on stays beside any number that do not, also from its own address.
    #[test]
    fn a_step_is_worth_as_much_as_having_just_come() {
        let admission = Admission::new(1024);
        let mut steady = admission.admit(&peer(1, 1)).expect("room");
        for port in 0..10 * HALF_OPEN_MAX {
            let _stranger = admission.admit(&peer(1, port)).expect("one of the strangers made room");
            if port % (HALF_OPEN_MAX - 1) == 0 {
                steady.progress();
            }
            assert!(!is_displaced(&mut steady), "after {port} strangers");
        }
        steady.agree();
        assert!(steady.settle());
    }

    #[test]
    fn those_that_replace_others_stay_and_do_not_count() {
        let admission = Admission::new(16);
        let older: Vec<_> = (0..3).map(|_| settled(&admission, 1)).collect();
        let mut replacing: Vec<_> = (0..3)
            .map(|_| {
                let mut place = admission.admit(&peer(1, 2)).expect("those that replace others do not count");
                place.replace();
                place
            })
            .collect();
        let _silent: Vec<_> = (0..20).map(|port| admission.admit(&peer(1, port)).expect("room")).collect();
        assert!(!replacing.iter_mut().any(is_displaced));
        drop(older);
        assert!(replacing.iter_mut().all(Place::settle));
        let _fourth = settled(&admission, 1);
        assert_eq!(admission.admit(&peer(1, 9)).err(), Some(Full::Address(4)));
    }

    /// A flood from one address, and then from as many as there are places.
    #[test]
    fn a_flood_displaces_itself() {
        let admission = Admission::new(1024);
        let mut modest = admission.admit(&peer(1, 1)).expect("room");
        // Those that stay of as many as are let in; what is displaced ends at once.
        let flood = |admit: &dyn Fn(usize) -> Place| {
            let mut stay: Vec<Place> = Vec::new();
            for number in 0..5000 {
                stay.push(admit(number));
                stay.retain_mut(|place| !is_displaced(place));
            }
            stay
        };
        let one = |port| admission.admit(&peer(2, port)).expect("the oldest made room");
        let stay = flood(&one);
        assert!(!is_displaced(&mut modest));
        assert_eq!(stay.len(), HALF_OPEN_MAX - 1);
        assert!(modest.settle());
        drop(stay);
        let many = |number| {
            let mut place = admission.admit(&peer(2 + number, 1)).expect("the oldest made room");
            place.agree();
            place
        };
        let stay = flood(&many);
        assert_eq!(stay.len(), 1023);
        let mut late = admission.admit(&peer(1, 2)).expect("a silent one makes room");
        assert!(late.settle() && !is_displaced(&mut modest));
    }

    #[test]
    fn those_that_have_been_displaced_and_do_not_end_are_bounded() {
        let admission = Admission::new(8);
        let mut present: Vec<_> = (0..16).map(|n| admission.admit(&peer(n, 1)).expect("room")).collect();
        assert_eq!(admission.admit(&peer(20, 1)).err(), Some(Full::Leaving(16)));
        present.remove(0);
        assert!(admission.admit(&peer(20, 1)).is_ok());
    }

    #[test]
    fn the_end_is_told_when_all_have_gone() {
        let admission = Admission::new(2);
        assert!(admission.emptied().is_none());
        let (listening, first) = (admission.listen(), admission.admit("unix").expect("room"));
        // It makes room, but is there until it is dropped.
        let second = admission.admit("unix").expect("room");
        admission.stop();
        assert_eq!(admission.admit("unix").err(), Some(Full::Stopping));
        let mut emptied = admission.emptied().expect("there are three");
        drop((second, listening));
        assert_eq!(emptied.try_recv(), Ok(None));
        drop(first);
        assert_eq!(emptied.try_recv(), Ok(Some(())));
    }
}
