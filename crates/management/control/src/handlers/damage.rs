//! What of a pool is lost, and that somebody knows of it.

use super::pools::{accepted, imported, result};
use crate::request::{Answered, Ask, ok, plan};
use crate::{Shared, convert};
use axum::extract::{Path, State};
use std::sync::Arc;

pub async fn list(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let pool = imported(&shared, &name).await?;
    let ranges = shared.engine.damage(&pool.id.to_string()).await?;
    let ranges = ranges.iter().map(|range| convert::damaged(&pool.name, range)).collect();
    ok(&ask.page(ranges, |range| format!("{} {:020}", range.name, range.offset_bytes))?)
}

pub async fn accept(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let pool = imported(&shared, &name).await?;
    if ask.dry_run {
        let open = pool.damage.open;
        let change = format!(
            "{open} places that are lost count as known: pool {} is not called damaged for them.",
            pool.name
        );
        return plan("pool.damage_accept", &pool.name, vec![change]);
    }
    let (object, id, by) = (pool.name.clone(), pool.id.to_string(), shared.clone());
    let work = async move { result(&by.engine.damage_accept(&id).await.map_err(convert::problem)?) };
    accepted(shared.tasks.start("pool.damage_accept", &object, work))
}
