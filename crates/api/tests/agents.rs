//! Messages that no agent has a reason to send: refused with the field, or cut.

use tessera_api::v1::{self, ErrorReason};
use tessera_api::{agent, limits};
use tessera_ledger::Observation;

type Change = fn(&mut v1::Hello, String);

#[test]
fn what_an_agent_says_of_itself_is_bounded() {
    let hello = || v1::Hello {
        node_name: "n0".to_owned(),
        node_uid: "u0".to_owned(),
        address: "10.0.0.1:7410".to_owned(),
        worker_host: "10.0.0.1".to_owned(),
        ..Default::default()
    };
    let changes: [(Change, &str); 8] = [
        (|hello, text| hello.node_name = text, "hello.node_name"),
        (|hello, text| hello.node_uid = text, "hello.node_uid"),
        (|hello, text| hello.agent_version = text, "hello.agent_version"),
        (|hello, text| hello.worker_host = text, "hello.worker_host"),
        (|hello, text| hello.cluster_id = text, "hello.cluster_id"),
        (|hello, text| hello.boot_id = text, "hello.boot_id"),
        (|hello, text| hello.start_nonce = text, "hello.start_nonce"),
        (|hello, text| hello.labels = [("rack".to_owned(), text)].into(), "hello.labels[\"rack\"]"),
    ];
    let fields = |hello: &v1::Hello| {
        let refusal = agent::node_of_hello(hello).err();
        refusal.map(|refusal| refusal.fields().iter().map(|field| field.field.clone()).collect::<Vec<_>>())
    };
    for (change, field) in changes {
        for (length, expected) in [(limits::NAME, None), (limits::NAME + 1, Some(vec![field.to_owned()]))] {
            let mut hello = hello();
            change(&mut hello, "x".repeat(length));
            assert_eq!(fields(&hello), expected, "{field} of {length} bytes");
        }
    }
    for (length, expected) in [(limits::NAME, None), (limits::NAME + 1, Some(vec!["hello.address".to_owned()]))] {
        let address = format!("{}:7410", "x".repeat(length - 5));
        assert_eq!(fields(&v1::Hello { address, ..hello() }), expected, "an address of {length} bytes");
    }
    for address in ["", "n0", "n0:0", "n 0:1", "\"n0\":1", "n0\n:1"] {
        let hello = v1::Hello { address: address.to_owned(), ..hello() };
        assert_eq!(fields(&hello), Some(vec!["hello.address".to_owned()]), "{address:?}");
    }
    for host in ["", "n 0", "n\"0", "n0\n", "n0/"] {
        let hello = v1::Hello { worker_host: host.to_owned(), ..hello() };
        assert_eq!(fields(&hello), Some(vec!["hello.worker_host".to_owned()]), "{host:?}");
    }
    let huge = Some(v1::HostCapacity { milli_cpus: u64::MAX, memory_mib: u64::MAX });
    let of_host = ["hello.host.milli_cpus", "hello.host.memory_mib"].map(str::to_owned).to_vec();
    assert_eq!(fields(&v1::Hello { host: huge, ..hello() }), Some(of_host));
    let labels = |count: usize| (0..count).map(|number| (format!("l{number}"), String::new())).collect();
    assert_eq!(fields(&v1::Hello { labels: labels(limits::LABELS), ..hello() }), None);
    let more = v1::Hello { labels: labels(limits::LABELS + 1), ..hello() };
    assert_eq!(fields(&more), Some(vec!["hello.labels".to_owned()]));
    let missing = "x".repeat(limits::SENTENCE + 1);
    let contained = v1::Hello { containment: Some(v1::Containment { whole: false, missing }), ..hello() };
    assert_eq!(fields(&contained), Some(vec!["hello.containment.missing".to_owned()]));
}

#[test]
fn what_agents_say_of_cards_is_bounded() {
    let card = || v1::CardDescription { kind: v1::CardKind::Gpu.into(), ..Default::default() };
    let refused = |cards: Vec<v1::CardDescription>| {
        let refusal = agent::cards(cards).expect_err("more than any node has");
        assert_eq!(refusal.reason(), ErrorReason::CardInvalid);
        refusal.message().to_owned()
    };
    let changed = |change: fn(&mut v1::CardDescription, String)| {
        let mut last = card();
        change(&mut last, "x".repeat(254));
        refused(vec![card(), last])
    };
    assert!(agent::cards(vec![card(); 1024]).is_ok());
    insta::assert_snapshot!(refused(vec![card(); 1025]), @"cards: must be at most 1024, are 1025");
    insta::assert_snapshot!(changed(|card, text| card.vendor = text), @r##"cards[1].vendor: must have at most 253 bytes in one line, is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"..."##);
    insta::assert_snapshot!(changed(|card, text| card.model = text), @r##"cards[1].model: must have at most 253 bytes in one line, is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"..."##);
    insta::assert_snapshot!(changed(|card, text| card.uuid = text), @r##"cards[1].uuid: must have at most 253 bytes in one line, is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"..."##);
    insta::assert_snapshot!(changed(|card, text| card.pci_address = text), @r##"cards[1].pci_address: must have at most 253 bytes in one line, is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"..."##);
    for called in ["a\nb", "a\"b", "a'b", "a\u{1b}[31mb"] {
        let field = refused(vec![v1::CardDescription { vendor: called.to_owned(), ..card() }]);
        assert!(field.starts_with("cards[0].vendor: "), "{field}");
    }
    let rating = v1::Rating { precision: v1::Precision::Fp16.into(), milli_tflops: u64::MAX };
    let link = v1::Link { megabytes_per_second: u64::MAX, kind: v1::LinkKind::Fabric.into(), ..Default::default() };
    for (huge, field) in [
        (v1::CardDescription { memory_mib: u64::MAX, ..card() }, "memory_mib"),
        (v1::CardDescription { max_slices: u32::MAX, ..card() }, "max_slices"),
        (v1::CardDescription { measured: vec![rating], ..card() }, "measured[0].milli_tflops"),
        (v1::CardDescription { links: vec![link], ..card() }, "links[0].megabytes_per_second"),
    ] {
        let refused = refused(vec![huge]);
        assert!(refused.starts_with(&format!("cards[0].{field}: must be at most")), "{refused}");
    }
    let links = |card: &mut v1::CardDescription, _| card.links = vec![v1::Link::default(); 1025];
    insta::assert_snapshot!(changed(links), @"cards[1].links: must be at most 1024, are 1025");
}

#[test]
fn what_a_stranger_says_is_cut() {
    assert_eq!(agent::cut("as it is".to_owned(), 8), "as it is");
    assert_eq!(agent::cut("\u{e9}".repeat(200), 200), format!("{}...", "\u{e9}".repeat(98)));
}

#[test]
fn a_sentence_of_an_agent_is_cut_where_it_is_too_long() {
    let said = |text: String| {
        let report = v1::WorkerReport {
            worker: Some(v1::WorkerRef::default()),
            phase: v1::WorkerPhase::Stopped.into(),
            cause: v1::StopCause::Exited.into(),
            message: text.clone(),
            not_saved: text,
            ..Default::default()
        };
        match agent::report(report).expect("it makes sense").map(|report| report.observation) {
            Some(Observation::Stopped(exit)) => [exit.message, exit.not_saved],
            other => panic!("it has stopped: {other:?}"),
        }
    };
    let whole = "x".repeat(limits::SENTENCE);
    assert_eq!(said(whole.clone()), [whole.clone(), whole]);
    for text in ["x".repeat(16 << 20), "é".repeat(limits::SENTENCE)] {
        for cut in said(text) {
            assert!(cut.len() <= limits::SENTENCE && cut.len() > limits::SENTENCE - 5 && cut.ends_with("..."), "{cut}");
        }
    }
}
