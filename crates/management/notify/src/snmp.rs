//! SNMPv3 traps: an alert is an SNMPv2-Trap-PDU (RFC 3416) in a message that is signed and encrypted by the User-based Security Model (RFC 3414).
//!
//! [`ber`] writes bytes, [`usm`] has the keys and the security header, [`trap`] the objects of `mib/FOREBAY-MIB.txt`. No library fits: those there are
//! speak the manager's side, where the engine's identity comes from the peer; the sender of a trap is the authoritative engine itself.
//!
//! Nothing confirms a trap. It counts as delivered when the network took it and no "port unreachable" came back shortly after.

pub mod ber;
pub mod trap;
pub mod usm;

use crate::failure::Failure;
use crate::notice::{Appliance, Message};
use crate::syslog::send_datagrams;
use forebay_api::SnmpTrap;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// The private enterprise number under which the MIB and syslog's structured data stand. 32473 is reserved for examples (RFC 5612): to be replaced by
/// one of our own, here and in the MIB, before a release.
pub const ENTERPRISE: u32 = 32473;
/// Registered for notifications (RFC 3417, section 2).
pub const PORT: u16 = 162;

/// The appliance as an SNMP engine (RFC 3414, section 2.2).
#[derive(Debug)]
pub struct Engine {
    pub id: Vec<u8>,
    /// How often the engine was started: grows by one with each start of the daemon, which keeps it.
    pub boots: u32,
    started: Instant,
    /// Makes each encryption's initialisation vector another one (RFC 3826, section 3.1.2.1).
    salt: AtomicU64,
    request: AtomicU64,
}

impl Engine {
    /// `random` begins the salts: not to be the same after each start.
    pub fn new(appliance_id: &str, boots: u32, random: u64) -> Engine {
        Engine {
            id: usm::engine_id(appliance_id),
            // At its maximum an engine needs new keys (RFC 3414, section 2.2.2); at a start each second that is in 68 years.
            boots: boots.clamp(1, usm::BOOTS_MAX),
            started: Instant::now(),
            salt: AtomicU64::new(random),
            request: AtomicU64::new(random),
        }
    }

    fn stamp(&self) -> usm::Stamp {
        let up = self.started.elapsed();
        usm::Stamp {
            boots: self.boots,
            time_s: u32::try_from(up.as_secs()).unwrap_or(usm::BOOTS_MAX).min(usm::BOOTS_MAX),
            salt: self.salt.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Sends a trap for each alert of a message.
pub async fn deliver(
    channel: &SnmpTrap,
    engine: &Engine,
    appliance: &Appliance,
    message: &Message,
) -> Result<(), Failure> {
    let user = {
        let (channel, id) = (channel.clone(), engine.id.clone());
        // A megabyte is hashed for each password.
        tokio::task::spawn_blocking(move || usm::User::new(&channel, &id))
            .await
            .map_err(|_| Failure::passing("The appliance is shutting down", "Try again afterwards."))?
    };
    // Hundredths of a second, which begin anew after 497 days (RFC 2578, section 7.1.8).
    let up_time = (engine.started.elapsed().as_millis() / 10) as u32;
    let datagrams: Vec<Vec<u8>> = trap::traps(appliance, message)
        .iter()
        .map(|trap| {
            // A positive number of 31 bits.
            let request = (engine.request.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff) as u32;
            usm::message(engine, &user, engine.stamp(), request, &trap.pdu(up_time, request))
        })
        .collect();
    send_datagrams(&channel.host, channel.port.unwrap_or(PORT), &datagrams).await
}
