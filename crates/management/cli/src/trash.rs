//! The commands about the trash: deleting, restoring and purging volumes.

use crate::arguments::{DryRun, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Failure, printable};
use crate::show;
use crate::size::parse_every;
use clap::{ArgGroup, Args};
use forebay_api as api;
use forebay_api::{Operation, PoolSet, TrashRestore, show_duration};

#[derive(Args, Debug)]
pub struct Delete {
    /// POOL/NAME or UUID
    name: String,
    /// Also delete its snapshots
    #[arg(long)]
    with_snapshots: bool,
    /// Delete it for good: its space is freed at once, and it cannot be restored
    #[arg(long)]
    purge: bool,
    /// Proceed even if clients are connected to the volume
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("setting").required(true).multiple(true))]
pub struct Settings {
    /// The pool's name or UUID
    name: String,
    /// How long deleted volumes stay in the trash, such as 7d; 0 or off for no trash [default of a new pool: 7d]
    #[arg(long, value_name = "DURATION", value_parser = parse_every, group = "setting")]
    trash_keep: Option<u32>,
    /// Used space in percent at which an event is raised; repeat the option for all thresholds, up to 8 [default: 80 and 90]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100), group = "setting")]
    threshold: Vec<u8>,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct List {
    /// Only volumes of this pool
    #[arg(long)]
    pool: Option<String>,
}

#[derive(Args, Debug)]
pub struct Restore {
    /// Former POOL/NAME, or UUID
    name: String,
    /// New name, POOL/[PROJECT/]NAME [default: the former name]
    #[arg(long = "as", value_name = "NEW")]
    new: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct Purge {
    /// Former POOL/NAME, or UUID
    name: String,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Session {
    pub fn volume_delete(&self, delete: Delete) -> Outcome {
        let Delete { name, with_snapshots, purge, force, yes, dry_run } = delete;
        let mut call = Call::of(Operation::VolumeDelete, &name).dry_run(dry_run.dry_run);
        let flags = [("with_snapshots", with_snapshots), ("purge", purge), ("force", force)];
        for (flag, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            call = call.query(flag, true);
        }
        if dry_run.dry_run {
            return self.plan(&self.client.call(call)?);
        }
        // What was confirmed is this volume as it is now, not another that takes its name meanwhile.
        let seen = self.client.call(Call::of(Operation::VolumeShow, &name))?;
        let keep = if purge { 0 } else { self.trash_keep(&seen.parse::<api::Volume>()?.status.pool)? };
        let what = match (keep, with_snapshots) {
            (0, true) => "Deleting a volume, its snapshots and all their data cannot be undone".to_string(),
            (0, false) => "Deleting a volume and its data cannot be undone".to_string(),
            (keep, _) => format!("A deleted volume can be restored for {}", show_duration(keep)),
        };
        self.confirm(yes.yes, &what, &name, &call)?;
        self.client.call(call.if_seen(&seen))?;
        let text = match keep {
            0 => format!("Volume {name} is deleted."),
            keep => format!(
                "Volume {name} is in the trash for {}, and uses space until then. To free it: forebay volume purge {name}",
                show_duration(keep)
            ),
        };
        self.done(&name, "volume.delete", text)
    }

    fn trash_keep(&self, pool: &str) -> Result<u32, Failure> {
        let pool: api::Pool = self.client.get(Call::of(Operation::PoolShow, pool))?;
        Ok(pool.spec.trash_keep_seconds.unwrap_or_default())
    }

    pub fn pool_set(&self, set: Settings) -> Outcome {
        let Settings { name, trash_keep, threshold, yes, dry_run } = set;
        let name = &name;
        let threshold_percents = (!threshold.is_empty()).then_some(threshold);
        let body = PoolSet { trash_keep_seconds: trash_keep, threshold_percents };
        let call = Call::of(Operation::PoolSet, name).body(&body).dry_run(dry_run.dry_run);
        if dry_run.dry_run {
            return self.plan(&self.client.call(call)?);
        }
        if let Some(keep) = trash_keep
            && keep < self.trash_keep(name)?
        {
            let there: Vec<api::TrashedVolume> =
                self.client.all(Operation::TrashList, &of_pool(Some(name.into())))?;
            if !there.is_empty() {
                let what = "Volumes in the trash are purged sooner or at once, and this cannot be undone";
                self.confirm(yes.yes, what, name, &call)?;
            }
        }
        self.changed(&self.client.get::<api::Pool>(call)?, format!("Pool {name} is changed."))
    }

    pub fn trash(&self, list: List) -> Outcome {
        self.list(&self.client.all(Operation::TrashList, &of_pool(list.pool))?, show::trash)
    }

    pub fn volume_restore(&self, restore: Restore) -> Outcome {
        let Restore { name, new, dry_run } = restore;
        let body = TrashRestore { name: new };
        let call = Call::of(Operation::TrashRestore, &name).body(&body).dry_run(dry_run.dry_run);
        let answer = self.client.call(call)?;
        if dry_run.dry_run {
            return self.plan(&answer);
        }
        self.one(&answer.parse::<api::Volume>()?, |volume| {
            println!("Volume {} is restored.", printable(&volume.name));
        })
    }

    pub fn volume_purge(&self, purge: Purge) -> Outcome {
        let Purge { name, yes, dry_run } = purge;
        if dry_run.dry_run {
            return self.plan(&self.client.call(Call::of(Operation::TrashPurge, &name).dry_run(true))?);
        }
        // By its UUID: what was confirmed is this volume.
        let seen: api::TrashedVolume = self.client.get(Call::of(Operation::TrashShow, &name))?;
        let call = Call::of(Operation::TrashPurge, &seen.id);
        self.confirm(yes.yes, "Purging a volume and its data cannot be undone", &name, &call)?;
        self.client.call(call)?;
        self.done(&name, "volume.purge", format!("Volume {name} is purged."))
    }
}
