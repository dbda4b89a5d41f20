//! Users: who may log in with a password, kept in `DIR/users` with the hashes of their passwords.
//!
//! Names that differ in capitals only are one. Once there is a user there is always an administrator: the last one is neither removed nor
//! given a lesser role, so that the set-up link is not needed twice.

use crate::rules;
use crate::store::{Kept, Store};
use forebay_api::{self as api, Access, Code, Problem};
use serde::{Deserialize, Serialize};

/// People, not customers.
const USERS_MAX: usize = 1000;

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct User {
    pub id: String,
    pub name: String,
    pub role: Access,
    /// In the form of the PHC: algorithm, parameters, salt and hash.
    pub password: String,
    pub created_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_login_unix_ms: Option<u64>,
}

impl User {
    pub fn shown(&self) -> api::User {
        api::User {
            id: self.id.clone(),
            name: self.name.clone(),
            spec: api::UserSpec { role: self.role },
            status: api::UserStatus {
                created_unix_ms: self.created_unix_ms,
                last_login_unix_ms: self.last_login_unix_ms,
            },
        }
    }
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Content {
    version: u32,
    pub users: Vec<User>,
}

impl Default for Content {
    fn default() -> Content {
        Content { version: Content::VERSION, users: Vec::new() }
    }
}

pub type Users = Store<Content>;

impl Kept for Content {
    const FILE: &'static str = "users";
    const VERSION: u32 = 1;
    const WHAT: &'static str = "users";
    const REMEDY: &'static str =
        "Move the file away and start the daemon again. It then prints a new set-up link.";

    fn version(&self) -> u32 {
        self.version
    }

    fn check(&self) -> Result<(), Problem> {
        if self.users.len() > USERS_MAX {
            return Err(Problem::new(Code::Busy, format!("there are {USERS_MAX} users already"))
                .remedy("Remove some with `forebay user delete NAME`."));
        }
        for (at, user) in self.users.iter().enumerate() {
            let is_same = |other: &User| other.id == user.id || other.name.eq_ignore_ascii_case(&user.name);
            if self.users[..at].iter().any(is_same) {
                return Err(Problem::new(Code::Conflict, "a user with this name exists")
                    .object(user.name.as_str())
                    .field("name")
                    .remedy("Choose another name; `forebay user list` shows them."));
            }
        }
        if !self.users.is_empty() && !self.users.iter().any(|user| user.role == Access::Admin) {
            return Err(Problem::new(Code::Conflict, "there would be no administrator")
                .remedy("The first user needs role admin (`--role admin`). Otherwise, give another user this role first."));
        }
        Ok(())
    }
}

impl Content {
    /// By name or UUID.
    pub fn find(&self, name: &str) -> Result<&User, Problem> {
        let found = self.users.iter().find(|user| user.id == name || user.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such user")
                .object(rules::shown(name))
                .remedy("`forebay user list` shows them.")
        })
    }

    /// The user with this login name.
    pub fn named(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name.eq_ignore_ascii_case(name))
    }

    pub fn find_mut(&mut self, name: &str) -> Result<&mut User, Problem> {
        let id = self.find(name)?.id.clone();
        Ok(self.users.iter_mut().find(|user| user.id == id).expect("it was found just now"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DataDir;
    use crate::test_directory;
    use std::sync::Arc;

    fn user(name: &str, role: Access) -> User {
        User {
            id: crate::random_id(),
            name: name.into(),
            role,
            password: "$argon2id$…".into(),
            created_unix_ms: 1,
            last_login_unix_ms: None,
        }
    }

    fn add(users: &Users, name: &str, role: Access) -> Result<(), Code> {
        let change = |content: &mut Content| {
            content.users.push(user(name, role));
            Ok(())
        };
        users.change(change).map_err(|problem| problem.code)
    }

    #[test]
    fn the_last_administrator_stays_one() {
        let temp = test_directory();
        let users = Users::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        assert_eq!(
            add(&users, "first", Access::Operator),
            Err(Code::Conflict),
            "the first is an administrator"
        );
        add(&users, "anna", Access::Admin).unwrap();
        add(&users, "bert", Access::Viewer).unwrap();
        let set = |name: &str, role| {
            users.change(|content| content.find_mut(name).map(|user| user.role = role)).map_err(|p| p.code)
        };
        let remove = |name: &'static str| {
            users
                .change(|content| {
                    let id = content.find(name)?.id.clone();
                    content.users.retain(|user| user.id != id);
                    Ok(())
                })
                .map_err(|problem| problem.code)
        };
        assert_eq!(set("anna", Access::Operator), Err(Code::Conflict));
        assert_eq!(remove("anna"), Err(Code::Conflict));
        set("bert", Access::Admin).unwrap();
        set("anna", Access::Viewer).unwrap();
        assert_eq!(remove("bert"), Err(Code::Conflict));
        remove("anna").unwrap();
        assert_eq!(remove("nobody"), Err(Code::NotFound));
        let names: Vec<String> = users.content().users.iter().map(|user| user.name.clone()).collect();
        assert_eq!(names, ["bert"]);
    }

    #[test]
    fn names_are_unique_whatever_their_capitals_and_survive_a_restart() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let users = Users::open(dir.clone()).unwrap();
        add(&users, "Anna", Access::Admin).unwrap();
        assert_eq!(add(&users, "aNNA", Access::Admin), Err(Code::Conflict));
        let again = Users::open(dir).unwrap();
        assert!(again.content() == users.content());
        assert_eq!(again.content().find("anna").unwrap().name, "Anna");
        let shown = serde_json::to_string(&again.content().users[0].shown()).unwrap();
        assert!(!shown.contains("argon2"), "{shown}");
    }
}
