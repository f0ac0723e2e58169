//! The configuration of NVIDIA's device plugin, `version: v1`, as `cumux device-plugin` reads it.
//!
//! The file may be the same that NVIDIA's plugin has. Invariants of [`Config`]:
//!
//! - A field that is unknown, of another type or impossible is a [`Refusal`] with its line.
//! - A field that cumux does not need is a warning, so that the same file serves both plugins.
//! - `sharing.timeSlicing` is refused: cumux shares cards in another way, and says so.
//! - `rename` and `devices` are carried out. NVIDIA's plugin takes them and ignores them.
//!
//! `sharing.cumux` is ours: resources in units of memory and in percent of the multiprocessors.

use crate::check::plugin::{check, check_flags, check_version, resource_name};
use crate::yaml::{self, Node, Refusal};

/// Most replicas of one card: more clients than a server takes (`CUMUX_MAX_CLIENTS`).
const MOST_REPLICAS: i64 = 256;

/// What the file asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// What `flags` sets; options and variables of the program come before it.
    pub flags: Flags,
    /// Cards in equal parts.
    pub replicated: Vec<Replicated>,
    /// Cards in units of memory and percent.
    pub units: Option<Units>,
    /// Whether a container that asks for more than one replica is refused.
    pub fail_above_one: bool,
    /// Fields that have no effect, with the reason and the line.
    pub warnings: Vec<Refusal>,
}

/// Flags that cumux has, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `failOnInitError`.
    pub fail_on_init_error: Option<bool>,
    /// `migStrategy`.
    pub mig_strategy: Option<String>,
    /// `plugin.sharedDevicesAllocationPolicy`.
    pub policy: Option<Policy>,
}

/// On which card a further container goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// On the card with the most free parts.
    #[default]
    Distributed,
    /// On the card with the fewest free parts that suffice.
    Packed,
}

impl Policy {
    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "distributed" => Some(Self::Distributed),
            "packed" => Some(Self::Packed),
            _ => None,
        }
    }
}

/// Cards in equal parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicated {
    /// The resource as the cards are known without sharing.
    pub name: String,
    /// The resource that containers ask for.
    pub advertised: String,
    /// Parts of each card.
    pub replicas: u32,
    /// Which cards.
    pub devices: Devices,
}

/// Which cards a resource has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Devices {
    /// Every card of the node.
    #[default]
    All,
    /// So many, the first ones.
    Count(u32),
    /// These: ordinals and UUIDs.
    These(Vec<String>),
}

/// Cards in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    /// The resource of memory.
    pub memory: Unit,
    /// The resource of multiprocessors.
    pub percent: Option<Unit>,
    /// Which cards.
    pub devices: Devices,
}

/// A resource that is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// MiB of memory, or percent, of one unit.
    pub size: u64,
}

/// Reads a file.
///
/// # Errors
/// [`Refusal`]: the line, and what was expected there.
pub fn read(text: &str) -> Result<Config, Refusal> {
    yaml::with_root(text, |root| read_root(&root))
}

/// Checks a file by the rules of the plugin that it is for: `sharing.cumux` is ours, anything else
/// is for NVIDIA's, too.
pub(crate) fn check_either(root: &Node<'_>) -> Result<(), Refusal> {
    let is_ours = root.entries()?.iter().any(|(name, node)| name == "sharing" && node.entries().is_ok_and(|all| all.iter().any(|(name, _)| name == "cumux")));
    if is_ours { read_root(root).map(|_| ()) } else { check(root) }
}

fn read_root(root: &Node<'_>) -> Result<Config, Refusal> {
    let fields = root.fields(&["version", "flags", "resources", "sharing", "imex"])?;
    check_version(&fields)?;
    let mut config = Config { fail_above_one: true, ..Config::default() };
    for (name, why) in [
        ("resources", "NVIDIA's plugin ignores it, and so does cumux: name resources under sharing"),
        ("imex", "cumux gives containers no device files, so no IMEX channels either"),
    ] {
        if let Some(node) = fields.get(name) {
            config.warn(node, why);
        }
    }
    if let Some(flags) = fields.get("flags") {
        read_flags(flags, &mut config)?;
    }
    if let Some(sharing) = fields.get("sharing") {
        read_sharing(sharing, &mut config)?;
    }
    Ok(config)
}

impl Config {
    fn warn(&mut self, node: &Node<'_>, why: &str) {
        self.warnings.push(Refusal::new(node.line(), format!("{} has no effect: {why}", node.name())));
    }
}

fn read_flags(flags: &Node<'_>, config: &mut Config) -> Result<(), Refusal> {
    let strategy = check_flags(flags)?;
    if strategy != "none" {
        return flags.refuse(format!("migStrategy: {strategy}: cumux shares whole cards and serves no MIG devices; write none"));
    }
    for (name, node) in flags.entries()? {
        match name.as_str() {
            "migStrategy" => config.flags.mig_strategy = Some(node.text()?.to_owned()),
            "failOnInitError" => config.flags.fail_on_init_error = Some(node.truth()?),
            "plugin" => {
                for (name, node) in node.entries()? {
                    match name.as_str() {
                        "sharedDevicesAllocationPolicy" => config.flags.policy = Policy::parse(node.text()?),
                        "deviceIDStrategy" => {}
                        _ => config.warn(&node, "containers get the pipe directory of their group and no device files"),
                    }
                }
            }
            "gfd" => config.warn(&node, "cumux has no feature discovery: NVIDIA's labels the node as before"),
            _ => config.warn(&node, "the daemon finds its cards and its directories itself"),
        }
    }
    Ok(())
}

fn read_sharing(sharing: &Node<'_>, config: &mut Config) -> Result<(), Refusal> {
    let fields = sharing.fields(&["timeSlicing", "mps", "cumux"])?;
    if let Some(node) = fields.get("timeSlicing") {
        return node.refuse(
            "time-slicing is not what cumux does: its clients run side by side, each group within limits of its own. Write mps in place of timeSlicing, with the same resources, or leave such nodes to NVIDIA's plugin",
        );
    }
    if let Some(mps) = fields.get("mps") {
        read_replicated(mps, config)?;
    }
    if let Some(ours) = fields.get("cumux") {
        config.units = Some(read_units(ours)?);
    }
    let mut names: Vec<&str> = config.replicated.iter().map(|resource| resource.advertised.as_str()).collect();
    if let Some(units) = &config.units {
        names.push(&units.memory.name);
        names.extend(units.percent.as_ref().map(|unit| unit.name.as_str()));
    }
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => sharing.refuse(format!("the resource {} is there twice: give each a name of its own", pair[0])),
        None => Ok(()),
    }
}

fn read_replicated(mps: &Node<'_>, config: &mut Config) -> Result<(), Refusal> {
    let fields = mps.fields(&["renameByDefault", "failRequestsGreaterThanOne", "resources"])?;
    let rename = fields.get("renameByDefault").map(Node::truth).transpose()?.unwrap_or(false);
    // As NVIDIA's plugin from 0.20 on: only an explicit `false` lets a container have several.
    config.fail_above_one = fields.get("failRequestsGreaterThanOne").map(Node::truth).transpose()?.unwrap_or(true);
    let resources = fields.need("resources")?;
    let items = resources.items()?;
    if items.is_empty() {
        return resources.refuse("\"resources\" is empty: name at least one resource");
    }
    for item in items {
        let fields = item.fields(&["name", "replicas", "rename", "devices"])?;
        let name = resource_name(fields.need("name")?)?;
        if name.starts_with("nvidia.com/mig-") {
            return item.refuse("cumux shares whole cards and serves no MIG devices");
        }
        let advertised = match fields.get("rename") {
            Some(node) => resource_name(node)?,
            None if rename => format!("{name}.shared"),
            None => name.clone(),
        };
        if config.replicated.iter().any(|before| before.advertised == advertised) {
            return item.refuse(format!("the resource {advertised} is there twice: give each a name of its own (rename)"));
        }
        let count = fields.need("replicas")?;
        let replicas = match count.number()? {
            ..=1 => return count.refuse(format!("replicas is {}: at least 2 are needed to share", count.number()?)),
            n if n > MOST_REPLICAS => return count.refuse(format!("replicas is {n}: a server takes at most {MOST_REPLICAS} clients")),
            n => u32::try_from(n).unwrap_or(u32::MAX),
        };
        let devices = fields.get("devices").map(read_devices).transpose()?.unwrap_or_default();
        config.replicated.push(Replicated { name, advertised, replicas, devices });
    }
    Ok(())
}

fn read_devices(node: &Node<'_>) -> Result<Devices, Refusal> {
    if node.is_list() {
        let items = node.items()?;
        if items.is_empty() {
            return node.refuse("devices is empty: write all, a number of cards, or a list of ordinals and UUIDs");
        }
        let one = |item: &Node<'_>| match (item.text(), item.number()) {
            (Ok(text), _) if text.starts_with("MIG-") || text.contains(':') => item.refuse(format!("\"{text}\" is a MIG device: cumux shares whole cards")),
            (Ok(text), _) if text.starts_with("GPU-") || text.parse::<u32>().is_ok() => Ok(text.to_owned()),
            (_, Ok(ordinal)) if ordinal >= 0 => Ok(ordinal.to_string()),
            _ => item.refuse("a device is its ordinal (0) or its UUID (GPU-…)"),
        };
        return Ok(Devices::These(items.iter().map(one).collect::<Result<_, _>>()?));
    }
    match (node.text(), node.number()) {
        (Ok("all"), _) => Ok(Devices::All),
        (_, Ok(count)) if count > 0 => Ok(Devices::Count(u32::try_from(count).unwrap_or(u32::MAX))),
        _ => node.refuse("devices is to be all, a number of cards above 0, or a list of ordinals and UUIDs"),
    }
}

fn read_units(ours: &Node<'_>) -> Result<Units, Refusal> {
    let fields = ours.fields(&["memory", "percent", "devices"])?;
    let memory = fields.need("memory")?;
    let inside = memory.fields(&["name", "unit"])?;
    let unit = inside.get("unit");
    let size = match unit {
        None => 1024,
        Some(node) => match mebibytes(node.text()?) {
            Some(size) if size > 0 => size,
            _ => return node.refuse(format!("the unit \"{}\" is no amount of memory: write 512Mi or 1Gi", node.text()?)),
        },
    };
    let memory = Unit { name: ours_or_theirs(inside.need("name")?)?, size };
    let percent = match fields.get("percent") {
        None => None,
        Some(percent) => {
            let inside = percent.fields(&["name", "unit"])?;
            let size = match inside.get("unit") {
                None => 1,
                Some(node) => match node.number()? {
                    size @ 1..=100 => size.unsigned_abs(),
                    size => return node.refuse(format!("the unit {size} is no percentage: 1 to 100")),
                },
            };
            Some(Unit { name: ours_or_theirs(inside.need("name")?)?, size })
        }
    };
    let devices = fields.get("devices").map(read_devices).transpose()?.unwrap_or_default();
    Ok(Units { memory, percent, devices })
}

/// The name of a resource of units: any domain before the slash.
fn ours_or_theirs(node: &Node<'_>) -> Result<String, Refusal> {
    let name = node.text()?;
    let Some((domain, rest)) = name.split_once('/') else { return resource_name(node) };
    if !crate::check::names::is_subdomain(domain) || !crate::check::names::is_subdomain(rest) || name.len() > 63 {
        return node.refuse(format!("\"{name}\" is no name of a resource: domain/name, small letters, digits, - and . only, at most 63"));
    }
    Ok(name.to_owned())
}

/// Kubernetes' quantities of memory, in whole MiB.
#[must_use]
pub fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    let number: u128 = number.parse().ok()?;
    let bytes = match suffix {
        "" => number,
        "k" => number * 1000,
        "M" => number * 1_000_000,
        "G" => number * 1_000_000_000,
        "T" => number * 1_000_000_000_000,
        "Ki" => number << 10,
        "Mi" => number << 20,
        "Gi" => number << 30,
        "Ti" => number << 40,
        _ => return None,
    };
    u64::try_from(bytes >> 20).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mps(inside: &str) -> Result<Config, Refusal> {
        read(&format!("version: v1\nsharing:\n  mps:\n{inside}"))
    }

    #[test]
    fn nvidias_own_file_is_taken() {
        let config = read(
            "version: v1\nflags:\n  migStrategy: none\n  failOnInitError: false\n  mpsRoot: /run/nvidia/mps\n  plugin:\n    deviceListStrategy: [envvar]\n    sharedDevicesAllocationPolicy: packed\nsharing:\n  mps:\n    renameByDefault: true\n    resources:\n    - name: gpu\n      replicas: 10\n",
        )
        .unwrap();
        assert_eq!(config.flags.policy, Some(Policy::Packed));
        assert_eq!(config.flags.fail_on_init_error, Some(false));
        let resource = &config.replicated[0];
        assert_eq!((resource.name.as_str(), resource.advertised.as_str(), resource.replicas), ("nvidia.com/gpu", "nvidia.com/gpu.shared", 10));
        assert!(config.fail_above_one);
        let warned: Vec<usize> = config.warnings.iter().map(|warning| warning.line).collect();
        assert_eq!(warned, [5, 7], "{:?}", config.warnings);
        assert_eq!(read("version: v1\n").unwrap().replicated, []);
    }

    #[test]
    fn several_replicas_renaming_and_single_cards() {
        let config = mps("    failRequestsGreaterThanOne: false\n    resources:\n    - {name: gpu, replicas: 4, rename: gpu.small, devices: [0, \"GPU-1\"]}\n    - {name: gpu, replicas: 2, rename: gpu.large, devices: 1}\n").unwrap();
        assert!(!config.fail_above_one);
        assert_eq!(config.replicated[0].advertised, "nvidia.com/gpu.small");
        assert_eq!(config.replicated[0].devices, Devices::These(vec!["0".into(), "GPU-1".into()]));
        assert_eq!(config.replicated[1].devices, Devices::Count(1));
    }

    #[test]
    fn units_of_memory_and_percent() {
        let config =
            read("sharing:\n  cumux:\n    memory: {name: cumux.dev/gpu-memory, unit: 512Mi}\n    percent: {name: cumux.dev/gpu-percent, unit: 5}\n").unwrap();
        let units = config.units.unwrap();
        assert_eq!((units.memory.size, units.percent.unwrap().size), (512, 5));
        assert_eq!([mebibytes("1Gi"), mebibytes("1000000"), mebibytes("3M"), mebibytes("2x"), mebibytes("")], [Some(1024), Some(0), Some(2), None, None]);
    }

    #[test]
    fn bad_input_is_named_with_its_line() {
        let cases: [(&str, usize, &str); 12] = [
            ("version: v2\n", 1, "unknown version"),
            ("sharing:\n  timeSlicing:\n    resources: [{name: gpu, replicas: 4}]\n", 2, "time-slicing is not what cumux does"),
            ("sharing:\n  mps:\n    resources: []\n", 3, "empty"),
            ("sharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 1}\n", 4, "at least 2"),
            ("sharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 999}\n", 4, "at most 256"),
            ("sharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 2, devices: some}\n", 4, "devices is to be"),
            ("sharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 2, devices: [\"0:1\"]}\n", 4, "MIG device"),
            ("sharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 2}\n    - {name: gpu, replicas: 3}\n", 5, "twice"),
            ("sharing:\n  cumux:\n    memory: {name: a/b, unit: 1Zi}\n", 3, "no amount of memory"),
            ("sharing:\n  cumux:\n    memory: {name: a/b}\n    percent: {name: a/c, unit: 0}\n", 4, "no percentage"),
            ("flags:\n  migStrategy: mixed\n", 1, "no MIG devices"),
            ("sharing:\n  mps:\n    replicas: 3\n", 3, "unknown field \"replicas\""),
        ];
        for (text, line, word) in cases {
            let refusal = read(text).unwrap_err();
            assert!(refusal.line == line && refusal.text.contains(word), "{text}: {refusal}");
        }
    }
}
