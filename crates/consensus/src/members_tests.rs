//! Tests of what needs no cluster: who may found one, and when leadership has been handed over.

use super::*;

fn member(id: u64, address: &str) -> Member {
    Member { id: MemberId(id), name: String::new(), address: address.to_owned() }
}

#[test]
fn founders_must_be_distinct_and_include_the_founder() {
    let own = MemberId(1);
    assert!(check_founders(own, &[member(1, "a:1"), member(2, "b:1")]).is_ok());
    let wrong = [
        (vec![member(2, "a:1")], "not among them"),
        (vec![member(1, "a:1"), member(1, "b:1")], "appears twice"),
        (vec![member(1, "a:1"), member(2, "a:1")], "appears twice"),
        (vec![member(1, "")], "no address"),
        (vec![member(1, "a:1"), member(0, "b:1")], "not a member id"),
    ];
    for (founders, why) in wrong {
        let said = check_founders(own, &founders).expect_err("must be refused");
        assert!(said.contains(why), "{said:?} does not say {why:?}");
    }
}

#[test]
fn a_handover_is_over_when_another_member_leads_or_this_one_again() {
    let (own, term) = (MemberId(1), Term(7));
    let status = |role, term, leader: Option<u64>| Status {
        role,
        term: Term(term),
        leader: leader.map(|id| member(id, "a:1")),
        ..Status::new(own, true)
    };
    let leader = |role, now, leader| elected(&status(role, now, leader), own, term).map(|leader| leader.id.0);
    assert_eq!(leader(Role::Leader, 7, Some(1)), None, "it has not begun");
    assert_eq!(leader(Role::Follower, 8, None), None, "nobody is elected yet");
    assert_eq!(leader(Role::Follower, 7, Some(1)), None, "it is stepping down");
    assert_eq!(leader(Role::Candidate, 9, None), None, "the target was not elected in time");
    assert_eq!(leader(Role::Follower, 8, Some(2)), Some(2));
    assert_eq!(leader(Role::Leader, 10, Some(1)), Some(1), "it was elected again");
}
