//! Volumes that have no hosts of their own: they follow what their projects say ([`crate::inherited`]).
//!
//! All of this needs the volumes' turn: between looking at volumes and changing mappings no volume gets or gives up hosts of its own.

use super::mappings::pool_id;
use crate::events::now_unix_ms;
use crate::hosts::Content;
use crate::inherited::{Difference, Heir, Refused, differences};
use crate::{Shared, blocking, convert, rules};
use forebay_api::{Code, Problem, Severity};
use forebay_pool::{ErrorKind, Source, VolumeInfo};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

fn heir(volume: &VolumeInfo, pool: &str) -> Heir {
    Heir {
        id: volume.id.to_string(),
        pool: pool.into(),
        project: volume.project_id.map(|project| project.to_string()),
        name: format!("{}/{}", volume.pool, volume.name),
    }
}

/// A volume that is to have no hosts of its own from now on.
pub async fn heir_of(shared: &Shared, volume: &VolumeInfo) -> Result<Heir, Problem> {
    Ok(heir(volume, &pool_id(shared, &volume.pool).await?))
}

/// Those of these volumes that follow a project. A volume without a project keeps the mappings that an administrator made.
pub async fn heirs_of(shared: &Shared, volumes: &[VolumeInfo]) -> Vec<Heir> {
    let pools: HashMap<String, String> =
        shared.engine.pools().await.into_iter().map(|pool| (pool.name, pool.id.to_string())).collect();
    let follows = |volume: &&VolumeInfo| volume.sources.hosts == Source::Project;
    let heirs = volumes.iter().filter(follows);
    heirs.filter_map(|volume| Some(heir(volume, pools.get(&volume.pool)?))).collect()
}

/// What hosts gain and lose by a change.
pub fn change_told(
    content: &mut Content,
    change: impl FnOnce(&mut Content) -> Result<(), Problem>,
) -> Result<Vec<Difference>, Problem> {
    let before = content.clone();
    change(content)?;
    Ok(if *content == before { Vec::new() } else { differences(&before, content) })
}

/// Maps these volumes, as far as they inherit, to whom their projects say now.
pub async fn follow(shared: &Arc<Shared>, volumes: &[VolumeInfo]) {
    let heirs = heirs_of(shared, volumes).await;
    let by = shared.clone();
    let follow = move |content: &mut Content| {
        let mut refused = Vec::new();
        let told = change_told(content, |content| {
            refused = content.inherit(&heirs, now_unix_ms());
            Ok(())
        })?;
        Ok((told, refused))
    };
    match blocking(move || by.hosts.change(follow)).await {
        Ok((told, refused)) => {
            for Difference { hosts, what } in told {
                let what = format!("{what}, inherited from projects");
                shared.events.record(Severity::Info, "mapping.inherited", &hosts, &what);
            }
            tell_refused(shared, shared.refusals.news(refused));
        }
        Err(problem) => {
            let what = format!("volumes are not mapped to the hosts of their projects: {}", problem.detail);
            let object = problem.object.unwrap_or_default();
            shared.events.record(Severity::Error, "mapping.refused", &object, &what);
        }
    }
}

/// One event for what has one reason.
fn tell_refused(shared: &Shared, refused: Vec<Refused>) {
    let mut alike: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for Refused { volume, host, problem } in refused {
        alike.entry((host, problem.detail)).or_default().push(volume);
    }
    for ((host, why), volumes) in alike {
        let more = match volumes.len() {
            1 => String::new(),
            count => format!(" (nor are {} other volumes)", count - 1),
        };
        let what = format!("it is not mapped to {host}, which its project names{more}: {why}");
        shared.events.record(Severity::Warning, "mapping.refused", &volumes[0], &what);
    }
}

/// What hosts will gain by a volume that is not there yet and gets this name, `POOL/[PROJECT/]NAME`. One that comes back has an id.
pub async fn gains_in_words(shared: &Shared, name: &str, id: &str) -> Result<Vec<String>, Problem> {
    let (pool, within) = rules::volume_name(name)?;
    let Some(project) = rules::projects::project_of(within) else { return Ok(Vec::new()) };
    let project = match shared.engine.project(&format!("{pool}/{project}")).await {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(convert::problem)?,
    };
    let heir = Heir {
        id: id.into(),
        pool: pool_id(shared, pool).await?,
        project: Some(project.id.to_string()),
        name: name.into(),
    };
    let told = shared
        .hosts
        .plan(|content| change_told(content, |content| content.inherit_wholly(&[heir], now_unix_ms())));
    // What cannot be mapped is made all the same, and an event says so.
    Ok(match told {
        Ok(told) => told.iter().map(sentence).collect(),
        Err(problem) => vec![format!("But {}.", problem.detail)],
    })
}

/// What hosts gain and lose when this volume has no hosts of its own any more; refused if that is not possible.
pub fn returns_in_words(shared: &Shared, heir: &Heir) -> Result<Vec<String>, Problem> {
    let heirs = std::slice::from_ref(heir);
    let told = shared
        .hosts
        .plan(|content| change_told(content, |content| content.inherit_wholly(heirs, now_unix_ms())))?;
    Ok(told.iter().map(ToString::to_string).collect())
}

/// Refuses a new name, `POOL/[PROJECT/]NAME`, with which a volume would be mapped to other hosts.
pub async fn rename_check(shared: &Shared, volume: &VolumeInfo, name: &str) -> Result<(), Problem> {
    let (pool, within) = rules::volume_name(name)?;
    let project = match rules::projects::project_of(within) {
        // One that is not there the engine refuses, in its own words.
        Some(project) => shared.engine.project(&format!("{pool}/{project}")).await.ok().map(|there| there.id),
        None => None,
    };
    if volume.sources.hosts == Source::Own || project == volume.project_id {
        return Ok(());
    }
    let project = project.map(|project| project.to_string());
    let heir = Heir { project, ..heir_of(shared, volume).await? };
    let gains = returns_in_words(shared, &heir)?;
    if gains.is_empty() {
        return Ok(());
    }
    let object = format!("{}/{}", volume.pool, volume.name);
    let detail = format!("it inherits its hosts, and with this name they would differ: {}", gains.join("; "));
    Err(Problem::new(Code::Conflict, detail).object(&object).field("name").remedy(format!(
        "Give the volume its own hosts first, with `forebay volume map {object} --host HOST`."
    )))
}

/// What there is to say of a volume that comes back under this name, and may have hosts of its own: those are forgotten.
pub async fn restored_in_words(shared: &Shared, name: &str, id: &str) -> Result<String, Problem> {
    let gains = gains_in_words(shared, name, id).await?;
    Ok(match gains.is_empty() {
        true => "It is mapped to no host.".into(),
        false => {
            format!("If it had hosts of its own, it is mapped to no host. Otherwise: {}", gains.join(" "))
        }
    })
}

pub fn sentence(difference: &Difference) -> String {
    format!("{difference}.")
}

/// Refuses to move a volume that would be mapped to other hosts where it goes.
pub async fn move_check(shared: &Shared, volume: &VolumeInfo, pool: &str) -> Result<(), Problem> {
    let (Source::Project, Some(project), Some(id)) =
        (volume.sources.hosts, &volume.project, volume.project_id)
    else {
        return Ok(());
    };
    // A project that is not there the engine refuses, in its own words.
    let Ok(there) = shared.engine.project(&format!("{pool}/{project}")).await else { return Ok(()) };
    let content = shared.hosts.content();
    let [here, there_said] = [id, there.id].map(|id| content.said(&id.to_string()).to_vec());
    if here.iter().collect::<HashSet<_>>() == there_said.iter().collect() {
        return Ok(());
    }
    let in_words = |parties: &[String]| match parties {
        [] => "no hosts".to_string(),
        parties => content.names(parties).join(", "),
    };
    let (from, to) = (format!("{}/{project}", volume.pool), format!("{}/{project}", there.pool));
    let detail = format!(
        "it inherits its hosts, and project {from} has {}, but project {to} has {}",
        in_words(&here),
        in_words(&there_said)
    );
    let remedy = match &here[..] {
        [] => format!(
            "Give both projects the same hosts: `forebay project set {to} --inherit hosts`. Or map the volume itself first."
        ),
        here => format!(
            "Give both projects the same hosts: `forebay project set {to} --host {}`. Or give the volume its own hosts with `forebay volume map \
             VOLUME --host HOST`.",
            content.names(here).join(" ")
        ),
    };
    let object = format!("{}/{}", volume.pool, volume.name);
    Err(Problem::new(Code::Conflict, detail).object(object).field("pool").remedy(remedy))
}
