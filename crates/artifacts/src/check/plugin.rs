//! The configuration of NVIDIA's device plugin for Kubernetes (k8s-device-plugin 0.20,
//! `api/config/v1`), more strictly than it is: what the plugin takes and then ignores is refused.

use super::names::is_subdomain;
use crate::yaml::{Fields, Node, Refusal};

/// The plugin refuses more MPS clients of one GPU.
pub(crate) const MOST_MPS_REPLICAS: i64 = 48;
/// Longest name of a resource, with its prefix.
const LONGEST_NAME: usize = 63;
const PREFIX: &str = "nvidia.com/";

pub(crate) fn check_version(fields: &Fields<'_>) -> Result<(), Refusal> {
    match fields.get("version") {
        Some(version) if version.text()? != "v1" => version.refuse(format!("unknown version \"{}\": the plugin knows v1", version.text()?)),
        _ => Ok(()),
    }
}

pub(crate) fn check(root: &Node<'_>) -> Result<(), Refusal> {
    let fields = root.fields(&["version", "flags", "resources", "sharing", "imex"])?;
    check_version(&fields)?;
    let mut strategy = "none";
    if let Some(flags) = fields.get("flags") {
        strategy = check_flags(flags)?;
    }
    if let Some(resources) = fields.get("resources") {
        return resources.refuse("the plugin parses \"resources\" and ignores it: leave it out");
    }
    if let Some(imex) = fields.get("imex") {
        let fields = imex.fields(&["channelIDs", "required"])?;
        if let Some(channels) = fields.get("channelIDs") {
            for channel in channels.items()? {
                if channel.number()? != 0 {
                    return channel.refuse("the plugin knows IMEX channel 0 alone");
                }
            }
        }
        fields.get("required").map(Node::truth).transpose()?;
    }
    match fields.get("sharing") {
        Some(sharing) => check_sharing(sharing, strategy),
        None => Ok(()),
    }
}

pub(crate) fn check_flags<'a>(flags: &Node<'a>) -> Result<&'a str, Refusal> {
    const TRUTHS: [&str; 5] = ["failOnInitError", "gdrcopyEnabled", "gdsEnabled", "mofedEnabled", "useNodeFeatureAPI"];
    const TEXTS: [&str; 3] = ["mpsRoot", "nvidiaDriverRoot", "nvidiaDevRoot"];
    let known = [&["migStrategy", "deviceDiscoveryStrategy", "plugin", "gfd"], &TRUTHS[..], &TEXTS[..]].concat();
    let fields = flags.fields(&known)?;
    for name in TRUTHS {
        fields.get(name).map(Node::truth).transpose()?;
    }
    for name in TEXTS {
        if let Some(node) = fields.get(name)
            && !node.text()?.starts_with('/')
        {
            return node.refuse(format!("{} is to be an absolute path", node.name()));
        }
    }
    if let Some(node) = fields.get("deviceDiscoveryStrategy") {
        node.one_of(&["auto", "nvml", "tegra", "vfio"])?;
    }
    if let Some(plugin) = fields.get("plugin") {
        check_plugin_flags(plugin)?;
    }
    if let Some(gfd) = fields.get("gfd") {
        let fields = gfd.fields(&["oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"])?;
        for name in ["oneshot", "noTimestamp"] {
            fields.get(name).map(Node::truth).transpose()?;
        }
        for name in ["sleepInterval", "outputFile", "machineTypeFile"] {
            fields.get(name).map(Node::text).transpose()?;
        }
    }
    let Some(strategy) = fields.get("migStrategy") else { return Ok("none") };
    strategy.one_of(&["none", "single", "mixed"])?;
    strategy.text()
}

fn check_plugin_flags(plugin: &Node<'_>) -> Result<(), Refusal> {
    let texts = ["cdiAnnotationPrefix", "nvidiaCTKPath", "containerDriverRoot", "driver-root"];
    let known = [&["passDeviceSpecs", "deviceListStrategy", "deviceIDStrategy", "sharedDevicesAllocationPolicy"], &texts[..]].concat();
    let fields = plugin.fields(&known)?;
    fields.get("passDeviceSpecs").map(Node::truth).transpose()?;
    for name in texts {
        fields.get(name).map(Node::text).transpose()?;
    }
    if let Some(node) = fields.get("deviceIDStrategy") {
        node.one_of(&["uuid", "index"])?;
    }
    if let Some(node) = fields.get("sharedDevicesAllocationPolicy") {
        node.one_of(&["distributed", "packed"])?;
    }
    if let Some(node) = fields.get("deviceListStrategy") {
        let strategies = ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"];
        let each = if node.is_list() { node.items()? } else { vec![node.clone()] };
        each.iter().try_for_each(|strategy| strategy.one_of(&strategies))?;
    }
    Ok(())
}

fn check_sharing(sharing: &Node<'_>, strategy: &str) -> Result<(), Refusal> {
    let fields = sharing.fields(&["timeSlicing", "mps"])?;
    match (fields.get("timeSlicing"), fields.get("mps")) {
        (Some(_), Some(mps)) => mps.refuse("time-slicing and MPS are both there: the plugin would take MPS and ignore the other"),
        (Some(node), None) => check_replicated(node, false, strategy),
        (None, Some(node)) => check_replicated(node, true, strategy),
        (None, None) => sharing.refuse("\"sharing\" names neither timeSlicing nor mps"),
    }
}

fn check_replicated(node: &Node<'_>, mps: bool, strategy: &str) -> Result<(), Refusal> {
    let fields = node.fields(&["renameByDefault", "failRequestsGreaterThanOne", "resources"])?;
    fields.get("renameByDefault").map(Node::truth).transpose()?;
    if let Some(fail) = fields.get("failRequestsGreaterThanOne")
        && !fail.truth()?
        && mps
    {
        return fail.refuse(
            "failRequestsGreaterThanOne: false does not go with MPS: plugins before 0.20 take it for true, and a pod with two replicas still has the limits of one; leave it out or write true",
        );
    }
    let resources = fields.need("resources")?;
    let items = resources.items()?;
    if items.is_empty() {
        return resources.refuse("\"resources\" is empty: name at least one resource");
    }
    let mut seen: Vec<String> = Vec::new();
    for item in &items {
        let name = check_resource(item, mps)?;
        if mps && (strategy != "none" && name.starts_with("nvidia.com/mig-")) {
            return item.refuse("the plugin refuses MPS on MIG devices");
        }
        if seen.contains(&name) {
            return item.refuse(format!("{name} is there twice"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Checks one resource and returns its full name.
fn check_resource(item: &Node<'_>, mps: bool) -> Result<String, Refusal> {
    let fields = item.fields(&["name", "replicas", "rename", "devices"])?;
    for name in ["rename", "devices"] {
        if let Some(node) = fields.get(name) {
            return node.refuse(format!("the plugin takes \"{name}\" and ignores it with a warning: leave it out"));
        }
    }
    let full = resource_name(fields.need("name")?)?;
    let replicas = fields.need("replicas")?;
    match replicas.number()? {
        ..=1 => replicas.refuse(format!("replicas is {}: at least 2 are needed to share", replicas.number()?)),
        n if mps && n > MOST_MPS_REPLICAS => replicas.refuse(format!("replicas is {n}: the plugin takes at most {MOST_MPS_REPLICAS} clients of MPS for a GPU")),
        _ => Ok(full),
    }
}

/// The full name of a resource, checked.
pub(crate) fn resource_name(node: &Node<'_>) -> Result<String, Refusal> {
    let name = node.text()?;
    let full = if name.starts_with(PREFIX) { name.to_owned() } else { format!("{PREFIX}{name}") };
    if full.len() > LONGEST_NAME {
        return node.refuse(format!("the name {full} has {} characters; at most {LONGEST_NAME} are allowed", full.len()));
    }
    if !is_subdomain(&full[PREFIX.len()..]) {
        return node.refuse(format!("\"{name}\" is no name of a resource: small letters, digits, - and . only, beginning and ending with a letter or digit"));
    }
    Ok(full)
}
