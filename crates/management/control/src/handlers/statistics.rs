//! Statistics over the API: what there is, what there was, and what is just happening.
//!
//! The stream is a WebSocket (RFC 6455). Each has a task of its own, which holds [`SUBSCRIPTIONS_MAX`] questions and one answer; it sends the newest second and
//! nothing older, so a client that reads slowly misses seconds, is told how many, and costs no memory. Who does not take a message within
//! [`SEND_SECONDS_MAX`], or is no longer admitted, is disconnected.

use crate::Shared;
use crate::connections::Place;
use crate::events::now_unix_ms;
use crate::request::{self, Answered, Failure, Principal, json, ok};
use crate::statistics::answers::{self, EXPRESSION, LIMIT_DEFAULT};
use axum::Extension;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use forebay_analytics::{Answer, Ask, Expression, LIMIT_MAX, View, query};
use forebay_api::{Code, Problem, StatisticSubscribe};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{interval, timeout};

/// A page has some ten graphs.
const SUBSCRIPTIONS_MAX: usize = 64;
/// The longest expression, four bytes a character, escaped.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const SEND_SECONDS_MAX: u64 = 20;
/// Proxies close what is silent for a minute.
const PING_SECONDS: u64 = 15;
/// What a question is about when it does not say.
const FROM_DEFAULT: i64 = -300;

pub async fn list(ask: request::Ask) -> Answered {
    // In the order of the table, which is one for readers.
    let all = answers::all();
    let places: BTreeMap<String, usize> = all.iter().map(|one| one.name.clone()).zip(0..).collect();
    ok(&ask.page(all, |one| format!("{:04}", places[&one.name]))?)
}

/// What a question may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    expression: String,
    from: Option<i64>,
    to: Option<i64>,
    step: Option<u64>,
    limit: Option<usize>,
}

/// A question that was understood.
pub struct Asked(Ask);

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked, Failure> {
        let Query(question): Query<Question> = Query::try_from_uri(&parts.uri).map_err(|error| {
            let message = error.body_text();
            let field = message.split('`').nth(1).unwrap_or_default().to_string();
            Problem::new(Code::Invalid, format!("the query is wrong: {message}"))
                .field(field)
                .remedy("Give an expression, and from, to and step in whole seconds.")
        })?;
        let now = now_unix_ms() / 1000;
        // Not after now: seconds before it.
        let time = |time: i64| if time > 0 { time as u64 } else { now.saturating_sub(time.unsigned_abs()) };
        Ok(Asked(Ask {
            expression: answers::parse(&question.expression, EXPRESSION)?,
            from: time(question.from.unwrap_or(FROM_DEFAULT)),
            to: time(question.to.unwrap_or(0)),
            step_seconds: question.step,
            limit: question.limit.unwrap_or(LIMIT_DEFAULT as usize),
        }))
    }
}

pub async fn show(State(shared): State<Arc<Shared>>, Asked(ask): Asked) -> Answered {
    let expression = ask.expression.clone();
    let answer = shared.statistics.ask(ask).await?;
    ok(&answers::answer(&expression, &answer))
}

pub async fn metrics(State(shared): State<Arc<Shared>>) -> Answered {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, shared.statistics.metrics()).into_response())
}

/// Only a WebSocket gets so far; anything else is told what this is.
pub struct Upgrade(WebSocketUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Upgrade, Failure> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        upgrade.map(Upgrade).map_err(|rejection| {
            Problem::new(Code::Invalid, format!("this path needs a WebSocket request: {rejection}"))
                .field("Upgrade")
                .remedy("Connect with a WebSocket client, or ask `GET /api/v1/statistics/query`.")
                .into()
        })
    }
}

pub async fn stream(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Extension(place): Extension<Place>,
    headers: HeaderMap,
    upgrade: Result<Upgrade, Failure>,
) -> Answered {
    if !is_same_origin(&headers) {
        return Err(Problem::new(Code::Forbidden, "the request comes from a page of another origin")
            .field("Origin")
            .remedy("Open the stream from the daemon's own pages, or without an Origin.")
            .into());
    }
    let Upgrade(upgrade) = match upgrade {
        Ok(upgrade) => upgrade,
        Err(Failure(problem)) => {
            let mut response = json(StatusCode::UPGRADE_REQUIRED, &problem);
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            return Ok(response);
        }
    };
    let seat = shared.statistics.streams.take(who.unique()).ok_or_else(|| {
        Problem::new(Code::Busy, "too many streams of statistics are open already")
            .remedy("Close some, or ask `GET /api/v1/statistics/query`.")
    })?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    // The request that began it has been answered by then; as long as the stream lasts, the connection makes no room for others.
    let in_progress = place.begin_request();
    Ok(upgrade.on_upgrade(async move |socket| {
        Stream { shared, who, socket, subscriptions: BTreeMap::new() }.run().await;
        drop((seat, in_progress));
    }))
}

/// Pages of the daemon's own origin, and whatever is no page.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match headers.get(header::ORIGIN) {
        None => true,
        Some(origin) => {
            let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
            host.zip(text(header::HOST)).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
        }
    }
}

struct Subscription {
    expression: Expression,
    limit: usize,
    /// How many seconds there had been when it was told the last one.
    told: u64,
}

struct Stream {
    shared: Arc<Shared>,
    who: Principal,
    socket: WebSocket,
    subscriptions: BTreeMap<u64, Subscription>,
}

/// The client has gone, or does not read.
struct Gone;

impl Stream {
    async fn run(mut self) {
        let why = self.serve().await;
        if let Ok((code, reason)) = why {
            let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
            // It ends in any case.
            let _ = timeout(Duration::from_secs(1), self.socket.send(close)).await;
        }
    }

    /// Until the client goes, or there is a reason that it should be told.
    async fn serve(&mut self) -> Result<(u16, &'static str), Gone> {
        let shared = self.shared.clone();
        let mut newest = shared.statistics.newest();
        let mut stopping = shared.stopping.subscribe();
        let mut pings = interval(Duration::from_secs(PING_SECONDS));
        let mut dismissed = pin!(shared.clone().dismissed(self.who.clone()));
        newest.borrow_and_update();
        loop {
            tokio::select! {
                // A dismissed client gets no more messages, whatever else there is.
                biased;
                () = dismissed.as_mut() => return Ok((close_code::POLICY, "the login or token has ended")),
                _ = async { stopping.wait_for(|stopping| *stopping).await.is_ok() } => {
                    return Ok((close_code::AWAY, "the daemon is stopping"));
                }
                message = self.socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => self.take(text.as_str()).await?,
                    Some(Ok(Message::Binary(_))) => return Ok((close_code::UNSUPPORTED, "messages are texts")),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                },
                changed = newest.changed() => {
                    if changed.is_err() {
                        return Ok((close_code::AWAY, "statistics have ended"));
                    }
                    let newest = *newest.borrow_and_update();
                    self.tell(newest.count, newest.at_unix_s).await?;
                }
                _ = pings.tick() => self.send(Message::Ping(Default::default())).await?,
            }
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        let sent = timeout(Duration::from_secs(SEND_SECONDS_MAX), self.socket.send(message)).await;
        sent.map_err(|_| Gone)?.map_err(|_| Gone)
    }

    async fn send_json(&mut self, value: &impl serde::Serialize) -> Result<(), Gone> {
        let text = serde_json::to_string(value).expect("messages are plain data");
        self.send(Message::Text(text.into())).await
    }

    /// What a client asks.
    async fn take(&mut self, text: &str) -> Result<(), Gone> {
        let asked: StatisticSubscribe = match request::parse(text.as_bytes()) {
            Ok(asked) => asked,
            Err(problem) => {
                let problem = problem
                    .remedy("Send {\"subscribe\": 1, \"expression\": \"nbd.ops\"} or {\"unsubscribe\": 1}.");
                return self.send_json(&serde_json::json!({ "problem": problem })).await;
            }
        };
        if let Some(id) = asked.unsubscribe {
            self.subscriptions.remove(&id);
        }
        let Some(id) = asked.subscribe else { return Ok(()) };
        match self.subscribe(id, asked.expression.as_deref().unwrap_or_default(), asked.limit) {
            Ok(()) => {
                let made = &self.subscriptions[&id].expression;
                let (kind, unit) = (answers::kind(made.statistic.kind), answers::unit(made));
                self.send_json(&serde_json::json!({ "id": id, "kind": kind, "unit": unit })).await
            }
            Err(problem) => self.send_json(&serde_json::json!({ "id": id, "problem": problem })).await,
        }
    }

    fn subscribe(&mut self, id: u64, expression: &str, limit: Option<u32>) -> Result<(), Problem> {
        let expression = answers::parse(expression, EXPRESSION)?;
        let limit = limit.unwrap_or(LIMIT_DEFAULT) as usize;
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(answers::asked_wrongly(forebay_analytics::AskError::Limit));
        }
        if !self.subscriptions.contains_key(&id) && self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let detail = format!("there are {SUBSCRIPTIONS_MAX} subscriptions already");
            return Err(Problem::new(Code::Busy, detail).field("subscribe").remedy("End some first."));
        }
        let told = self.shared.statistics.newest().borrow().count;
        self.subscriptions.insert(id, Subscription { expression, limit, told });
        Ok(())
    }

    /// Tells all subscriptions of a second.
    async fn tell(&mut self, count: u64, at: u64) -> Result<(), Gone> {
        let asked = |(id, one): (&u64, &Subscription)| {
            let (from, to) = (at, at.saturating_add(1));
            let expression = one.expression.clone();
            (*id, Ask { expression, from, to, step_seconds: Some(1), limit: one.limit })
        };
        let asked: Vec<(u64, Ask)> = self.subscriptions.iter().map(asked).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let view = self.shared.statistics.view();
        // Some microseconds each as a rule, and milliseconds when there are many rows.
        let answers = crate::blocking(move || Ok(answer_all(&view, asked))).await.map_err(|_| Gone)?;
        for (id, answer) in answers {
            let Some(subscription) = self.subscriptions.get_mut(&id) else { continue };
            let missed = count.saturating_sub(subscription.told + 1);
            subscription.told = count;
            self.send_json(&answers::second(id, &answer, missed)).await?;
        }
        Ok(())
    }
}

fn answer_all(view: &View, asked: Vec<(u64, Ask)>) -> Vec<(u64, Answer)> {
    let answers = asked.into_iter().map(|(id, ask)| Some((id, query(view, &ask).ok()?)));
    answers.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(query: &str) -> Result<Ask, Problem> {
        let uri = format!("/api/v1/statistics/query?{query}");
        let request = axum::http::Request::builder().uri(uri).body(()).unwrap();
        let asked = Asked::from_request_parts(&mut request.into_parts().0, &()).await;
        asked.map(|Asked(ask)| ask).map_err(|Failure(problem)| problem)
    }

    #[tokio::test]
    async fn times_that_are_not_after_1970_are_seconds_before_now() {
        let now = now_unix_ms() / 1000;
        let ask = asked("expression=nbd.ops%5Bclient%5D&from=-60&to=0").await.unwrap();
        assert!(ask.to.abs_diff(now) <= 1 && ask.from.abs_diff(now - 60) <= 1, "{ask:?}");
        assert_eq!((ask.step_seconds, ask.limit), (None, 12));
        let ask = asked("expression=nbd.ops&from=5&to=9&step=2&limit=3").await.unwrap();
        assert_eq!((ask.from, ask.to, ask.step_seconds, ask.limit), (5, 9, Some(2), 3));
        let ask = asked(&format!("expression=nbd.ops&from={}", i64::MIN)).await.unwrap();
        assert_eq!(ask.from, 0);
        for (query, field) in [
            ("", "expression"),
            ("expression=nbd", "expression"),
            ("expression=nbd.ops&from=x", ""),
            ("expression=nbd.ops&steps=1", "steps"),
        ] {
            let problem = asked(query).await.unwrap_err();
            assert_eq!(
                (problem.code, problem.field.as_deref().unwrap_or("")),
                (Code::Invalid, field),
                "{query}"
            );
        }
    }

    #[test]
    fn a_page_of_another_origin_is_not_ours() {
        let headers = |origin: Option<&str>, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            headers
        };
        for (origin, host, is_ours) in [
            (None, "127.0.0.1:8080", true),
            (Some("http://127.0.0.1:8080"), "127.0.0.1:8080", true),
            (Some("https://STORAGE:8443"), "storage:8443", true),
            (Some("http://127.0.0.1:8081"), "127.0.0.1:8080", false),
            (Some("null"), "127.0.0.1:8080", false),
            (Some("http://evil.example"), "127.0.0.1:8080", false),
        ] {
            assert_eq!(is_same_origin(&headers(origin, host)), is_ours, "{origin:?}");
        }
    }
}
