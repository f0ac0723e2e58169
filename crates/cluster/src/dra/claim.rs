//! What a claim was given, read strictly from the API server's answer; and the limits that follow.
//!
//! The opaque configuration, in a DeviceClass or a claim:
//!
//! ```yaml
//! opaque:
//!   driver: gpu.cumux.dev
//!   parameters:
//!     apiVersion: gpu.cumux.dev/v1alpha1
//!     kind: GroupConfig
//!     percentage: 25        # of the multiprocessors
//!     memory: 10Gi          # of each card
//!     priority: low         # or normal
//!     clients: 8            # processes at a time
//! ```
//!
//! A limit of the configuration only tightens what the scheduler has counted.

use super::DRIVER;
use crate::groups::{Group, NodeCard};
use cumux_artifacts::plugin::mebibytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Version of the opaque configuration.
pub const CONFIG_VERSION: &str = "gpu.cumux.dev/v1alpha1";
/// Its kind.
pub const CONFIG_KIND: &str = "GroupConfig";

/// Why a claim is not prepared. kubelet shows the text in the pod's events.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ClaimError {
    /// Another object of that name.
    #[error("the claim {0} is another one now: its UID is {1}")]
    Another(String, String),
    /// Not allocated.
    #[error("the claim {0} has no devices of {DRIVER}: it is not allocated yet, or its DeviceClass selects another driver")]
    NotAllocated(String),
    /// A field of the API server's answer.
    #[error("the claim {0} cannot be read: {1}")]
    Unreadable(String, String),
    /// No such card.
    #[error("the claim {0} has the device {1}, which this node's daemon does not have")]
    NoSuchDevice(String, String),
    /// The card serves nobody.
    #[error("the claim {0} has the card {1}, which serves nobody at the moment: {2}")]
    Ill(String, String, String),
    /// The configuration.
    #[error("the claim {claim}: its configuration for {DRIVER} is wrong: {path}: {why}")]
    Config {
        /// The claim.
        claim: String,
        /// The field.
        path: String,
        /// What is wrong, and what was expected.
        why: String,
    },
}

/// One device that a claim was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The request in the claim.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device's name in the ResourceSlice.
    pub device: String,
    /// The share of the device, where it is shared.
    pub share: Option<String>,
    /// Consumed capacity, by name.
    consumed: BTreeMap<String, String>,
}

/// An opaque configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Config {
    percentage: Option<u32>,
    memory_mib: Option<u64>,
    priority: Option<u32>,
    clients: Option<u32>,
}

/// The name of a card in ResourceSlices: the DNS label that belongs to its ordinal.
#[must_use]
pub fn device_name(card: &NodeCard) -> String {
    format!("gpu-{}", card.ordinal)
}

/// The devices and the group of a claim, out of the API server's object.
///
/// # Errors
/// [`ClaimError`].
pub fn read(object: &Value, uid: &str, cards: &[NodeCard]) -> Result<(Vec<Given>, Group), ClaimError> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let claim = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
    if text("/metadata/uid") != uid {
        return Err(ClaimError::Another(claim, text("/metadata/uid").to_owned()));
    }
    let unreadable = |why: &str| ClaimError::Unreadable(claim.clone(), why.to_owned());
    let results = match object.pointer("/status/allocation/devices/results") {
        None | Some(Value::Null) => return Err(ClaimError::NotAllocated(claim)),
        Some(results) => results.as_array().ok_or_else(|| unreadable("status.allocation.devices.results is no list"))?,
    };
    let mut given = Vec::new();
    for result in results.iter().filter(|result| result["driver"] == DRIVER) {
        let field = |name: &str| result[name].as_str().map(str::to_owned).ok_or_else(|| unreadable(&format!("a result has no \"{name}\"")));
        let consumed = match &result["consumedCapacity"] {
            Value::Null => BTreeMap::new(),
            capacity => serde_json::from_value(capacity.clone()).map_err(|_| unreadable("consumedCapacity is no map of quantities"))?,
        };
        let share = result["shareID"].as_str().map(str::to_owned);
        given.push(Given { request: field("request")?, pool: field("pool")?, device: field("device")?, share, consumed });
    }
    if given.is_empty() {
        return Err(ClaimError::NotAllocated(claim));
    }
    let config = config_of(object, &claim, &given)?;
    let mut group = Group { name: format!("dra-{uid}"), percentage: config.percentage, priority: config.priority, clients: config.clients, ..Group::default() };
    for one in &given {
        let card = cards.iter().find(|card| device_name(card) == one.device).ok_or_else(|| ClaimError::NoSuchDevice(claim.clone(), one.device.clone()))?;
        if let Some(why) = &card.ill {
            return Err(ClaimError::Ill(claim, one.device.clone(), why.clone()));
        }
        let quantity =
            |name: &str| one.consumed.iter().find(|(key, _)| *key == name || key.strip_prefix(DRIVER).is_some_and(|rest| rest.strip_prefix('/') == Some(name)));
        let mut limit = None;
        if let Some((_, value)) = quantity("memory") {
            limit = Some(mebibytes(value).ok_or_else(|| unreadable(&format!("the memory \"{value}\" is no quantity")))?);
        }
        if let Some(own) = config.memory_mib {
            limit = Some(limit.map_or(own, |counted| counted.min(own)));
        }
        // Two shares of one card add up. A limit of all the memory is none.
        if let Some(mib) = limit.filter(|mib| *mib > 0 && *mib < card.memory_mib) {
            *group.memory.entry(card.uuid.clone()).or_default() += mib;
        }
        if let Some((_, value)) = quantity("multiprocessors") {
            let count: u32 = value.parse().map_err(|_| unreadable(&format!("the multiprocessors \"{value}\" are no whole number")))?;
            if count > 0 {
                let percent = count.saturating_mul(100).div_ceil(card.multiprocessors.max(1)).clamp(1, 100);
                group.percentage = Some(group.percentage.map_or(percent, |own| own.min(percent)));
            }
        }
        if !group.devices.contains(&card.uuid) {
            group.devices.push(card.uuid.clone());
        }
    }
    Ok((given, group))
}

/// The configuration that applies: the claim's before the class's, a later one before an earlier.
fn config_of(object: &Value, claim: &str, given: &[Given]) -> Result<Config, ClaimError> {
    let mut config = Config::default();
    let Some(entries) = object.pointer("/status/allocation/devices/config").and_then(Value::as_array) else { return Ok(config) };
    for source in ["FromClass", "FromClaim"] {
        for (number, entry) in entries.iter().enumerate() {
            if entry["source"] != source || entry.pointer("/opaque/driver") != Some(&Value::from(DRIVER)) {
                continue;
            }
            let requests: Vec<&str> = entry["requests"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            // An entry without requests is for all of them.
            let applies =
                requests.is_empty() || given.iter().any(|one| requests.iter().any(|name| one.request == *name || one.request.starts_with(&format!("{name}/"))));
            if !applies {
                continue;
            }
            let wrong =
                |path: &str, why: String| ClaimError::Config { claim: claim.to_owned(), path: format!("config[{number}].opaque.parameters{path}"), why };
            let parameters = entry.pointer("/opaque/parameters").and_then(Value::as_object).ok_or_else(|| wrong("", "a mapping was expected".to_owned()))?;
            apply(parameters, &mut config).map_err(|(field, why)| wrong(&format!(".{field}"), why))?;
        }
    }
    Ok(config)
}

fn apply(parameters: &Map<String, Value>, config: &mut Config) -> Result<(), (String, String)> {
    const FIELDS: [&str; 6] = ["apiVersion", "kind", "percentage", "memory", "priority", "clients"];
    let wrong = |field: &str, why: String| Err((field.to_owned(), why));
    for (field, expected) in [("apiVersion", CONFIG_VERSION), ("kind", CONFIG_KIND)] {
        if parameters.get(field).and_then(Value::as_str) != Some(expected) {
            return wrong(field, format!("\"{expected}\" was expected"));
        }
    }
    for (field, value) in parameters {
        let number = |most: u64| match value.as_u64() {
            Some(number) if (1..=most).contains(&number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
            _ => Err((field.clone(), format!("{value} is no whole number from 1 to {most}"))),
        };
        match field.as_str() {
            "apiVersion" | "kind" => {}
            "percentage" => config.percentage = Some(number(100)?),
            "clients" => config.clients = Some(number(256)?),
            "memory" => match value.as_str().and_then(mebibytes) {
                Some(mib) if mib > 0 => config.memory_mib = Some(mib),
                _ => return wrong(field, format!("{value} is no amount of memory: \"10Gi\" was expected")),
            },
            "priority" => match value.as_str() {
                Some("normal") => config.priority = Some(0),
                Some("low") => config.priority = Some(1),
                _ => return wrong(field, format!("{value} is no priority: \"normal\" or \"low\" was expected")),
            },
            _ => return wrong(field, format!("unknown field: there are {}", FIELDS.join(", "))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDaemon;
    use crate::groups::Groups as _;
    use serde_json::json;

    fn claim(results: &Value, config: &Value) -> Value {
        json!({"metadata": {"namespace": "n", "name": "c", "uid": "u"}, "status": {"allocation": {"devices": {"results": results, "config": config}}}})
    }

    fn result(device: &str, consumed: &Value) -> Value {
        json!({"request": "gpu", "driver": DRIVER, "pool": "node", "device": device, "shareID": "s", "consumedCapacity": consumed})
    }

    fn config(parameters: &Value) -> Value {
        json!([{"source": "FromClaim", "requests": [], "opaque": {"driver": DRIVER, "parameters": parameters}}])
    }

    fn of(object: &Value) -> Result<(Vec<Given>, Group), ClaimError> {
        read(object, "u", &FakeDaemon::with_cards(&[10_240, 20_480]).cards().unwrap())
    }

    #[test]
    fn capacity_becomes_limits() {
        let (given, group) = of(&claim(&json!([result("gpu-1", &json!({"memory": "5Gi", "multiprocessors": "33"}))]), &json!([]))).unwrap();
        assert_eq!((given[0].request.as_str(), given[0].share.as_deref()), ("gpu", Some("s")));
        assert_eq!(group.words(), " memory=GPU-00000001-0000-0000-0000-000000000000=5120M percentage=25 devices=GPU-00000001-0000-0000-0000-000000000000");
        let (_, whole) =
            of(&claim(&json!([result("gpu-0", &json!({"memory": "10Gi", "multiprocessors": "0"})), result("gpu-1", &Value::Null)]), &Value::Null)).unwrap();
        assert_eq!((whole.memory.len(), whole.percentage, whole.devices.len()), (0, None, 2));
    }

    #[test]
    fn a_configuration_only_tightens_and_the_claims_comes_last() {
        let results = json!([result("gpu-0", &json!({"memory": "5Gi", "multiprocessors": "66"}))]);
        let head = |rest: Value| {
            let mut value = json!({"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND});
            value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            value
        };
        let both = json!([
            {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": head(json!({"percentage": 10, "priority": "low", "clients": 3}))}},
            {"source": "FromClass", "requests": [], "opaque": {"driver": DRIVER, "parameters": head(json!({"percentage": 90, "memory": "100Gi"}))}},
            {"source": "FromClaim", "requests": ["other"], "opaque": {"driver": DRIVER, "parameters": head(json!({"percentage": 1}))}},
            {"source": "FromClaim", "requests": [], "opaque": {"driver": "gpu.nvidia.com", "parameters": {"x": 1}}},
        ]);
        let (_, group) = of(&claim(&results, &both)).unwrap();
        assert_eq!((group.percentage, group.priority, group.clients), (Some(10), Some(1), Some(3)));
        assert_eq!(group.memory.values().copied().collect::<Vec<_>>(), [5120]);
    }

    #[test]
    fn bad_input_is_named() {
        let results = json!([result("gpu-0", &Value::Null)]);
        let head = |field: &str, value: Value| json!({"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND, field: value});
        let cases = [
            (claim(&Value::Null, &Value::Null), "not allocated"),
            (claim(&json!([{"driver": "gpu.nvidia.com"}]), &Value::Null), "not allocated"),
            (claim(&json!([{"driver": DRIVER, "request": "gpu"}]), &Value::Null), "no \"pool\""),
            (claim(&json!([result("gpu-7", &Value::Null)]), &Value::Null), "gpu-7"),
            (claim(&json!([result("gpu-0", &json!({"memory": "much"}))]), &Value::Null), "\"much\" is no quantity"),
            (claim(&results, &config(&json!({"kind": "GpuConfig"}))), "config[0].opaque.parameters.apiVersion"),
            (claim(&results, &config(&head("percent", 5.into()))), "parameters.percent: unknown field"),
            (claim(&results, &config(&head("percentage", 0.into()))), "from 1 to 100"),
            (claim(&results, &config(&head("percentage", "50".into()))), "from 1 to 100"),
            (claim(&results, &config(&head("memory", 5.into()))), "\"10Gi\" was expected"),
            (claim(&results, &config(&head("priority", "high".into()))), "\"normal\" or \"low\""),
            (claim(&results, &json!([{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": 5}}])), "a mapping"),
        ];
        for (object, word) in cases {
            let text = of(&object).unwrap_err().to_string();
            assert!(text.contains(word) && text.contains("n/c"), "{word}: {text}");
        }
        let other = read(&claim(&results, &Value::Null), "v", &[]).unwrap_err();
        assert_eq!(other, ClaimError::Another("n/c".into(), "u".into()));
    }
}
