# The front door: `just` lists everything. What needs code is in xtask.

_list:
    @just --list --unsorted

# Run ordinary CUDA programs together on the software GPU, two of them failing
demo *ARGS:
    cargo run --release --bin cumux -- demo {{ARGS}}

# Run a CUDA program through cumux: just run ./a.out 1 2
run +CMD:
    cargo run --release --bin cumux -- run -- {{CMD}}

# Why would a program not be served?
doctor *ARGS:
    cargo run --release --bin cumux -- doctor {{ARGS}}

# Everything CI does
check:
    ./.ci/run

# The whole suite from a fresh clone; or the tests whose name contains FILTER
test *FILTER:
    cargo xtask test {{FILTER}}

# The crash matrix: 500 rounds, or as its options say (--rounds N, --seed S, --only NAME, --json FILE)
chaos *ARGS:
    cargo xtask chaos {{ARGS}}

# Format everything
fmt:
    cargo fmt --all

# Format check, lints, layers, rooms, generated pages
lint:
    cargo xtask lint

# Dependencies between crates against ARCHITECTURE.md
layers:
    cargo xtask layers

# Whether the files of each crate use each other downward only
rooms:
    cargo xtask rooms

# Fuzz all targets in turn, so many minutes together
fuzz MINUTES *TARGETS:
    cargo xtask fuzz {{MINUTES}} {{TARGETS}}

# Do the tests of the pure crates notice a changed operator? Most of an hour
mutants *CRATES:
    cargo xtask mutants {{CRATES}}

# Licences and advisories (cargo-deny)
deny:
    cargo xtask deny

# Install the CUDA compiler wheels into .cuda and print their bin folder
wheels:
    cargo xtask wheels

# Build examples/*.cu and tests/cu/*.cu
examples:
    cargo xtask examples

# Make generated files anew
generate: surface compatibility ptx-examples

# The driver's types and functions, from its header
surface:
    cargo xtask surface

# COMPATIBILITY.md
compatibility:
    cargo xtask compatibility

# The prebuilt PTX of the examples
ptx-examples:
    cargo xtask ptx-examples

# Install into PREFIX (bin, lib, man page, completions)
install PREFIX *ARGS:
    cargo run --release --bin cumux -- install --prefix {{PREFIX}} {{ARGS}}

# Packages in target/packages: deb, rpm, wheel; all without arguments
package *ARGS:
    cargo xtask package {{ARGS}}
