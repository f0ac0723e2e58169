//! The part of kubelet that talks to DRA drivers, and what a container runtime reads of their CDI
//! files.

use crate::kubelet::Pod;
use cumux_cluster::dra::messages::{
    Claim, InfoRequest, PluginInfo, PrepareRequest, PrepareResponse, RegistrationStatus, RegistrationStatusResponse, UnprepareRequest, UnprepareResponse,
};
use cumux_cluster::rpc::RpcClient;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// The kubelet of one node.
#[derive(Debug)]
pub struct DraKubelet {
    registry: PathBuf,
    cdi: PathBuf,
    runtime: Runtime,
}

fn claim(name: &str, uid: &str) -> Claim {
    Claim { namespace: "default".into(), name: name.into(), uid: uid.into() }
}

impl DraKubelet {
    /// A kubelet that finds drivers in `registry`, beside a container runtime that reads `cdi`.
    ///
    /// # Panics
    /// It cannot start.
    #[must_use]
    pub fn new(registry: &Path, cdi: &Path) -> Self {
        fs::create_dir_all(registry).expect("the folder of registrations");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { registry: registry.to_owned(), cdi: cdi.to_owned(), runtime }
    }

    /// The registration's socket first, then the endpoint that it names.
    async fn connect(&self) -> Result<RpcClient, String> {
        let text = |status: tonic::Status| status.message().to_owned();
        let registration = RpcClient::connect(&self.registry.join("gpu.cumux.dev-reg.sock")).await.map_err(text)?;
        let info: PluginInfo = registration.call("/pluginregistration.Registration/GetInfo", InfoRequest {}).await.map_err(text)?;
        assert_eq!((info.kind.as_str(), info.name.as_str()), ("DRAPlugin", "gpu.cumux.dev"));
        assert_eq!(info.supported_versions, ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        let told: Result<RegistrationStatusResponse, _> = registration.call("/pluginregistration.Registration/NotifyRegistrationStatus", status).await;
        told.map_err(text)?;
        RpcClient::connect(Path::new(&info.endpoint)).await.map_err(text)
    }

    /// Prepares a claim: the names of its CDI devices.
    ///
    /// # Errors
    /// Why not, as the pod's events would show it.
    pub fn prepare(&self, name: &str, uid: &str) -> Result<Vec<String>, String> {
        let response: PrepareResponse = self.runtime.block_on(async {
            let request = PrepareRequest { claims: vec![claim(name, uid)] };
            let client = self.connect().await?;
            let method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
            client.call(method, request).await.map_err(|status| status.message().to_owned())
        })?;
        let prepared = response.claims.get(uid).ok_or("the driver's answer lacks the claim")?;
        match prepared.error.as_str() {
            "" => Ok(prepared.devices.iter().flat_map(|device| device.cdi_device_ids.clone()).collect()),
            error => Err(error.to_owned()),
        }
    }

    /// Takes a claim back.
    ///
    /// # Errors
    /// Why not.
    pub fn unprepare(&self, uid: &str) -> Result<(), String> {
        let response: UnprepareResponse = self.runtime.block_on(async {
            let request = UnprepareRequest { claims: vec![claim("any", uid)] };
            let client = self.connect().await?;
            client.call("/v1beta1.DRAPlugin/NodeUnprepareResources", request).await.map_err(|status| status.message().to_owned())
        })?;
        let unprepared = response.claims.get(uid).ok_or("the driver's answer lacks the claim")?;
        match unprepared.error.as_str() {
            "" => Ok(()),
            error => Err(error.to_owned()),
        }
    }

    /// Prepares a claim and starts a pod with it: what its container would get of the runtime.
    ///
    /// # Errors
    /// Why the claim is not prepared.
    ///
    /// # Panics
    /// The driver has named a CDI device that is not there.
    pub fn run_pod(&self, claim: &str, uid: &str) -> Result<Pod, String> {
        let mut pod = Pod { name: claim.to_owned(), ..Pod::default() };
        for device in self.prepare(claim, uid)? {
            let edits = self.edits(&device).unwrap_or_else(|| panic!("no CDI file has the device {device}"));
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            for pair in edits["env"].as_array().expect("a list") {
                let (name, value) = pair.as_str().and_then(|pair| pair.split_once('=')).expect("NAME=value");
                pod.environment.insert(name.to_owned(), value.to_owned());
            }
            for mount in edits["mounts"].as_array().expect("a list") {
                pod.mounts.insert(text(&mount["containerPath"]), text(&mount["hostPath"]));
            }
        }
        Ok(pod)
    }

    /// The edits of a device, by its whole name.
    fn edits(&self, name: &str) -> Option<Value> {
        let files = fs::read_dir(&self.cdi).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "json"));
        let specs = files.filter_map(|path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok());
        let of = |spec: Value| {
            let kind = spec["kind"].as_str()?.to_owned();
            let device = spec["devices"].as_array()?.iter().find(|device| device["name"].as_str().is_some_and(|own| format!("{kind}={own}") == name))?;
            Some(device["containerEdits"].clone())
        };
        specs.into_iter().find_map(of)
    }

    /// The names of the files that the runtime would read, in order.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.cdi).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }
}
