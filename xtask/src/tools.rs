//! Third-party tools, each in one exact version, so that a new one cannot break a change that has
//! nothing to do with it. A tool is installed once, into a folder that git ignores; one of that
//! version on the path is used as it is.

use crate::process::{cargo_command, has_program, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// A tool that cargo installs.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// The name of its crate and its program.
    pub name: &'static str,
    /// The version, with the toolchain that `rust-version` names.
    pub version: &'static str,
}

impl Tool {
    /// The tool's path; installs it if it is missing.
    pub fn find(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let on_path = PathBuf::from(self.name);
        if version(&on_path).is_some_and(|found| found == self.version) {
            return Ok(on_path);
        }
        let folder = root.join("target/tools");
        let tool = folder.join("bin").join(self.name);
        if version(&tool).is_some_and(|found| found == self.version) {
            return Ok(tool);
        }
        println!("installing {} {} into {} (once; some minutes)", self.name, self.version, folder.display());
        let begun = Instant::now();
        // Without optimisation: it takes half the time to build, and none of them runs for long.
        let mut install = cargo_command(root, &["install", "--quiet", "--locked", "--debug", "--root"]);
        install.arg(&folder).arg(format!("{}@{}", self.name, self.version));
        // A build folder of its own, removed afterwards.
        install.env("CARGO_TARGET_DIR", folder.join("build")).env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(install, &format!("the package registry must be reachable once; or install {} yourself", self.name))?;
        // If this fails, only disk space is lost.
        let _ = std::fs::remove_dir_all(folder.join("build"));
        println!("{} installed in {} s", self.name, begun.elapsed().as_secs());
        Ok(tool)
    }
}

fn version(tool: &Path) -> Option<String> {
    let name = tool.to_str()?;
    has_program(name, &["--version"]).then(|| Command::new(tool).arg("--version").output().ok()).flatten().and_then(|output| {
        let said = text(&output);
        said.split_whitespace().last().map(str::to_owned)
    })
}

/// All output of a tool.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
