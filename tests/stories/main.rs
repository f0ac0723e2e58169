//! Stories: unmodified CUDA programs on a private node of the software GPU, and what happens to
//! them when something dies.
//!
//! Each story starts its own daemon in its own folder. They need what `cargo xtask test` builds
//! first.
#![forbid(unsafe_code)]

mod activation;
mod breakage;
mod callers;
mod cards;
mod chaos;
mod cli;
mod clusters;
mod commands;
mod compilers;
mod confinement;
mod crashes;
mod crowd;
mod devices;
mod documents;
mod doors;
mod dra;
mod ends;
mod errors;
mod exporter;
mod faults;
mod green;
mod groups;
mod hostile;
mod images;
mod ipc;
mod isolation;
mod kubernetes;
mod lab;
mod launches;
mod liar;
mod limits;
mod loss;
mod moving;
mod nested;
mod packages;
mod partitions;
mod peers;
mod per_card;
mod priority;
mod programs;
mod queue;
mod refusals;
mod replay;
mod running;
mod shares;
mod slurm;
mod textures;
mod upgrade;
mod variables;
