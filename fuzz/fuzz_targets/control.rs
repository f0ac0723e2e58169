//! Any text on the control socket is a command or a complaint.
#![no_main]

use cumux_control::command::Command;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for line in String::from_utf8_lossy(data).lines() {
        let _ = Command::parse(line);
    }
});
