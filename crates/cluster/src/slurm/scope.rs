//! The control group of a job, where Slurm makes it: with version 2, `slurmstepd.scope` in a slice
//! of systemd, or `NODE_slurmstepd.scope` where a machine has several slurmd.

use super::SlurmError;
use std::path::Path;

/// Where control groups are mounted.
pub const MOUNT: &str = "/sys/fs/cgroup";

/// What `--cgroup` says for "find it".
pub const AUTO: &str = "auto";

const SCOPE: &str = "slurmstepd.scope";

/// The pattern of a job's control group, as in `--cgroup`, by what is below `root`. slurmd makes
/// the scope when it starts, so it is there before the first prolog. The job's folder comes later.
///
/// # Errors
/// [`SlurmError`]: which setting of Slurm is missing.
pub fn find(root: &Path, node: Option<&str>) -> Result<String, SlurmError> {
    let shown = root.display();
    if !root.join("cgroup.controllers").exists() {
        return Err(SlurmError::Scope(format!(
            "{shown} has no control groups of version 2 (no cgroup.controllers): name the job's control group by --cgroup /slurm/uid_%u/job_%j"
        )));
    }
    let mut slices: Vec<String> = std::fs::read_dir(root)
        .map_err(|error| SlurmError::Scope(format!("{shown} cannot be read: {error}")))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".slice"))
        .collect();
    slices.sort();
    let named = |scope: &str| -> Vec<String> {
        let of = |slice: &String| root.join(slice).join(scope).is_dir().then(|| format!("/{slice}/{scope}"));
        slices.iter().filter_map(of).collect()
    };
    // The scope of this node's own slurmd comes before that of a machine with one.
    let own = node.map(|node| named(&format!("{node}_{SCOPE}"))).unwrap_or_default();
    let found = if own.is_empty() { named(SCOPE) } else { own };
    match &found[..] {
        [scope] => Ok(format!("{scope}/job_%j")),
        [] => Err(SlurmError::Scope(format!(
            "no {SCOPE} in a slice of {shown}: set CgroupPlugin=cgroup/v2 in cgroup.conf and ProctrackType=proctrack/cgroup in slurm.conf, or name the job's control group by --cgroup"
        ))),
        several => Err(SlurmError::Scope(format!("several scopes of Slurm in {shown} ({}): name the job's control group by --cgroup", several.join(", ")))),
    }
}

/// A pattern for one job: `%j` is its number, `%u` its user.
#[must_use]
pub fn expand(pattern: &str, job: u32, uid: u32) -> String {
    pattern.replace("%j", &job.to_string()).replace("%u", &uid.to_string())
}

/// The control groups of a process that lies outside of `wanted`, by its `/proc/PID/cgroup`; `None`
/// if it is inside.
#[must_use]
pub fn outside(wanted: &str, text: &str) -> Option<String> {
    let wanted = wanted.strip_prefix(MOUNT).unwrap_or(wanted).trim_end_matches('/');
    let paths: Vec<&str> = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let is_inside = paths.iter().any(|path| path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    (!is_inside).then(|| paths.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as version 2 has it, with these control groups.
    fn tree(groups: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("cgroup.controllers"), "cpuset cpu memory pids\n").unwrap();
        for group in groups {
            std::fs::create_dir_all(root.path().join(group)).unwrap();
        }
        root
    }

    const SYSTEM: &str = "system.slice/slurmstepd.scope/system";

    #[test]
    fn a_job_lies_in_the_scope_of_its_slurmd() {
        let of = |groups: &[&str]| find(tree(groups).path(), Some("node-1"));
        assert_eq!(of(&[SYSTEM, "user.slice/user-0.slice"]).unwrap(), "/system.slice/slurmstepd.scope/job_%j");
        // Several slurmd on a machine, and a slice of the site's own.
        assert_eq!(
            of(&["system.slice/node-1_slurmstepd.scope", "system.slice/node-2_slurmstepd.scope"]).unwrap(),
            "/system.slice/node-1_slurmstepd.scope/job_%j"
        );
        assert_eq!(of(&["hpc.slice/slurmstepd.scope", "system.slice/slurmd.service"]).unwrap(), "/hpc.slice/slurmstepd.scope/job_%j");
        let text = of(&["system.slice/slurmd.service"]).unwrap_err().to_string();
        assert!(text.contains("no slurmstepd.scope") && text.contains("proctrack/cgroup"), "{text}");
        let text = of(&["a.slice/slurmstepd.scope", SYSTEM]).unwrap_err().to_string();
        assert!(text.contains("/a.slice/slurmstepd.scope, /system.slice/slurmstepd.scope"), "{text}");
        let old = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(old.path().join("freezer/slurm")).unwrap();
        let text = find(old.path(), None).unwrap_err().to_string();
        assert!(text.contains("version 2") && text.contains("--cgroup /slurm/uid_%u/job_%j"), "{text}");
    }

    #[test]
    fn a_process_is_inside_or_outside() {
        let wanted = expand("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_%j", 42, 1000);
        assert_eq!(outside(&wanted, "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n"), None);
        assert_eq!(outside(&wanted, "0::/system.slice/slurmstepd.scope/job_421/step_0\n").as_deref(), Some("/system.slice/slurmstepd.scope/job_421/step_0"));
        assert_eq!(outside("/slurm/uid_7/job_4", "5:freezer:/slurm/uid_7/job_4/step_0\n0::/\n"), None);
        assert_eq!(expand("/slurm/uid_%u/job_%j", 4, 7), "/slurm/uid_7/job_4");
    }
}
