//! Logging in and out, and the first administrator.

use crate::authentication::{Identity, Peer, cookie, cookie_name};
use crate::events::now_unix_ms;
use crate::handlers::users::{find, made_user};
use crate::request::{Answered, By, Failure, Input, Principal, json, ok};
use crate::users::User;
use crate::{Shared, blocking, logins, passwords, random_bytes, rules, setup};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_api::{
    Access, Code, Login, LoginCreate, LoginUser, Problem, Setup, SetupFinish, SetupLink, Severity,
};
use std::sync::Arc;
use std::time::Instant;

/// The principal of the request.
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    headers: HeaderMap,
) -> Answered {
    let csrf = match who.identity {
        Identity::User { .. } => cookie(&headers, shared.front().tls)?.map(logins::csrf),
        _ => None,
    };
    ok(&Login { user: LoginUser { name: who.name, role: who.access }, csrf })
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Input(request): Input<LoginCreate>,
) -> Answered {
    if let Err(seconds) = shared.attempts().begin(&request.name, peer.address(), shared.uptime_ms()) {
        return Ok(too_many(&shared, &request.name, seconds));
    }
    let users = shared.users.content();
    let user = users.named(&request.name).cloned();
    let kept = user.as_ref().map(|user| user.password.clone());
    let is_right = shared.passwords.verify(request.password, kept).await?;
    let Some(user) = user else { return Ok(wrong().into_response()) };
    let by = By(format!("user {}", user.name));
    if !is_right {
        return Ok((Extension(by), wrong()).into_response());
    }
    shared.attempts().succeeded(&request.name, peer.address(), shared.uptime_ms());
    let id = user.id.clone();
    let shared_too = shared.clone();
    let told = blocking(move || {
        shared_too
            .users
            .change(|content| content.find_mut(&id).map(|user| user.last_login_unix_ms = Some(now_unix_ms())))
    });
    // A user who was removed just now does not log in; a full disk keeps no user out.
    match told.await {
        Err(problem) if problem.code == Code::NotFound => return Ok(wrong().into_response()),
        _ => {}
    }
    Ok((Extension(by), begin(&shared, &user)?).into_response())
}

fn wrong() -> Failure {
    Problem::new(Code::Unauthenticated, "the name or the password is wrong")
        .remedy("Try again; an administrator can set a new password with `forebay user set NAME --password`.")
        .into()
}

/// The answer to one try too many.
pub fn too_many(shared: &Shared, name: &str, seconds: u64) -> Response {
    let is_known = shared.users.content().named(name).is_some();
    let by = By(if is_known { format!("user {}", rules::shown(name)) } else { "anonymous".into() });
    let problem = Problem::new(Code::Busy, "too many attempts with a wrong name or password")
        .remedy(format!("Try again in {seconds} seconds."));
    let mut response = (Extension(by), Failure(problem)).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Begins a login: the answer has the cookie.
fn begin(shared: &Shared, user: &User) -> Result<Response, Failure> {
    let value = shared.logins().begin(&user.id, random_bytes()?, shared.uptime_ms());
    // One too many has ended another.
    shared.admissions_changed();
    // Between the check of the password and now the user may have been changed or removed, and the user's logins ended.
    let now = shared.users.content();
    let is_same = |now: &User| now.password == user.password && now.role == user.role;
    if !now.find(&user.id).is_ok_and(is_same) {
        shared.logins().end(&logins::hash(&value));
        return Err(wrong());
    }
    let login = Login {
        user: LoginUser { name: user.name.clone(), role: user.role },
        csrf: Some(logins::csrf(&value)),
    };
    let mut response = json(StatusCode::OK, &login);
    set_cookie(shared, &mut response, &value, logins::LIFE_MS / 1000);
    Ok(response)
}

fn set_cookie(shared: &Shared, response: &mut Response, value: &str, seconds: u64) {
    let tls = shared.front().tls;
    let (name, secure) = (cookie_name(tls), if tls { "; Secure" } else { "" });
    let cookie = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::from_str(&cookie).expect("a cookie is hexadecimal");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
}

/// A token and the socket have nothing to end.
pub async fn end(State(shared): State<Arc<Shared>>, Extension(who): Extension<Principal>) -> Answered {
    if let Identity::User { login, .. } = &who.identity {
        shared.logins().end(login);
        shared.admissions_changed();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&shared, &mut response, "", 0);
    Ok(response)
}

pub async fn setup_show(State(shared): State<Arc<Shared>>) -> Answered {
    ok(&Setup { needed: shared.users.content().users.is_empty() })
}

fn is_set_up() -> Problem {
    Problem::new(Code::Conflict, "there is an administrator already")
        .remedy("Log in; the daemon's owner can set a new password with `forebay user set NAME --password`.")
}

pub async fn setup_finish(State(shared): State<Arc<Shared>>, Input(request): Input<SetupFinish>) -> Answered {
    if !shared.users.content().users.is_empty() {
        return Err(is_set_up().into());
    }
    let wrong = || {
        Problem::new(Code::Unauthenticated, "the link is wrong, used or has expired")
            .field("secret")
            .remedy("Create a new link on the daemon's host with `forebay setup link`.")
    };
    if !shared.setup.is_right(&request.secret, Instant::now()) {
        return Err(wrong().into());
    }
    rules::name("name", &request.name)?;
    passwords::check_form("password", &request.password)?;
    let password = shared.passwords.hash(request.password).await?;
    let user = made_user(&request.name, Access::Admin, password);
    let (by, first) = (shared.clone(), user.clone());
    blocking(move || {
        by.users.change(|content| {
            // Others may have come first while the password was hashed.
            if !content.users.is_empty() {
                return Err(is_set_up());
            }
            if !by.setup.is_right(&request.secret, Instant::now()) {
                return Err(wrong());
            }
            content.users.push(first);
            Ok(())
        })
    })
    .await?;
    shared.setup.done();
    shared.events.record(Severity::Info, "setup.done", &user.name, "the first administrator was created");
    let by = By(format!("user {}", user.name));
    Ok((Extension(by), begin(&shared, &user)?).into_response())
}

pub async fn setup_link(State(shared): State<Arc<Shared>>, Extension(who): Extension<Principal>) -> Answered {
    if !shared.users.content().users.is_empty() {
        return Err(is_set_up().into());
    }
    let link = make_link(&shared)?;
    shared.events.record(
        Severity::Info,
        "setup.link",
        "setup",
        &format!("a link for the first administrator was created, by {}", who.name),
    );
    ok(&link)
}

/// A new link, with its secret; the one before is worth nothing any more.
pub fn make_link(shared: &Shared) -> Result<SetupLink, Problem> {
    let secret = shared.setup.renew(random_bytes()?, Instant::now());
    let front = shared.front();
    let scheme = if front.tls { "https" } else { "http" };
    Ok(SetupLink {
        url: format!("{scheme}://{}/#/setup?secret={secret}", front.authority),
        expires_unix_ms: now_unix_ms() + setup::LIFE.as_millis() as u64,
    })
}

/// Whether this is the password of the user who asks. Wrong ones count as failed logins.
pub async fn check_own(
    shared: &Shared,
    id: &str,
    peer: Peer,
    password: Option<String>,
) -> Result<Option<Response>, Failure> {
    let users = shared.users.content();
    let user = find(&users, id)?;
    if let Err(seconds) = shared.attempts().begin(&user.name, peer.address(), shared.uptime_ms()) {
        return Ok(Some(too_many(shared, &user.name, seconds)));
    }
    let kept = Some(user.password.clone());
    if !shared.passwords.verify(password.unwrap_or_default(), kept).await? {
        return Err(Problem::new(Code::Forbidden, "the old password is wrong")
            .field("old_password")
            .remedy("Send your current password.")
            .into());
    }
    shared.attempts().succeeded(&user.name, peer.address(), shared.uptime_ms());
    Ok(None)
}
