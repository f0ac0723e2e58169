//! Kubelet's pod-resources API: which container has which devices.

use super::messages::{Empty, ListPodResourcesResponse, PodResources};
use crate::rpc::RpcClient;
use std::path::Path;
use std::time::Duration;
use tonic::Status;

/// How long kubelet may take for the list.
const LIMIT: Duration = Duration::from_secs(10);

/// All pods with their devices.
///
/// # Errors
/// Nobody answers at the socket, or not in time.
pub async fn list(socket: &Path) -> Result<Vec<PodResources>, Status> {
    let ask = async {
        let kubelet = RpcClient::connect(socket).await?;
        let answer: ListPodResourcesResponse = kubelet.call("/v1.PodResourcesLister/List", Empty {}).await?;
        Ok(answer.pod_resources)
    };
    let late = |_| Status::deadline_exceeded(format!("{} does not answer within {} s", socket.display(), LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, ask).await.map_err(late)?
}
