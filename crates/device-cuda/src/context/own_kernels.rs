//! The kernels that this crate itself runs on the card. They are in one module, which stays loaded
//! as long as the context lives.
//!
//! - **The fence kernel** ends a chain: it writes 1 to a word that an engine polls. It is launched
//!   with its chain, in one call; a value write after the chain would be a second call under the
//!   context's lock. A thread that has seen the word also sees what the chain's kernels wrote, in
//!   the card's memory and in the host's: those kernels ended before the fence kernel began, and
//!   its store has release semantics at system scope.
//! - **The set kernel** sets a few bytes of memory as a node of a chain. One block does it: the
//!   driver's own call for that would end the chain.
//! - **The copy kernel** copies a few bytes in the same way, also from and to memory of the host.

use super::module::LoadedModule;
use super::placement::{IdleVariables, Resumption, Variables};
use super::symbols::{self, Callers, Symbols};
use crate::driver::Function;
use crate::quiet::Gate;
use cumux_device::DeviceError;
use std::sync::Arc;

/// Threads of the blocks of the set kernel and of the copy kernel.
pub(crate) const OWN_THREADS: u32 = 256;

const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry cumux_fence(.param .u64 word)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [word];
    mov.u64 %rd2, 1;
    st.release.sys.u64 [%rd1], %rd2;
    ret;
}
.visible .entry cumux_set(.param .u64 target, .param .u64 words, .param .u32 value)
{
    .reg .b64 %rd<6>;
    .reg .b32 %r<4>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [target];
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ntid.x;
    cvt.u64.u32 %rd3, %r2;
    cvt.u64.u32 %rd4, %r3;
next:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra done;
    shl.b64 %rd5, %rd3, 2;
    add.u64 %rd5, %rd1, %rd5;
    st.global.u32 [%rd5], %r1;
    add.u64 %rd3, %rd3, %rd4;
    bra next;
done:
    ret;
}
.visible .entry cumux_copy(.param .u64 target, .param .u64 source, .param .u32 count, .param .u32 unit)
{
    .reg .b64 %rd<7>;
    .reg .b32 %r<9>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [target];
    ld.param.u64 %rd2, [source];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [unit];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ntid.x;
next:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra done;
    mul.wide.u32 %rd3, %r3, %r2;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    add.u32 %r3, %r3, %r4;
    setp.eq.u32 %p1, %r2, 16;
    @%p1 bra wide;
    setp.eq.u32 %p1, %r2, 8;
    @%p1 bra pair;
    setp.eq.u32 %p1, %r2, 4;
    @%p1 bra word;
    ld.global.u8 %r5, [%rd5];
    st.global.u8 [%rd4], %r5;
    bra next;
word:
    ld.global.u32 %r5, [%rd5];
    st.global.u32 [%rd4], %r5;
    bra next;
pair:
    ld.global.u64 %rd6, [%rd5];
    st.global.u64 [%rd4], %rd6;
    bra next;
wide:
    ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd5];
    st.global.v4.u32 [%rd4], {%r5, %r6, %r7, %r8};
    bra next;
done:
    ret;
}
";

/// This crate's kernels.
pub(crate) struct OwnKernels {
    /// The fence kernel. Its parameter is the address of the word.
    pub fence: Function,
    /// The module of all of them.
    pub module: Arc<LoadedModule>,
    /// The index of the set kernel in the module. Its parameters are the address of the first
    /// 32-bit word, the number of words (64 bits each), and a word's value.
    pub set: usize,
    /// That of the copy kernel. Its parameters are the addresses of the target and of the source,
    /// how many units to copy, and how many bytes a unit has (16, 8, 4 or 1; 32 bits each). Both
    /// addresses are multiples of a unit.
    pub copy: usize,
}

impl OwnKernels {
    /// Loads the kernels.
    ///
    /// # Errors
    /// A sentence with the driver's error.
    pub(crate) fn load(gate: &Arc<Gate>) -> Result<OwnKernels, DeviceError> {
        let failed = |what: String| DeviceError::System(format!("the kernels that cumux itself runs on the card cannot be loaded: {what}"));
        let variables = Variables::LeftToDriver(Resumption::Possible);
        // They call nothing, and have no stack.
        let symbols = Symbols { moves_stack: Callers::default(), ..symbols::of_ptx(PTX) };
        let module = LoadedModule::load(gate, PTX.as_bytes(), &symbols, &variables, IdleVariables::default());
        let module = module.map_err(|error| failed(error.to_string()))?;
        let index = |name: &str| module.kernels.iter().position(|kernel| &*kernel.name == name).ok_or_else(|| failed(format!("{name} is missing")));
        let load = |name: &str| module.kernels[index(name)?].handle().ok_or_else(|| failed(format!("{name} is not on the card")));
        Ok(OwnKernels { fence: load("cumux_fence")?, set: index("cumux_set")?, copy: index("cumux_copy")?, module: Arc::new(module) })
    }
}
