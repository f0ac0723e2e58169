//! MIG: configurations for mig-parted, geometries for people, the commands by hand.

use super::{Artifact, MakeError, Mode, Options, kubernetes, slurm};
use crate::check::{Document, Kind, Listed};
use crate::yaml::{Value, list, map, number, text, truth, write};
use cumux_planner::card::CardModel;
use cumux_planner::mig::{Geometry, Table};

/// A geometry with its name.
struct Named {
    name: String,
    geometry: Geometry,
    use_case: String,
}

pub(super) fn all(options: &Options) -> Result<Vec<Artifact>, MakeError> {
    let wrong = |text: String| MakeError::Option(text);
    let card = options.card.ok_or_else(|| wrong("MIG needs --card: the geometries are those of a card".to_owned()))?;
    let Some(table) = &card.mig else {
        return Err(wrong(format!("a {} has no MIG: artifacts for time-slicing, mps or cumux are possible", card.id)));
    };
    let named = match options.geometry.is_empty() {
        true => standard(table),
        false => {
            let geometry = table.place(options.geometry.iter().map(String::as_str)).map_err(|error| wrong(error.to_string()))?;
            let name = options.name.clone().unwrap_or_else(|| "custom".to_owned());
            let use_case = options.use_case.clone().unwrap_or_else(|| "programs of different sizes, each with memory of its own".to_owned());
            vec![Named { name, geometry, use_case }]
        }
    };
    // The one that a person would apply by hand.
    let chosen = named.iter().max_by_key(|named| (named.name == "all-balanced", named.geometry.instances.len()));
    let Some(chosen) = chosen else { return Err(wrong(format!("{} has no geometry", card.id))) };
    let smallest = chosen.geometry.instances.iter().min_by_key(|instance| (instance.profile.compute, instance.profile.size)).map_or("1g", |it| it.profile.name);
    let resource = format!("nvidia.com/mig-{}", smallest.replace('+', "."));
    Ok(vec![
        parted(card, &named),
        listed(card, &named),
        by_hand(options, chosen),
        kubernetes::mig_plugin_config(),
        kubernetes::pod(Mode::Mig, options, &resource),
        slurm::mig(),
    ])
}

/// The configurations that mig-parted's users know by name, and the geometries without waste.
fn standard(table: &'static Table) -> Vec<Named> {
    let mut named: Vec<Named> = Vec::new();
    for profile in table.profiles {
        // As many of this profile as there is room for.
        let many = (1..=profile.most).rev().find_map(|count| table.place(std::iter::repeat_n(profile.name, count as usize)).ok());
        let Some(geometry) = many else { continue };
        let many = |count: u32, word: &str| if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") };
        let use_case = format!("{} of up to {} each", many(geometry.instances.len() as u32, "program"), many(profile.compute, "compute slice"));
        named.push(Named { name: format!("all-{}", profile.name.replace('+', ".")), geometry, use_case });
    }
    let plain = |compute: u32| table.profiles.iter().find(|profile| profile.is_plain() && profile.compute == compute).map(|profile| profile.name);
    let balanced: Vec<&str> = match (plain(1), plain(2), plain(3)) {
        (Some(one), Some(two), Some(three)) => vec![one, one, two, three],
        (Some(one), Some(two), None) => vec![one, one, two],
        _ => Vec::new(),
    };
    if let Ok(geometry) = table.place(balanced)
        && !geometry.instances.is_empty()
    {
        named.push(Named { name: "all-balanced".to_owned(), geometry, use_case: "small, medium and large programs beside each other".to_owned() });
    }
    named
}

/// mig-parted's configurations.
fn parted(card: &CardModel, named: &[Named]) -> Artifact {
    let filter = || list(card.pci.iter().map(|pci| text(*pci)));
    let entry = |fields: Vec<(&str, Value)>| list([map(fields)]);
    let disabled = entry(vec![("devices", text("all")), ("mig-enabled", truth(false))]);
    let mut configs = vec![("all-disabled".to_owned(), disabled)];
    for Named { name, geometry, .. } in named {
        let instances = map(geometry.counts().into_iter().map(|(profile, count)| (profile, number(count))));
        let fields = vec![("device-filter", filter()), ("devices", text("all")), ("mig-enabled", truth(true)), ("mig-devices", instances)];
        configs.push((name.clone(), entry(fields)));
    }
    let value = map([("version", text("v1")), ("mig-configs", map(configs))]);
    let comments = [
        &format!("MIG geometries of {} for mig-parted:", card.name),
        "  nvidia-mig-parted apply -f mig-parted.yaml -c NAME      (assert -f … -c NAME checks it)",
        "Under the GPU operator: kubectl label node NODE nvidia.com/mig.config=NAME",
        "No program may use the card meanwhile: nothing drains it first.",
    ];
    Artifact { name: "mig-parted.yaml", kind: Kind::MigParted, text: write(&comments.map(|line| line as &str), &value) }
}

/// The same for people and programs of theirs: name, hardware, partitions, use case.
fn listed(card: &CardModel, named: &[Named]) -> Artifact {
    let one = |named: &Named| Listed {
        name: named.name.clone(),
        hardware: card.id.to_owned(),
        partitions: named.geometry.instances.iter().map(|instance| instance.profile.name.to_owned()).collect(),
        use_case: named.use_case.clone(),
    };
    let document = Document { mig_profiles: named.iter().map(one).collect() };
    // A struct of texts is always JSON; the check would refuse an empty file.
    let text = serde_json::to_string_pretty(&document).unwrap_or_default() + "\n";
    Artifact { name: "mig-profiles.json", kind: Kind::Profiles, text }
}

/// The commands for a machine without mig-parted.
fn by_hand(options: &Options, chosen: &Named) -> Artifact {
    let gpu = options.gpu;
    let names: Vec<&str> = chosen.geometry.instances.iter().map(|instance| instance.profile.name).collect();
    let text = format!(
        r#"#!/bin/sh
# Gives GPU {gpu} the geometry {name}: {geometry}.
# Run as root, when no program uses the GPU. Switching MIG on resets it.
set -eu

nvidia-smi -i {gpu} -mig 1
# Compute instances first: a GPU instance with one is "in use".
nvidia-smi mig -i {gpu} -dci || true
nvidia-smi mig -i {gpu} -dgi || true
nvidia-smi mig -i {gpu} -cgi {names} -C
nvidia-smi -L
"#,
        name = chosen.name,
        geometry = chosen.geometry,
        names = names.join(","),
    );
    Artifact { name: "apply-mig.sh", kind: Kind::Script, text }
}
