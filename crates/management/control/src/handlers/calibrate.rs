//! Measurements of what pools can do, from which service levels reckon.

use super::disks::stopped;
use super::pools::{accepted, imported};
use crate::request::{Answered, Principal};
use crate::tasks::Running;
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use forebay_api::{Problem, Severity, Task, show_rate};
use std::sync::Arc;

pub async fn begin(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
) -> Answered {
    let pool = imported(&shared, &name).await?;
    shared.engine.pool_changeable(&pool.name).await?;
    accepted(start(&shared, pool.name, who.name))
}

/// Starts the measurement for `who`. It keeps no turn: other changes go on beside it.
pub fn start(shared: &Arc<Shared>, pool: String, who: String) -> Result<Task, Problem> {
    let (by, object) = (shared.clone(), pool.clone());
    let work = move |mut running: Running| async move {
        running.give_up_turn();
        let speed = tokio::select! {
            speed = by.engine.pool_calibrate(&pool) => convert::speed(&speed.map_err(convert::problem)?),
            problem = stopped(&by) => {
                return Err(problem.object(&pool).remedy("Start the daemon again, then measure the pool."));
            }
        };
        let told = format!(
            "measured: {} read IOPS and {} write IOPS at 8 KiB, {} read and {} write at 1 MiB, by {who}",
            speed.read_iops,
            speed.write_iops,
            show_rate(speed.read_bytes_per_second),
            show_rate(speed.write_bytes_per_second)
        );
        by.events.record(Severity::Info, "pool.calibrated", &pool, &told);
        Ok(Some(serde_json::to_value(speed).expect("it is plain data")))
    };
    shared.tasks.start_long("pool.calibrate", &object, work)
}
