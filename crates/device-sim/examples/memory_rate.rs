//! What memory accesses cost: `cargo run --release -p cumux-device-sim --example memory_rate
//! [FILTER]`.
//!
//! For each pattern, prints the processor time (user and system, all workers) of one access of a
//! whole warp, and of each instruction of the loop around it. It is processor time because the
//! machines that this runs on are often shared. All kernels run with a progress log, as those of
//! clients do.

mod card;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use card::{Nowhere, Waker, progress_log_file};
use cumux_device::{ClientSpec, Image, Kernel, Launch, Outcome, Work};

const ADDRESS: u64 = 0x1000_0000_0000;
const BYTES: u64 = 64 << 20;
const ROUNDS: u64 = 64;
const BLOCK: u32 = 256;
const BLOCKS: u32 = 512;

/// A loop body: name, where the address starts (from `%tid` in `%r3`, thread of the grid in `%r4`),
/// the body, accesses in it, instructions in it.
struct Pattern {
    name: &'static str,
    start: &'static str,
    body: &'static str,
    accesses: u64,
    instructions: u64,
}

/// `%rd4` is an address in the buffer, `%r5` an offset in shared memory, `%r6` to `%r9` data,
/// `%r10` the round.
const PATTERNS: &[Pattern] = &[
    Pattern { name: "arithmetic only", start: "", body: "add.u32 %r6, %r6, %r3; xor.b32 %r7, %r7, %r6;", accesses: 1, instructions: 2 },
    Pattern {
        name: "arithmetic, half the lanes",
        start: "and.b32 %r8, %r3, 16; setp.eq.u32 %p2, %r8, 0;",
        body: "@%p2 add.u32 %r6, %r6, %r3; @%p2 xor.b32 %r7, %r7, %r6;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "load, words in a row",
        start: "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd1, %rd4;",
        body: "ld.global.u32 %r7, [%rd4]; add.u32 %r6, %r6, %r7;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "store, words in a row",
        start: "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd1, %rd4;",
        body: "st.global.u32 [%rd4], %r6;",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "store, new words each time",
        start: "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd1, %rd4;",
        body: "st.global.u32 [%rd4], %r6; add.u64 %rd4, %rd4, 524288;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "load, one word for all",
        start: "mov.u64 %rd4, %rd1;",
        body: "ld.global.u32 %r7, [%rd4]; add.u32 %r6, %r6, %r7;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "load v4, in a row",
        start: "mul.wide.u32 %rd4, %r4, 16; add.u64 %rd4, %rd1, %rd4;",
        body: "ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd4];",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "store v4, in a row",
        start: "mul.wide.u32 %rd4, %r4, 16; add.u64 %rd4, %rd1, %rd4;",
        body: "st.global.v4.u32 [%rd4], {%r6, %r7, %r8, %r9};",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "load f64, in a row",
        start: "mul.wide.u32 %rd4, %r4, 8; add.u64 %rd4, %rd1, %rd4;",
        body: "ld.global.f64 %fd1, [%rd4]; add.f64 %fd2, %fd2, %fd1;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "store f64, in a row",
        start: "mul.wide.u32 %rd4, %r4, 8; add.u64 %rd4, %rd1, %rd4;",
        body: "st.global.f64 [%rd4], %fd2;",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "load bytes, in a row",
        start: "cvt.u64.u32 %rd4, %r4; add.u64 %rd4, %rd1, %rd4;",
        body: "ld.global.u8 %r7, [%rd4]; add.u32 %r6, %r6, %r7;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "load, half the lanes",
        start: "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd1, %rd4; and.b32 %r8, %r3, 16; setp.eq.u32 %p2, %r8, 0;",
        body: "@%p2 ld.global.u32 %r7, [%rd4]; add.u32 %r6, %r6, %r7;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "load, stride 128",
        start: "mul.wide.u32 %rd4, %r4, 128; add.u64 %rd4, %rd1, %rd4;",
        body: "ld.global.u32 %r7, [%rd4]; add.u32 %r6, %r6, %r7;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "store, stride 128",
        start: "mul.wide.u32 %rd4, %r4, 128; add.u64 %rd4, %rd1, %rd4;",
        body: "st.global.u32 [%rd4], %r6;",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "load, scattered",
        start: "mov.u32 %r7, %r4;",
        body: "mad.lo.u32 %r7, %r7, 1664525, 1013904223; and.b32 %r8, %r7, 0xfffffc; cvt.u64.u32 %rd4, %r8; add.u64 %rd4, %rd1, %rd4; ld.global.u32 %r9, [%rd4];",
        accesses: 1,
        instructions: 5,
    },
    Pattern {
        name: "atomic add, 256 counters",
        start: "mov.u32 %r7, %r4;",
        body: "mad.lo.u32 %r7, %r7, 1664525, 1013904223; and.b32 %r8, %r7, 1020; cvt.u64.u32 %rd4, %r8; add.u64 %rd4, %rd1, %rd4; red.global.add.u32 [%rd4], 1;",
        accesses: 1,
        instructions: 5,
    },
    Pattern {
        name: "generic load, in a row",
        start: "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd1, %rd4;",
        body: "ld.u32 %r7, [%rd4]; add.u32 %r6, %r6, %r7;",
        accesses: 1,
        instructions: 2,
    },
    Pattern {
        name: "generic, shared, in a row",
        start: "mul.wide.u32 %rd4, %r3, 4; cvta.shared.u64 %rd5, near; add.u64 %rd4, %rd4, %rd5;",
        body: "st.u32 [%rd4], %r6; ld.u32 %r6, [%rd4];",
        accesses: 2,
        instructions: 2,
    },
    Pattern {
        name: "shared, in a row",
        start: "shl.b32 %r5, %r3, 2; mov.u32 %r8, near; add.u32 %r5, %r5, %r8;",
        body: "st.shared.u32 [%r5], %r6; ld.shared.u32 %r6, [%r5];",
        accesses: 2,
        instructions: 2,
    },
    Pattern {
        name: "shared, stride 36",
        start: "mul.lo.u32 %r5, %r3, 36; mov.u32 %r8, near; add.u32 %r5, %r5, %r8;",
        body: "st.shared.u32 [%r5], %r6; ld.shared.u32 %r6, [%r5];",
        accesses: 2,
        instructions: 2,
    },
    Pattern { name: "shared, one word for all", start: "mov.u32 %r5, near;", body: "ld.shared.u32 %r6, [%r5];", accesses: 1, instructions: 1 },
    Pattern {
        name: "shared v4, in a row",
        start: "shl.b32 %r5, %r3, 4; mov.u32 %r8, near; add.u32 %r5, %r5, %r8;",
        body: "st.shared.v4.u32 [%r5], {%r6, %r7, %r8, %r9}; ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r5];",
        accesses: 2,
        instructions: 2,
    },
    Pattern {
        name: "shared bytes",
        start: "mov.u32 %r8, near; add.u32 %r5, %r3, %r8;",
        body: "st.shared.u8 [%r5], %r6; ld.shared.u8 %r6, [%r5];",
        accesses: 2,
        instructions: 2,
    },
    Pattern {
        name: "shared atomic add",
        start: "and.b32 %r5, %r3, 63; shl.b32 %r5, %r5, 2; mov.u32 %r8, near; add.u32 %r5, %r5, %r8;",
        body: "atom.shared.add.u32 %r6, [%r5], 1;",
        accesses: 1,
        instructions: 1,
    },
    Pattern { name: "barrier", start: "", body: "bar.sync 0;", accesses: 1, instructions: 1 },
    Pattern {
        name: "local, own words",
        start: "mov.u64 %rd4, mine; and.b32 %r8, %r3, 7; mul.wide.u32 %rd5, %r8, 4; add.u64 %rd4, %rd4, %rd5;",
        body: "st.local.u32 [%rd4], %r6; ld.local.u32 %r6, [%rd4];",
        accesses: 2,
        instructions: 2,
    },
    Pattern {
        name: "branch taken by half",
        start: "and.b32 %r8, %r3, 1; setp.eq.u32 %p2, %r8, 0;",
        body: "@%p2 bra THEN; add.u32 %r6, %r6, %r3; bra JOIN; THEN: sub.u32 %r6, %r6, %r3; JOIN:",
        accesses: 1,
        instructions: 3,
    },
    Pattern {
        name: "product, halves, 16 x 16 x 16",
        start: "",
        body: "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%m8, %m9, %m10, %m11, %m12, %m13, %m14, %m15}, {%m0, %m1, %m2, %m3, %m4, %m5, %m6, %m7}, {%m0, %m1, %m2, %m3, %m4, %m5, %m6, %m7}, {%m8, %m9, %m10, %m11, %m12, %m13, %m14, %m15};",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "product, bytes, 16 x 16 x 16",
        start: "",
        body: "wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32 {%m8, %m9, %m10, %m11, %m12, %m13, %m14, %m15}, {%m0, %m1}, {%m0, %m1}, {%m8, %m9, %m10, %m11, %m12, %m13, %m14, %m15};",
        accesses: 1,
        instructions: 1,
    },
    Pattern {
        name: "16 x 16 halves from shared",
        start: "mov.u32 %r5, near;",
        body: "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%m0, %m1, %m2, %m3, %m4, %m5, %m6, %m7}, [%r5], %r11;",
        accesses: 1,
        instructions: 1,
    },
    Pattern { name: "shuffle", start: "", body: "shfl.sync.bfly.b32 %r6, %r6, 1, 31, -1;", accesses: 1, instructions: 1 },
];

/// Instructions of the loop besides the body.
const AROUND: u64 = 3;

fn text(pattern: &Pattern, rounds: u64) -> String {
    let zero: String = (0..16).map(|n| format!("mov.b32 %m{n}, 0; ")).collect();
    format!(
        "
.version 8.0
.target sm_75
.address_size 64
.visible .entry run(.param .u64 buffer) {{
    .reg .b32 %r<12>;
    .reg .b32 %m<16>;
    .reg .b64 %rd<6>;
    .reg .f64 %fd<3>;
    .reg .pred %p<3>;
    .shared .align 16 .b8 near[16384];
    .local .align 16 .b8 mine[64];
    ld.param.u64 %rd1, [buffer];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r6, 1; mov.u32 %r7, 2; mov.u32 %r8, 3; mov.u32 %r9, 4; mov.u32 %r11, 80;
    {zero}
    mov.f64 %fd2, 0d3FF0000000000000;
    {}
    mov.u32 %r10, 0;
AGAIN:
    {}
    add.u32 %r10, %r10, 1;
    setp.lt.u32 %p1, %r10, {rounds};
    @%p1 bra AGAIN;
    ret;
}}
",
        pattern.start, pattern.body
    )
}

/// Processor time of this process so far, in nanoseconds.
fn processor_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let (sender, reports) = channel();
    let device = cumux_device_sim::open("sim:h200", Arc::new(Waker(sender)))?;
    let extent = device.create_extent(BYTES)?;
    device.map(ADDRESS, extent.as_fd(), 0, BYTES)?;
    let file = progress_log_file(device.marks_bytes())?;
    device.open_client(1, &ClientSpec::default(), Some(file.as_fd()))?;
    device.allow(1, ADDRESS, BYTES, true);
    let stream = device.create_stream(1, 0)?;
    let warps = u64::from(BLOCKS * BLOCK / 32);
    let mut token = 0;
    let mut module = 0;
    println!("{:28} {:>12} {:>18}", "pattern", "ns an access", "ns an instruction");
    let mut time_of = |text: &str| -> Result<u64, Box<dyn std::error::Error>> {
        module += 1;
        device.load_module(1, module, Image::of(text.as_bytes()), &mut Nowhere)?;
        let mut best = u64::MAX;
        for _ in 0..16 {
            token += 1;
            let launch = Launch {
                module,
                function: 0,
                grid: [BLOCKS, 1, 1],
                block: [BLOCK, 1, 1],
                parameters: ADDRESS.to_le_bytes().to_vec().into(),
                ..Launch::default()
            };
            let begun = processor_time();
            device.submit(stream, token, Work::Kernel(Kernel { launch, resume: None }))?;
            match reports.recv_timeout(Duration::from_secs(100))? {
                Outcome::Done { .. } => {}
                other => return Err(format!("{other:?}").into()),
            }
            best = best.min(processor_time() - begun);
        }
        Ok(best)
    };
    // A warp of one round: its share of the block, and everything before and after the loop.
    let once = time_of(&text(&PATTERNS[0], 1))?;
    println!("{:28} {:12.1}", "a warp's start and end", once as f64 / warps as f64);
    for pattern in PATTERNS.iter().filter(|p| p.name.contains(&filter)) {
        let whole = time_of(&text(pattern, ROUNDS))?;
        let of_loop = whole.saturating_sub(once) as f64 / (warps * ROUNDS) as f64;
        println!("{:28} {:12.1} {:18.1}", pattern.name, of_loop / pattern.accesses as f64, of_loop / (pattern.instructions + AROUND) as f64);
    }
    Ok(())
}
