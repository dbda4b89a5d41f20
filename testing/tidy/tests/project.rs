//! The project keeps its own rules.

use std::path::Path;

#[test]
fn the_project_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let breaches = forebay_tidy::check(&root.canonicalize().expect("the workspace exists"));
    let list: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} breaches:\n{}", list.len(), list.join("\n"));
}
