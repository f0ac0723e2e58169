//! The configuration of mig-parted (0.15, `api/spec/v1`), with each geometry placed on the cards
//! that it is for.

use crate::yaml::{Node, Refusal};
use cumux_planner::card::{self, CardModel};

pub(super) fn check(root: &Node<'_>) -> Result<(), Refusal> {
    let fields = root.fields(&["version", "mig-configs"])?;
    fields.need("version")?.one_of(&["v1"])?;
    let configs = fields.need("mig-configs")?;
    let entries = configs.entries()?;
    if entries.is_empty() {
        return configs.refuse("\"mig-configs\" is empty: name at least one configuration");
    }
    for (name, config) in entries {
        if name.is_empty() || name.len() > 63 || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            return config
                .refuse(format!("\"{name}\" cannot be the value of a node's label nvidia.com/mig.config: letters, digits, -, . and _ only, at most 63"));
        }
        config.items()?.iter().try_for_each(check_entry)?;
    }
    Ok(())
}

fn check_entry(entry: &Node<'_>) -> Result<(), Refusal> {
    let fields = entry.fields(&["device-filter", "devices", "mig-enabled", "mig-devices"])?;
    let cards = match fields.get("device-filter") {
        Some(filter) => filtered(filter)?,
        None => card::all().iter().filter(|card| card.mig.is_some()).collect(),
    };
    let devices = fields.need("devices")?;
    if devices.is_list() {
        for device in devices.items()? {
            if device.number()? < 0 {
                return device.refuse("a device has a number from 0 on");
            }
        }
    } else {
        devices.one_of(&["all"])?;
    }
    let enabled = fields.need("mig-enabled")?.truth()?;
    match (enabled, fields.get("mig-devices")) {
        (true, Some(instances)) => check_instances(instances, &cards),
        (true, None) => entry.refuse("mig-enabled is true, so \"mig-devices\" is needed ({} for none)"),
        (false, Some(instances)) if !instances.entries()?.is_empty() => instances.refuse("mig-enabled is false, so there are no mig-devices"),
        (false, _) => Ok(()),
    }
}

/// The cards of a device filter. Unknown numbers are taken: there are cards that we do not know.
fn filtered(filter: &Node<'_>) -> Result<Vec<&'static CardModel>, Refusal> {
    let each = if filter.is_list() { filter.items()? } else { vec![filter.clone()] };
    let mut cards = Vec::new();
    for one in each {
        let text = one.text()?;
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or("");
        if digits.len() != 8 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return one.refuse(format!("\"{text}\" is no device filter: device and vendor as on the PCI bus, 0x233010DE"));
        }
        cards.extend(card::all().iter().filter(|card| card.pci.iter().any(|pci| pci.eq_ignore_ascii_case(text))));
    }
    Ok(cards)
}

/// Whether a text is the name of a MIG device: `[Cc.]Gg.MMgb`, with `+me` or `-me` and the like.
fn is_profile(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let (plain, attributes) = text.split_at(text.find(['+', '-']).unwrap_or(text.len()));
    let attributes_are_good =
        attributes.is_empty() || attributes[1..].split(',').all(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '.'));
    let parts: Vec<&str> = plain.split('.').collect();
    let (compute, slices, memory) = match parts[..] {
        [slices, memory] => (None, slices, memory),
        [compute, slices, memory] => (Some(compute), slices, memory),
        _ => return false,
    };
    let ends = |text: &str, end: &str| text.strip_suffix(end).is_some_and(digits);
    attributes_are_good && compute.is_none_or(|compute| ends(compute, "c")) && ends(slices, "g") && ends(memory, "gb")
}

fn check_instances(node: &Node<'_>, cards: &[&'static CardModel]) -> Result<(), Refusal> {
    let mut names = Vec::new();
    for (name, count) in node.entries()? {
        if !is_profile(&name) {
            return count.refuse(format!("\"{name}\" is no MIG profile: they look like 1g.10gb, 3g.40gb, 1g.10gb+me or 1c.3g.40gb"));
        }
        let number = count.number()?;
        if !(0..=64).contains(&number) {
            return count.refuse(format!("{number} instances of {name} are impossible"));
        }
        // A compute instance inside of a GPU instance: as many of these as fit it are one.
        if name.contains("c.") {
            return Ok(());
        }
        names.extend(std::iter::repeat_n(name, number as usize));
    }
    if cards.is_empty() {
        return Ok(());
    }
    let mut why = None;
    for card in cards {
        let Some(table) = &card.mig else {
            why.get_or_insert_with(|| format!("a {} has no MIG", card.id));
            continue;
        };
        match table.place(names.iter().map(String::as_str)) {
            Ok(_) => return Ok(()),
            // A card that has the profiles explains it better than one that has not.
            Err(error) => {
                if why.is_none() || !error.to_string().starts_with("there is no MIG profile") {
                    why = Some(format!("{error} ({})", card.id));
                }
            }
        }
    }
    node.refuse(format!("impossible geometry: {}", why.unwrap_or_default()))
}
