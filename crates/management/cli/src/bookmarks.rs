//! The commands about bookmarks.

use crate::arguments::{DryRun, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::printable;
use crate::rename::Rename;
use crate::show;
use clap::Subcommand;
use forebay_api as api;
use forebay_api::{BookmarkCreate, Operation};

#[derive(Subcommand, Debug)]
pub enum Bookmark {
    /// Create a bookmark: increments can be sent from a snapshot's point in time after the snapshot is deleted
    Create {
        /// POOL/VOLUME@NAME or UUID of the snapshot
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: String,
        /// The bookmark's name, without # [default: the snapshot's name]
        name: Option<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List bookmarks, the oldest of a volume first
    List {
        /// Only bookmarks of this volume
        #[arg(conflicts_with = "pool")]
        volume: Option<String>,
        /// Only bookmarks of this pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// Rename a bookmark
    Rename(Rename),
    /// Delete a bookmark; no data is lost
    Delete {
        /// POOL/VOLUME#NAME or UUID; quote it, because # may begin a comment in a shell
        name: String,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

impl Session {
    pub fn bookmark(&self, command: Bookmark) -> Outcome {
        match command {
            Bookmark::Create { snapshot, name, dry_run } => {
                let body = BookmarkCreate { snapshot, name };
                let call = Call::new(Operation::BookmarkCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Bookmark>()?, |mark| {
                    println!("Bookmark {} is created.", printable(&mark.name));
                })
            }
            Bookmark::List { volume, pool } => {
                let mut query = of_pool(pool);
                query.extend(volume.map(|volume| ("volume", volume)));
                self.list(&self.client.all(Operation::BookmarkList, &query)?, show::bookmarks)
            }
            Bookmark::Rename(rename) => self.rename("Bookmark", Operation::BookmarkSet, rename.of_part('#')?),
            Bookmark::Delete { name, yes, dry_run } => {
                let call = Call::of(Operation::BookmarkDelete, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.confirm(
                    yes.yes,
                    "Without the bookmark, no increment can be sent from its point in time",
                    &name,
                    &call,
                )?;
                self.client.call(call)?;
                self.done(&name, "bookmark.delete", format!("Bookmark {name} is deleted."))
            }
        }
    }
}
