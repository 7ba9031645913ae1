//! Programs that are dumped and have a card beside them.

use super::*;

fn card_lost() -> Event {
    Event::CardLost(Cause::NodeFault, "the slice server ended".to_owned())
}

#[test]
fn a_program_whose_card_is_lost_is_over_and_that_is_not_its_own_fault() {
    let mut machine = dumped_one();
    assert_eq!(machine.on(at(5), card_lost()), [Effect::Publish, Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(6), Event::Exited { exit: Exit::Signal(9), because: None }), [Effect::Probe]);
    assert_eq!(machine.on(at(6), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    let status = machine.status();
    assert_eq!((status.cause, status.message.as_str()), (Some(Cause::NodeFault), "the slice server ended"));
}

#[test]
fn a_card_that_is_lost_while_it_is_saved_means_that_it_was_not_saved() {
    let mut machine = dumped_one();
    machine.on_request(at(5), saving_stop()).expect("obeyed");
    assert_eq!(machine.on(at(6), card_lost()), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(7), Event::Dumped(Ok(image()))), [], "nothing that was killed is whole");
    let status = machine.status();
    assert_eq!((status.cause, status.not_saved.as_str()), (Some(Cause::Ordered), "the slice server ended"));
    assert_eq!(status.image, None);
}

#[test]
fn a_card_that_ends_after_its_program_has_ended_or_was_dumped_says_nothing() {
    let mut machine = dumped_one();
    machine.on(at(5), Event::Exited { exit: Exit::Code(3), because: None });
    assert_eq!(machine.on(at(5), card_lost()), []);
    assert_eq!(machine.status().cause, Some(Cause::Exited));
    let mut machine = dumped_one();
    machine.on_request(at(5), saving_stop()).expect("obeyed");
    machine.on(at(8), Event::Dumped(Ok(image())));
    assert_eq!(machine.on(at(8), card_lost()), []);
    assert_eq!(machine.status().not_saved, "");
}
