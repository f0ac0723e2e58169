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

use super::module::LoadedModule;
use super::placement::{IdleVariables, Resumption, Variables};
use super::symbols::{self, Callers, Symbols};
use crate::driver::Function;
use crate::quiet::Gate;
use cumux_device::DeviceError;
use std::sync::Arc;

/// Threads of the set kernel's block.
pub(crate) const SET_THREADS: u32 = 256;

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
        Ok(OwnKernels { fence: load("cumux_fence")?, set: index("cumux_set")?, module: Arc::new(module) })
    }
}
