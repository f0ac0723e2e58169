//! How long it takes until a chain begins on an idle stream and until its end is seen. Measured
//! when a card is opened, because it depends on the host: 5 µs on a fast one, 10 on a slow one.

use super::own_kernels::OwnKernels;
use crate::driver::{Driver, GraphKernel, LaunchShape, PinnedWords};
use crate::fault::Call;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where it cannot be measured: the card is busy with other processes.
const DEFAULT_NS: u64 = 5_000;
/// What is believed.
const BELIEVED_NS: core::ops::RangeInclusive<u64> = 2_000..=20_000;
/// Chains that are launched, one after the other, after some that warm up.
const ROUNDS: usize = 64;
const WARM: usize = 8;
/// The measurement ends with a chain that takes longer than this: other processes have their turns.
/// The first ones may take longer: code is loaded, and clocks rise.
const LONGEST: Duration = Duration::from_micros(300);
const LONGEST_WARM: Duration = Duration::from_millis(20);
/// How long the kernel of the measured chain takes itself: one thread that writes one word.
const OWN_KERNEL_NS: u64 = 1_500;

/// The delay in nanoseconds, without the time of the kernels before a chain's fence.
pub(crate) fn measure_latency(driver: &Arc<Driver>, kernels: &OwnKernels) -> u64 {
    match launch_and_wait(driver, kernels) {
        Ok(took) if took.len() == ROUNDS => {
            let latency_ns = judge(took);
            tracing::debug!(latency_ns, "a chain's launch and the sight of its end");
            latency_ns
        }
        Ok(took) => {
            tracing::debug!(rounds = took.len(), "the delay of launches was not measured: the card is busy");
            DEFAULT_NS
        }
        Err(error) => {
            tracing::debug!("the delay of launches cannot be measured: {}", driver.describe_numbered(error));
            DEFAULT_NS
        }
    }
}

/// The delay, from what each round took.
fn judge(mut took: Vec<Duration>) -> u64 {
    took.sort_unstable();
    let typical = u64::try_from(took[took.len() / 2].as_nanos()).unwrap_or(u64::MAX);
    typical.saturating_sub(OWN_KERNEL_NS).clamp(*BELIEVED_NS.start(), *BELIEVED_NS.end())
}

/// How long a chain of one short kernel takes, from its launch until its fence is seen; fewer than
/// [`ROUNDS`] where one took too long.
fn launch_and_wait(driver: &Arc<Driver>, kernels: &OwnKernels) -> Call<Vec<Duration>> {
    const FENCE: usize = 0;
    const OTHER: usize = 1;
    let (words, stream) = (PinnedWords::new(driver, 2)?, driver.create_stream(0)?);
    let other = words.address(OTHER).to_ne_bytes();
    let kernel = GraphKernel { function: kernels.fence, shape: LaunchShape::single_thread(), parameters: &other };
    let chain = driver
        .draft_chain(&[kernel], kernels.fence, words.address(FENCE))
        .and_then(|draft| driver.complete_chain(draft, Some(stream)))
        .inspect_err(|_| driver.destroy_stream(stream))?;
    let mut took = Vec::with_capacity(ROUNDS);
    let mut outcome = Ok(());
    for round in 0..WARM + ROUNDS {
        let longest = if round < WARM { LONGEST_WARM } else { LONGEST };
        words.clear(FENCE);
        let begun = Instant::now();
        outcome = driver.launch_chain(&chain, stream);
        while outcome.is_ok() && words.load(FENCE) == 0 && begun.elapsed() < longest {
            core::hint::spin_loop();
        }
        let spent = begun.elapsed();
        if outcome.is_err() || spent >= longest {
            break;
        }
        if round >= WARM {
            took.push(spent);
        }
    }
    // The chain must not run any more when it is destroyed.
    outcome = outcome.and(driver.synchronize(stream));
    driver.destroy_chain(&chain);
    driver.destroy_stream(stream);
    outcome.map(|()| took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_round_counts_without_its_kernel() {
        let mut took = vec![Duration::from_nanos(8_500); ROUNDS];
        took[0] = Duration::from_nanos(290_000);
        assert_eq!(judge(took), 7_000);
        assert_eq!(judge(vec![Duration::from_nanos(900); ROUNDS]), 2_000);
        assert_eq!(judge(vec![Duration::from_micros(250); ROUNDS]), 20_000);
    }
}
