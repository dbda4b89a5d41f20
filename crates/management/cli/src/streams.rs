//! The commands that send and receive snapshots, and that say what clients ask of a volume.
//!
//! A stream goes to stdout and comes from stdin, so that a pipe, a file or ssh takes it anywhere. It never goes to a terminal.

use crate::arguments::{DryRun, Yes};
use crate::client::{BROKEN_OFF, Call};
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Exit, Failure, printable};
use crate::show;
use clap::Args;
use forebay_api as api;
use forebay_api::Operation;
use std::io::{IsTerminal, stdin, stdout};

/// The event is on its way when the stream ends.
const EVENT_SECONDS_MAX: u64 = 2;
/// Others may come before it.
const EVENTS_ASKED_MAX: usize = 5;

#[derive(Args, Debug)]
pub struct Send {
    /// POOL/VOLUME@NAME or UUID
    name: String,
    /// Send only the changes since this snapshot (@NAME, POOL/VOLUME@NAME or UUID) or bookmark ('#NAME' or 'POOL/VOLUME#NAME', quoted)
    #[arg(long, value_name = "SNAPSHOT|BOOKMARK")]
    from: Option<String>,
    /// Resume an interrupted stream with the token that `snapshot receives` shows at the receiver; it includes the value of --from
    #[arg(long, value_name = "TOKEN", conflicts_with = "from")]
    resume: Option<String>,
}

#[derive(Args, Debug)]
pub struct Receive {
    /// POOL/[PROJECT/]NAME: a new volume, or one that has the base snapshot of the stream
    volume: String,
    /// Discard what was written to the volume after the base snapshot
    #[arg(long)]
    discard_changes: bool,
    /// Proceed even if clients are connected to the volume
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
pub struct Trace {
    /// POOL/[PROJECT/]NAME or UUID
    name: String,
    /// Duration in seconds, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

#[derive(Args, Debug)]
pub struct Receives {
    /// Only receives of this pool
    #[arg(long)]
    pool: Option<String>,
}

#[derive(Args, Debug)]
pub struct Abandon {
    /// POOL/NAME of the receiving volume
    volume: String,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    dry_run: DryRun,
}

/// Whether an event says why the stream of this snapshot ended.
fn is_end_of(event: &api::Event, name: &str) -> bool {
    event.code == "snapshot.send_failed" && event.object == name
}

/// What is no place for a stream.
fn refuse_terminal(is_terminal: bool, detail: &str, remedy: &str) -> Result<(), Failure> {
    if is_terminal { Err(Failure::new(Exit::Usage, detail, remedy)) } else { Ok(()) }
}

impl Session {
    pub fn snapshot_send(&self, send: Send) -> Outcome {
        refuse_terminal(
            stdout().is_terminal(),
            "a binary stream cannot be written to a terminal",
            "Redirect it to a file, or pipe it into `forebay snapshot receive VOLUME`.",
        )?;
        let mut call = Call::of(Operation::SnapshotSend, &send.name);
        if let Some(from) = &send.from {
            call = call.query("from", from);
        }
        if let Some(token) = &send.resume {
            call = call.query("resume", token);
        }
        let newest: api::Page<api::Event> =
            self.client.get(Call::new(Operation::EventList).query("limit", 1))?;
        let newest = newest.items.last().map_or(0, |event| event.sequence);
        self.client.download(call, &mut stdout().lock()).map_err(|failure| {
            match failure.detail.as_str() {
                BROKEN_OFF => self.why_broken_off(failure, &send.name, newest),
                _ => failure,
            }
        })?;
        Ok(Exit::Ok)
    }

    /// The failure with the reason that an event after this one gives. The stream itself has no place for it: its status was sent long before.
    fn why_broken_off(&self, failure: Failure, name: &str, mut after: u64) -> Failure {
        for _ in 0..EVENTS_ASKED_MAX {
            let call = Call::new(Operation::EventList);
            let call = call.query("after", after).query("wait_seconds", EVENT_SECONDS_MAX);
            let Ok(events) = self.client.get::<api::Page<api::Event>>(call) else { break };
            if let Some(event) = events.items.iter().find(|event| is_end_of(event, name)) {
                let detail = format!("{BROKEN_OFF}: {}", event.message);
                let remedy = "Then resume the stream (`--resume`).";
                return Failure::new(failure.exit, detail, remedy).object(name);
            }
            let Some(last) = events.items.last() else { break };
            after = last.sequence;
        }
        failure.object(name)
    }

    pub fn snapshot_receive(&self, receive: Receive) -> Outcome {
        refuse_terminal(
            stdin().is_terminal(),
            "a binary stream cannot be read from a terminal",
            "Redirect stdin from a file, or pipe it from `forebay snapshot send SNAPSHOT`.",
        )?;
        let mut call = Call::of(Operation::SnapshotReceive, &receive.volume);
        for (flag, is_set) in [("discard_changes", receive.discard_changes), ("force", receive.force)] {
            if is_set {
                call = call.query(flag, true);
            }
        }
        let snapshot: api::Snapshot = self.client.upload(call, stdin())?.parse()?;
        self.one(&snapshot, |snapshot| {
            println!("Snapshot {} is received.", printable(&snapshot.name));
        })
    }

    pub fn volume_trace(&self, trace: Trace) -> Outcome {
        let call = Call::of(Operation::VolumeTrace, &trace.name).query("seconds", trace.seconds);
        self.client.download(call, &mut stdout().lock())?;
        Ok(Exit::Ok)
    }

    pub fn receives(&self, list: Receives) -> Outcome {
        self.list(&self.client.all(Operation::ReceiveList, &of_pool(list.pool))?, show::receives)
    }

    pub fn receive_abandon(&self, abandon: Abandon) -> Outcome {
        let Abandon { volume, yes, dry_run } = abandon;
        let call = Call::of(Operation::ReceiveAbandon, &volume).dry_run(dry_run.dry_run);
        if dry_run.dry_run {
            return self.plan(&self.client.call(call)?);
        }
        self.confirm(yes.yes, "The received data is discarded, and has to be sent again", &volume, &call)?;
        self.client.call(call)?;
        self.done(&volume, "receive.abandon", format!("The interrupted receive of {volume} is discarded."))
    }
}
