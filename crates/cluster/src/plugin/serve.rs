//! The calls of kubelet for one resource.

use super::ledger::{Ledger, LedgerError};
use super::messages::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, Device, Empty, HEALTHY, ListAndWatchResponse, Options, PreStartContainerRequest,
    PreferredAllocationRequest, PreferredAllocationResponse, UNHEALTHY,
};
use super::parts::{Kind, Resource};
use super::{pods, prefer::prefer};
use crate::groups::GroupsError;
use crate::rpc::{Answer, Call, Calls, Sent, stream, unary, unknown};
use cumux_artifacts::plugin::Policy;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tonic::Status;

/// Why a card is ill, by its UUID. A card that is missing here is well.
pub type Ills = Arc<BTreeMap<String, String>>;

/// One resource as kubelet sees it.
#[derive(Debug)]
pub struct Endpoint {
    /// Its name.
    pub resource: String,
    /// Who has which part.
    pub ledger: Arc<Ledger>,
    /// Which cards are ill.
    pub ills: watch::Receiver<Ills>,
    /// On which card a further container goes.
    pub policy: Policy,
    /// Kubelet's pod-resources socket.
    pub pods: Option<PathBuf>,
}

/// What kubelet is told of a resource.
#[must_use]
pub fn options_of(resource: &Resource) -> Options {
    Options { pre_start_required: matches!(resource.kind, Kind::Percent(_)), get_preferred_allocation_available: true }
}

fn status(error: &LedgerError) -> Status {
    let text = error.to_string();
    match error {
        LedgerError::Groups(GroupsError::NoDaemon { .. }) => Status::unavailable(text),
        LedgerError::Groups(_) | LedgerError::Checkpoint(_) => Status::internal(text),
        LedgerError::SeveralCards { .. } => Status::resource_exhausted(text),
        LedgerError::PercentAlone { .. } | LedgerError::Ownerless(_) => Status::failed_precondition(text),
        LedgerError::Nothing | LedgerError::NoSuchDevice { .. } | LedgerError::AboveOne(_) | LedgerError::AboveCard(_) => Status::invalid_argument(text),
    }
}

impl Endpoint {
    fn resource(&self) -> Result<&Resource, Status> {
        self.ledger.resource_named(&self.resource).ok_or_else(|| Status::not_found(format!("this node has no {}", self.resource)))
    }

    fn list(&self, ills: &Ills) -> ListAndWatchResponse {
        let device = |(id, share): (String, &super::parts::Share)| {
            let health = if ills.contains_key(&share.uuid) { UNHEALTHY } else { HEALTHY };
            Device { id, health: health.to_owned() }
        };
        ListAndWatchResponse { devices: self.resource().map(|resource| resource.devices().map(device).collect()).unwrap_or_default() }
    }

    fn list_and_watch(self: Arc<Self>, call: Call) -> Answer {
        let (sender, receiver) = mpsc::channel::<Sent<ListAndWatchResponse>>(1);
        tokio::spawn(async move {
            let mut ills = self.ills.clone();
            let mut last = None;
            loop {
                let list = self.list(&ills.borrow_and_update().clone());
                if last.as_ref() != Some(&list) {
                    last = Some(list.clone());
                    if sender.send(Ok(list)).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    changed = ills.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        stream::<Empty, _>(call, receiver)
    }

    fn prefer(&self, request: PreferredAllocationRequest) -> Result<PreferredAllocationResponse, Status> {
        let resource = self.resource()?;
        let one = |request: super::messages::ContainerPreferredAllocationRequest| {
            let size = usize::try_from(request.allocation_size).unwrap_or(0).max(request.must_include_device_ids.len());
            let device_ids = prefer(resource, self.policy, &request.available_device_ids, &request.must_include_device_ids, size);
            ContainerPreferredAllocationResponse { device_ids }
        };
        Ok(PreferredAllocationResponse { container_responses: request.container_requests.into_iter().map(one).collect() })
    }

    fn allocate(&self, request: &AllocateRequest) -> Result<AllocateResponse, Status> {
        let resource = self.resource()?;
        let ills = self.ills.borrow().clone();
        let one = |ids: &Vec<String>| {
            let ill = ids.iter().filter_map(|id| resource.card_of(id)).find_map(|share| ills.get(&share.uuid).map(|why| (share, why)));
            match ill {
                Some((share, why)) => Err(Status::unavailable(format!("the card {} serves nobody at the moment: {why}", share.uuid))),
                None => self.ledger.allocate(resource, ids).map_err(|error| status(&error)),
            }
        };
        let responses: Result<Vec<_>, Status> = request.container_requests.iter().map(|request| one(&request.devices_ids)).collect();
        if let Err(error) = &responses {
            tracing::warn!(resource = self.resource, "{}", error.message());
        }
        Ok(AllocateResponse { container_responses: responses? })
    }

    fn pre_start(&self, request: &PreStartContainerRequest) -> Result<Empty, Status> {
        let resource = self.resource()?;
        let pods = match &self.pods {
            None => None,
            Some(socket) => Some(tokio::runtime::Handle::current().block_on(pods::list(socket))?),
        };
        self.ledger.pre_start(resource, &request.devices_ids, pods.as_deref()).map_err(|error| status(&error))?;
        Ok(Empty {})
    }
}

impl Calls for Endpoint {
    fn call(self: Arc<Self>, method: &str, call: Call) -> Answer {
        match method {
            "DevicePlugin/GetDevicePluginOptions" => unary(call, move |_: Empty| self.resource().map(options_of)),
            "DevicePlugin/ListAndWatch" => self.list_and_watch(call),
            "DevicePlugin/GetPreferredAllocation" => unary(call, move |request| self.prefer(request)),
            "DevicePlugin/Allocate" => unary(call, move |request| self.allocate(&request)),
            "DevicePlugin/PreStartContainer" => unary(call, move |request| self.pre_start(&request)),
            _ => unknown(method),
        }
    }
}
