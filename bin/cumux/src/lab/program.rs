//! The lab's own program: that of a checkout, one that lies beside cumux's library, or one that the
//! user's compiler makes of the source that this program carries, for this one run.

use super::Progress;
use crate::demo::cast;
use crate::demo::interrupt::Interrupt;
use crate::library::{self, checkout};
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const NAME: &str = "lab_work";
/// The source and its headers, by their names.
const SOURCES: [(&str, &str); 3] = [
    ("lab_work.cu", include_str!("../../../../examples/lab_work.cu")),
    ("example.cuh", include_str!("../../../../examples/example.cuh")),
    ("matrix.cuh", include_str!("../../../../examples/matrix.cuh")),
];
/// Flags of nvcc: text that every card since 7.5 and every software GPU compiles for itself.
const FLAGS: [&str; 6] = ["-cudart", "static", "-O3", "-std=c++17", "-gencode", "arch=compute_75,code=compute_75"];
/// Where CUDA's own installer puts its compiler.
const USUAL: &str = "/usr/local/cuda/bin";
/// What a user does who has no compiler.
const REMEDY: &str = "put CUDA's nvcc into PATH (pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl brings it as \
                      nvidia/cu13/bin/nvcc), or run the lab in the source folder with cargo run --release -- lab";

/// The lab's program, as long as this lives.
pub struct LabProgram {
    pub path: PathBuf,
    _made_in: Option<TempDir>,
}

impl LabProgram {
    /// Finds the program, or makes it.
    ///
    /// # Errors
    /// A sentence with a remedy: there is no compiler, or it refuses the source.
    pub fn prepare(progress: &Progress, interrupt: &Interrupt) -> anyhow::Result<LabProgram> {
        let of = |path| LabProgram { path, _made_in: None };
        let beside = library::folder()?.join(NAME);
        if beside.exists() {
            return Ok(of(beside));
        }
        // A copy of this program elsewhere must not build anything in the checkout.
        match checkout().filter(|_| library::is_in_build_folder()) {
            Some(root) => of_checkout(&root, progress, interrupt).map(of),
            None => compile(progress, interrupt),
        }
    }
}

/// The program of a checkout, built if it is not there or older than its source.
fn of_checkout(root: &Path, progress: &Progress, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    let program = root.join(cast::PROGRAMS).join(NAME);
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    if changed(&program).is_some_and(|built| changed(&root.join("examples/lab_work.cu")).is_none_or(|source| source <= built)) {
        return Ok(program);
    }
    progress.say("preparing the CUDA compiler (pip, once) and the lab's program");
    match cast::build(root, "examples", interrupt)? {
        Ok(()) => Ok(program),
        Err(error) if program.exists() => {
            progress.say(&format!("the lab's program runs as it was built last: {error:#}"));
            Ok(program)
        }
        Err(error) => Err(error.context("the lab cannot build its program")),
    }
}

/// Makes the program with the user's compiler, in a folder that goes with it.
fn compile(progress: &Progress, interrupt: &Interrupt) -> anyhow::Result<LabProgram> {
    let Some(compiler) = find_compiler(variable("CUDA_HOME").or_else(|| variable("CUDA_PATH")), variable("PATH")) else {
        bail!("the lab compiles its own program once, and there is no nvcc: {REMEDY}");
    };
    let folder = tempfile::Builder::new().prefix("cumux-lab").tempdir().context("cannot make a folder for the lab's program")?;
    for (name, text) in SOURCES {
        fs::write(folder.path().join(name), text).with_context(|| format!("cannot write {name} into {}", folder.path().display()))?;
    }
    progress.say(&format!("compiling the lab's program with {}", compiler.display()));
    let path = folder.path().join(NAME);
    let mut command = Command::new(&compiler);
    command.args(FLAGS).arg("-o").arg(&path).arg(SOURCES[0].0).current_dir(folder.path());
    // Where pip has put it, its libraries are in a folder that it does not know.
    if let Some(libraries) = compiler.parent().and_then(Path::parent).map(|root| root.join("lib")).filter(|libraries| libraries.is_dir()) {
        command.arg("-L").arg(libraries);
    }
    cast::run_to_end(command, "nvcc", REMEDY, interrupt)?.context("the lab cannot build its program")?;
    Ok(LabProgram { path, _made_in: Some(folder) })
}

/// A variable that says something.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The compiler that the user means: CUDA's variable first, then the path, then the usual place.
fn find_compiler(cuda: Option<OsString>, path: Option<OsString>) -> Option<PathBuf> {
    let named = cuda.map(|cuda| PathBuf::from(cuda).join("bin"));
    let path: Vec<PathBuf> = path.map_or_else(Vec::new, |path| std::env::split_paths(&path).collect());
    let folders = named.into_iter().chain(path).chain([PathBuf::from(USUAL)]);
    let is_program = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    // Absolute: it is started in another folder.
    folders.filter_map(|folder| std::path::absolute(folder.join("nvcc")).ok()).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_that_is_named_goes_before_that_of_the_path() {
        let room = tempfile::tempdir().expect("a folder");
        let make = |folder: &str| {
            let bin = room.path().join(folder);
            fs::create_dir_all(&bin).expect("a folder");
            fs::write(bin.join("nvcc"), "").expect("a file");
            fs::set_permissions(bin.join("nvcc"), fs::Permissions::from_mode(0o755)).expect("its rights");
            bin
        };
        let (named, in_path) = (make("cuda/bin"), make("tools"));
        let path = std::env::join_paths([room.path().join("empty"), in_path.clone()]).expect("a path");
        assert_eq!(find_compiler(Some(room.path().join("cuda").into()), Some(path.clone())), Some(named.join("nvcc")));
        assert_eq!(find_compiler(Some(room.path().join("other").into()), Some(path.clone())), Some(in_path.join("nvcc")));
        assert_eq!(find_compiler(None, Some(path)), Some(in_path.join("nvcc")));
        fs::set_permissions(named.join("nvcc"), fs::Permissions::from_mode(0o644)).expect("its rights");
        assert_ne!(find_compiler(Some(room.path().join("cuda").into()), None), Some(named.join("nvcc")), "nobody can start it");
    }

    #[test]
    fn the_source_includes_nothing_that_is_not_carried() {
        for (name, text) in SOURCES {
            let own = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            for header in own {
                assert!(SOURCES.iter().any(|(carried, _)| *carried == header), "{name} includes {header}");
            }
        }
    }
}
