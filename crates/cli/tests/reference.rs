//! The reference in docs/cli is made from the program, and the tree of commands is sound.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tessera_cli::{args, reference};

/// Set to write the pages instead of comparing them.
const REGENERATE: &str = "TESSERA_REGENERATE_DOCS";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli")
}

#[test]
fn the_tree_of_commands_is_sound() {
    args::command().debug_assert();
}

#[test]
fn the_committed_reference_is_what_the_program_says() {
    let folder = folder();
    let pages: BTreeMap<String, String> = reference::pages().into_iter().collect();
    if std::env::var_os(REGENERATE).is_some() {
        fs::create_dir_all(&folder).expect("docs/cli can be made");
        for (name, text) in &pages {
            fs::write(folder.join(name), text).expect("a page can be written");
        }
    }
    let again = format!("run `{REGENERATE}=1 cargo test -p tessera-cli reference`");
    for (name, text) in &pages {
        let committed = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert_eq!(&committed, text, "docs/cli/{name} is out of date: {again}");
    }
    let entries = fs::read_dir(&folder).expect("docs/cli is there");
    for entry in entries {
        let name = entry.expect("listed").file_name().into_string().expect("a name of text");
        assert!(pages.contains_key(&name), "docs/cli/{name} describes no command any more: remove it");
    }
}

#[test]
fn every_command_that_can_be_typed_is_in_the_reference() {
    let pages: BTreeMap<String, String> = reference::pages().into_iter().collect();
    let mut command = args::command();
    command.build();
    for group in command.get_subcommands().filter(|group| !group.is_hide_set()) {
        let page = &pages[&format!("{}.md", group.get_name())];
        for verb in group.get_subcommands() {
            let heading = format!("## tessera {} {}\n", group.get_name(), verb.get_name());
            assert!(page.contains(&heading), "{heading} is missing");
        }
    }
    assert!(!pages.contains_key("supervise.md"), "what is hidden stays hidden");
}

#[test]
fn a_manual_page_is_written_for_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    reference::write_manual(folder.path()).expect("written");
    for name in ["tessera.1", "tessera-job.1", "tessera-job-submit.1", "tessera-cluster-member-add.1"] {
        let page = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        assert!(page.contains(".SH NAME"), "{name} is no manual page");
    }
}

#[test]
fn the_published_schema_is_what_the_program_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/job-file.schema.json");
    let published: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).expect("it is published")).expect("JSON");
    let printed: serde_json::Value = serde_json::from_str(&reference::schema().expect("a schema")).expect("JSON");
    assert_eq!(published, printed);
}

/// Blocks of code marked `lang` in the description of job files.
fn examples(lang: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/job-file.md");
    let text = fs::read_to_string(path).expect("docs/job-file.md is there");
    let fence = format!("```{lang}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

#[test]
fn every_example_of_a_job_file_is_good() {
    use tessera_api::job_file::{Notation, read};
    let mut count = 0;
    for (lang, notation) in [("yaml", Notation::Yaml), ("toml", Notation::Toml), ("json", Notation::Json)] {
        for example in examples(lang) {
            count += 1;
            if let Err(error) = read(&example, notation) {
                panic!("an example of docs/job-file.md is refused: {error}\n{example}");
            }
        }
    }
    assert!(count >= 6, "only {count} examples were found");
}
