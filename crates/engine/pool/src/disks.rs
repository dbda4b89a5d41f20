//! The engine's handle for disks: what [`crate::members`] does, by pool name.

use crate::Engine;
use crate::control::Control;
use crate::damage::Damaged;
use crate::error::Error;
use crate::groups::GroupAdd;
use crate::members::{DiskAdd, DiskReplace};
use crate::spec::PoolStatus;
use crate::trim::Trimmed;
use async_recursion::async_recursion as boxed;
use std::rc::Rc;
use std::time::Duration;

/// A disk is named by its number, its UUID or its path.
impl Engine {
    /// Adds disks to a data group of the pool; chunks spread over them in the background.
    #[boxed]
    pub async fn disk_add(&self, pool: &str, paths: Vec<String>, add: DiskAdd) -> Result<PoolStatus, Error> {
        self.on_writable_pool(pool, |control| async move {
            control.disk_add(&paths, &add).await?;
            control.status().await
        })
        .await
    }

    /// What [`Engine::disk_add`] would refuse of disks at these paths, without adding one; how many bytes each has.
    #[boxed]
    pub async fn disk_add_check(&self, pool: &str, adds: Vec<(String, DiskAdd)>) -> Result<Vec<u64>, Error> {
        self.on_writable_pool(pool, |control| async move { control.disk_add_check(&adds).await }).await
    }

    /// Adds a group of disks that can lose as many as those the pool has; new chunks come from it as well.
    #[boxed]
    pub async fn group_add(&self, pool: &str, add: GroupAdd) -> Result<PoolStatus, Error> {
        self.on_writable_pool(pool, |control| async move {
            control.group_add(&add).await?;
            control.status().await
        })
        .await
    }

    /// What [`Engine::group_add`] would refuse, without adding anything; the bytes of data that the group would hold.
    #[boxed]
    pub async fn group_add_check(&self, pool: &str, add: GroupAdd) -> Result<u64, Error> {
        self.on_writable_pool(pool, |control| async move { control.group_add_check(&add).await }).await
    }

    /// Puts a disk in place of `old`. What is on `old` moves, or is rebuilt, in the background.
    #[boxed]
    pub async fn disk_replace(&self, pool: &str, old: &str, with: DiskReplace) -> Result<PoolStatus, Error> {
        let old = old.to_string();
        self.on_writable_pool(pool, move |control| async move {
            control.disk_replace(&old, &with).await?;
            control.status().await
        })
        .await
    }

    /// What [`Engine::disk_replace`] would refuse, without changing anything; how many bytes the new disk has, if it is named.
    #[boxed]
    pub async fn disk_replace_check(
        &self,
        pool: &str,
        old: &str,
        with: DiskReplace,
    ) -> Result<Option<u64>, Error> {
        let old = old.to_string();
        let check = |control: Rc<Control>| async move { control.disk_replace_check(&old, &with).await };
        self.on_writable_pool(pool, check).await
    }

    /// Has a disk leave the pool: what is on it moves to the others of its group in the background, then its label is erased.
    #[boxed]
    pub async fn disk_remove(&self, pool: &str, disk: &str) -> Result<PoolStatus, Error> {
        let disk = disk.to_string();
        self.on_writable_pool(pool, |control| async move {
            control.disk_remove(&disk).await?;
            control.status().await
        })
        .await
    }

    /// What [`Engine::disk_remove`] would refuse, without changing anything; how many bytes of the disk would move.
    #[boxed]
    pub async fn disk_remove_check(&self, pool: &str, disk: &str) -> Result<u64, Error> {
        let disk = disk.to_string();
        self.on_writable_pool(pool, |control| async move { control.disk_remove_check(&disk).await }).await
    }

    /// Has a group leave the pool: what is in it moves to the others in the background, then its disks' labels are erased.
    #[boxed]
    pub async fn group_remove(&self, pool: &str, group: u16) -> Result<PoolStatus, Error> {
        self.on_writable_pool(pool, move |control| async move {
            control.group_remove(group).await?;
            control.status().await
        })
        .await
    }

    /// What [`Engine::group_remove`] would refuse, without changing anything; how many bytes would move.
    #[boxed]
    pub async fn group_remove_check(&self, pool: &str, group: u16) -> Result<u64, Error> {
        self.on_writable_pool(pool, move |control| async move { control.group_remove_check(group).await })
            .await
    }

    /// Takes a disk out of service, if its group can do without it.
    #[boxed]
    pub async fn disk_offline(&self, pool: &str, disk: &str) -> Result<PoolStatus, Error> {
        let disk = disk.to_string();
        self.on_writable_pool(pool, |control| async move {
            control.disk_offline(&disk).await?;
            control.status().await
        })
        .await
    }

    /// Takes a disk that was out of service back, at `path` or where it was; what it missed is copied in the background.
    #[boxed]
    pub async fn disk_online(&self, pool: &str, disk: &str, path: Option<&str>) -> Result<PoolStatus, Error> {
        let (disk, path) = (disk.to_string(), path.map(str::to_string));
        self.on_writable_pool(pool, |control| async move {
            control.disk_online(&disk, path.as_deref()).await?;
            control.status().await
        })
        .await
    }

    /// What [`Engine::disk_online`] would refuse, without changing anything.
    #[boxed]
    pub async fn disk_online_check(&self, pool: &str, disk: &str, path: Option<&str>) -> Result<(), Error> {
        let (disk, path) = (disk.to_string(), path.map(str::to_string));
        let check =
            |control: Rc<Control>| async move { control.disk_online_check(&disk, path.as_deref()).await };
        self.on_writable_pool(pool, check).await
    }

    /// Forgets the errors that were counted of a disk.
    #[boxed]
    pub async fn disk_clear(&self, pool: &str, disk: &str) -> Result<PoolStatus, Error> {
        let disk = disk.to_string();
        self.on_pool(pool, |control| async move {
            control.disk_clear(&disk)?;
            control.status().await
        })
        .await
    }

    /// Makes a disk's light blink for a while, by reading from it.
    #[boxed]
    pub async fn disk_locate(&self, pool: &str, disk: &str, duration: Duration) -> Result<(), Error> {
        let disk = disk.to_string();
        self.on_pool(pool, move |control| async move { control.disk_locate(&disk, duration).await }).await
    }

    /// Begins a scrub in the background, or goes on with one that was paused.
    #[boxed]
    pub async fn scrub_start(&self, pool: &str) -> Result<(), Error> {
        self.on_writable_pool(pool, |control| async move { control.scrub_start().await }).await
    }

    /// Halts a scrub; it remembers where it was, also over a restart.
    #[boxed]
    pub async fn scrub_pause(&self, pool: &str) -> Result<(), Error> {
        self.on_writable_pool(pool, |control| async move { control.scrub_pause().await }).await
    }

    /// Ends a scrub, running or paused.
    #[boxed]
    pub async fn scrub_stop(&self, pool: &str) -> Result<(), Error> {
        self.on_writable_pool(pool, |control| async move { control.scrub_stop().await }).await
    }

    /// Which bytes of which volumes and snapshots are lost.
    #[boxed]
    pub async fn damage(&self, pool: &str) -> Result<Vec<Damaged>, Error> {
        self.on_pool(pool, |control| async move { control.damaged().await }).await
    }

    /// Somebody knows of all that is lost so far, and has no more to be told of it.
    #[boxed]
    pub async fn damage_accept(&self, pool: &str) -> Result<PoolStatus, Error> {
        self.on_writable_pool(pool, |control| async move {
            control.accept_damage().await?;
            control.status().await
        })
        .await
    }

    /// Has scrubs begin by themselves, so many seconds after the last was through; never with 0.
    #[boxed]
    pub async fn scrub_schedule(&self, pool: &str, every_seconds: u32) -> Result<(), Error> {
        self.on_writable_pool(pool, move |control| async move { control.schedule_scrub(every_seconds).await })
            .await
    }

    /// Tells the disks which of their space holds nothing; returns when it is done.
    #[boxed]
    pub async fn pool_trim(&self, pool: &str) -> Result<Trimmed, Error> {
        self.on_writable_pool(pool, |control| async move { control.trim().await }).await
    }

    /// Waits until no scrub is running.
    #[boxed]
    pub async fn pool_scrubbed(&self, pool: &str) -> Result<PoolStatus, Error> {
        self.on_pool(pool, |control| async move {
            control.scrubbed().await;
            control.status().await
        })
        .await
    }

    /// Waits until no slot of the pool has to move, or none can.
    #[boxed]
    pub async fn pool_healed(&self, pool: &str) -> Result<PoolStatus, Error> {
        self.on_pool(pool, |control| async move {
            control.healed().await;
            control.status().await
        })
        .await
    }
}
