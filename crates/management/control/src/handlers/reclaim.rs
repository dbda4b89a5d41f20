//! Searches for zeros that guests have written, whose space can be given back.

use super::pools::accepted;
use super::{told, watched};
use crate::request::{Answered, Ask, Principal, plan};
use crate::tasks::Running;
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use forebay_api::{self as api, Problem, VolumeReclaimed, show_size};
use std::sync::Arc;

pub async fn begin(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let volume = shared.engine.volume_reclaimable(&name).await?;
    let volume = convert::volume(&volume, &shared.known());
    if ask.dry_run {
        let mapped = show_size(volume.status.mapped_bytes);
        let what =
            format!("{mapped} are read while clients keep using the volume. Blocks of zeros are freed.");
        return plan("volume.reclaim", &volume.name, vec![what]);
    }
    let (by, object) = (shared.clone(), volume.name.clone());
    accepted(
        shared
            .tasks
            .start_long("volume.reclaim", &object, move |running| carry_out(by, who, running, volume)),
    )
}

async fn carry_out(
    shared: Arc<Shared>,
    who: Principal,
    mut running: Running,
    volume: api::Volume,
) -> Result<Option<serde_json::Value>, Problem> {
    let work = async |progress| shared.engine.volume_reclaim(&volume.id, progress).await;
    let reclaimed_bytes = watched(&shared, &mut running, work).await.map_err(convert::problem)?;
    let what = format!("{} of zeros were freed", show_size(reclaimed_bytes));
    told(&shared, &who, "volume.reclaimed", &volume.name, &what);
    Ok(Some(serde_json::to_value(VolumeReclaimed { reclaimed_bytes }).expect("it is plain data")))
}
