//! Readings of cards, by a library that answers in the place of NVIDIA's.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::reading::ErrorKind;

/// The library of a driver that answers like NVIDIA's, and the files that say when it does not.
struct Library {
    driver: Driver,
    lost: PathBuf,
    mute: PathBuf,
}

impl Library {
    fn build(case: &Case, stale: Duration) -> Self {
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |name: &str| case.root.path().join(name);
        let (library, lost, mute) = (at("libnvidia-ml.so"), at("lost"), at("mute"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/accelerators/fake_nvml.c");
        let define = |name: &str, value: &str| format!("-D{name}=\"{value}\"");
        let words = [
            define("LOST", &lost.display().to_string()),
            define("MUTE", &mute.display().to_string()),
            define("FIRST", UUIDS[0]),
            define("SECOND", UUIDS[1]),
        ];
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args(words).arg(source);
        assert!(compiler.status().expect("a linker is a compiler").success());
        let every = Duration::from_millis(5);
        Self { driver: Driver { library: library.into(), every, stale }, lost, mute }
    }
}

/// Longer than a look may take on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(30);

impl Case {
    /// With readings by such a driver.
    fn driven(&self, driver: Driver) -> NodeDevices {
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        NodeDevices::of(vec![Box::new(AcceleratorBackend { driver, ..self.backend(TimeSlicing::Device) })])
            .expect("two cards")
    }
}

#[test]
fn cards_of_nvidia_have_the_readings_of_their_driver() {
    let case = Case::two();
    let mut node = case.driven(Library::build(&case, LONG).driver);
    let [first, second] = &node.sample(Duration::ZERO)[..] else { panic!("a reading for each card") };
    let expected = Sample {
        card_index: 0,
        utilization: 0.37,
        memory_used_bytes: 2_798_651_904,
        temperature_celsius: Some(34.0),
        power_watts: Some(121.37),
        energy_joules: Some(8_712_345.678),
        errors: [(ErrorKind::EccCorrected, 12), (ErrorKind::EccUncorrected, 1)].into(),
    };
    assert_eq!(*first, expected);
    assert_eq!(*second, Sample { card_index: 1, errors: BTreeMap::new(), ..expected }, "it counts no errors");
    assert_eq!(node.hardware(1).expect("there").serial, "1650123000002");
}

#[test]
fn a_card_that_its_driver_has_lost_is_unhealthy_until_it_is_found_again() {
    let case = Case::two();
    let library = Library::build(&case, LONG);
    let mut node = case.driven(library.driver.clone());
    fs::write(&library.lost, "").expect("writable");
    let mut changed = Vec::new();
    wait("the card unhealthy", || {
        changed.extend(node.changed_health());
        !changed.is_empty()
    });
    assert_eq!((changed.len(), changed[0].card_index, changed[0].health), (1, 0, CardHealth::Unhealthy));
    assert!(changed[0].reason.contains("lost"), "{}", changed[0].reason);
    fs::remove_file(&library.lost).expect("there");
    wait("the card healthy", || node.changed_health().iter().any(|report| report.health == CardHealth::Healthy));
}

#[test]
fn a_driver_that_keeps_whoever_asks_it_keeps_nobody_else() {
    let case = Case::two();
    let library = Library::build(&case, Duration::from_millis(500));
    let mut node = case.driven(library.driver.clone());
    fs::write(&library.mute, "").expect("writable");
    wait("the look stale", || node.sample(Duration::ZERO).is_empty());
    let changed = node.changed_health();
    assert_eq!(changed.iter().map(|report| report.health).collect::<Vec<_>>(), [CardHealth::Unhealthy; 2]);
    assert!(changed[0].reason.contains("does not answer"), "{}", changed[0].reason);
    fs::remove_file(&library.mute).expect("there");
    let mut healthy = 0;
    wait("both healthy", || {
        healthy += node.changed_health().len();
        healthy == 2
    });
}

#[test]
fn without_a_driver_there_are_no_readings_and_no_faults() {
    let case = Case::two();
    let library = case.root.path().join("no-such-library.so").into();
    let mut node = case.driven(Driver { library, ..Driver::default() });
    assert_eq!((node.sample(Duration::ZERO), node.changed_health()), (Vec::new(), Vec::new()));
}
