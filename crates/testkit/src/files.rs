//! Where the built programs and libraries are. `cargo xtask test` builds them.

use std::path::{Path, PathBuf};

const HOW: &str = "build everything with `cargo xtask test`";

/// The `cumux` program of the same build as this test.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn cumux() -> PathBuf {
    existing(profile().join("cumux"))
}

/// The `libcuda.so` of the same build as this test: the newer of the two places where cargo puts
/// it.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn library() -> PathBuf {
    let candidates = [profile().join("deps/libcuda.so"), profile().join("libcuda.so")];
    let newest = candidates.iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    newest.map_or_else(|| panic!("{} is missing: {HOW}", candidates[1].display()), |(_, path)| path.clone())
}

/// A program of `examples/`.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    existing(root().join(".build/examples").join(name))
}

/// The folder with nvcc that `cargo xtask examples` has installed, or that `CUMUX_CUDA` names.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn cuda_compilers() -> PathBuf {
    let folder = std::env::var_os("CUMUX_CUDA").map_or_else(|| root().join(".cuda"), PathBuf::from);
    existing(folder.join("nvidia/cu13/bin"))
}

/// A program of `tests/cu/`.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn test_program(name: &str) -> PathBuf {
    existing(root().join(".build/tests").join(name))
}

fn existing(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing: {HOW}", path.display());
    path
}

/// `target/release/deps/story-1234` and `target/release/examples/figures` belong to
/// `target/release`.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program file");
    test.ancestors().nth(2).expect("a test lies in target/<profile>/deps").to_owned()
}

/// The repository, or `CUMUX_TEST_ROOT` where the tests were carried to another machine.
fn root() -> PathBuf {
    if let Some(root) = std::env::var_os("CUMUX_TEST_ROOT") {
        return root.into();
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
