//! What the operations do, by object.

pub mod disks;
pub mod hosts;
pub mod mappings;
pub mod moves;
pub mod others;
pub mod pools;
pub mod projects;
pub mod sessions;
pub mod snapshots;
pub mod streams;
pub mod trash;
pub mod volumes;

use crate::Shared;
use crate::request::Principal;
use forebay_api::Severity;

/// Records what somebody did.
fn told(shared: &Shared, who: &Principal, code: &str, object: &str, what: &str) {
    shared.events.record(Severity::Info, code, object, &format!("{what}, by {}", who.name));
}
