//! Who is there: sessions, and the places that connections have. Shared by all cores and management.
//!
//! A list behind a lock that is taken when an initiator comes and goes, never per command.

use super::mail::{Farewell, Mail, Who, post};
use crate::admission::{Admission, CONNECTIONS_MAX, Origin, Place};
use crate::event::Reporter;
use crate::server::next_id;
use crate::session::Counters;
use forebay_base::WallTime;
use forebay_runtime::{Cores, Rt};
use forebay_scsi::InitiatorPort;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

pub struct Registry {
    pub id: u64,
    pub reporter: Arc<Reporter>,
    pub admission: Arc<Admission>,
    pub portal_groups: Vec<u16>,
    guests: Mutex<Guests>,
}

#[derive(Default)]
struct Guests {
    sessions: BTreeMap<u64, Entry>,
    tsih_next: u16,
}

struct Entry {
    who: Arc<Who>,
    is_discovery: bool,
    tsih: u16,
    since: WallTime,
    counters: Arc<Counters>,
    /// It is to end, also if it has not quite begun.
    farewell: Option<Farewell>,
    left: Vec<oneshot::Sender<()>>,
}

/// A session as management sees it.
#[derive(Clone, Debug)]
pub struct IscsiSession {
    /// For [`IscsiServer::drop_session`](crate::IscsiServer::drop_session).
    pub id: u64,
    pub initiator: String,
    /// Empty for a discovery session.
    pub target: String,
    pub peer: String,
    pub portal_group: u16,
    pub tsih: u16,
    pub since: WallTime,
    pub commands: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// A session that is about to begin.
pub struct Newcomer {
    pub initiator: String,
    pub port: InitiatorPort,
    pub target: Option<String>,
    pub portal_group: u16,
    pub home: usize,
    pub peer: String,
}

fn tell(waiters: impl Iterator<Item = oneshot::Sender<()>>) {
    for told in waiters {
        // Whoever waited may have given up.
        let _ = told.send(());
    }
}

/// A line in the list of sessions; leaves when dropped.
pub struct Listed {
    registry: Arc<Registry>,
    pub who: Arc<Who>,
    tsih: u16,
    pub counters: Arc<Counters>,
}

impl Listed {
    pub fn tsih(&self) -> u16 {
        self.tsih
    }
    /// Why the session is to end before it began.
    pub fn farewell(&self) -> Option<Farewell> {
        self.registry.guests().sessions.get(&self.who.session).and_then(|entry| entry.farewell)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let entry = self.registry.guests().sessions.remove(&self.who.session);
        tell(entry.into_iter().flat_map(|entry| entry.left));
    }
}

impl Registry {
    pub fn new(reporter: Reporter, portal_groups: Vec<u16>, connections_max: usize) -> Arc<Registry> {
        Arc::new(Registry {
            id: next_id(),
            reporter: Arc::new(reporter),
            admission: Admission::new(connections_max),
            portal_groups,
            guests: Mutex::default(),
        })
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().expect("no holder of this lock panics")
    }

    /// Whether this initiator port has a session of this number.
    pub fn has(&self, port: &InitiatorPort, tsih: u16) -> bool {
        self.guests().sessions.values().any(|entry| entry.tsih == tsih && entry.who.port == *port)
    }

    /// Lists a session, which has a place. One with the same initiator port and target port is ended first (RFC 7143, 6.3.5). `None`
    /// when there are no numbers left.
    pub async fn join(
        self: &Arc<Self>,
        rt: &Rt,
        cores: &Cores,
        newcomer: Newcomer,
        place: &RefCell<Place>,
    ) -> Option<Listed> {
        let Newcomer { initiator, port, target, portal_group, home, peer } = newcomer;
        let is_discovery = target.is_none();
        let who = Arc::new(Who {
            session: next_id(),
            home,
            initiator,
            port,
            target: target.unwrap_or_default(),
            portal_group,
            portal_groups: self.portal_groups.clone(),
            peer,
        });
        loop {
            let (older, left, is_first) = {
                let mut guests = self.guests();
                let same = guests.sessions.values_mut().find(|entry| {
                    !entry.is_discovery
                        && !is_discovery
                        && entry.who.port == who.port
                        && entry.who.target == who.target
                        && entry.who.portal_group == who.portal_group
                });
                let Some(entry) = same else {
                    return guests.list(self, rt, who, is_discovery);
                };
                entry.farewell.get_or_insert(Farewell::Replaced);
                let (told, left) = oneshot::channel();
                let is_first = entry.left.is_empty();
                entry.left.push(told);
                (entry.who.clone(), left, is_first)
            };
            // One for each that leaves, and from the same address, so that no address gets more than its share for long.
            if is_first && Origin::of(&older.peer) == Origin::of(&who.peer) {
                place.borrow_mut().replace();
            }
            post(cores, rt, &older, Mail::End(Farewell::Replaced));
            // An error means that it left just now.
            let _ = left.await;
        }
    }

    /// Ends a session, if it is there.
    pub fn end(&self, cores: &Cores, id: u64, farewell: Farewell) -> bool {
        let who = {
            let mut guests = self.guests();
            let Some(entry) = guests.sessions.get_mut(&id) else { return false };
            entry.farewell.get_or_insert(farewell);
            entry.who.clone()
        };
        let session = who.session;
        cores.core(who.home).run(move |rt| {
            rt.local::<super::mail::PostOffice>().deliver(session, Mail::End(farewell));
        });
        true
    }

    pub fn sessions(&self) -> Vec<IscsiSession> {
        let guests = self.guests();
        let sessions = guests.sessions.values().map(|entry| IscsiSession {
            id: entry.who.session,
            initiator: entry.who.initiator.clone(),
            target: entry.who.target.clone(),
            peer: entry.who.peer.clone(),
            portal_group: entry.who.portal_group,
            tsih: entry.tsih,
            since: entry.since,
            commands: entry.counters.requests.load(Ordering::Relaxed),
            bytes_read: entry.counters.bytes_read.load(Ordering::Relaxed),
            bytes_written: entry.counters.bytes_written.load(Ordering::Relaxed),
        });
        sessions.collect()
    }
}

impl Guests {
    fn list(
        &mut self,
        registry: &Arc<Registry>,
        rt: &Rt,
        who: Arc<Who>,
        is_discovery: bool,
    ) -> Option<Listed> {
        // Far fewer sessions than numbers: one of the next thousand is free.
        let tsih = (0..=CONNECTIONS_MAX).find_map(|_| {
            self.tsih_next = self.tsih_next.wrapping_add(1).max(1);
            let tsih = self.tsih_next;
            self.sessions.values().all(|entry| entry.tsih != tsih).then_some(tsih)
        })?;
        let counters = Arc::new(Counters::default());
        self.sessions.insert(
            who.session,
            Entry {
                who: who.clone(),
                is_discovery,
                tsih,
                since: rt.wall(),
                counters: counters.clone(),
                farewell: None,
                left: Vec::new(),
            },
        );
        Some(Listed { registry: registry.clone(), who, tsih, counters })
    }
}
