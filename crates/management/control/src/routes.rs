//! From a request to its handler: authentication, role, idempotency, then the table of operations.
//!
//! What changes something runs as its own task: a client that hangs up in the middle does not leave it half done. How it ended is
//! written into the audit log, and told to watching clients.

use crate::audit::{self, Attempt, Outcome};
use crate::audit_words;
use crate::authentication::{Identity, Peer, Transport, authenticate, unauthenticated};
use crate::changes::touched;
use crate::handlers::{
    alerts, bookmarks, calibrate, channels, damage, disks, hosts, ledger, levels, logins, machine, mappings,
    moves, others, pools, projects, reclaim, reports, sessions, snapshots, statistics, streams, thresholds,
    trace, trash, users, volumes, watch, worksheets,
};
use crate::replays::{ANSWER_BYTES_MAX, Answer, Begin};
use crate::request::{BODY_BYTES_MAX, By, Failed, Failure, Principal, REPORT_BODY_BYTES_MAX, collect};
use crate::{Shared, static_files};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Extension, Router};
use forebay_api::{Code, Method, Operation, Problem, ReplyBody};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The whole API for one kind of listener.
pub fn router(shared: Arc<Shared>, transport: Transport) -> Router {
    let tls = transport == Transport::Http && shared.front().tls;
    let mut router = Router::new();
    for operation in Operation::ALL {
        let guarded = handler(operation).layer(from_fn_with_state((shared.clone(), operation), guard));
        router = router.route(operation.path(), guarded);
    }
    router
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state((shared.clone(), transport), authenticate))
        .layer(map_response(move |mut response: Response| async move {
            static_files::secure(response.headers_mut(), tls);
            response
        }))
        .with_state(shared)
}

/// Exhaustive: an operation in the API's table without a handler does not compile.
fn handler(operation: Operation) -> MethodRouter<Arc<Shared>> {
    match operation {
        Operation::ServerShow => get(others::server_show),
        Operation::ServerSet => patch(others::server_set),
        Operation::DocumentShow => get(others::document_show),
        Operation::PoolList => get(pools::list),
        Operation::PoolCreate => post(pools::create),
        Operation::PoolShow => get(pools::show),
        Operation::PoolSet => patch(pools::set),
        Operation::PoolDestroy => delete(pools::destroy),
        Operation::PoolImport => post(pools::import),
        Operation::PoolExport => post(pools::export),
        Operation::PoolAdd => post(disks::add),
        Operation::PoolScrub => post(disks::scrub),
        Operation::PoolTrim => post(disks::trim),
        Operation::PoolCalibrate => post(calibrate::begin),
        Operation::PoolLedger => get(ledger::list),
        Operation::DamageList => get(damage::list),
        Operation::DamageAccept => post(damage::accept),
        Operation::DiskList => get(disks::list),
        Operation::MachineDiskList => get(machine::disks),
        Operation::DiskScan => post(disks::scan),
        Operation::DiskShow => get(disks::show),
        Operation::GroupRemove => delete(disks::group_remove),
        Operation::DiskReplace => post(disks::replace),
        Operation::DiskRemove => delete(disks::remove),
        Operation::DiskOffline => post(disks::offline),
        Operation::DiskOnline => post(disks::online),
        Operation::DiskClear => post(disks::clear),
        Operation::DiskLocate => post(disks::locate),
        Operation::VolumeList => get(volumes::list),
        Operation::VolumeCreate => post(volumes::create),
        Operation::VolumeShow => get(volumes::show),
        Operation::VolumeSet => patch(volumes::set),
        Operation::VolumeDelete => delete(volumes::delete),
        Operation::VolumePromote => post(volumes::promote),
        Operation::VolumeReclaim => post(reclaim::begin),
        Operation::VolumeMove => post(moves::begin),
        Operation::VolumeTrace => get(trace::trace),
        Operation::MoveList => get(moves::list),
        Operation::MoveKeep => post(moves::keep),
        Operation::MoveAbandon => delete(moves::abandon),
        Operation::ProjectList => get(projects::list),
        Operation::ProjectCreate => post(projects::create),
        Operation::ProjectShow => get(projects::show),
        Operation::ProjectSet => patch(projects::set),
        Operation::ProjectDelete => delete(projects::delete),
        Operation::TrashList => get(trash::list),
        Operation::TrashShow => get(trash::show),
        Operation::TrashRestore => post(trash::restore),
        Operation::TrashPurge => delete(trash::purge),
        Operation::SnapshotList => get(snapshots::list),
        Operation::SnapshotCreate => post(snapshots::create),
        Operation::SnapshotShow => get(snapshots::show),
        Operation::SnapshotSet => patch(snapshots::set),
        Operation::SnapshotDelete => delete(snapshots::delete),
        Operation::SnapshotRollback => post(snapshots::rollback),
        Operation::SnapshotClone => post(snapshots::clone),
        Operation::SnapshotSend => get(streams::send),
        Operation::SnapshotReceive => post(streams::receive),
        Operation::BookmarkList => get(bookmarks::list),
        Operation::BookmarkCreate => post(bookmarks::create),
        Operation::BookmarkShow => get(bookmarks::show),
        Operation::BookmarkSet => patch(bookmarks::set),
        Operation::BookmarkDelete => delete(bookmarks::delete),
        Operation::ReceiveList => get(streams::list),
        Operation::ReceiveAbandon => delete(streams::abandon),
        Operation::HostList => get(hosts::list),
        Operation::HostCreate => post(hosts::create),
        Operation::HostShow => get(hosts::show),
        Operation::HostSet => patch(hosts::set),
        Operation::HostDelete => delete(hosts::delete),
        Operation::HostGroupList => get(hosts::group_list),
        Operation::HostGroupCreate => post(hosts::group_create),
        Operation::HostGroupShow => get(hosts::group_show),
        Operation::HostGroupSet => patch(hosts::group_set),
        Operation::HostGroupDelete => delete(hosts::group_delete),
        Operation::LevelList => get(levels::list),
        Operation::LevelCreate => post(levels::create),
        Operation::LevelShow => get(levels::show),
        Operation::LevelSet => patch(levels::set),
        Operation::LevelDelete => delete(levels::delete),
        Operation::MappingList => get(mappings::list),
        Operation::MappingCreate => post(mappings::create),
        Operation::MappingShow => get(mappings::show),
        Operation::MappingDelete => delete(mappings::delete),
        Operation::SessionList => get(sessions::list),
        Operation::SessionDrop => delete(sessions::drop_one),
        Operation::TaskList => get(others::task_list),
        Operation::TaskShow => get(others::task_show),
        Operation::TaskCancel => post(others::task_cancel),
        Operation::EventList => get(others::event_list),
        Operation::TokenList => get(others::token_list),
        Operation::TokenCreate => post(others::token_create),
        Operation::TokenSet => patch(others::token_set),
        Operation::TokenDelete => delete(others::token_delete),
        Operation::SetupShow => get(logins::setup_show),
        Operation::SetupFinish => post(logins::setup_finish),
        Operation::SetupLink => post(logins::setup_link),
        Operation::LoginShow => get(logins::show),
        Operation::LoginCreate => post(logins::create),
        Operation::LoginEnd => delete(logins::end),
        Operation::UserList => get(users::list),
        Operation::UserCreate => post(users::create),
        Operation::UserShow => get(users::show),
        Operation::UserSet => patch(users::set),
        Operation::UserDelete => delete(users::delete),
        Operation::AuditList => get(others::audit_list),
        Operation::AlertList => get(alerts::list),
        Operation::ThresholdList => get(thresholds::list),
        Operation::ThresholdCreate => post(thresholds::create),
        Operation::ThresholdShow => get(thresholds::show),
        Operation::ThresholdSet => patch(thresholds::set),
        Operation::ThresholdDelete => delete(thresholds::delete),
        Operation::ChannelList => get(channels::list),
        Operation::ChannelCreate => post(channels::create),
        Operation::ChannelShow => get(channels::show),
        Operation::ChannelSet => patch(channels::set),
        Operation::ChannelDelete => delete(channels::delete),
        Operation::ChannelTest => post(channels::test),
        Operation::EventStream => get(watch::stream),
        Operation::StatisticList => get(statistics::list),
        Operation::StatisticQuery => get(statistics::show),
        Operation::StatisticStream => get(statistics::stream),
        Operation::WorksheetList => get(worksheets::list),
        Operation::WorksheetCreate => post(worksheets::create),
        Operation::WorksheetShow => get(worksheets::show),
        Operation::WorksheetSet => patch(worksheets::set),
        Operation::WorksheetDelete => delete(worksheets::delete),
        Operation::WorksheetExport => get(worksheets::export),
        Operation::ReportList => get(reports::list),
        Operation::ReportCreate => post(reports::create),
        Operation::ReportShow => get(reports::show),
        Operation::ReportDelete => delete(reports::delete),
        Operation::ReportDownload => get(reports::download),
        Operation::MetricsShow => get(statistics::metrics),
    }
}

async fn no_such_path(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path();
    if !static_files::is_api(path) {
        return shared.interface.answer(&request);
    }
    let named = ["/api/v1/volumes/", "/api/v1/projects/", "/api/v1/snapshots/"];
    let remedy = if named.iter().any(|prefix| path.starts_with(prefix)) {
        "A name is one segment of the path: write demo%2Fweb for demo/web."
    } else {
        "GET /api/v1/openapi.json describes every path."
    };
    let shown: String = path.chars().take(200).collect();
    Failure(Problem::new(Code::NotFound, format!("there is nothing at {shown}")).remedy(remedy))
        .into_response()
}

async fn no_such_method(request: Request) -> Failure {
    Problem::new(Code::MethodNotAllowed, format!("{} is not allowed here", request.method()))
        .remedy("GET /api/v1/openapi.json lists the allowed methods.")
        .into()
}

async fn guard(
    State((shared, operation)): State<(Arc<Shared>, Operation)>,
    request: Request,
    next: Next,
) -> Response {
    let principal = request.extensions().get::<Principal>().expect("authentication is outermost").clone();
    let peer =
        request.extensions().get::<Peer>().expect("the server says where a request comes from").clone();
    let query = request.uri().query().unwrap_or_default();
    let is_change = operation.method() != Method::Get && !query.split('&').any(|pair| pair == "dry_run=true");
    let is_audited = is_change || operation.reveals_contents();
    let attempt = is_audited.then(|| Attempt::new(&principal, &peer, operation, request.uri().path()));
    let (by, told) = (shared.clone(), is_change);
    let mut response = admitted(shared, operation, principal, request, next).await;
    if let Some(attempt) = attempt {
        let noted: Option<Noted> = response.extensions_mut().remove();
        let Noted { changes, task } = noted.unwrap_or_default();
        let who = response.extensions().get::<By>().map(|By(who)| who.clone());
        let code = response.extensions().get::<Failed>().map(|Failed(code)| *code);
        let outcome = Outcome { by: who, code, task: task.clone(), changes };
        let entry = attempt.ended(&mut by.strangers(), response.status().as_u16(), outcome);
        if let Some(entry) = entry {
            by.audit.push(entry.clone());
            if let Some(id) = task {
                let audit = by.audit.clone();
                by.tasks.at_end(&id, move |task| audit.push(audit::of_task(&entry, task)));
            }
        }
    }
    if told && response.status().is_success() {
        by.changes.tell(touched(operation));
    }
    response
}

async fn admitted(
    shared: Arc<Shared>,
    operation: Operation,
    principal: Principal,
    request: Request,
    next: Next,
) -> Response {
    if principal.identity == Identity::Nobody && !operation.is_open() {
        return Failure(unauthenticated(request.headers())).into_response();
    }
    if principal.access < operation.access() {
        let (has, needs) = (principal.access.name(), operation.access().name());
        let remedy = match principal.identity {
            Identity::Token { .. } => format!("Use a token with role {needs}."),
            _ => format!("Ask a user with role {needs}."),
        };
        let detail = format!("{} has role {has}", principal.unique());
        return Failure(Problem::new(Code::Forbidden, detail).remedy(remedy)).into_response();
    }
    if let Err(problem) = check_query(operation, request.uri().query().unwrap_or_default()) {
        return Failure(problem).into_response();
    }
    if operation.method() == Method::Get {
        return while_admitted(shared, principal, next.run(request)).await;
    }
    let work = tokio::spawn(async move {
        change(&shared, operation, &principal, request, next)
            .await
            .unwrap_or_else(|failure| failure.into_response())
    });
    work.await.unwrap_or_else(|_| {
        Failure(Problem::new(Code::Internal, "a bug stopped the operation")).into_response()
    })
}

/// The answer to a question, which ends when the client is no longer admitted: before it has begun, or in the middle.
async fn while_admitted(
    shared: Arc<Shared>,
    principal: Principal,
    answer: impl Future<Output = Response>,
) -> Response {
    let mut dismissed: Dismissed = Box::pin(shared.dismissed(principal));
    let response = tokio::select! {
        response = answer => response,
        () = dismissed.as_mut() => {
            let problem = Problem::new(Code::Unauthenticated, "the login or token ended during the request");
            return Failure(problem.remedy("Log in again, or use another token.")).into_response();
        }
    };
    // What is in memory already is on its way.
    match response.body().size_hint().exact() {
        Some(_) => response,
        None => {
            let is_endless = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == EVENTS);
            response.map(|body| Body::new(WhileAdmitted { body, dismissed, is_endless }))
        }
    }
}

type Dismissed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What ends at any time, and is whole then.
const EVENTS: &str = "text/event-stream";

/// A body that breaks off, and its connection with it, when its client is no longer admitted; one that is endless ends.
struct WhileAdmitted {
    body: Body,
    dismissed: Dismissed,
    is_endless: bool,
}

impl hyper::body::Body for WhileAdmitted {
    type Data = Bytes;
    type Error = axum::Error;
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.dismissed.as_mut().poll(context).is_ready() {
            let broken = || Err(axum::Error::new(std::io::Error::other("no longer admitted")));
            return Poll::Ready((!this.is_endless).then(broken));
        }
        Pin::new(&mut this.body).poll_frame(context)
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Refuses a parameter that the operation does not have: what is misspelt must not be passed over, least of all `dry_run`.
fn check_query(operation: Operation, query: &str) -> Result<(), Problem> {
    let known = operation.parameters();
    for name in query.split('&').map(|pair| pair.split('=').next().unwrap_or_default()) {
        if !name.is_empty() && !known.iter().any(|parameter| parameter.name() == name) {
            let shown: String = name.chars().take(80).collect();
            let has: Vec<&str> = known.iter().map(|parameter| parameter.name()).collect();
            let remedy = match has.is_empty() {
                true => "This operation has no parameters.".to_string(),
                false => format!("The parameters of this operation are: {}.", has.join(", ")),
            };
            let detail = "the operation does not have this parameter";
            return Err(Problem::new(Code::Invalid, detail).field(shown).remedy(remedy));
        }
    }
    Ok(())
}

/// What a change came to, on its way to the audit log.
#[derive(Clone, Default)]
struct Noted {
    changes: Vec<String>,
    /// The task that it began.
    task: Option<String>,
}

/// What is known before a change is made of what the audit log says of it.
#[derive(Default)]
struct Was {
    /// The object as it was, if the change is of one.
    object: Option<Value>,
    /// The request's body.
    asked: Bytes,
}

impl Was {
    async fn look(
        shared: &Arc<Shared>,
        operation: Operation,
        principal: &Principal,
        parts: &Parts,
        body: &Bytes,
    ) -> Was {
        let was = Was { object: None, asked: body.clone() };
        if matches!(operation, Operation::TokenSet | Operation::TokenDelete) {
            // No operation shows one. Their names need no escapes in a path.
            let name = parts.uri.path().rsplit('/').next().unwrap_or_default();
            let token = shared.tokens.find(name).ok();
            return Was { object: token.and_then(|token| serde_json::to_value(token).ok()), ..was };
        }
        let Some(shows) = audit_words::shows(operation) else { return was };
        let mut question = Request::new(Body::empty());
        // Without what the change has in its query.
        *question.uri_mut() = parts.uri.path().parse().unwrap_or_default();
        question.extensions_mut().insert(principal.clone());
        let router = Router::new().route(shows.path(), handler(shows)).with_state(shared.clone());
        let answer =
            TowerToHyperService::new(router).call(question).await.unwrap_or_else(|never| match never {});
        let object = match answer.status().is_success() {
            true => Some(json_of(answer.into_body()).await.1),
            false => None,
        };
        Was { object, ..was }
    }

    /// The answer, with what is to be noted of it.
    async fn told(self, operation: Operation, response: Response) -> Response {
        let asked = || serde_json::from_slice(&self.asked).unwrap_or_default();
        if !response.status().is_success() {
            let changes = audit_words::tried(operation, &asked());
            return (Extension(Noted { changes, task: None }), response).into_response();
        }
        let is_task = operation.reply() == ReplyBody::Task;
        let is_object = matches!(operation.reply(), ReplyBody::Object(_) | ReplyBody::Created(_));
        let (response, answer) = match is_task || is_object {
            true => {
                let (parts, body) = response.into_parts();
                let (bytes, answer) = json_of(body).await;
                (Response::from_parts(parts, Body::from(bytes)), answer)
            }
            false => (response, Value::Null),
        };
        let changes = match &self.object {
            Some(before) if operation.method() == Method::Delete => audit_words::decided_of(before),
            Some(before) => audit_words::changed(before, &answer),
            // A task answers before it has done anything.
            None if is_task => audit_words::tried(operation, &asked()),
            None => audit_words::decided_of(&answer),
        };
        let task = answer["id"].as_str().filter(|_| is_task).map(str::to_string);
        (Extension(Noted { changes, task }), response).into_response()
    }
}

/// Our own answers are in memory.
async fn json_of(body: Body) -> (Bytes, Value) {
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let value = serde_json::from_slice(&bytes).unwrap_or_default();
    (bytes, value)
}

async fn change(
    shared: &Arc<Shared>,
    operation: Operation,
    principal: &Principal,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    if operation.takes_stream() {
        // It is read as it comes, and what came of it is kept: there is nothing to repeat.
        return Ok(Was::default().told(operation, next.run(request).await).await);
    }
    let (parts, body) = request.into_parts();
    // Held until it is answered: such a body is forty times as long as others may be.
    let place = (operation == Operation::ReportCreate).then(|| shared.reports.begin()).transpose()?;
    let most = if place.is_some() { REPORT_BODY_BYTES_MAX } else { BODY_BYTES_MAX };
    let body = collect(body, most).await?;
    let was = Was::look(shared, operation, principal, &parts, &body).await;
    let key =
        parts.headers.get("idempotency-key").map(|value| value.to_str().unwrap_or_default().to_string());
    let key = key.filter(|_| operation.is_repeatable());
    let Some(key) = key else {
        return Ok(was.told(operation, next.run(Request::from_parts(parts, Body::from(body))).await).await);
    };
    let mut hash = Sha256::new();
    hash.update(parts.uri.to_string());
    hash.update([0]);
    hash.update(&body);
    let ticket = match shared.replays.begin(&principal.unique(), &key, hash.finalize().into())? {
        Begin::Again(answer) => {
            return Ok((answer.status, answer.headers, answer.body).into_response());
        }
        Begin::First(ticket) => ticket,
    };
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let response = was.told(operation, response).await;
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("our own bodies are in memory").to_bytes();
    if body.len() <= ANSWER_BYTES_MAX {
        ticket.answer(Answer { status: parts.status, headers: parts.headers.clone(), body: body.clone() });
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operation_s_own_parameters_are_taken() {
        for query in ["", "limit=5", "limit=5&cursor=a", "&", "pool=x"] {
            check_query(Operation::VolumeList, query).unwrap();
        }
        for (query, field) in [("dry_run=true", "dry_run"), ("limit=1&limitt=2", "limitt"), ("a", "a")] {
            let problem = check_query(Operation::VolumeList, query).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some(field)));
        }
        assert!(check_query(Operation::ServerShow, "x=1").is_err());
    }
}
