//! The Container Device Interface: a file for each prepared claim, by which a container runtime
//! sets up the container.

use super::DRIVER;
use crate::plugin::ledger::{LIBRARY_IN_CONTAINER, PIPE_IN_CONTAINER};
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names of our files begin so.
const PREFIX: &str = "gpu.cumux.dev-claim_";

/// The CDI name of a claim's device.
#[must_use]
pub fn device_of(uid: &str) -> String {
    format!("{DRIVER}/claim={uid}")
}

fn path_of(folder: &Path, uid: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{uid}.json"))
}

/// Writes the file of a claim. It is whole at any moment.
///
/// # Errors
/// The folder cannot be written.
pub fn write(folder: &Path, uid: &str, group: &str, directory: &Path, library: Option<&Path>) -> io::Result<()> {
    let mount = |host: &Path, container: &str| json!({"hostPath": host, "containerPath": container, "options": ["ro", "nosuid", "nodev", "rbind"]});
    let mut environment =
        vec![format!("CUDA_MPS_PIPE_DIRECTORY={PIPE_IN_CONTAINER}"), format!("CUMUX_GROUP={group}"), "NVIDIA_VISIBLE_DEVICES=void".to_owned()];
    let mut mounts = vec![mount(directory, PIPE_IN_CONTAINER)];
    if let Some(library) = library {
        environment.push(format!("LD_LIBRARY_PATH={LIBRARY_IN_CONTAINER}:/usr/local/nvidia/lib:/usr/local/nvidia/lib64"));
        mounts.push(mount(library, LIBRARY_IN_CONTAINER));
    }
    let spec = json!({
        "cdiVersion": "0.5.0",
        "kind": format!("{DRIVER}/claim"),
        "devices": [{"name": uid, "containerEdits": {"env": environment, "mounts": mounts}}],
    });
    fs::create_dir_all(folder)?;
    let path = path_of(folder, uid);
    // Runtimes read files that end in .json and .yaml alone.
    let next = path.with_extension("next");
    fs::write(&next, format!("{spec:#}\n"))?;
    fs::rename(next, path)
}

/// Whether a claim has its file.
#[must_use]
pub fn exists(folder: &Path, uid: &str) -> bool {
    path_of(folder, uid).exists()
}

/// Removes the file of a claim, if there is one.
///
/// # Errors
/// It cannot be removed.
pub fn remove(folder: &Path, uid: &str) -> io::Result<()> {
    match fs::remove_file(path_of(folder, uid)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The claims that have files, also halves of files.
///
/// # Errors
/// The folder cannot be read.
pub fn claims(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut claims = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(rest) = name.strip_prefix(PREFIX) {
            if let Some(half) = rest.strip_suffix(".next") {
                fs::remove_file(folder.join(format!("{PREFIX}{half}.next")))?;
            } else if let Some(uid) = rest.strip_suffix(".json") {
                claims.push(uid.to_owned());
            }
        }
    }
    Ok(claims)
}
