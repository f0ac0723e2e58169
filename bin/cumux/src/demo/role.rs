//! The part of one program in the demo.

use std::path::PathBuf;

/// What is expected of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Finishes with verified results.
    Innocent,
    /// Gets SIGKILL while its kernel runs.
    Killed,
    /// Makes an illegal access and gets the error.
    Faulty,
}

#[derive(Debug, Clone)]
pub struct Role {
    pub name: &'static str,
    pub fate: Fate,
    pub program: PathBuf,
    pub arguments: Vec<String>,
}
