//! The device suite on the software H200.

use std::sync::Arc;

use cumux_device::{Device, Sink};

fn open(sink: Arc<dyn Sink>) -> Arc<dyn Device> {
    cumux_device_sim::open("sim:h200", sink).expect("sim:h200 opens")
}

cumux_device::conformance_tests!(super::open);
