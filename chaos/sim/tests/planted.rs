//! The simulation sees: each planted bug is caught within the number of seeds that is stated for it (`proof::stated`), but for
//! those of which docs/failure-model.md says why no pool shows them alone.

use planted::Bug;
use tessera_sim::proof::{self, Plan};

#[test]
fn every_planted_bug_is_caught_within_its_stated_number_of_seeds() {
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| proof::is_visible(*bug)).collect();
    let program = env!("CARGO_BIN_EXE_tessera-sim").into();
    assert_eq!(bugs.len(), Bug::ALL.len() - 2);
    let proofs =
        proof::run(&Plan { program, bugs, first: 0, most: None, until: None, jobs: 2 }).expect("runs are started");
    let table = proof::table(&proofs);
    assert!(proofs.iter().all(|proof| proof.caught.is_some()), "not caught:\n{table}");
    println!("{table}");
}
