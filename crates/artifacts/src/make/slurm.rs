//! gres.conf for Slurm, with the lines for slurm.conf above it.

use super::{Artifact, Options};
use crate::check::Kind;

/// Shares of one GPU under MPS: Slurm divides by this and rounds down.
const SHARES: u32 = 100;

pub(super) fn mps(options: &Options) -> Artifact {
    let Options { gpu, replicas, .. } = options;
    let each = SHARES / replicas.max(&1);
    let text = format!(
        "# slurm.conf:  GresTypes=gpu,mps
#              SelectType=select/cons_tres
#              NodeName=... Gres=gpu:1,mps:{SHARES}
# A job asks:  --gres=mps:{each}   ({replicas} of them share GPU {gpu})
# One GPU of a node may serve MPS; a job's part becomes CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.
Name=gpu File=/dev/nvidia{gpu}
Name=mps Count={SHARES} File=/dev/nvidia{gpu}
"
    );
    Artifact { name: "gres.conf", kind: Kind::Gres, text }
}

pub(super) fn shard(options: &Options) -> Artifact {
    let Options { gpu, replicas, .. } = options;
    let text = format!(
        "# slurm.conf:  GresTypes=gpu,shard
#              SelectType=select/cons_tres
#              NodeName=... Gres=gpu:1,shard:{replicas}
# A job asks:  --gres=shard:1
# Nothing keeps a job to its part: shards are counted, not enforced.
Name=gpu File=/dev/nvidia{gpu}
Name=shard Count={replicas} File=/dev/nvidia{gpu}
"
    );
    Artifact { name: "gres.conf", kind: Kind::Gres, text }
}

pub(super) fn mig() -> Artifact {
    let text = "# slurm.conf:  GresTypes=gpu
#              NodeName=... Gres=gpu:...   (what slurmd -G prints)
# A job asks:  --gres=gpu:PROFILE:1
# The instances must be there before slurmd starts: Slurm makes none.
AutoDetect=nvml
"
    .to_owned();
    Artifact { name: "gres.conf", kind: Kind::Gres, text }
}
