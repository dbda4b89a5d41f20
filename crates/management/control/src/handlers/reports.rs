//! Reports over the API.
//!
//! A page is not trusted, whatever client sent it: a browser shows it in a sandbox, as of no origin, without scripts, forms and links to elsewhere.

use crate::events::now_unix_ms;
use crate::reports::{Part, check};
use crate::request::{Answered, Ask, Input, Principal, made, ok, plan};
use crate::seats::Seat;
use crate::{Shared, blocking, rules};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use forebay_api::{Code, Operation, Problem, Report, ReportCreate};
use std::sync::Arc;

/// What a page may do: look as it was written.
const POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    ok(&ask.page(shared.reports.content().reports.clone(), |one: &Report| one.name.clone())?)
}

fn find(shared: &Shared, name: &str) -> Result<Report, Problem> {
    let content = shared.reports.content();
    Ok(content.reports[content.place(name)?].clone())
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    ok(&find(&shared, &name)?)
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<ReportCreate>,
) -> Answered {
    check(&request)?;
    rules::text::check("name", &request.name)?;
    let bytes = |part: &Option<String>| part.as_ref().map(|text| text.len() as u64);
    let one = Report {
        id: crate::random_id(),
        name: request.name.clone(),
        created_unix_ms: now_unix_ms(),
        by: who.name.clone(),
        html_bytes: bytes(&request.html),
        json_bytes: bytes(&request.json),
    };
    if ask.dry_run {
        shared.reports.plan(&one)?;
        return plan("report.create", &one.name, vec!["The report is kept until it is deleted.".into()]);
    }
    let (by, added) = (shared.clone(), one.clone());
    blocking(move || by.reports.add(&added, &request)).await?;
    super::told(&shared, &who, "report.created", &one.name, "kept");
    made(StatusCode::CREATED, &Operation::ReportShow.path_of(&one.id), &one)
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let one = find(&shared, &name)?;
    if ask.dry_run {
        return plan("report.delete", &one.name, vec!["The report is deleted.".into()]);
    }
    let by = shared.clone();
    let gone = blocking(move || by.reports.delete(&one.id)).await?;
    super::told(&shared, &who, "report.deleted", &gone.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(serde::Deserialize)]
pub struct DownloadAsk {
    #[serde(default)]
    format: Option<String>,
}

/// A report on its way; its place is free when all of it has been sent.
struct Download {
    bytes: Vec<u8>,
    _seat: Seat,
}

impl AsRef<[u8]> for Download {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub async fn download(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    Query(ask): Query<DownloadAsk>,
) -> Answered {
    let (part, kind) = match ask.format.as_deref().unwrap_or("html") {
        "html" => (Part::Html, "text/html; charset=utf-8"),
        "json" => (Part::Json, "application/json"),
        _ => {
            return Err(Problem::new(Code::Invalid, "there is no such format")
                .field("format")
                .remedy("Give html or json.")
                .into());
        }
    };
    let one = find(&shared, &name)?;
    let seat = shared.downloads.take(who.unique()).ok_or_else(|| {
        Problem::new(Code::Busy, "too many reports are being downloaded already")
            .remedy("Try again when one download has ended.")
    })?;
    let bytes = blocking(move || shared.reports.read(&one, part)).await?;
    let body = Bytes::from_owner(Download { bytes, _seat: seat });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    ];
    Ok((headers, body).into_response())
}
