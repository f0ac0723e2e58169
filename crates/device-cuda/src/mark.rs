//! The kernel at the end of a chain: it says that the chain is over, by writing 1 to a word that a thread of ours looks at.
//!
//! Started with its chain it costs the context's lock nothing, where a written value costs a call of its own. What the chain's kernels wrote, into
//! the card's memory or the host's, is visible to who has seen the word: the store releases at system scope, and the kernels ended before it began.

use crate::driver::{Driver, Function};
use cumux_device::DeviceError;
use std::sync::Arc;

const MARK: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry cumux_mark(.param .u64 word)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [word];
    mov.u64 %rd2, 1;
    st.release.sys.u64 [%rd1], %rd2;
    ret;
}
";

/// Loads it, for as long as the context lives.
pub(crate) fn load(driver: &Arc<Driver>) -> Result<Function, DeviceError> {
    let failed = |what: String| DeviceError::System(format!("the kernel that marks ends cannot be loaded: {what}"));
    let module = driver.load_module(MARK.as_bytes()).map_err(|(code, log)| failed(format!("{} {log}", driver.text(code))))?;
    let functions = driver.functions(module).map_err(|code| failed(driver.text(code)))?;
    let [mark] = functions.as_slice() else { return Err(failed(format!("{} kernels where one was expected", functions.len()))) };
    driver.load_function(*mark).map_err(|code| failed(driver.text(code)))?;
    Ok(*mark)
}
