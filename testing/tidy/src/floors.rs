//! Who may import whom: the floors of the house, and the order of the rooms on each.
//!
//! A crate imports only from earlier crates of its own floor or from floors below (docs/explanation/architecture.md); tests
//! keep to it too, because a test that needs what lies above is a test of what lies above. `testing/` may import
//! everything and is imported by nothing outside it. The data path (below `management`) stays free of tokio, HTTP and
//! serde_json, directly and through others, so that it runs unchanged on the simulator's executor.

use crate::Breach;
use crate::graph::Graph;
use std::path::Path;

/// From the ground up; within a floor in the order of import.
const FLOORS: &[(&str, &[&str])] = &[
    ("foundation", &["base", "probe", "runtime", "simulation"]),
    ("engine", &["compress", "device", "raid", "space", "log", "tree", "qos", "pool"]),
    ("service", &["qos", "scsi", "iscsi", "nbd", "nfs", "nvme", "target"]),
    ("management", &["analytics", "api", "hardware", "notify", "control", "cli"]),
    ("validate", &["workload", "reference", "live", "sizing"]),
];
/// The first floor on which tokio, HTTP and serde_json may be used.
const MANAGEMENT: usize = 3;
const FORBIDDEN_BELOW_MANAGEMENT: &[&str] =
    &["tokio", "axum", "hyper", "reqwest", "serde_json", "async-std", "smol"];

/// Where a crate stands: comparable, lower may be imported by higher.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    floor: usize,
    room: usize,
}

enum Standing {
    House(Place),
    Testing,
}

fn standing(directory: &Path) -> Result<Standing, String> {
    let parts: Vec<&str> = directory.iter().map(|p| p.to_str().unwrap_or_default()).collect();
    match parts[..] {
        ["crates", "forebay"] => Ok(Standing::House(Place { floor: FLOORS.len(), room: 0 })),
        ["crates", floor, room] => {
            let index = FLOORS.iter().position(|(name, _)| *name == floor).ok_or_else(|| {
                format!("there is no floor `{floor}`; the floors are listed in testing/tidy/src/floors.rs")
            })?;
            let room = FLOORS[index].1.iter().position(|name| *name == room).ok_or_else(|| {
                format!(
                    "`{room}` has no place in the order of `{floor}`; give it one in testing/tidy/src/floors.rs"
                )
            })?;
            Ok(Standing::House(Place { floor: index, room }))
        }
        ["testing", ..] => Ok(Standing::Testing),
        _ => Err("crates live in crates/FLOOR/NAME, crates/forebay or testing/NAME".into()),
    }
}

pub fn check(graph: &Graph) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (index, directory) in graph.members() {
        let package = &graph.packages[index];
        let place = match standing(directory) {
            Ok(Standing::House(place)) => place,
            Ok(Standing::Testing) => continue,
            Err(message) => {
                breaches.push(Breach { rule: "floors", place: directory.display().to_string(), message });
                continue;
            }
        };
        for &needed in package.needs.iter().chain(&package.needs_for_tests) {
            let other = &graph.packages[needed];
            let why = match other.directory.as_deref().map(standing) {
                Some(Ok(Standing::House(below))) if below < place => continue,
                Some(Ok(Standing::House(_))) => "which stands above or beside it",
                Some(Ok(Standing::Testing)) => "which is for tests only",
                // From outside, or reported above.
                None | Some(Err(_)) => continue,
            };
            breaches.push(Breach {
                rule: "floors",
                place: package.name.clone(),
                message: format!(
                    "imports {}, {why}; a crate imports only from its floor's earlier crates and from floors below",
                    other.name
                ),
            });
        }
        if place.floor < MANAGEMENT {
            breaches.extend(data_path(graph, index));
        }
    }
    breaches
}

fn data_path(graph: &Graph, index: usize) -> Vec<Breach> {
    let closure = graph.closure(index);
    let mut found: Vec<Breach> = closure
        .iter()
        .map(|(&needed, &via)| (&graph.packages[needed], &graph.packages[via]))
        .filter(|(needed, _)| FORBIDDEN_BELOW_MANAGEMENT.contains(&needed.name.as_str()))
        .map(|(needed, via)| Breach {
            rule: "data-path",
            place: graph.packages[index].name.clone(),
            message: format!(
                "needs {} (through {}); below crates/management nothing may, so that the engine runs on any executor",
                needed.name, via.name
            ),
        })
        .collect();
    found.sort_by(|a, b| a.message.cmp(&b.message));
    found
}
