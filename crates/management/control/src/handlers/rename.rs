//! New names for volumes, also with another project. A new name is a change of its own: what else a request asks for could have been done when it is refused.

use super::sessions::users;
use super::thresholds::{check_all_unnamed, check_unnamed};
use super::{hosts, inherited, levels, told};
use crate::hosts::Content;
use crate::request::{Answered, Ask, Failure, Principal, json, plan, tagged};
use crate::rules::{invalid, projects::project_of, volume_name};
use crate::{Shared, convert};
use axum::http::StatusCode;
use forebay_analytics::Dimension;
use forebay_api::{Code, Problem};
use forebay_base::Id;
use forebay_pool::{ProjectInfo, PromiseChange, Source, VolumeInfo};
use std::sync::Arc;

/// Refuses a request that asks for more than a new name.
pub fn check_alone<T: Default + PartialEq>(rest: &T) -> Result<(), Problem> {
    if *rest == T::default() {
        return Ok(());
    }
    let detail = "a new name cannot be given together with other changes".into();
    Err(invalid("name", detail, "Send two requests: one for the name, one for the rest."))
}

/// Needs the volumes' turn.
pub async fn volume(
    shared: &Arc<Shared>,
    who: &Principal,
    ask: &Ask,
    info: &VolumeInfo,
    name: String,
) -> Answered {
    let (before, id) = (format!("{}/{}", info.pool, info.name), info.id.to_string());
    let within = within(info, &name)?;
    check_unnamed(shared, Dimension::Volume, &before)?;
    inherited::rename_check(shared, info, &name).await?;
    shared.engine.volume_rename_check(&id, within).await?;
    admit(shared, ask, info, within).await?;
    let mut changes = vec![format!("renamed to {name}")];
    if ask.dry_run {
        let nbd: Vec<String> =
            users(shared, info).into_iter().filter(|user| user.starts_with("NBD")).collect();
        if !nbd.is_empty() {
            let clients = crate::rules::snapshots::few(&nbd);
            changes
                .push(format!("clients connect over NBD by the new name from then on; open now: {clients}"));
        }
        return plan("volume.set", &before, changes);
    }
    if name != before {
        shared.engine.volume_rename(&id, within).await?;
        let (of, new) = (id.clone(), name.clone());
        hosts::change(shared, move |content: &mut Content| {
            content.rename_volume(&of, &new);
            Ok(())
        })
        .await?;
        told(shared, who, "volume.changed", &before, &changes.swap_remove(0));
    }
    let volume = convert::volume(&shared.engine.volume(&id).await?, &shared.known());
    Ok(tagged(json(StatusCode::OK, &volume), &super::volumes::etag(&volume)))
}

/// A project, with all its volumes. Needs the volumes' turn.
pub async fn project(
    shared: &Arc<Shared>,
    who: &Principal,
    ask: &Ask,
    info: &ProjectInfo,
    name: String,
) -> Answered {
    let (before, id) = (format!("{}/{}", info.pool, info.name), info.id.to_string());
    let within = match name.split_once('/') {
        Some((pool, within)) if pool == info.pool => within,
        _ => {
            let detail = format!("'{name}' is not the name of a project of pool {}", info.pool);
            let remedy = format!("Give {}/NEW: a project stays in its pool.", info.pool);
            return Err(Problem::new(Code::Conflict, detail)
                .object(&before)
                .field("name")
                .remedy(remedy)
                .into());
        }
    };
    check_all_unnamed(shared, &before)?;
    shared.engine.project_rename_check(&id, within).await?;
    let mut changes = vec![format!("renamed to {name}")];
    if ask.dry_run {
        if info.volumes > 0 {
            changes.push(format!("the names of its volumes change with it: {}", info.volumes));
            changes.push("clients connect over NBD by the new names from then on".into());
        }
        return plan("project.set", &before, changes);
    }
    if name != before {
        shared.engine.project_rename(&id, within).await?;
        told(shared, who, "project.changed", &before, &changes.swap_remove(0));
    }
    // Also where it has the name already: it may have got it by a request that failed afterwards.
    let (volumes, _) = shared.volumes().await;
    let (of, project) = (id.clone(), info.id);
    hosts::change(shared, move |content: &mut Content| {
        for volume in volumes.iter().filter(|volume| volume.project_id == Some(project)) {
            content.rename_volume(&volume.id.to_string(), &format!("{}/{}", volume.pool, volume.name));
        }
        let said = content.projects.iter_mut().filter(|said| said.project == of);
        said.for_each(|said| said.name.clone_from(&name));
        Ok(())
    })
    .await?;
    let project = convert::project(&shared.engine.project(&id).await?, &shared.known());
    Ok(tagged(json(StatusCode::OK, &project), &super::projects::etag(&project)))
}

/// The new name within the pool, which stays the same.
fn within<'a>(volume: &VolumeInfo, name: &'a str) -> Result<&'a str, Problem> {
    let (pool, within) = volume_name(name)?;
    if pool == volume.pool {
        return Ok(within);
    }
    let object = format!("{}/{}", volume.pool, volume.name);
    let detail = format!("the new name is in pool {pool}, and the volume in {}", volume.pool);
    let remedy = format!("Move the volume first: `forebay volume move {object} {pool}`.");
    Err(Problem::new(Code::Conflict, detail).object(&object).field("name").remedy(remedy))
}

/// Refuses a project whose level, which the volume would inherit, does not fit any more.
async fn admit(shared: &Shared, ask: &Ask, volume: &VolumeInfo, within: &str) -> Result<(), Failure> {
    let project = project_of(within);
    if volume.sources.level == Source::Own || project == volume.project.as_deref() {
        return Ok(());
    }
    let level = match project {
        Some(project) => {
            let project = shared.engine.project(&format!("{}/{project}", volume.pool)).await?;
            project.properties.level.unwrap_or(Id(0))
        }
        None => Id(0),
    };
    let change = PromiseChange::Volume { id: volume.id, level: Some(level) };
    levels::admit(shared, ask, &volume.pool, change).await
}
