//! ConfigMaps of the device plugin, and pods that ask for a share.

use super::{Artifact, Mode, Options};
use crate::check::Kind;
use crate::yaml::{Value, list, map, number, text, truth, write};

/// A ConfigMap with one configuration.
fn config_map(name: &str, key: &str, config: String) -> Value {
    map([
        ("apiVersion", text("v1")),
        ("kind", text("ConfigMap")),
        ("metadata", map([("name", text(name)), ("namespace", text("nvidia-device-plugin"))])),
        ("data", map([(key, text(config))])),
    ])
}

pub(super) fn plugin_config(options: &Options, mps: bool) -> Artifact {
    let resource = map([("name", text("nvidia.com/gpu")), ("replicas", number(options.replicas))]);
    let sharing = map([("failRequestsGreaterThanOne", truth(true)), ("resources", list([resource]))]);
    let (word, name, file) = match mps {
        true => ("mps", "mps", "device-plugin-mps.yaml"),
        false => ("timeSlicing", "time-slicing", "device-plugin-time-slicing.yaml"),
    };
    let config = map([("version", text("v1")), ("flags", map([("migStrategy", text("none"))])), ("sharing", map([(word, sharing)]))]);
    let inner = write(&[], &config);
    let what = if mps {
        "Clients of one MPS daemon for each node: kernels run side by side, a fault ends them all."
    } else {
        "Processes in turn: one program works at a time, and no memory is limited."
    };
    let comments = [
        what,
        "Every GPU of a node is shared so. A node chooses it by its label:",
        &format!("  kubectl label node NODE nvidia.com/device-plugin.config={name}"),
        "Pods that run keep their GPU; the plugin restarts with the new configuration.",
    ];
    let value = config_map(&format!("device-plugin-{name}"), name, inner);
    Artifact { name: file, kind: Kind::ConfigMap, text: write(&comments, &value) }
}

pub(super) fn mig_plugin_config() -> Artifact {
    let config = map([("version", text("v1")), ("flags", map([("migStrategy", text("mixed"))]))]);
    let comments = ["Each MIG profile is a resource of its own: nvidia.com/mig-1g.10gb and so on."];
    let value = config_map("device-plugin-mig", "mig", write(&[], &config));
    Artifact { name: "device-plugin-mig.yaml", kind: Kind::ConfigMap, text: write(&comments, &value) }
}

/// A pod that runs one program. `resource` is empty for cumux, whose pods are served through the
/// daemon's directory.
pub(super) fn pod(mode: Mode, options: &Options, resource: &str) -> Artifact {
    let mut container = vec![("name".to_owned(), text("model")), ("image".to_owned(), text(options.image.clone()))];
    let mut spec = vec![("restartPolicy".to_owned(), text("OnFailure"))];
    let mut comments = Vec::new();
    if mode == Mode::Cumux {
        let (pipe, library) = (options.pipe.clone(), format!("{}/lib/cumux", options.prefix));
        let mut variables = vec![("CUDA_MPS_PIPE_DIRECTORY", pipe.clone()), ("LD_LIBRARY_PATH", library.clone())];
        if let Some(percentage) = options.percentage {
            variables.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage.to_string()));
        }
        let variable = |(name, value): (&str, String)| map([("name", text(name)), ("value", text(value))]);
        container.push(("env".to_owned(), list(variables.into_iter().map(variable))));
        let mount = |name: &str, path: &str, read_only: bool| map([("name", text(name)), ("mountPath", text(path)), ("readOnly", truth(read_only))]);
        container.push(("volumeMounts".to_owned(), list([mount("pipe", &pipe, false), mount("library", &library, true)])));
        let volume = |name: &str, path: &str| map([("name", text(name)), ("hostPath", map([("path", text(path)), ("type", text("Directory"))]))]);
        spec.push(("volumes".to_owned(), list([volume("pipe", &pipe), volume("library", &library)])));
        comments.push("The daemon runs on the node; the pod needs its directory and the library, and no GPU of its own.");
        comments.push("Programs of one user share an executor; the daemon needs -M to serve several users at a time.");
    } else {
        container.push(("resources".to_owned(), map([("limits", map([(resource, number(1))]))])));
        comments.push(match mode {
            Mode::Mig => "One MIG instance: its memory and multiprocessors are the pod's alone.",
            Mode::Mps => "One share of a GPU. Its limits are of each process: several processes of one pod have them each.",
            _ => "One turn among those that share the GPU. Two would not be twice as fast.",
        });
    }
    spec.push(("containers".to_owned(), list([map(container)])));
    let name = match mode {
        Mode::Mps => "small-model-mps",
        Mode::Cumux => "small-model-cumux",
        Mode::TimeSlicing => "small-model-time-sliced",
        Mode::Mig => "small-model-mig",
    };
    let value = map([("apiVersion", text("v1")), ("kind", text("Pod")), ("metadata", map([("name", text(name))])), ("spec", map(spec))]);
    Artifact { name: "pod.yaml", kind: Kind::Pod, text: write(&comments, &value) }
}
