//! The negotiation with one client, from its connection to an agreement or its end.
//!
//! Runs on core 0. Reads only when the protocol needs bytes, so a client can make the server keep no more than one
//! receive buffer beyond what the protocol keeps. The time limit is the caller's.
//!
//! **Lists.** Finding out which exports there are costs a look at every volume. It is done once for all clients that ask
//! within [`LIST_PAUSE`], and their answers are made of that one list, [`LIST_PAGE`] names at a time: a client that asks again
//! and again, or does not read, takes neither the core nor the machine's memory.

use crate::admission::Place;
use crate::backing::{Catalog, Found};
use crate::contained::Contained;
use crate::server::{HANDSHAKE_MAX, PER_EXPORT};
use crate::tls::{TlsFailure, TlsServer, TlsStream};
use crate::transport::Transport;
use forebay_base::Nanos;
use forebay_base::panics::Panicked;
use forebay_nbd::{Action, Agreement, Handshake, Refusal, TlsMode, Violation};
use forebay_pool::ErrorKind;
use forebay_runtime::{Completer, NetError, Rt, Stream, completion};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Received at a time: options are small.
const RECEIVED: usize = 4096;
/// From one look at all volumes to the next, however many clients ask for a list.
const LIST_PAUSE: Duration = Duration::from_millis(100);
/// Names in one part of an answer: 64 KiB with names of 44 bytes, and 4 MiB with the longest.
const LIST_PAGE: usize = 1024;

/// A client and what it is to be served with.
pub struct Greeted {
    pub transport: Transport,
    pub agreement: Agreement,
    pub found: Found,
    /// What the client sent behind its last option.
    pub leftover: Vec<u8>,
}

/// Why there is no agreement.
pub enum Parted {
    /// The client asked to end it, or hung up between options.
    ByClient,
    Violation(Violation),
    Tls(TlsFailure),
    /// A bug in the protocol.
    Panicked(Panicked),
}

impl From<NetError> for Parted {
    fn from(_: NetError) -> Parted {
        Parted::ByClient
    }
}

/// What a negotiation needs to know.
pub struct Door<'a, C> {
    /// The newcomer's.
    pub place: &'a RefCell<Place>,
    pub catalog: &'a C,
    pub tls: Option<&'a TlsServer>,
    pub lists: &'a Rc<Lists>,
    /// How long the negotiation may take; grows with the exports that the client is told of.
    pub limit: &'a Cell<Duration>,
}

pub async fn greet<C: Catalog>(rt: &Rt, door: Door<'_, C>, stream: Stream) -> Result<Greeted, Parted> {
    let Door { place, catalog, tls, lists, limit } = door;
    let mode = if tls.is_some() { TlsMode::Required } else { TlsMode::Off };
    let mut handshake = Contained::new(Handshake::new(mode));
    let mut transport = Transport::Plain(stream);
    let mut found = None;
    let mut names = Names::default();
    loop {
        let action = handshake.call(Handshake::poll_action);
        if let Some(panicked) = handshake.panicked() {
            return Err(Parted::Panicked(panicked.clone()));
        }
        let Some(action) = action else {
            // libnbd sends an option in parts, and holds the next part back until this one is acknowledged.
            transport.acknowledge();
            let (buffer, count) = transport.recv(rt.buffer(RECEIVED)).await;
            match count? {
                0 => return Err(Parted::ByClient),
                count => handshake.call(|handshake| handshake.handle_input(&buffer[..count])),
            }
            continue;
        };
        match action {
            Action::Send(bytes) => {
                place.borrow_mut().progress();
                // Part of a list with the longest names is larger than the largest buffer.
                for part in bytes.chunks(1 << 20) {
                    transport.send(vec![rt.arena().copy(part).freeze()]).await?;
                }
            }
            Action::Find(name) => match catalog.find(&name).await {
                Ok(export) => {
                    handshake.call(|handshake| handshake.found(Ok(export.export.clone())));
                    found = Some(export);
                }
                Err(error) => {
                    let refusal = match error.kind {
                        ErrorKind::Stopped => Refusal::Stopping,
                        _ => Refusal::Unknown(error.to_string()),
                    };
                    handshake.call(|handshake| handshake.found(Err(refusal)));
                }
            },
            Action::List { skip } => {
                if skip == 0 {
                    names = list(rt, lists, catalog).await;
                    let exports = u32::try_from(names.len()).unwrap_or(u32::MAX);
                    limit.set(limit.get().max(HANDSHAKE_MAX + PER_EXPORT * exports));
                }
                let end = names.len().min(skip + LIST_PAGE);
                handshake.call(|handshake| handshake.listed(&names[skip..end], end == names.len()));
                if end == names.len() {
                    names = Names::default();
                }
            }
            Action::StartTls => {
                let server = tls.expect("the protocol offers TLS only when it is configured");
                let Transport::Plain(stream) = transport else {
                    unreachable!("the protocol starts TLS once");
                };
                let secured = TlsStream::accept(rt, stream, server).await.map_err(Parted::Tls)?;
                transport = Transport::Tls(Rc::new(secured));
                handshake.call(Handshake::secured);
            }
            Action::Transmit(agreement) => {
                let found = found.expect("an agreement is about an export that was found");
                let leftover = handshake.finish(Handshake::into_leftover).map_err(Parted::Panicked)?;
                return Ok(Greeted { transport, agreement, found, leftover });
            }
            Action::Close(why) => {
                transport.goodbye().await;
                return Err(why.map_or(Parted::ByClient, Parted::Violation));
            }
        }
    }
}

/// The exports at one moment.
type Names = Rc<[String]>;

/// Who waits for a list of a server's exports.
#[derive(Default)]
pub struct Lists {
    waiting: RefCell<Vec<Completer<Names>>>,
    is_running: Cell<bool>,
    last: Cell<Option<Nanos>>,
}

/// What there is, as of a moment after the question.
async fn list<C: Catalog>(rt: &Rt, lists: &Rc<Lists>, catalog: &C) -> Names {
    let (done, names) = completion();
    lists.waiting.borrow_mut().push(done);
    if !lists.is_running.replace(true) {
        rt.spawn(gather(rt.clone(), lists.clone(), catalog.clone()));
    }
    names.await
}

/// Answers all who wait, until there are none.
async fn gather<C: Catalog>(rt: Rt, lists: Rc<Lists>, catalog: C) {
    loop {
        if let Some(last) = lists.last.get() {
            rt.sleep_until(last.after(LIST_PAUSE)).await;
        }
        let waiting = lists.waiting.take();
        if waiting.is_empty() {
            return lists.is_running.set(false);
        }
        let names: Names = catalog.list().await.unwrap_or_default().into();
        lists.last.set(Some(rt.now()));
        waiting.into_iter().for_each(|done| done.complete(names.clone()));
    }
}
