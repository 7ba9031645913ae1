//! The document in `docs/openapi.json` is the one that is served.

use std::path::Path;

#[test]
fn the_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = tessera_gateway::openapi::document().expect("the descriptors are whole");
    if std::env::var_os("TESSERA_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{document:#}\n")).expect("docs can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path).expect("docs/openapi.json is there");
    // Compared as what it says: in which order serde_json writes depends on what else is built.
    let kept: serde_json::Value = serde_json::from_str(&kept).expect("docs/openapi.json is JSON");
    assert!(kept == document, "write it anew: TESSERA_WRITE_DOCS=1 cargo test -p tessera-gateway --test openapi");
}

#[test]
fn everything_that_is_referred_to_is_there() {
    let document = tessera_gateway::openapi::document().expect("the descriptors are whole");
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let referred = text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
    let mut some = 0;
    for name in referred {
        assert!(schemas.contains_key(name), "{name} is not described");
        some += 1;
    }
    assert!(some > 100, "only {some} references found");
    assert!(document["paths"]["/v1/jobs/{job_id}"]["get"]["description"].as_str().is_some_and(|told| !told.is_empty()));
}

#[test]
fn no_two_paths_differ_by_the_names_of_their_fields_alone() {
    let document = tessera_gateway::openapi::document().expect("the descriptors are whole");
    let paths = document["paths"].as_object().expect("paths");
    let mut seen = std::collections::BTreeMap::new();
    for path in paths.keys() {
        let shape: Vec<&str> = path.split(['{', '}']).step_by(2).collect();
        assert_eq!(seen.insert(shape, path), None, "{path} is there already");
    }
}
