//! What a loaded module offers, as the executor tells the shim: functions with their parameter
//! layout and attributes, global variables with their addresses.
//!
//! Encoded as JSON: it crosses once per module and is read by humans when something is wrong.

use serde::{Deserialize, Serialize};

/// One kernel parameter. Numbers are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Offset in the parameter block.
    pub offset: u32,
    /// Size.
    pub bytes: u32,
}

/// One kernel, with the numbers that `cuFuncGetAttribute` answers. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FunctionInfo {
    /// The name in the image, mangled as the compiler wrote it.
    pub name: String,
    /// In the order of the kernel's signature.
    pub parameters: Vec<Parameter>,
    /// Size of the parameter block.
    pub parameter_bytes: u32,
    /// Static shared memory of a block.
    pub static_shared: u32,
    /// Constant memory that the user's code declares.
    pub constant: u32,
    /// Local memory of a thread.
    pub local: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Most threads of a block that this kernel can run with.
    pub max_threads: u32,
    /// PTX version as major * 10 + minor.
    pub ptx_version: u32,
    /// Version of the machine code as major * 10 + minor.
    pub binary_version: u32,
    /// Required or hinted cluster size, all zero if none.
    pub cluster: [u32; 3],
    /// Required block size (`.reqntid`), all zero if none.
    pub required_block: [u32; 3],
    /// Why the device cannot run this kernel, as far as its code shows. Only this kernel's launches
    /// are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Its machine code tells NVIDIA's driver alone how a graph goes on (decision 0130). A program
    /// that has made conditions cannot launch it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_driver: bool,
    /// Why nobody knows what it may touch of the card, as far as its code shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbounded: Option<Unbounded>,
}

/// Why a kernel can use more of a card than is known before it runs. On a card such a kernel, when
/// it goes wrong, ends the work of all who share its context at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unbounded {
    /// A function calls itself, directly or through others: the stack may end before the calls do.
    Recursion,
    /// It calls a function through an address, which may be none of a function.
    Address,
}

impl Unbounded {
    /// What the kernel does, as the end of a sentence.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Unbounded::Recursion => "calls a function that calls itself",
            Unbounded::Address => "calls functions through addresses",
        }
    }
}

/// One `__device__`, `__constant__` or `__managed__` variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalInfo {
    /// The name in the image.
    pub name: String,
    /// Address in the arena, or in the client's window for a `__managed__` variable.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it is a `__constant__` variable.
    pub constant: bool,
    /// Whether it is a `__managed__` variable.
    #[serde(default)]
    pub managed: bool,
}

/// What a loaded module offers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// Its kernels. A launch names one by its index here.
    pub functions: Vec<FunctionInfo>,
    /// Its variables.
    pub globals: Vec<GlobalInfo>,
    /// The code of a kernel is put on the card when it is launched for the first time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
}

impl ModuleInfo {
    /// The bytes that cross to the shim: JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads what [`ModuleInfo::encode`] wrote.
    ///
    /// # Errors
    /// A sentence for the user when the bytes are not a module description of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes)
            .map_err(|error| format!("the module description is damaged ({error}); client and service must be of the same cumux version"))
    }
}
