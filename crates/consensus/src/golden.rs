//! The disk and wire formats of past releases stay readable (law L7).
//!
//! `tests/golden/v1/` holds one file per kind of record, written by the first release. A later release that changes a
//! format adds a folder of its own and keeps reading the older ones. To write the files of a new format, run this test
//! once with `TESSERA_WRITE_GOLDEN=1` and commit what it wrote; files that exist are never overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;

use crate::codec::{
    Description, decode_content, decode_identity, decode_vote, encode_content, encode_identity, encode_vote,
};
use crate::ids::{ClusterId, Identity, MemberId};
use crate::machine::{LogIndex, LogTime, Term, Unreadable};
use crate::pb;
use crate::types::{Batch, Content, Membership, Place, StoredMembership, Vote, log_id};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

fn golden(name: &str, encoded: &Bytes) -> Bytes {
    let file = folder().join(name);
    if std::env::var_os("TESSERA_WRITE_GOLDEN").is_some() && !file.exists() {
        std::fs::create_dir_all(folder()).expect("the folder can be made");
        std::fs::write(&file, encoded).expect("the file can be written");
    }
    std::fs::read(&file).unwrap_or_else(|error| panic!("{} is committed: {error}", file.display())).into()
}

fn check<T: PartialEq + Debug>(
    name: &str,
    value: &T,
    encode: impl Fn(&T) -> Bytes,
    decode: impl Fn(Bytes) -> Result<T, Unreadable>,
) {
    let stored = golden(name, &encode(value));
    assert_eq!(&decode(stored.clone()).expect(name), value, "{name} is read as something else");
    assert_eq!(encode(value), stored, "{name} is written differently: give the new format a new version");
}

fn membership() -> Membership {
    let place = |name: &str| Place { name: name.to_owned(), address: format!("{name}.example:7000") };
    let members = BTreeMap::from([(1, place("a")), (2, place("b")), (3, place("c")), (7, place("d"))]);
    Membership::new(vec![BTreeSet::from([1, 2]), BTreeSet::from([1, 3])], members).expect("all voters are members")
}

fn check_content(name: &str, content: &Content) {
    check(name, content, encode_content, |bytes| decode_content(LogIndex(5), bytes));
}

#[test]
fn what_the_first_release_wrote_is_read() {
    check_content("entry-blank.bin", &Content::Blank);
    check_content("entry-membership.bin", &Content::Membership(membership()));
    let commands = vec![Bytes::from_static(b"submit"), Bytes::new(), Bytes::from_static(&[0, 255])];
    check_content("entry-batch.bin", &Content::Batch(Batch { time: LogTime(1_790_000_000_123), commands }));
    check("vote.bin", &Vote::new(9, 2), encode_vote, decode_vote);
    check("vote-granted.bin", &Vote::new_committed(10, 3), encode_vote, decode_vote);
    let identity = Identity { cluster: ClusterId::new("prod-1").expect("a legal id"), member: MemberId(3) };
    check("identity.bin", &identity, encode_identity, decode_identity);
    let description = Description {
        last: Some(log_id(Term(10), LogIndex(4_711))),
        membership: StoredMembership::new(Some(log_id(Term(8), LogIndex(4_000))), membership()),
        highest_member: MemberId(7),
        log_time: LogTime(1_790_000_000_123),
    };
    check("snapshot-description.bin", &description, Description::encode, Description::decode);
}

#[test]
fn what_this_release_does_not_know_is_refused_and_named() {
    let read = |entry: pb::Entry| decode_content(LogIndex(5), entry.encode_to_vec().into());
    let newer = read(pb::Entry { version: 2, kind: Some(pb::entry::Kind::Blank(pb::Blank {})) });
    let newer = newer.expect_err("a newer version").to_string();
    assert!(newer.contains("log entry 5") && newer.contains("version 2"), "{newer}");
    // A kind that a newer release might add: a field this one has never heard of.
    let mut unknown = pb::Entry { version: 1, kind: None }.encode_to_vec();
    unknown.extend_from_slice(&[0x4a, 0x01, 0x00]);
    let unknown = decode_content(LogIndex(6), unknown.into()).expect_err("an unknown kind").to_string();
    assert!(unknown.contains("log entry 6") && unknown.contains("kind"), "{unknown}");
    assert!(decode_content(LogIndex(7), Bytes::from_static(&[0xff; 9])).is_err());
    assert!(decode_vote(Bytes::from_static(&[0xff; 9])).is_err());
    assert!(decode_vote(pb::Vote { version: 3, ..pb::Vote::default() }.encode_to_vec().into()).is_err());
    assert!(decode_identity(Bytes::new()).is_err(), "no version at all");
    assert!(Description::decode(Bytes::new()).is_err(), "no version at all");
    let voter_without_member =
        pb::Membership { voter_sets: vec![pb::VoterSet { member_ids: vec![1] }], members: Vec::new() };
    let impossible = read(pb::Entry { version: 1, kind: Some(pb::entry::Kind::Membership(voter_without_member)) });
    assert!(impossible.is_err());
}
