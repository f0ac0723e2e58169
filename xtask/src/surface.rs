//! `cargo xtask surface`: writes `crates/abi/src/generated/` anew from the CUDA 13.0 driver header.
//!
//! The header is not part of the repository. It is read from `CUMUX_CUDA_INCLUDE`, or from the
//! folder into which `cargo xtask test` installs the compiler wheels (`.cuda/nvidia/cu13/include`).
//! The work is done by the program `bindgen` (`cargo install bindgen-cli --version 0.73.2`, or its
//! path in `BINDGEN`), which needs libclang (`pip install libclang`, folder in `LIBCLANG_PATH`).
//!
//! What comes out: `types.rs` (types, constants and their layout assertions), `functions.rs` (one
//! function-pointer type per exported function) and `names.rs` (names of result codes and device
//! attributes). Comments of the header are dropped. The same header and the same bindgen give the
//! same bytes.

use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BINDGEN_VERSION: &str = "0.73.2";

/// The header with every historical name visible, and the three profiler functions that the driver
/// exports but this header does not declare.
const WRAPPER: &str = "#define __CUDA_API_VERSION_INTERNAL\n\
    #include <cuda.h>\n\
    CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, int outputMode);\n\
    CUresult cuProfilerStart(void);\n\
    CUresult cuProfilerStop(void);\n";

/// Regenerates the files; fails without touching them if a tool or the header is missing.
pub fn run() -> Result<()> {
    let root = repository_root()?;
    let include = header_folder(&root)?;
    let work = std::env::temp_dir().join(format!("cumux-surface-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let outcome = generate(&root, &include, &work);
    fs::remove_dir_all(&work).ok();
    outcome
}

fn generate(root: &Path, include: &Path, work: &Path) -> Result<()> {
    let header = work.join("surface.h");
    fs::write(&header, WRAPPER)?;
    let types = bindgen(
        &header,
        include,
        &[
            "--generate",
            "types,vars",
            "--with-derive-default",
            "--default-alias-style",
            "type_alias",
            "--allowlist-type",
            "(CU|cu|CUDA).*",
            "--allowlist-var",
            "(CU|CUDA)_?.*",
        ],
    )?;
    let declarations = bindgen(&header, include, &["--generate", "functions", "--allowlist-function", "cu.*", "--formatter", "none"])?;
    let folder = root.join("crates/abi/src/generated");
    fs::create_dir_all(&folder)?;
    write(&folder.join("types.rs"), &types)?;
    write(&folder.join("functions.rs"), &function_types(&declarations)?)?;
    write(&folder.join("names.rs"), &names(&types)?)?;
    Ok(())
}

fn repository_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask has no parent folder")?.to_path_buf())
}

fn header_folder(root: &Path) -> Result<PathBuf> {
    let folder = std::env::var_os("CUMUX_CUDA_INCLUDE").map_or_else(|| root.join(".cuda/nvidia/cu13/include"), PathBuf::from);
    ensure!(
        folder.join("cuda.h").is_file(),
        "no cuda.h in {}; install the compiler wheels with `cargo xtask test` or set CUMUX_CUDA_INCLUDE",
        folder.display()
    );
    Ok(folder)
}

fn bindgen(header: &Path, include: &Path, arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os("BINDGEN").unwrap_or_else(|| "bindgen".into());
    let version = Command::new(&program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot start bindgen; `cargo install bindgen-cli --version {BINDGEN_VERSION}` or set BINDGEN"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    ensure!(version.trim().ends_with(BINDGEN_VERSION), "bindgen is {}, but the committed files were made with {BINDGEN_VERSION}", version.trim());
    let output = Command::new(&program)
        .arg(header)
        .args(["--use-core", "--no-doc-comments", "--default-enum-style", "newtype"])
        .args(["--merge-extern-blocks", "--rust-target", "1.85", "--rust-edition", "2024"])
        .args(arguments)
        .arg("--")
        .arg(format!("-I{}", include.display()))
        .args(compiler_headers())
        .output()?;
    if !output.status.success() {
        bail!("bindgen failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The wheel of libclang brings no `stddef.h`; gcc's serves.
fn compiler_headers() -> Vec<String> {
    let Ok(answer) = Command::new("gcc").arg("-print-file-name=include").output() else {
        return Vec::new();
    };
    let folder = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    vec!["-isystem".to_owned(), folder]
}

/// Turns the declarations of one `extern` block into function-pointer types of the same names.
fn function_types(declarations: &str) -> Result<String> {
    let mut types = Vec::new();
    for piece in declarations.split("pub fn ").skip(1) {
        let declaration = piece.split(';').next().context("a declaration without an end")?;
        let open = declaration.find('(').context("a declaration without arguments")?;
        let (name, signature) = declaration.split_at(open);
        types.push((name.trim().to_owned(), signature.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    ensure!(types.len() > 600, "only {} functions found: the header is not the expected one", types.len());
    types.sort();
    let mut text = String::from("use super::types::*;\n\n");
    for (name, signature) in &types {
        writeln!(text, "pub type {name} = unsafe extern \"C\" fn{signature};")?;
    }
    Ok(text)
}

fn names(types: &str) -> Result<String> {
    let mut text = String::from("use core::ffi::CStr;\n\n");
    table(&mut text, types, "RESULT_NAMES", "cudaError_enum")?;
    table(&mut text, types, "DEVICE_ATTRIBUTE_NAMES", "CUdevice_attribute_enum")?;
    Ok(text)
}

/// One `(value, name)` list from the constants of a newtype; of several names of one value the
/// first counts.
fn table(text: &mut String, types: &str, title: &str, newtype: &str) -> Result<()> {
    let mut entries: Vec<(u32, &str)> = Vec::new();
    for block in types.split(&format!("impl {newtype} {{")).skip(1) {
        let block = block.split("\n}").next().unwrap_or(block);
        for constant in block.split("pub const ").skip(1) {
            let name = constant.split(':').next().context("a constant without a type")?;
            let value = constant.rsplit('(').next().and_then(|rest| rest.split(')').next());
            let value = value.context("a constant without a value")?.trim().parse()?;
            if !entries.iter().any(|(known, _)| *known == value) {
                entries.push((value, name));
            }
        }
    }
    ensure!(entries.len() > 50, "{newtype} has only {} constants", entries.len());
    entries.sort_unstable();
    writeln!(text, "pub(crate) const {title}: &[(u32, &CStr)] = &[")?;
    for (value, name) in entries {
        writeln!(text, "    ({value}, c\"{name}\"),")?;
    }
    writeln!(text, "];\n")?;
    Ok(())
}

/// Writes one generated file in the repository's format.
fn write(path: &Path, body: &str) -> Result<()> {
    let body = body.strip_prefix("/* automatically").and_then(|rest| rest.split_once("*/")).map_or(body, |(_, rest)| rest);
    let head = "// Made by `cargo xtask surface` from the CUDA 13.0 driver header. Never edited by hand; a list may be long.\n\n";
    fs::write(path, format!("{head}{body}")).with_context(|| format!("cannot write {}", path.display()))?;
    let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(path).status()?;
    ensure!(formatted.success(), "rustfmt refused {}", path.display());
    Ok(())
}
