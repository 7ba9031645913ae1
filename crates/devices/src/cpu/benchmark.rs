//! A benchmark of the real speed of the processors: fused multiply-adds in 32-bit floating point on all cores at once.
//!
//! The inner loop is written in machine instructions where the processor has wide registers, so that a build without
//! optimisation measures the machine and not the compiler.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tessera_ledger::MilliTflops;

/// Windows that every core computes in; its best one counts, because neighbours disturb the others.
const WINDOWS: u32 = 4;
const WINDOW: Duration = Duration::from_millis(50);
/// Rounds of the inner loop between two looks at the clock.
const ROUNDS: u64 = 50_000;
/// Independent sums: enough to keep two units busy over a latency of four or five cycles.
const SUMS: u64 = 12;

/// The instruction set of the inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// 16 numbers at once.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 8 numbers at once.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Whatever the compiler makes of it.
    Portable,
}

impl Instructions {
    /// The widest that this machine has.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// A word for files and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            Self::Portable => "portable",
        }
    }

    /// Floating-point operations of one round: a multiply and an add per number.
    const fn operations(self) -> u64 {
        let numbers = match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 8,
            Self::Portable => 8,
        };
        SUMS * numbers * 2
    }

    #[allow(unsafe_code)]
    fn run(self) {
        match self {
            // SAFETY: `best` has found that the machine has these instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx512() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2() },
            Self::Portable => portable(),
        }
    }
}

/// Computes for about 200 ms on that many cores and gives the rate of all together.
pub fn measure(instructions: Instructions, cores: u64) -> MilliTflops {
    let cores = usize::try_from(cores).unwrap_or(1).max(1);
    let start = Barrier::new(cores);
    let rates: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    (0..WINDOWS).map(|_| rate_of_window(instructions)).fold(0.0, f64::max)
                })
            })
            .collect();
        // A thread that panicked adds nothing.
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let milli = rates.iter().sum::<f64>() / 1e9;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below 2^63")]
    MilliTflops(milli.round() as u64)
}

/// Operations per second of this thread over one window.
#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn rate_of_window(instructions: Instructions) -> f64 {
    let begin = Instant::now();
    let mut rounds = 0_u64;
    loop {
        instructions.run();
        rounds += ROUNDS;
        let passed = begin.elapsed();
        if passed >= WINDOW {
            return (rounds * instructions.operations()) as f64 / passed.as_secs_f64();
        }
    }
}

/// The same in plain code, for machines without such registers.
fn portable() {
    let factor = std::hint::black_box([1.000_001_f32; 8]);
    let mut sums = [[0.5_f32; 8]; SUMS as usize];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            for (number, factor) in sum.iter_mut().zip(factor) {
                *number = *number * factor + 0.25;
            }
        }
    }
    std::hint::black_box(sums);
}

/// [`ROUNDS`] rounds of twelve independent sums, eight numbers each. The sums stay zero: what is added does not change
/// the speed.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
fn avx2() {
    // SAFETY: only registers are touched, and all of them are declared.
    unsafe {
        std::arch::asm!(
            "vxorps xmm0, xmm0, xmm0",
            "vxorps xmm1, xmm1, xmm1",
            "vxorps xmm2, xmm2, xmm2",
            "vxorps xmm3, xmm3, xmm3",
            "vxorps xmm4, xmm4, xmm4",
            "vxorps xmm5, xmm5, xmm5",
            "vxorps xmm6, xmm6, xmm6",
            "vxorps xmm7, xmm7, xmm7",
            "vxorps xmm8, xmm8, xmm8",
            "vxorps xmm9, xmm9, xmm9",
            "vxorps xmm10, xmm10, xmm10",
            "vxorps xmm11, xmm11, xmm11",
            "vxorps xmm12, xmm12, xmm12",
            "vxorps xmm13, xmm13, xmm13",
            "2:",
            "vfmadd231ps ymm0, ymm12, ymm13",
            "vfmadd231ps ymm1, ymm12, ymm13",
            "vfmadd231ps ymm2, ymm12, ymm13",
            "vfmadd231ps ymm3, ymm12, ymm13",
            "vfmadd231ps ymm4, ymm12, ymm13",
            "vfmadd231ps ymm5, ymm12, ymm13",
            "vfmadd231ps ymm6, ymm12, ymm13",
            "vfmadd231ps ymm7, ymm12, ymm13",
            "vfmadd231ps ymm8, ymm12, ymm13",
            "vfmadd231ps ymm9, ymm12, ymm13",
            "vfmadd231ps ymm10, ymm12, ymm13",
            "vfmadd231ps ymm11, ymm12, ymm13",
            "dec {rounds}",
            "jnz 2b",
            rounds = inout(reg) ROUNDS => _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
            out("xmm5") _,
            out("xmm6") _,
            out("xmm7") _,
            out("xmm8") _,
            out("xmm9") _,
            out("xmm10") _,
            out("xmm11") _,
            out("xmm12") _,
            out("xmm13") _,
            options(nomem, nostack),
        );
    }
}

/// [`ROUNDS`] rounds of twelve independent sums, sixteen numbers each. The sums stay zero: what is added does not
/// change the speed.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
fn avx512() {
    // SAFETY: only registers are touched, and all of them are declared.
    unsafe {
        std::arch::asm!(
            "vxorps xmm0, xmm0, xmm0",
            "vxorps xmm1, xmm1, xmm1",
            "vxorps xmm2, xmm2, xmm2",
            "vxorps xmm3, xmm3, xmm3",
            "vxorps xmm4, xmm4, xmm4",
            "vxorps xmm5, xmm5, xmm5",
            "vxorps xmm6, xmm6, xmm6",
            "vxorps xmm7, xmm7, xmm7",
            "vxorps xmm8, xmm8, xmm8",
            "vxorps xmm9, xmm9, xmm9",
            "vxorps xmm10, xmm10, xmm10",
            "vxorps xmm11, xmm11, xmm11",
            "vxorps xmm12, xmm12, xmm12",
            "vxorps xmm13, xmm13, xmm13",
            "2:",
            "vfmadd231ps zmm0, zmm12, zmm13",
            "vfmadd231ps zmm1, zmm12, zmm13",
            "vfmadd231ps zmm2, zmm12, zmm13",
            "vfmadd231ps zmm3, zmm12, zmm13",
            "vfmadd231ps zmm4, zmm12, zmm13",
            "vfmadd231ps zmm5, zmm12, zmm13",
            "vfmadd231ps zmm6, zmm12, zmm13",
            "vfmadd231ps zmm7, zmm12, zmm13",
            "vfmadd231ps zmm8, zmm12, zmm13",
            "vfmadd231ps zmm9, zmm12, zmm13",
            "vfmadd231ps zmm10, zmm12, zmm13",
            "vfmadd231ps zmm11, zmm12, zmm13",
            "dec {rounds}",
            "jnz 2b",
            rounds = inout(reg) ROUNDS => _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
            out("xmm5") _,
            out("xmm6") _,
            out("xmm7") _,
            out("xmm8") _,
            out("xmm9") _,
            out("xmm10") _,
            out("xmm11") _,
            out("xmm12") _,
            out("xmm13") _,
            options(nomem, nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_loop_computes_something() {
        let mut kinds = vec![Instructions::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            kinds.extend(is_x86_feature_detected!("avx512f").then_some(Instructions::Avx512));
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            kinds.extend(avx2.then_some(Instructions::Avx2));
        }
        for kind in kinds {
            assert!(rate_of_window(kind) > 1e6, "{} computes more than a million operations per second", kind.name());
        }
        assert!(measure(Instructions::best(), 1) > MilliTflops::ZERO);
    }
}
