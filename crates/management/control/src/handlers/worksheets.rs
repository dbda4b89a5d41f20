//! Worksheets over the API.
//!
//! What a worksheet pins is copied before the worksheet says so, and given up after it says so no longer: a crash in between leaves a copy that belongs to no worksheet, which
//! the next start removes, and never a worksheet whose interval is gone.

use super::hosts::tag_of;
use crate::events::now_unix_ms;
use crate::request::{
    Answered, Ask, Failure, Input, Pieces, Principal, check_precondition, json, made, ok, plan, tagged,
};
use crate::statistics::answers;
use crate::statistics::worksheets::{Content, Worksheet, check_expressions, interval, questions};
use crate::{Shared, blocking, rules};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use forebay_analytics as analytics;
use forebay_api::{
    self as api, Code, Operation, Problem, StatisticAnswer, WorksheetCreate, WorksheetSet, WorksheetSpec,
};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Pieces of an export that wait for the client: one line of a graph each.
const PIECES_MAX: usize = 2;
const SEND_SECONDS_MAX: u64 = 20;

fn shown(one: &Worksheet) -> api::Worksheet {
    api::Worksheet {
        id: one.id.clone(),
        name: one.name.clone(),
        spec: one.spec.clone(),
        status: api::WorksheetStatus {
            created_unix_ms: one.created_unix_ms,
            changed_unix_ms: one.changed_unix_ms,
            captured: one.captured,
        },
    }
}

fn tag(one: &Worksheet) -> String {
    tag_of(&one.id, one.revision)
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let content = shared.worksheets.content();
    let worksheets = content.worksheets.iter().map(shown).collect();
    ok(&ask.page(worksheets, |one: &api::Worksheet| one.name.clone())?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let content = shared.worksheets.content();
    let one = content.find(&name)?;
    Ok(tagged(json(StatusCode::OK, &shown(one)), &tag(one)))
}

async fn change<T: Send + 'static>(
    shared: &Arc<Shared>,
    change: impl FnOnce(&mut Content) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let by = shared.clone();
    blocking(move || by.worksheets.change(change)).await
}

/// Copies the interval of a worksheet that is pinned.
async fn pin(shared: &Shared, id: &str, spec: &WorksheetSpec) -> Result<(), Failure> {
    let now = now_unix_ms() / 1000;
    let range = interval(spec, now);
    if range.end > now {
        return Err(Problem::new(Code::Invalid, "the interval is not over yet")
            .field("spec.to_unix_s")
            .remedy("Pin it when it is over, or choose an earlier end.")
            .into());
    }
    shared.statistics.pin(id, range).await
}

fn adding(one: &Worksheet) -> impl FnOnce(&mut Content) -> Result<(), Problem> + Clone + Send + 'static {
    let added = one.clone();
    move |content: &mut Content| {
        content.worksheets.push(added);
        Ok(())
    }
}

/// Needs the worksheets' turn.
async fn add(shared: &Arc<Shared>, one: &Worksheet) -> Result<(), Failure> {
    if one.spec.pinned {
        pin(shared, &one.id, &one.spec).await?;
    }
    if let Err(problem) = change(shared, adding(one)).await {
        if one.spec.pinned {
            // If that fails, too, the next start does it.
            let _ = shared.statistics.unpin(&one.id).await;
        }
        return Err(problem.into());
    }
    Ok(())
}

/// Keeps an automatic worksheet, and so many of that kind: the oldest go.
pub async fn capture(shared: &Arc<Shared>, one: Worksheet, captures_max: usize) -> Result<(), Problem> {
    let _turn = shared.worksheet_turn.lock().await;
    let content = shared.worksheets.content();
    let captured = content.worksheets.iter().filter(|one| one.captured).map(|one| one.id.clone());
    let captured: Vec<String> = captured.collect();
    let too_many = (captured.len() + 1).saturating_sub(captures_max);
    for id in captured.into_iter().take(too_many) {
        let gone = id.clone();
        change(shared, move |content: &mut Content| content.remove(&gone).map(drop)).await?;
        shared.statistics.unpin(&id).await.map_err(|failure| failure.0)?;
    }
    add(shared, &one).await.map_err(|failure| failure.0)
}

/// What people wrote. One that is there from before keeps what it has.
fn check_texts(name: Option<&str>, spec: Option<&WorksheetSpec>) -> Result<(), Problem> {
    name.map_or(Ok(()), |name| rules::text::check("name", name))?;
    let titles = spec.into_iter().flat_map(|spec| spec.graphs.iter().enumerate());
    let mut titles = titles.filter_map(|(nth, graph)| Some((nth, graph.title.as_deref()?)));
    titles.try_for_each(|(nth, title)| rules::text::check(&format!("spec.graphs[{nth}].title"), title))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<WorksheetCreate>,
) -> Answered {
    check_expressions(&request.spec)?;
    check_texts(Some(&request.name), Some(&request.spec))?;
    let now = now_unix_ms();
    let one = Worksheet {
        id: crate::random_id(),
        name: request.name,
        created_unix_ms: now,
        changed_unix_ms: now,
        revision: 1,
        captured: false,
        spec: request.spec,
    };
    shared.worksheets.plan(adding(&one))?;
    if ask.dry_run {
        let graphs = one.spec.graphs.len();
        return plan(
            "worksheet.create",
            &one.name,
            vec![format!("The worksheet is saved, with {graphs} graphs.")],
        );
    }
    let _turn = shared.worksheet_turn.lock().await;
    add(&shared, &one).await?;
    super::told(&shared, &who, "worksheet.created", &one.name, "saved");
    Ok(tagged(
        made(StatusCode::CREATED, &Operation::WorksheetShow.path_of(&one.id), &shown(&one))?,
        &tag(&one),
    ))
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<WorksheetSet>,
) -> Answered {
    request.spec.as_ref().map_or(Ok(()), check_expressions)?;
    check_texts(request.name.as_deref(), request.spec.as_ref())?;
    let now = now_unix_ms();
    let change_it = move |content: &mut Content| {
        let one = content.find_mut(&name)?;
        check_precondition(&headers, &tag(one), "worksheet", &one.name)?;
        let before = one.clone();
        one.name = request.name.unwrap_or_else(|| before.name.clone());
        one.spec = request.spec.unwrap_or_else(|| before.spec.clone());
        if *one != before {
            (one.revision, one.changed_unix_ms, one.captured) = (before.revision + 1, now, false);
        }
        Ok((before, one.clone()))
    };
    let _turn = shared.worksheet_turn.lock().await;
    let (before, after) = shared.worksheets.plan(change_it.clone())?;
    let mut changes = Vec::new();
    if after.name != before.name {
        changes.push(format!("renamed to {}", after.name));
    }
    if after.spec != before.spec {
        changes.push(format!("{} graphs", after.spec.graphs.len()));
    }
    if ask.dry_run {
        return plan("worksheet.set", &before.name, changes);
    }
    let is_other = interval(&after.spec, 0) != interval(&before.spec, 0) || !before.spec.pinned;
    // One that is pinned keeps its copy until there is another in its place.
    if after.spec.pinned && is_other {
        pin(&shared, &after.id, &after.spec).await?;
    }
    change(&shared, change_it).await?;
    if before.spec.pinned && !after.spec.pinned {
        shared.statistics.unpin(&after.id).await?;
    }
    if !changes.is_empty() {
        super::told(&shared, &who, "worksheet.changed", &after.name, &changes.join(", "));
    }
    Ok(tagged(json(StatusCode::OK, &shown(&after)), &tag(&after)))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let remove = move |content: &mut Content| {
        let one = content.remove(&name)?;
        check_precondition(&headers, &tag(&one), "worksheet", &one.name)?;
        Ok(one)
    };
    let _turn = shared.worksheet_turn.lock().await;
    let one = shared.worksheets.plan(remove.clone())?;
    if ask.dry_run {
        let what = match one.spec.pinned {
            true => "The worksheet is deleted. Its interval is kept no longer than others.",
            false => "The worksheet is deleted.",
        };
        return plan("worksheet.delete", &one.name, vec![what.into()]);
    }
    change(&shared, remove).await?;
    if one.spec.pinned {
        shared.statistics.unpin(&one.id).await?;
    }
    super::told(&shared, &who, "worksheet.deleted", &one.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Csv,
    Json,
}

#[derive(serde::Deserialize)]
pub struct ExportAsk {
    #[serde(default)]
    format: Option<String>,
}

pub async fn export(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Query(ask): Query<ExportAsk>,
) -> Answered {
    let format = match ask.format.as_deref().unwrap_or("json") {
        "csv" => Format::Csv,
        "json" => Format::Json,
        _ => {
            return Err(Problem::new(Code::Invalid, "there is no such format")
                .field("format")
                .remedy("Give csv or json.")
                .into());
        }
    };
    let content = shared.worksheets.content();
    let one = content.find(&name)?.clone();
    let questions = questions(&one.spec, now_unix_ms() / 1000)?;
    let place = shared.statistics.exports.clone().try_acquire_owned().map_err(|_| {
        Problem::new(Code::Busy, "too many exports are being read").remedy("Try again when one is done.")
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let file_name = file_name(&one.name, format);
    tokio::spawn(async move {
        // Who does not read, or has gone, gets no more.
        let _ = send_all(&shared, &one.name, questions, format, &sender).await;
        drop(place);
    });
    let kind = match format {
        Format::Csv => "text/csv; charset=utf-8",
        Format::Json => "application/json",
    };
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{file_name}\""));
    let disposition = disposition.expect("a name of letters and digits is one of a header, too");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, Body::new(Pieces(pieces))).into_response())
}

/// A worksheet's name as a file's, whatever is in it.
fn file_name(name: &str, format: Format) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    match format {
        Format::Csv => format!("{name}.csv"),
        Format::Json => format!("{name}.json"),
    }
}

async fn send_all(
    shared: &Shared,
    name: &str,
    questions: Vec<analytics::Ask>,
    format: Format,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), ()> {
    let send = async |text: String| {
        let patience = Duration::from_secs(SEND_SECONDS_MAX);
        sender.send_timeout(text.into(), patience).await.map_err(drop)
    };
    send(match format {
        Format::Csv => "graph,expression,unit,at_unix_s,line,value\n".into(),
        Format::Json => {
            let name = serde_json::to_string(name).expect("a string is JSON");
            format!("{{\"name\":{name},\"graphs\":[")
        }
    })
    .await?;
    for (nth, question) in questions.into_iter().enumerate() {
        let expression = question.expression.clone();
        // An export that ends in the middle is no JSON, and has no last line: the connection says nothing more.
        let answer = shared.statistics.ask(question).await.map_err(drop)?;
        let answer = answers::answer(&expression, &answer);
        match format {
            Format::Json => {
                let text = serde_json::to_string(&answer).expect("an answer is plain data");
                send(if nth == 0 { text } else { format!(",{text}") }).await?;
            }
            Format::Csv => {
                for piece in csv(nth + 1, &answer) {
                    send(piece).await?;
                }
            }
        }
    }
    match format {
        Format::Json => send("]}\n".into()).await,
        Format::Csv => Ok(()),
    }
}

/// The rows of an answer, a line of it at a time. A heat map has its rows as lines.
fn csv(graph: usize, answer: &StatisticAnswer) -> impl Iterator<Item = String> {
    let lines = answer.lines.iter().flatten().map(|line| {
        let labels: Vec<String> = line.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (labels.join(" "), line.values.clone())
    });
    let others = answer.others.iter().map(|others| ("others".to_string(), others.values.clone()));
    let rows = answer.heatmap.iter().flat_map(|map| {
        map.bounds.windows(2).enumerate().map(|(row, edges)| {
            let values = map.columns.iter().map(|column| column.get(row).copied());
            (format!("{}={}..{} {}", map.dimension, edges[0], edges[1], map.unit), values.collect())
        })
    });
    lines.chain(others).chain(rows).map(move |(line, values): (String, Vec<Option<f64>>)| {
        let mut text = String::with_capacity(values.len() * 64);
        let (expression, line) = (quoted(&answer.expression), quoted(&line));
        for (nth, value) in values.into_iter().enumerate() {
            let at = answer.from_unix_s + nth as u64 * answer.step_seconds;
            let value = value.map_or(String::new(), |value| value.to_string());
            let _ = writeln!(text, "{graph},{expression},{},{at},{line},{value}", answer.unit);
        }
        text
    })
}

/// A field of RFC 4180; one that a spreadsheet would take for a formula begins with an apostrophe.
fn quoted(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_string() };
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{HeatMap, StatisticKind, StatisticLine};
    use std::collections::BTreeMap;

    fn answer() -> StatisticAnswer {
        StatisticAnswer {
            expression: "nbd.ops[client]".into(),
            kind: StatisticKind::Counter,
            unit: "per-second".into(),
            from_unix_s: 100,
            to_unix_s: 104,
            step_seconds: 2,
            lines: None,
            others: None,
            total: None,
            heatmap: None,
        }
    }

    #[test]
    fn tables_have_a_row_for_each_value() {
        let labels = BTreeMap::from([("client".to_string(), "a,\"b\"".to_string())]);
        let line = StatisticLine { labels, mean: 1.0, greatest: 2.0, values: vec![Some(1.5), None] };
        let text: String = csv(3, &StatisticAnswer { lines: Some(vec![line]), ..answer() }).collect();
        let expected = "3,nbd.ops[client],per-second,100,\"client=a,\"\"b\"\"\",1.5\n\
                        3,nbd.ops[client],per-second,102,\"client=a,\"\"b\"\"\",\n";
        assert_eq!(text, expected);
        let map = HeatMap {
            dimension: "latency".into(),
            unit: "ns".into(),
            bounds: vec![0, 8, 16],
            columns: vec![vec![1.0, 2.0], vec![]],
        };
        let text: String = csv(1, &StatisticAnswer { heatmap: Some(map), ..answer() }).collect();
        assert!(
            text.contains("100,latency=8..16 ns,2\n") && text.contains("102,latency=0..8 ns,\n"),
            "{text}"
        );
    }

    #[test]
    fn nothing_in_a_table_is_a_formula_and_no_name_leads_out_of_a_directory() {
        for text in ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1"] {
            assert!(quoted(text).trim_start_matches('"').starts_with('\''), "{text}");
        }
        assert_eq!(file_name("../why \"db\"\r\n", Format::Csv), "..-why--db---.csv");
    }
}
