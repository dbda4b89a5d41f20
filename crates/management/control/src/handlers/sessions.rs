//! Sessions of the iSCSI server.

use super::told;
use crate::Shared;
use crate::access::IscsiSession;
use crate::request::{Answered, Ask, Failure, Principal, ok, plan};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api::{Code, Problem, Session};
use forebay_pool::VolumeInfo;
use std::sync::Arc;

fn shown(shared: &Shared, session: IscsiSession) -> Session {
    Session {
        id: session.id.to_string(),
        host: shared.access.admit(&session.initiator).map(|admission| admission.host.clone()),
        initiator: session.initiator,
        target: session.target,
        address: session.peer,
        portal: session.portal,
        portal_group: session.portal_group,
        since_unix_ms: session.since_unix_ms,
        commands: session.commands,
        read_bytes: session.read_bytes,
        written_bytes: session.written_bytes,
    }
}

fn all(shared: &Shared) -> Vec<Session> {
    let sessions = shared.iscsi.get().map(|iscsi| iscsi.sessions()).unwrap_or_default();
    sessions.into_iter().map(|session| shown(shared, session)).collect()
}

/// Who is connected to a volume now, over either protocol.
pub fn users(shared: &Shared, volume: &VolumeInfo) -> Vec<String> {
    let sessions = shared.iscsi.get().map(|iscsi| iscsi.sessions()).unwrap_or_default();
    let over_iscsi = sessions.into_iter().filter_map(|session| {
        let admission = shared.access.admit(&session.initiator)?;
        let luns = admission.luns(session.target.as_ref()?);
        let sees = luns.iter().any(|mapped| mapped.volume == volume.id);
        sees.then(|| format!("host {} (iSCSI session {} from {})", admission.host, session.id, session.peer))
    });
    let clients = shared.nbd.get().map(|nbd| nbd.clients(volume.id)).unwrap_or_default();
    over_iscsi.chain(clients.into_iter().map(|address| format!("NBD client {address}"))).collect()
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let mut sessions = all(&shared);
    if let Some(host) = &ask.host {
        let content = shared.hosts.content();
        let (id, _, is_group) = content.party(host)?;
        let is_wanted = |name: &str| {
            let Ok(host) = content.host(name) else { return false };
            host.id == id || (is_group && content.groups_with(&host.id).any(|group| group.id == id))
        };
        sessions.retain(|session| session.host.as_deref().is_some_and(is_wanted));
    }
    // Numbers of one width sort as they count.
    ok(&ask.page(sessions, |session| format!("{:0>20}", session.id))?)
}

pub async fn drop_one(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(id): Path<String>,
    ask: Ask,
) -> Answered {
    let missing = || {
        Problem::new(Code::NotFound, "there is no such session")
            .object(id.as_str())
            .remedy("`forebay session list` shows them. A dropped initiator gets a new session when it logs in again.")
    };
    let session = all(&shared).into_iter().find(|session| session.id == id).ok_or_else(missing)?;
    let who_is_it = session.host.as_ref().unwrap_or(&session.initiator);
    if ask.dry_run {
        let changes = vec![
            format!("{who_is_it} at {} is logged out.", session.address),
            "It may log in again at once. To keep it out, change or delete the host.".to_string(),
        ];
        return plan("session.drop", &id, changes);
    }
    let number = session.id.parse().map_err(|_| missing())?;
    if !shared.iscsi.get().is_some_and(|iscsi| iscsi.drop_session(number)) {
        return Err(Failure(missing()));
    }
    let what = format!("logged out from {}", session.target.as_deref().unwrap_or("discovery"));
    told(&shared, &who, "session.dropped", &format!("{who_is_it} at {}", session.address), &what);
    Ok(StatusCode::NO_CONTENT.into_response())
}
