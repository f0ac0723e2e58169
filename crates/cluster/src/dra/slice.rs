//! What the node offers: its ResourceSlice, `resource.k8s.io/v1`. Pure.

use super::DRIVER;
use super::claim::device_name;
use crate::groups::NodeCard;
use serde_json::{Value, json};

/// The name of a node's slice.
#[must_use]
pub fn name_of(node: &str) -> String {
    format!("{node}-{DRIVER}")
}

/// The slice of a node with these cards. A card that serves nobody is not in it.
///
/// Memory that a claim does not ask for is all of it, so that a claim that knows nothing of sharing
/// has a card alone. Multiprocessors that it does not ask for are none: it may use what others
/// leave.
#[must_use]
pub fn slice(node: &str, node_uid: Option<&str>, cards: &[NodeCard], generation: u64) -> Value {
    let device = |card: &NodeCard| {
        let memory = format!("{}Mi", card.memory_mib);
        let all = card.multiprocessors.to_string();
        json!({
            "name": device_name(card),
            "allowMultipleAllocations": true,
            "attributes": {
                "uuid": {"string": card.uuid},
                "productName": {"string": card.name},
                "index": {"int": card.ordinal},
                "type": {"string": "gpu"},
            },
            "capacity": {
                "memory": {"value": memory, "requestPolicy": {"default": memory, "validRange": {"min": "64Mi", "max": memory, "step": "1Mi"}}},
                "multiprocessors": {"value": all, "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": all, "step": "1"}}},
            },
        })
    };
    let devices: Vec<Value> = cards.iter().filter(|card| card.ill.is_none()).map(device).collect();
    let mut metadata = json!({"name": name_of(node)});
    if let Some(uid) = node_uid {
        // The slice goes with its node.
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    }
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}
