//! The device suite on the software H200, with memory of its own: what the machine has changes
//! while tests run. Once as it is, and once as a card that breaks at a fault.

use std::sync::Arc;
use std::time::Duration;

use cumux_device::{Device, Sink};
use cumux_device_sim::{FaultTiming, Memory, Settings, open_with};

fn settings() -> Settings {
    Settings { memory: Memory::Own(u64::MAX), ..Settings::from_environment().expect("a sound environment") }
}

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    open_with("sim:h200", sink, settings()).expect("sim:h200 opens")
}

fn open_card(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    let faults = FaultTiming { announced_after: Duration::from_millis(10), drain: Duration::from_secs(3), ..FaultTiming::default() };
    open_with("sim:h200:card", sink, Settings { faults, ..settings() }).expect("sim:h200:card opens")
}

cumux_device::conformance_tests!(super::open);

mod card {
    cumux_device::conformance_tests!(super::super::open_card);
}
