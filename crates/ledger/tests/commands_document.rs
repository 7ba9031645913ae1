//! `docs/commands.md` says what the table of commands says.

use tessera_ledger::{Command, CommandKind};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
const WRITE: &str = "TESSERA_WRITE_DOCS=1 cargo test -p tessera-ledger commands_document";

/// The first sentence of its comment.
fn meaning(kind: &CommandKind) -> String {
    let comment: Vec<&str> = kind.comment.iter().map(|line| line.trim()).collect();
    let comment = comment.join(" ");
    let end = comment.find(". ").map_or(comment.len(), |stop| stop + 1);
    comment[..end].to_owned()
}

fn document() -> String {
    let rows = Command::KINDS.iter().map(|kind| format!("| `{}` | {} | {} |\n", kind.name, kind.since, meaning(kind)));
    format!(
        "# Commands of the ledger\n\n\
         Everything that changes a pool is one of these commands in the replicated log. Each is written from its release level\n\
         on, that is, once every member can apply it ([0014](decisions/0014-release-levels.md)); a field of one may need a\n\
         higher level. Their fields are in `proto/tessera/ledger/v1/command.proto`. This page is made from the table in\n\
         `crates/ledger/src/command.rs` by `{WRITE}`.\n\n\
         | command | level | meaning |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

#[test]
fn the_document_is_current() {
    if std::env::var_os("TESSERA_WRITE_DOCS").is_some() {
        std::fs::write(DOCUMENT, document()).expect("docs can be written");
    }
    let kept = std::fs::read_to_string(DOCUMENT).expect("docs/commands.md is there");
    assert!(kept == document(), "write it anew: {WRITE}");
}
