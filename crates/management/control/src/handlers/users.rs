//! Users. Each user may see the own entry and change the own password; the rest is for administrators.

use super::told;
use crate::authentication::{Identity, Peer};
use crate::events::now_unix_ms;
use crate::handlers::logins::check_own;
use crate::request::{Answered, Ask, Failure, Input, Principal, made, ok, plan};
use crate::users::{Content, User};
use crate::{Shared, blocking, passwords, random_id, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api::{Access, Code, Operation, Problem, UserCreate, UserSet};
use std::sync::Arc;

pub fn made_user(name: &str, role: Access, password: String) -> User {
    User {
        id: random_id(),
        name: name.into(),
        role,
        password,
        created_unix_ms: now_unix_ms(),
        last_login_unix_ms: None,
    }
}

pub fn find(users: &Content, name: &str) -> Result<User, Problem> {
    users.find(name).cloned()
}

fn is_himself(who: &Principal, user: &User) -> bool {
    matches!(&who.identity, Identity::User { id, .. } if *id == user.id)
}

/// A user without role admin finds no other users, and so does not learn which exist.
fn visible(shared: &Shared, who: &Principal, name: &str) -> Result<User, Problem> {
    let found = find(&shared.users.content(), name);
    if who.access == Access::Admin || found.as_ref().is_ok_and(|user| is_himself(who, user)) {
        return found;
    }
    Err(Problem::new(Code::Forbidden, format!("{} has role {}", who.unique(), who.access.name()))
        .remedy("Ask a user with role admin."))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let users = shared.users.content().users.iter().map(User::shown).collect();
    ok(&ask.page(users, |user| user.name.to_ascii_lowercase())?)
}

pub async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
) -> Answered {
    ok(&visible(&shared, &who, &name)?.shown())
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<UserCreate>,
) -> Answered {
    rules::name("name", &request.name)?;
    passwords::check_form("password", &request.password)?;
    // The same checks as the real thing, before the work of hashing.
    let wanted = made_user(&request.name, request.role, String::new());
    shared.users.plan(|content| {
        content.users.push(wanted);
        Ok(())
    })?;
    if ask.dry_run {
        let changes = vec![format!("A user with role {} is created.", request.role.name())];
        return plan("user.create", &request.name, changes);
    }
    let password = shared.passwords.hash(request.password).await?;
    let user = made_user(&request.name, request.role, password);
    let (by, new) = (shared.clone(), user.clone());
    blocking(move || {
        by.users.change(|content| {
            content.users.push(new);
            Ok(())
        })
    })
    .await?;
    // With a user, the link for the first administrator is not needed.
    shared.setup.done();
    told(&shared, &who, "user.created", &user.name, &format!("created with role {}", user.role.name()));
    made(StatusCode::CREATED, &Operation::UserShow.path_of(&user.name), &user.shown())
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<UserSet>,
) -> Answered {
    let user = visible(&shared, &who, &name)?;
    if let Some(password) = &request.password {
        passwords::check_form("password", password)?;
    }
    if request.role.is_some_and(|role| role != user.role) && who.access < Access::Admin {
        return Err(Problem::new(Code::Forbidden, "only an administrator can change a role")
            .field("role")
            .remedy("Ask a user with role admin.")
            .into());
    }
    let renamed = request.name.filter(|name| *name != user.name);
    if let Some(name) = &renamed {
        rules::name("name", name)?;
        if who.access < Access::Admin {
            return Err(Problem::new(Code::Forbidden, "only an administrator can rename a user")
                .field("name")
                .remedy("Ask a user with role admin.")
                .into());
        }
    }
    let (role, name) = (request.role.unwrap_or(user.role), renamed.clone());
    let change = move |content: &mut Content, id: &str, password: Option<String>| {
        let user = content.find_mut(id)?;
        // What was not asked for is as it is by now.
        if request.role.is_some() {
            user.role = role;
        }
        if let Some(name) = &name {
            user.name.clone_from(name);
        }
        if let Some(password) = password {
            user.password = password;
        }
        Ok::<_, Problem>(user.clone())
    };
    shared.users.plan(|content| change(content, &user.id, None))?;
    if ask.dry_run {
        let renamed = renamed.map(|name| format!("The user is renamed to {name}."));
        let role = request.role.map(|role| format!("The role is set to {}.", role.name()));
        let password = request.password.map(|_| "The password is replaced.".to_string());
        let mut changes: Vec<String> = [renamed, role, password].into_iter().flatten().collect();
        if !changes.is_empty() {
            changes.push("All logins of the user end.".into());
        }
        return plan("user.set", &user.name, changes);
    }
    if request.password.is_some()
        && is_himself(&who, &user)
        && let Some(refused) = check_own(&shared, &user.id, peer, request.old_password).await?
    {
        return Ok(refused);
    }
    let password = match request.password {
        Some(password) => Some(shared.passwords.hash(password).await?),
        None => None,
    };
    let changes = [
        renamed.map(|name| format!("renamed to {name}")),
        password.as_ref().map(|_| "password replaced".into()),
        (role != user.role).then(|| format!("role set to {}", role.name())),
    ];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    let (before, by, id) = (user.name.clone(), shared.clone(), user.id.clone());
    let user = blocking(move || by.users.change(|content| change(content, &id, password))).await?;
    if !changes.is_empty() {
        shared.logins().end_all_of(&user.id);
        shared.admissions_changed();
        told(&shared, &who, "user.changed", &before, &changes.join(", "));
    }
    ok(&user.shown())
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let user = find(&shared.users.content(), &name)?;
    let id = user.id.clone();
    let remove = move |content: &mut Content| {
        let id = content.find(&id)?.id.clone();
        content.users.retain(|user| user.id != id);
        if content.users.is_empty() {
            return Err(Problem::new(Code::Conflict, "this is the last administrator")
                .remedy("Give another user the role admin first."));
        }
        Ok(())
    };
    if ask.dry_run {
        shared.users.plan(remove)?;
        return plan(
            "user.delete",
            &user.name,
            vec!["The user is removed, and all of its logins end.".into()],
        );
    }
    let by = shared.clone();
    blocking(move || by.users.change(remove)).await?;
    shared.logins().end_all_of(&user.id);
    shared.admissions_changed();
    told(&shared, &who, "user.deleted", &user.name, "removed");
    Ok::<_, Failure>(StatusCode::NO_CONTENT.into_response())
}
