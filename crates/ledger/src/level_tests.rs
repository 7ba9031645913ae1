use super::*;

#[test]
fn levels_are_known_by_number_and_in_its_order() {
    for level in Level::ALL {
        assert_eq!(Level::from_number(level.number()), Some(level));
    }
    assert!(Level::ALL.is_sorted_by(|before, after| before < after && before.number() < after.number()));
    assert_eq!(Level::from_number(7), None);
    assert_eq!([0, 1, 7, 1_000, 5_000].map(Level::up_to), {
        use Level::{Drill, One, Two, Zero};
        [Zero, One, Two, Drill, Drill]
    });
}

#[test]
fn a_setting_needs_its_level_only_when_it_says_something() {
    let set =
        |hold_level| Command::SetConfig { config: PoolConfig { hold_level, ..PoolConfig::default() }, expected: None };
    assert_eq!([false, true].map(|hold| set(hold).needs()), [Level::Zero, Level::One]);
    assert_eq!(check(&set(true), Level::One), Ok(()));
    let refused = check(&set(true), Level::Zero).expect_err("the level is not in force");
    assert!(refused.to_string().contains("level 1"), "{refused}");
}
