//! The project keeps its own rules.

use std::path::Path;

#[test]
fn the_project_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let breaches = forebay_tidy::check(&root.canonicalize().expect("the workspace exists"));
    let list: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} breaches:\n{}", list.len(), list.join("\n"));
}

/// A list without entries would find nothing missing.
#[test]
fn the_list_of_what_is_documented_has_its_sections() {
    let list = include_str!("../documented.txt");
    for (section, least) in [
        ("commands", 100),
        ("options", 100),
        ("events", 100),
        ("statistics", 30),
        ("metrics", 5),
        ("limits", 150),
    ] {
        let (_, rest) = list.split_once(&format!("\n[{section}]\n")).expect(section);
        let entries = rest.lines().take_while(|line| !line.starts_with('[')).filter(|line| !line.is_empty());
        assert!(entries.count() >= least, "{section}");
    }
}
