//! What a loaded module offers, as the executor tells the shim: functions with their parameter layout and attributes, global variables with their addresses.
//!
//! Encoded as JSON: it crosses once per module and is read by humans when something is wrong.

use serde::{Deserialize, Serialize};

/// One kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    pub offset: u32,
    pub bytes: u32,
}

/// One kernel, with the numbers that `cuFuncGetAttribute` answers (bytes unless said otherwise).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FunctionInfo {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Bytes of the parameter block.
    pub parameter_bytes: u32,
    pub static_shared: u32,
    pub constant: u32,
    /// Local memory per thread.
    pub local: u32,
    pub registers: u32,
    pub max_threads: u32,
    /// PTX and binary version as major * 10 + minor.
    pub ptx_version: u32,
    pub binary_version: u32,
    /// Required or hinted cluster size, all zero if none.
    pub cluster: [u32; 3],
    /// Required block size (`.reqntid`), all zero if none.
    pub required_block: [u32; 3],
    /// Why the device will not run this kernel, as far as that is known from its code. Its launches
    /// are refused, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One `__device__`, `__constant__` or `__managed__` variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalInfo {
    pub name: String,
    pub address: u64,
    pub bytes: u64,
    pub constant: bool,
    #[serde(default)]
    pub managed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModuleInfo {
    pub functions: Vec<FunctionInfo>,
    pub globals: Vec<GlobalInfo>,
}

impl ModuleInfo {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// A sentence when the bytes are not a module description of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes)
            .map_err(|error| format!("the module description is damaged ({error}); client and service must be of the same cumux version"))
    }
}
