//! A new program is on trial until one of its executors serves: if one ends before, the program
//! before is used again, and nobody is any the worse for it.

use crate::core::{Core, Upgrade};
use crate::host::Host;
use cumux_wire::message::FromServer;

impl<H: Host> Core<H> {
    /// Whether an executor of this build is of a new program of which none has served yet, so that
    /// its failure says nothing against the device.
    pub(crate) fn is_on_trial(&self, build: u32) -> bool {
        let serving = self.executors.serving();
        matches!(self.upgrade, Upgrade::Executors { .. }) && build == self.executors.build && serving.is_some_and(|serving| serving.build < build)
    }

    /// The new program cannot serve: everything goes on with the one before. No process of that has
    /// been ended but standbys. Executors of single sessions that are of the new one go on until
    /// their sessions have moved.
    pub(crate) fn abandon_upgrade(&mut self, why: &str) {
        let Upgrade::Executors { request, earlier, .. } = std::mem::replace(&mut self.upgrade, Upgrade::No) else { return };
        self.host.use_program(&earlier);
        let build = self.executors.build;
        for worker in self.executors.workers.values_mut().filter(|worker| worker.build == build && !worker.is_dismissed() && worker.activated.is_none()) {
            worker.end(&self.host);
        }
        self.executors.build -= 1;
        self.executors.no_standby = None;
        let error = format!("no executor of the new program can serve ({why}); server.log has what it said. All clients go on with the program before");
        self.note(&format!("Upgrade: {error}"));
        self.tell(FromServer::Upgraded { request, staying: Vec::new(), error });
    }
}
