//! One message over one channel, whichever kind it is, within a time limit.

use crate::failure::Failure;
use crate::notice::{Appliance, Message};
use crate::snmp::{self, Engine};
use crate::{smtp, syslog, webhook};
use forebay_api::Delivery;
use std::time::Duration;
use tokio::time::timeout;

/// For all of one attempt. Steps have shorter limits of their own; a mail to 32 recipients over a slow server needs the most.
pub const DELIVERY_TIME_MAX: Duration = Duration::from_secs(120);

/// A message arrived, or over UDP was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delivered {
    /// What is worth knowing nevertheless: recipients that the mail server refused.
    pub note: Option<String>,
}

/// Who sends.
#[derive(Debug)]
pub struct Sender {
    pub appliance: Appliance,
    pub engine: Engine,
}

impl Sender {
    /// One attempt.
    pub async fn deliver(
        &self,
        delivery: &Delivery,
        message: &Message,
        now_unix_ms: u64,
    ) -> Result<Delivered, Failure> {
        let appliance = &self.appliance;
        let attempt = async {
            let note = match delivery {
                Delivery::Mail(mail) => smtp::deliver(mail, appliance, message).await?,
                Delivery::Webhook(webhook) => {
                    webhook::deliver(webhook, appliance, message, now_unix_ms).await?;
                    None
                }
                Delivery::Syslog(syslog) => {
                    syslog::deliver(syslog, appliance, message).await?;
                    None
                }
                Delivery::SnmpTrap(trap) => {
                    snmp::deliver(trap, &self.engine, appliance, message).await?;
                    None
                }
            };
            Ok(Delivered { note })
        };
        timeout(DELIVERY_TIME_MAX, attempt).await.unwrap_or_else(|_| {
            Err(Failure::passing(
                format!("The delivery took longer than {} s", DELIVERY_TIME_MAX.as_secs()),
                "Check the receiver's log and load.",
            ))
        })
    }
}
