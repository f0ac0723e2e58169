//! Figures of the device around the execution core: `cargo run --release -p cumux-device-sim
//! --example measure`.
//!
//! Prints the time from a launch to its report (idle device, one empty block), launches a second in
//! a full stream, and what the progress log costs a kernel that only stores.

mod card;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use card::{Nowhere, Waker, progress_log_file};
use cumux_device::{ClientSpec, Image, Kernel, Launch, Work};

const KERNELS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry fill(.param .u64 out, .param .u32 value) {
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r5, [value];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r5;
    st.global.u32 [%rd3], %r4;
    ret;
}
";
const ADDRESS: u64 = 0x1000_0000_0000;
const WORDS: u64 = 1 << 22;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sender, reports) = channel();
    let device = cumux_device_sim::open("sim:h200", Arc::new(Waker(sender)))?;
    let extent = device.create_extent(WORDS * 4)?;
    device.map(ADDRESS, extent.as_fd(), 0, WORDS * 4)?;
    let file = progress_log_file(device.marks_bytes())?;
    for (client, file) in [(1, None), (2, Some(&file))] {
        device.open_client(client, &ClientSpec::default(), file.map(AsFd::as_fd))?;
        device.allow(client, ADDRESS, WORDS * 4, true);
        let info = device.load_module(client, 1, Image::of(KERNELS.as_bytes()), &mut Nowhere)?;
        let stream = device.create_stream(client, 0)?;
        let function = |name: &str| info.functions.iter().position(|f| f.name == name).unwrap_or(0) as u32;
        let launch = |token: u64, name: &str, blocks: u32, value: u32| {
            let mut parameters = ADDRESS.to_le_bytes().to_vec();
            parameters.extend_from_slice(&value.to_le_bytes());
            let launch =
                Launch { module: 1, function: function(name), grid: [blocks, 1, 1], block: [256, 1, 1], parameters: parameters.into(), ..Launch::default() };
            device.submit(stream, token, Work::Kernel(Kernel { launch, resume: None }))
        };
        let wait = || reports.recv_timeout(Duration::from_secs(60));
        let mut times = Vec::new();
        for token in 0..2000 {
            let begun = Instant::now();
            launch(token, "empty", 1, 0)?;
            wait()?;
            times.push(begun.elapsed());
        }
        times.sort();
        let begun = Instant::now();
        for token in 0..20_000 {
            launch(10_000 + token, "empty", 1, 0)?;
        }
        for _ in 0..20_000 {
            wait()?;
        }
        let rate = 20_000.0 / begun.elapsed().as_secs_f64();
        let mut fills = Vec::new();
        for token in 0..7 {
            let begun = Instant::now();
            launch(50_000 + token, "fill", (WORDS / 256) as u32, 7)?;
            wait()?;
            fills.push(begun.elapsed());
        }
        fills.sort();
        println!(
            "{}: launch to report median {:?}, p99 {:?}; {rate:.0} launches/s in a stream; {WORDS} x 2 stores in {} blocks: {:?}",
            if file.is_some() { "with a progress log" } else { "without one" },
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            WORDS / 256,
            fills[0],
        );
    }
    Ok(())
}
