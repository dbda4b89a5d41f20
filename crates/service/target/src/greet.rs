//! The negotiation with one client, from its connection to an agreement or its end.
//!
//! Runs on core 0. Reads only when the protocol needs bytes, so a client can make the server keep no more than one
//! receive buffer beyond what the protocol keeps. The time limit is the caller's.

use crate::backing::{Catalog, Found};
use crate::contained::Contained;
use crate::tls::{TlsFailure, TlsServer, TlsStream};
use crate::transport::Transport;
use forebay_base::panics::Panicked;
use forebay_nbd::{Action, Agreement, Handshake, Refusal, TlsMode, Violation};
use forebay_pool::ErrorKind;
use forebay_runtime::{NetError, Rt, Stream};
use std::rc::Rc;

/// Received at a time: options are small.
const RECEIVED: usize = 4096;

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

pub async fn greet<C: Catalog>(
    rt: &Rt,
    catalog: &C,
    tls: Option<&TlsServer>,
    stream: Stream,
) -> Result<Greeted, Parted> {
    let mut handshake =
        Contained::new(Handshake::new(if tls.is_some() { TlsMode::Required } else { TlsMode::Off }));
    let mut transport = Transport::Plain(stream);
    let mut found = None;
    loop {
        let action = handshake.call(Handshake::poll_action);
        if let Some(panicked) = handshake.panicked() {
            return Err(Parted::Panicked(panicked.clone()));
        }
        let Some(action) = action else {
            let (buffer, count) = transport.recv(rt.buffer(RECEIVED)).await;
            match count? {
                0 => return Err(Parted::ByClient),
                count => handshake.call(|handshake| handshake.handle_input(&buffer[..count])),
            }
            continue;
        };
        match action {
            Action::Send(bytes) => {
                // A list of many thousand exports is larger than the largest buffer.
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
            Action::List => {
                let names = catalog.list().await.unwrap_or_default();
                handshake.call(|handshake| handshake.listed(&names));
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
