//! Geometries with name, hardware, partitions and use case.

use crate::yaml::Refusal;
use cumux_planner::card;
use serde::{Deserialize, Serialize};

/// A geometry as people choose it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) hardware: String,
    pub(crate) partitions: Vec<String>,
    pub(crate) use_case: String,
}

/// The document: geometries by their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) mig_profiles: Vec<Listed>,
}

pub(super) fn check(text: &str) -> Result<(), Refusal> {
    let document: Document = serde_json::from_str(text).map_err(|error| Refusal::new(error.line(), error.to_string()))?;
    let mut names = Vec::new();
    for listed in &document.mig_profiles {
        // JSON without marks: the line of the first mention is the line.
        let line = (1..).zip(text.lines()).find(|(_, line)| line.contains(&format!("\"{}\"", listed.name))).map_or(1, |(number, _)| number);
        if names.contains(&&listed.name) {
            return Err(Refusal::new(line, format!("{} is there twice", listed.name)));
        }
        names.push(&listed.name);
        let card = card::find(&listed.hardware).map_err(|error| Refusal::new(line, error.to_string()))?;
        let Some(table) = &card.mig else { return Err(Refusal::new(line, format!("a {} has no MIG", card.id))) };
        if listed.partitions.is_empty() || listed.use_case.is_empty() {
            return Err(Refusal::new(line, format!("{} needs partitions and a use case", listed.name)));
        }
        table.place(listed.partitions.iter().map(String::as_str)).map_err(|error| Refusal::new(line, format!("impossible geometry: {error}")))?;
    }
    if names.is_empty() { Err(Refusal::new(1, "\"mig_profiles\" is empty")) } else { Ok(()) }
}
