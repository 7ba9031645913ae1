//! A profile of a process that gives its addresses names by another one of itself, as `tessera` does; so the test is a
//! program of its own.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tessera_diagnostics::{Profiler, profile};

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == profile::WORD) {
        return if profile::answer().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    what_a_thread_computes_is_seen_under_its_name();
    ExitCode::SUCCESS
}

#[inline(never)]
fn computes_all_the_time(stop: &AtomicBool) {
    let mut sum = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for number in 0..10_000 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
}

fn what_a_thread_computes_is_seen_under_its_name() {
    let stop = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let busy = || computes_all_the_time(&stop);
        thread::Builder::new().name("busy".to_owned()).spawn_scoped(scope, busy).expect("a thread");
        let told = loop {
            let profiler = Profiler::take().expect("nobody else makes one");
            let part = profiler.part(Duration::from_millis(300));
            let told = String::from_utf8(part.content.expect("a profile")).expect("text");
            // On a machine that is busy the thread may have had no turn.
            if told.lines().any(|line| line.starts_with("busy;") && line.contains("computes_all_the_time")) {
                break told;
            }
        };
        stop.store(true, Ordering::Relaxed);
        told
    });
    let counted = told.lines().all(|line| line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok()));
    assert!(counted, "{told}");
    assert!(!told.contains("looks::walk"), "of looking itself nothing is seen: {told}");
}
