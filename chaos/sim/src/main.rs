//! `tessera-sim`: deterministic simulation of whole pools.

use std::process::ExitCode;

fn main() -> ExitCode {
    let seed: u64 = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    tessera_sim::machine::seed_entropy(seed);
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .without_time()
            .with_ansi(false)
            .init();
    }
    let story = tessera_sim::story::Story::new(true);
    let outcome =
        tessera_sim::simulation::Simulation::new(tessera_sim::scenario::Scenario::calm(seed), story.clone()).run();
    println!(
        "{:?} {:?} {} computations {} accepted",
        outcome.violation, outcome.simulated, outcome.computations, outcome.accepted
    );
    println!("{:?}", story.digest());
    if outcome.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
