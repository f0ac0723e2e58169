//! Our own kernels on the card, in one module for as long as the context lives.
//!
//! - **The fence kernel** ends a chain: it writes 1 to a word that a thread of ours polls. Launched
//!   with its chain, it costs the context's lock nothing, where a written value costs a call of its
//!   own. Whoever has seen the word also sees what the chain's kernels wrote, into the card's
//!   memory or the host's: the store releases at system scope, and the kernels ended before it
//!   began.
//! - **The SM probe** shows on which SMs it runs: each of its blocks writes 1 to the word of its
//!   SM, and stays long enough for the next block to go elsewhere.

use crate::driver::{Driver, Function};
use cumux_device::DeviceError;
use std::sync::Arc;

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
.visible .entry cumux_sm_probe(.param .u64 words, .param .u32 count, .param .u32 stride)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [words];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [stride];
    mov.u32 %r3, %smid;
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra over;
    mul.wide.u32 %rd2, %r3, %r2;
    add.u64 %rd1, %rd1, %rd2;
    mov.u64 %rd3, 1;
    st.release.sys.u64 [%rd1], %rd3;
    mov.u32 %r4, 0;
again:
    nanosleep.u32 200;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, 100;
    @%p2 bra again;
over:
    ret;
}
";

/// The kernels, by what they do.
pub(crate) struct OwnKernels {
    /// Writes 1 to the word whose address is its parameter.
    pub fence: Function,
    /// Takes the address of the words, their number, and the bytes from one to the next.
    pub sm_probe: Function,
}

impl OwnKernels {
    /// Loads them.
    ///
    /// # Errors
    /// A sentence with what the driver says.
    pub(crate) fn load(driver: &Arc<Driver>) -> Result<OwnKernels, DeviceError> {
        let failed = |what: String| DeviceError::System(format!("the kernels that cumux itself runs on the card cannot be loaded: {what}"));
        let module = driver.load_module(PTX.as_bytes()).map_err(|why| failed(format!("{} {}", driver.describe(why.error), why.log)))?;
        let functions = driver.functions(module).map_err(|error| failed(driver.describe(error)))?;
        let load = |name: &str| {
            let found = functions.iter().copied().find(|function| driver.function_name(*function).is_ok_and(|n| n == name));
            let function = found.ok_or_else(|| failed(format!("{name} is missing")))?;
            driver.load_function(function).map_err(|error| failed(driver.describe(error)))?;
            Ok(function)
        };
        Ok(OwnKernels { fence: load("cumux_fence")?, sm_probe: load("cumux_sm_probe")? })
    }
}
