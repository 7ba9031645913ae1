use super::*;
use crate::card::CardKind;
use crate::virtual_card::Span;

#[test]
fn a_device_says_what_it_needs_and_is_refused_what_nothing_could_back() {
    let card = VirtualCardRequest::new(MilliTflops(1), Mebibytes(1));
    let plain = JobSpec::new(vec!["true".to_owned()], VirtualCardRequest { access: Access::Device, ..card });
    assert!(plain.check().is_err(), "nodes that serve devices are not named");
    let spec = plain.with_needs_of_its_access();
    assert_eq!(spec.check(), Ok(()));
    assert_eq!(spec.node_labels[DEVICE_LABEL.0], DEVICE_LABEL.1);
    let with = |card: VirtualCardRequest| JobSpec { virtual_card: card, ..spec.clone() };
    let card = spec.virtual_card.clone();
    for (access, command, gang) in
        [(Access::Remote, vec!["true".to_owned()], 1), (Access::Remote, vec![], 2), (Access::Device, vec![], 1)]
    {
        let virtual_card = VirtualCardRequest { access, ..card.clone() };
        let wrong = JobSpec { virtual_card, command, gang, ..spec.clone() };
        assert!(wrong.check().is_err(), "{access:?} {gang}");
    }
    for span in [Span::Node, Span::Pool] {
        let several = VirtualCardRequest { span, ..card.clone() };
        assert_eq!(with(several.clone()).check(), Ok(()));
        assert_eq!(JobSpec { gang: 2, ..with(several) }.check(), Ok(()));
    }
    for span in [Span::Card, Span::Node] {
        let remote = VirtualCardRequest { span, access: Access::Remote, ..card.clone() };
        assert_eq!(JobSpec { command: Vec::new(), ..with(remote) }.check(), Ok(()));
    }
    for wrong in [
        VirtualCardRequest { span: Span::Pool, access: Access::Remote, ..card.clone() },
        VirtualCardRequest { memory: Mebibytes::ZERO, ..card.clone() },
        VirtualCardRequest { kinds: [CardKind::Gpu, CardKind::Fpga].into(), ..card },
    ] {
        assert!(with(wrong.clone()).with_needs_of_its_access().check().is_err(), "{wrong:?}");
    }
}

#[test]
fn backoff_doubles_up_to_its_cap() {
    let policy = RetryPolicy { max_retries: 9, ..RetryPolicy::default() };
    assert_eq!(policy.wait_before(1), Duration::from_secs(1));
    assert_eq!(policy.wait_before(4), Duration::from_secs(8));
    assert_eq!(policy.wait_before(200), Duration::from_secs(300));
    let patient = RetryPolicy { max_backoff: Duration::from_secs(3_600), ..policy };
    assert_eq!(patient.wait_before(200), Duration::from_secs(3_600));
}
