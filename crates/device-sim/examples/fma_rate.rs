//! Thread instructions per second of one core on a loop of fused multiply-adds, as nvcc makes it
//! from `for (int i = 0; i < n; i++) a = a * b + 0.5f;`.

#[path = "../tests/common/mod.rs"]
mod common;

const PTX: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry fma_loop(.param .u64 p, .param .u32 n)
{
	.reg .pred %p<6>;
	.reg .f32 %f<18>;
	.reg .b32 %r<12>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd2, [p];
	ld.param.u32 %r10, [n];
	cvta.to.global.u64 %rd3, %rd2;
	mov.u32 %r8, %tid.x;
	mul.wide.u32 %rd4, %r8, 4;
	add.s64 %rd1, %rd3, %rd4;
	ld.global.f32 %f17, [%rd1];
$next:
	fma.rn.f32 %f10, %f17, 0f3F800347, 0f3F000000;
	fma.rn.f32 %f11, %f10, 0f3F800347, 0f3F000000;
	fma.rn.f32 %f12, %f11, 0f3F800347, 0f3F000000;
	fma.rn.f32 %f17, %f12, 0f3F800347, 0f3F000000;
	add.s32 %r10, %r10, -4;
	setp.ne.s32 %p3, %r10, 0;
	@%p3 bra $next;
	st.global.f32 [%rd1], %f17;
	ret;
}
";

fn main() -> Result<(), String> {
    let mut loaded = common::Loaded::new(PTX)?;
    let buffer = loaded.memory.allocate(&[0; 4096]);
    for threads in [32, 256, 1024] {
        let turns = 64_000_000 / threads;
        let mut parameters = buffer.to_le_bytes().to_vec();
        parameters.extend((turns as u32 / 4 * 4).to_le_bytes());
        let started = std::time::Instant::now();
        let executed = loaded.run("fma_loop", [1; 3], [threads as u32, 1, 1], 0, parameters).map_err(|fault| fault.to_string())?;
        let seconds = started.elapsed().as_secs_f64();
        println!("{threads:5} threads: {:8.1} million thread instructions per second", executed as f64 * 32.0 / seconds / 1e6);
    }
    Ok(())
}
