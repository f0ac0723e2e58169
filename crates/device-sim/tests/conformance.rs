//! The device suite on the software H200, with memory of its own: what the machine has changes
//! while tests run.

use std::sync::Arc;

use cumux_device::{Device, Sink};
use cumux_device_sim::{Memory, Settings, open_with};

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    let settings = Settings { memory: Memory::Own(u64::MAX), ..Settings::from_environment().expect("a sound environment") };
    open_with("sim:h200", sink, settings).expect("sim:h200 opens")
}

cumux_device::conformance_tests!(super::open);
