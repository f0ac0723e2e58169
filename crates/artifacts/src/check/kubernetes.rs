//! Pods and ConfigMaps, as far as they are ours: fields by their names in Kubernetes' API (v1),
//! names and quantities by its rules.

use super::mig_parted;
use super::names::{is_label, is_subdomain};
use crate::plugin::check_either;
use crate::yaml::{self, Node, Refusal};

/// Largest ConfigMap.
const LARGEST: usize = 1 << 20;

fn check_head(fields: &yaml::Fields<'_>, kind: &str) -> Result<(), Refusal> {
    fields.need("apiVersion")?.one_of(&["v1"])?;
    check_object(fields, kind)
}

fn check_object(fields: &yaml::Fields<'_>, kind: &str) -> Result<(), Refusal> {
    fields.need("kind")?.one_of(&[kind])?;
    let metadata = fields.need("metadata")?;
    let inside = metadata.fields(&["name", "namespace", "labels", "annotations"])?;
    let name = inside.need("name")?;
    if !is_subdomain(name.text()?) {
        return name.refuse(format!("\"{}\" is no name for Kubernetes: small letters, digits, - and . only, at most 253", name.text()?));
    }
    if let Some(namespace) = inside.get("namespace")
        && (!is_label(namespace.text()?) || namespace.text()?.len() > 63)
    {
        return namespace.refuse(format!("\"{}\" is no namespace: small letters, digits and - only, at most 63", namespace.text()?));
    }
    for name in ["labels", "annotations"] {
        if let Some(node) = inside.get(name) {
            node.entries()?.iter().try_for_each(|(_, value)| value.text().map(|_| ()))?;
        }
    }
    Ok(())
}

pub(super) fn config_map(root: &Node<'_>) -> Result<(), Refusal> {
    let fields = root.fields(&["apiVersion", "kind", "metadata", "data", "binaryData", "immutable"])?;
    check_head(&fields, "ConfigMap")?;
    let data = fields.need("data")?;
    let entries = data.entries()?;
    if entries.is_empty() {
        return data.refuse("\"data\" is empty: name at least one configuration");
    }
    let mut size = 0;
    for (name, node) in entries {
        let text = node.text()?;
        size += text.len();
        if size > LARGEST {
            return node.refuse("a ConfigMap has at most 1 MiB");
        }
        if name.len() > 253 || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            return node.refuse(format!("\"{name}\" is no key of a ConfigMap: letters, digits, -, . and _ only, at most 253"));
        }
        // The lines of the text inside are lines of the file, from its first one on.
        let outside = |refusal: Refusal| Refusal::new(node.value_line() + refusal.line - 1, format!("{name}: {}", refusal.text));
        let is_mig = text.lines().any(|line| line.starts_with("mig-configs"));
        yaml::with_root(text, |inner| if is_mig { mig_parted::check(&inner) } else { check_either(&inner) }).map_err(outside)?;
    }
    Ok(())
}

const POD_SPEC: [&str; 22] = [
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "enableServiceLinks",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "restartPolicy",
    "runtimeClassName",
    "securityContext",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "volumes",
];
const CONTAINER: [&str; 16] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "volumeMounts",
    "workingDir",
];

pub(super) fn pod(root: &Node<'_>) -> Result<(), Refusal> {
    let fields = root.fields(&["apiVersion", "kind", "metadata", "spec"])?;
    check_head(&fields, "Pod")?;
    check_pod_spec(fields.need("spec")?)
}

/// The daemon of a node: `apps/v1`.
pub(super) fn daemon_set(root: &Node<'_>) -> Result<(), Refusal> {
    let fields = root.fields(&["apiVersion", "kind", "metadata", "spec"])?;
    fields.need("apiVersion")?.one_of(&["apps/v1"])?;
    check_object(&fields, "DaemonSet")?;
    let spec = fields.need("spec")?.fields(&["selector", "template", "updateStrategy", "minReadySeconds", "revisionHistoryLimit"])?;
    let template = spec.need("template")?.fields(&["metadata", "spec"])?;
    let labels = template.need("metadata")?.fields(&["labels", "annotations"])?.need("labels")?.entries()?;
    let selector = spec.need("selector")?.fields(&["matchLabels"])?;
    for (name, value) in selector.need("matchLabels")?.entries()? {
        let wanted = value.text()?;
        let has = labels.iter().find(|(label, _)| *label == name).and_then(|(_, value)| value.text().ok());
        if has != Some(wanted) {
            return value.refuse(format!("the selector wants {name}={wanted}, and the template's pods do not have it"));
        }
    }
    check_pod_spec(template.need("spec")?)
}

fn check_pod_spec(spec: &Node<'_>) -> Result<(), Refusal> {
    let spec = spec.fields(&POD_SPEC)?;
    if let Some(policy) = spec.get("restartPolicy") {
        policy.one_of(&["Always", "OnFailure", "Never"])?;
    }
    let mut volumes = Vec::new();
    if let Some(node) = spec.get("volumes") {
        for volume in node.items()? {
            let name = volume.entries()?.into_iter().find(|(name, _)| name == "name");
            let Some((_, name)) = name else { return volume.refuse("a volume needs \"name\"") };
            volumes.push(name.text()?.to_owned());
        }
    }
    let containers = spec.need("containers")?;
    let items = containers.items()?;
    if items.is_empty() {
        return containers.refuse("a pod needs a container");
    }
    let first = spec.get("initContainers").map(Node::items).transpose()?.unwrap_or_default();
    first.iter().chain(&items).try_for_each(|container| check_container(container, &volumes))
}

fn check_container(container: &Node<'_>, volumes: &[String]) -> Result<(), Refusal> {
    let fields = container.fields(&CONTAINER)?;
    let name = fields.need("name")?;
    if !is_label(name.text()?) || name.text()?.len() > 63 {
        return name.refuse(format!("\"{}\" is no name of a container", name.text()?));
    }
    if fields.need("image")?.text()?.is_empty() {
        return fields.need("image")?.refuse("the image has no name");
    }
    if let Some(variables) = fields.get("env") {
        for variable in variables.items()? {
            let inside = variable.fields(&["name", "value", "valueFrom"])?;
            inside.need("name")?.text()?;
            inside.get("value").map(Node::text).transpose()?;
        }
    }
    if let Some(mounts) = fields.get("volumeMounts") {
        for mount in mounts.items()? {
            let inside = mount.fields(&["name", "mountPath", "readOnly", "subPath", "mountPropagation"])?;
            let name = inside.need("name")?;
            if !volumes.iter().any(|volume| Ok(volume.as_str()) == name.text()) {
                return name.refuse(format!("the pod has no volume \"{}\"", name.text()?));
            }
            if !inside.need("mountPath")?.text()?.starts_with('/') {
                return mount.refuse("mountPath is to be an absolute path");
            }
        }
    }
    let Some(resources) = fields.get("resources") else { return Ok(()) };
    let inside = resources.fields(&["limits", "requests", "claims"])?;
    let Some(limits) = inside.get("limits") else { return Ok(()) };
    let gpus: Vec<_> = limits.entries()?.into_iter().filter(|(name, _)| name.starts_with("nvidia.com/")).collect();
    for (name, node) in &gpus {
        let count = node.number().or_else(|_| node.text().map(|text| text.parse().unwrap_or(0)))?;
        if count < 1 {
            return node.refuse(format!("{name} is to be a whole number of at least 1"));
        }
        if name.ends_with(".shared") && count > 1 {
            return node.refuse(format!("{name} is {count}: of a shared resource a pod may have one (failRequestsGreaterThanOne)"));
        }
    }
    Ok(())
}
