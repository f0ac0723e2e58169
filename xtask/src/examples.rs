//! Builds the CUDA programs: `examples/*.cu` into `.build/examples`, `tests/cu/*.cu` into
//! `.build/tests`, each again only when it has changed.
#![expect(clippy::disallowed_types, reason = "threads of this program share the work")]

use crate::wheels::{self, Cuda};
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const FLAGS: [&str; 4] = ["-cudart", "static", "-O3", "-std=c++17"];
/// As programs are ordinarily built: machine code for an H200, its PTX, and PTX for every older
/// card that the software GPU can be.
const ARCHITECTURES: [&str; 4] = ["-gencode", "arch=compute_75,code=compute_75", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"];
/// The beginning of a line in a source with its own flags, in place of [`ARCHITECTURES`].
const OWN_FLAGS: &str = "// nvcc: ";

/// One program.
struct Job {
    source: PathBuf,
    target: PathBuf,
}

pub fn build(root: &Path) -> anyhow::Result<()> {
    let cuda = wheels::install(root)?;
    let mut jobs = Vec::new();
    for (from, to) in [("examples", ".build/examples"), ("tests/cu", ".build/tests")] {
        let (from, to) = (root.join(from), root.join(to));
        fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
        jobs.extend(sources(&from)?.into_iter().map(|source| Job { target: to.join(source.file_stem().unwrap_or_default()), source }));
    }
    ensure!(!jobs.is_empty(), "no CUDA programs in {}", root.join("examples").display());
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let failures: Vec<anyhow::Error> = std::thread::scope(|scope| {
        let worker = || {
            let mut failures = Vec::new();
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                failures.extend(compile(&cuda, job).err());
            }
            failures
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap_or_default()).collect()
    });
    match failures.first() {
        None => Ok(()),
        Some(_) => bail!("{}", failures.iter().map(|failure| format!("{failure:#}")).collect::<Vec<_>>().join("\n")),
    }
}

fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.extension().is_some_and(|e| e == "cu")).collect();
    found.sort();
    Ok(found)
}

fn compile(cuda: &Cuda, job: &Job) -> anyhow::Result<()> {
    let key = key(&job.source)?;
    let key_file = job.target.with_extension("key");
    if job.target.exists() && fs::read_to_string(&key_file).is_ok_and(|text| text == key) {
        return Ok(());
    }
    eprintln!("nvcc {}", job.source.display());
    // Written beside its place and moved there: a running program keeps its file.
    let fresh = job.target.with_extension("new");
    let mut command = Command::new(cuda.bin().join("nvcc"));
    command.args(FLAGS).args(own_flags(&job.source)?).arg("-o").arg(&fresh).arg(&job.source).arg("-L").arg(cuda.lib());
    // A source's own flags may name a second source beside it.
    command.current_dir(job.source.parent().unwrap_or(Path::new(".")));
    let output = command.output().context("cannot start nvcc")?;
    if !output.status.success() {
        bail!("{} does not build:\n{}{}", job.source.display(), String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(&fresh, &job.target).and_then(|()| fs::write(&key_file, key)).with_context(|| format!("cannot write {}", job.target.display()))
}

/// The source's own flags, or the usual ones.
fn own_flags(source: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(source).with_context(|| format!("cannot read {}", source.display()))?;
    let own = text.lines().find_map(|line| line.strip_prefix(OWN_FLAGS));
    Ok(own.map_or_else(|| ARCHITECTURES.map(str::to_owned).to_vec(), |flags| flags.split_whitespace().map(str::to_owned).collect()))
}

/// A hash of the source, the headers beside it, flags and compiler.
fn key(source: &Path) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    fs::read(source).with_context(|| format!("cannot read {}", source.display()))?.hash(&mut hasher);
    for header in headers(source) {
        fs::read(&header).unwrap_or_default().hash(&mut hasher);
    }
    FLAGS.hash(&mut hasher);
    own_flags(source)?.hash(&mut hasher);
    Cuda::version().hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

fn headers(source: &Path) -> Vec<PathBuf> {
    let entries = source.parent().and_then(|folder| fs::read_dir(folder).ok());
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "cuh" || e == "h"))
        .collect();
    found.sort();
    found
}

/// The host program of the prebuilt PTX examples: C, no CUDA headers, no wheels.
pub fn build_ptx_host(root: &Path) -> anyhow::Result<()> {
    let folder = root.join(".build/examples");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let status = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-o"])
        .arg(folder.join("ptx_host"))
        .arg(root.join("examples/ptx/host.c"))
        .args(["-ldl", "-lm"])
        .status()
        .context("cannot start gcc: install it")?;
    ensure!(status.success(), "examples/ptx/host.c does not build ({status})");
    Ok(())
}

/// Compiles `examples/ptx/kernels.cu` and writes the PTX without the compiler's comments.
pub fn make_ptx(root: &Path) -> anyhow::Result<()> {
    let cuda = wheels::install(root)?;
    let folder = root.join("examples/ptx");
    let target = folder.join("kernels.ptx");
    let output = Command::new(cuda.bin().join("nvcc"))
        .args(["-ptx", "-arch=compute_75", "-O3", "-o", "/dev/stdout"])
        .arg(folder.join("kernels.cu"))
        .output()
        .context("cannot start nvcc")?;
    ensure!(output.status.success(), "kernels.cu does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("nvcc wrote what is no text")?;
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let body = lines.collect::<Vec<_>>().join("\n");
    let head = "// Made from kernels.cu by `cargo xtask ptx-examples`: the demo's kernels for machines without the compiler wheels.\n";
    fs::write(&target, format!("{head}{}\n", body.trim())).with_context(|| format!("cannot write {}", target.display()))
}
