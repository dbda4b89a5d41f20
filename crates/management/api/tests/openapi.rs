//! The committed OpenAPI document is the one that the code describes.
//!
//! Method: generate, compare with `docs/reference/openapi.json`, and check that every reference in it resolves. With
//! `FOREBAY_UPDATE=1` the file is written instead.

use std::path::Path;

#[test]
fn the_committed_document_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/openapi.json");
    let generated = forebay_api::document();
    if std::env::var_os("FOREBAY_UPDATE").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/reference/openapi.json is not what the code describes. Look at the difference, and if it is meant, \
         regenerate it with: FOREBAY_UPDATE=1 cargo test -p forebay-api --test openapi"
    );
}

#[test]
fn every_reference_resolves_and_every_operation_is_there() {
    let document: serde_json::Value = serde_json::from_str(&forebay_api::document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut stack = vec![&document];
    let mut references = 0;
    while let Some(value) = stack.pop() {
        match value {
            serde_json::Value::Object(map) => {
                if let Some(target) = map.get("$ref").and_then(|r| r.as_str()) {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target} does not resolve");
                    references += 1;
                }
                stack.extend(map.values());
            }
            serde_json::Value::Array(items) => stack.extend(items),
            _ => {}
        }
    }
    assert!(references > 50, "only {references} references: is the document whole?");
    for operation in forebay_api::Operation::ALL {
        let method = operation.method().name().to_lowercase();
        let described = &document["paths"][operation.path()][method.as_str()];
        assert_eq!(described["operationId"], format!("{operation:?}"));
    }
}
