//! Commands of the log: whatever is written is read again; whatever is not understood is refused and never
//! guessed (L7).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tessera_ledger::wire::{self, WireError, decode_request};
use tessera_ledger::{Command, Level, Request};

use crate::arbitrary;
use crate::samples;

fn encode_request(request: &Request) -> Vec<u8> {
    wire::encode_request(request, Level::Drill).expect("every level is in force")
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(request in arbitrary::request()) {
        let bytes = encode_request(&request);
        prop_assert_eq!(decode_request(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?, request);
    }

    #[test]
    fn garbage_is_refused_or_means_exactly_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = decode_request(&bytes) {
            prop_assert_eq!(decode_request(&encode_request(&request)).ok(), Some(request));
        }
    }

    #[test]
    fn damage_never_panics(request in arbitrary::request(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = encode_request(&request);
        let place = at.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let _ = decode_request(&bytes);
    }

    #[test]
    fn a_command_cut_short_is_not_taken_for_the_whole(request in arbitrary::request(), at in any::<prop::sample::Index>()) {
        let bytes = encode_request(&request);
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert_ne!(decode_request(cut).ok(), Some(request));
    }
}

fn tick() -> Vec<u8> {
    encode_request(&Request { key: None, actor: String::new(), command: Command::Tick })
}

/// The message of an error with those of its sources.
fn story(error: &dyn Error) -> String {
    let mut story = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        story.push_str(&format!(": {source}"));
        next = source.source();
    }
    story
}

#[test]
fn a_newer_format_is_refused_with_what_to_do() {
    let mut bytes = tick();
    assert_eq!(&bytes[..2], [0x08, 1], "the format comes first");
    bytes[1] = 2;
    let error = decode_request(&bytes).unwrap_err();
    assert!(matches!(error, WireError::UnknownFormat { found: 2, .. }));
    assert_eq!(
        story(&error),
        "a command of the log is in format 2, and this release reads formats up to 1; it was written by a newer release of \
         Tessera: start that release or a newer one"
    );
}

#[test]
fn a_command_of_a_newer_release_is_refused() {
    // Field 99, length-delimited, empty: a command that this release has no name for.
    let bytes = [&[0x08, 1], &[0x9a, 0x06, 0][..]].concat();
    let error = decode_request(&bytes).unwrap_err();
    assert!(matches!(error, WireError::UnknownContent { .. }), "{error}");
    assert!(error.to_string().contains("newer release"), "{error}");
}

#[test]
fn a_further_field_of_a_known_command_is_refused() {
    let bytes = [tick(), vec![0xf8, 0x06, 1]].concat();
    assert!(matches!(decode_request(&bytes), Err(WireError::UnknownContent { .. })));
}

#[test]
fn a_value_of_a_newer_release_is_refused_by_name() {
    let node = tessera_ledger::NodeId(1);
    let eligibility = tessera_ledger::Eligibility::Draining;
    let command = Command::SetEligibility { node, eligibility, reason: String::new() };
    let mut bytes = encode_request(&Request { key: None, actor: String::new(), command });
    let last = bytes.len() - 1;
    assert_eq!(bytes[last], 3, "the eligibility comes last");
    bytes[last] = 9;
    let error = decode_request(&bytes).unwrap_err();
    assert!(matches!(error, WireError::UnknownValue { .. }));
    assert_eq!(
        story(&error),
        "a command of the log holds a value that this release does not know; it was written by a newer release of Tessera: \
         start that release or a newer one: command.eligibility: 9 is not a value that this release knows; it knows \
         Eligible, Cordoned, Draining"
    );
}

#[test]
fn nothing_is_not_a_command() {
    assert!(matches!(decode_request(&[]), Err(WireError::Damaged { .. })));
}

/// The names of all kinds of commands.
fn names() -> BTreeSet<&'static str> {
    let names: BTreeSet<_> = Command::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), Command::KINDS.len(), "no two have the same name");
    names
}

#[test]
fn every_kind_of_command_has_a_sample() {
    let sampled = samples::commands();
    assert_eq!(sampled.iter().map(|command| command.kind().name).collect::<BTreeSet<_>>(), names());
    assert_eq!(sampled.len(), Command::KINDS.len());
}

#[test]
fn every_kind_of_command_is_among_the_arbitrary_ones() {
    let (commands, mut runner) = (arbitrary::request(), TestRunner::deterministic());
    let mut draw = || commands.new_tree(&mut runner).expect("one can be drawn").current().command.kind().name;
    assert_eq!((0..100 * Command::KINDS.len()).map(|_| draw()).collect::<BTreeSet<_>>(), names());
}

/// The fields of `Request.command` in the protocol: their numbers with their names.
fn messages() -> BTreeMap<i32, String> {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    let files = protox::compile(["tessera/ledger/v1/command.proto"], [proto]).expect("the protocol compiles").file;
    let file =
        files.into_iter().find(|file| file.package() == "tessera.ledger.v1").expect("the file that was asked for");
    let request = file.message_type.into_iter().find(|message| message.name() == "Request").expect("it is there");
    let of_commands = request.field.into_iter().filter(|field| field.oneof_index.is_some());
    of_commands.map(|field| (field.number(), field.name().to_owned())).collect()
}

#[test]
fn every_kind_of_command_has_the_name_of_its_message() {
    let messages = messages();
    assert_eq!(messages.values().map(String::as_str).collect::<BTreeSet<_>>(), names());
    for command in samples::commands() {
        let name = command.kind().name;
        let bytes = encode_request(&Request { key: None, actor: String::new(), command });
        // After two bytes that say the format: the number of the command's field, above three bits of its type.
        let tag = prost::encoding::decode_varint(&mut &bytes[2..]).expect("a command follows");
        assert_eq!(messages[&i32::try_from(tag >> 3).expect("a small number")], name);
    }
}
