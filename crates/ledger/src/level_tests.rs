use super::*;

#[test]
fn levels_are_known_by_number_and_in_its_order() {
    for level in Level::ALL {
        assert_eq!(Level::from_number(level.number()), Some(level));
    }
    assert!(Level::ALL.is_sorted_by(|before, after| before < after && before.number() < after.number()));
    assert_eq!([0, 7].map(Level::from_number), [None, None]);
    let highest = [0, 1, 7, 1_000, 5_000].map(Level::up_to);
    assert_eq!(highest, [None, Some(Level::One), Some(Level::One), Some(Level::Drill), Some(Level::Drill)]);
}

#[test]
fn a_command_needs_the_level_that_brings_it() {
    assert_eq!([Command::Tick, Command::Drill].map(|command| command.needs()), [Level::One, Level::Drill]);
    assert_eq!(check(&Command::Drill, Level::Drill), Ok(()));
    let refused = check(&Command::Drill, Level::One).expect_err("the level is not in force");
    assert!(refused.to_string().contains("level 1000"), "{refused}");
}
