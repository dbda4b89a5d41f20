//! The workspace's packages and what they depend on, as `cargo metadata` resolves them.
//!
//! Resolved for one platform, the one the product runs on: a crate that only Windows would pull in is no breach.
//! Works without a network: the lock file is committed, and a workspace without one has path dependencies only.

use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// One package, the workspace's own or somebody else's.
pub struct Package {
    pub name: String,
    pub version: String,
    /// SPDX expression; empty when the manifest has none.
    pub licence: String,
    /// Directory of the manifest relative to the workspace; `None` for packages from outside.
    pub directory: Option<PathBuf>,
    /// Indices of what this needs to build and run.
    pub needs: Vec<usize>,
    /// Indices of what only its tests need.
    pub needs_for_tests: Vec<usize>,
}

pub struct Graph {
    pub packages: Vec<Package>,
}

impl Graph {
    /// # Panics
    /// When cargo cannot resolve the workspace at `root`.
    pub fn load(root: &Path) -> Graph {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--filter-platform", PLATFORM])
            .current_dir(root)
            .output()
            .expect("cargo can be started");
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        Graph::parse(&serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON"))
    }

    fn parse(metadata: &Value) -> Graph {
        let text = |value: &Value| value.as_str().expect("a string in cargo's metadata").to_owned();
        let list = |value: &Value| value.as_array().expect("a list in cargo's metadata").clone();
        let workspace = PathBuf::from(text(&metadata["workspace_root"]));
        let members: BTreeSet<String> = list(&metadata["workspace_members"]).iter().map(text).collect();
        let mut index = HashMap::new();
        let mut packages = Vec::new();
        for package in list(&metadata["packages"]) {
            let id = text(&package["id"]);
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let directory = members.contains(&id).then(|| {
                let directory = manifest.parent().expect("a manifest lies in a directory");
                directory.strip_prefix(&workspace).expect("members lie in the workspace").to_owned()
            });
            index.insert(id, packages.len());
            packages.push(Package {
                name: text(&package["name"]),
                version: text(&package["version"]),
                licence: package["license"].as_str().unwrap_or_default().to_owned(),
                directory,
                needs: Vec::new(),
                needs_for_tests: Vec::new(),
            });
        }
        for node in list(&metadata["resolve"]["nodes"]) {
            let from = index[&text(&node["id"])];
            for dependency in list(&node["deps"]) {
                let to = index[&text(&dependency["pkg"])];
                for kind in list(&dependency["dep_kinds"]) {
                    match kind["kind"].as_str() {
                        Some("dev") => packages[from].needs_for_tests.push(to),
                        _ => packages[from].needs.push(to),
                    }
                }
            }
        }
        Graph { packages }
    }

    /// The workspace's own packages, with their directories.
    pub fn members(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.packages.iter().enumerate().filter_map(|(i, p)| Some((i, p.directory.as_deref()?)))
    }

    /// Everything that `from` needs to build and run, itself excluded, each with the package that pulled it in.
    pub fn closure(&self, from: usize) -> HashMap<usize, usize> {
        let mut via = HashMap::new();
        let mut queue = vec![from];
        while let Some(package) = queue.pop() {
            for &next in &self.packages[package].needs {
                if next != from && !via.contains_key(&next) {
                    via.insert(next, package);
                    queue.push(next);
                }
            }
        }
        via
    }
}
