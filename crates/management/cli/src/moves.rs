//! The commands about volumes that move to another pool.

use crate::arguments::{DryRun, Wait, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, printable};
use crate::show;
use clap::Args;
use forebay_api as api;
use forebay_api::{MoveKeep, Operation, VolumeMove};

#[derive(Args, Debug)]
pub struct Move {
    /// POOL/NAME or UUID
    name: String,
    /// Name or UUID of the destination pool
    pool: String,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args, Debug)]
pub struct Keep {
    /// POOL/NAME or UUID
    name: String,
    /// New name, POOL/[PROJECT/]NAME [default: the former name]
    #[arg(long = "as", value_name = "NEW")]
    new: Option<String>,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct Abandon {
    /// POOL/NAME or UUID
    name: String,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Session {
    pub fn volume_move(&self, order: Move) -> Outcome {
        let Move { name, pool, dry_run, wait } = order;
        let body = VolumeMove { pool };
        let call = Call::of(Operation::VolumeMove, &name).body(&body).dry_run(dry_run.dry_run);
        if dry_run.dry_run {
            return self.plan(&self.client.call(call)?);
        }
        let done = |_: &api::Task| format!("Volume {name} has moved to pool {}.", printable(&body.pool));
        self.task(call, wait, done)?;
        Ok(Exit::Ok)
    }

    pub fn moves(&self) -> Outcome {
        self.list(&self.client.all(Operation::MoveList, &[])?, show::moves)
    }

    pub fn move_keep(&self, keep: Keep) -> Outcome {
        let Keep { name, new, yes, dry_run } = keep;
        let body = MoveKeep { name: new };
        let call = Call::of(Operation::MoveKeep, &name).body(&body).dry_run(dry_run.dry_run);
        if dry_run.dry_run {
            return self.plan(&self.client.call(call)?);
        }
        self.confirm(yes.yes, "If the other pool comes back, the volume may exist twice", &name, &call)?;
        self.one(&self.client.get::<api::Volume>(call)?, |volume| {
            println!("Volume {} is kept.", printable(&volume.name));
        })
    }

    pub fn move_abandon(&self, abandon: Abandon) -> Outcome {
        let Abandon { name, yes, dry_run } = abandon;
        let call = Call::of(Operation::MoveAbandon, &name).dry_run(dry_run.dry_run);
        if dry_run.dry_run {
            return self.plan(&self.client.call(call)?);
        }
        self.confirm(yes.yes, "If the other pool is lost, so is the volume", &name, &call)?;
        self.client.call(call)?;
        self.done(
            &name,
            "move.abandon",
            format!("The remainder of the interrupted move of {name} is deleted."),
        )
    }
}
