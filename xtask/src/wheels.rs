//! The CUDA compiler as Python wheels, for development and tests only: installed into an ignored
//! folder, never committed, never shipped.

use anyhow::{Context as _, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every wheel is pinned: the compiler's own requirements name no versions and would mix releases.
const PINS: [&str; 5] =
    ["nvidia-cuda-nvcc==13.0.88", "nvidia-nvvm==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cccl==13.0.85"];

/// The variable with a folder that has these wheels, in place of `.cuda`.
const VARIABLE: &str = "CUMUX_CUDA";

/// An installed compiler.
#[derive(Debug, Clone)]
pub struct Cuda {
    folder: PathBuf,
}

impl Cuda {
    pub fn bin(&self) -> PathBuf {
        self.folder.join("nvidia/cu13/bin")
    }

    pub fn lib(&self) -> PathBuf {
        self.folder.join("nvidia/cu13/lib")
    }

    /// The version of the compiler, for keys of caches.
    pub fn version() -> String {
        PINS.join(" ")
    }
}

/// Installs missing wheels.
pub fn install(root: &Path) -> anyhow::Result<Cuda> {
    if let Some(folder) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let cuda = Cuda { folder: folder.into() };
        if !cuda.bin().join("nvcc").exists() {
            bail!("{VARIABLE} names {}, which has no nvidia/cu13/bin/nvcc", cuda.folder.display());
        }
        return Ok(cuda);
    }
    let cuda = Cuda { folder: root.join(".cuda") };
    let pins = PINS.join("\n");
    let mark = cuda.folder.join("cumux-pins");
    if fs::read_to_string(&mark).is_ok_and(|text| text == pins) {
        return Ok(cuda);
    }
    eprintln!("installing the CUDA compiler wheels into {} (about 105 MB, once)", cuda.folder.display());
    // Removed first: pip does not replace what is there, and a half-installed folder would stay
    // incomplete.
    let _ = fs::remove_dir_all(&cuda.folder);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]).arg(&cuda.folder).args(PINS);
    let status = pip.status().context("cannot start python3: install python3 with pip")?;
    if !status.success() {
        bail!("pip could not install the CUDA compiler wheels ({status}): the network must reach the package index");
    }
    fs::write(&mark, pins).with_context(|| format!("cannot write {}", mark.display()))?;
    Ok(cuda)
}
