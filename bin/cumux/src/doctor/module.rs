//! Refusals that the permissions do not explain: which security module confines this process, and
//! what to do about it.
//!
//! SELinux and AppArmor answer with the error of a missing permission. So the permission bits are
//! read and judged here; `access(2)` would ask the module as well.

use super::Finding;
use cumux_link::escape_foreign;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// To enter a folder.
pub const ENTER: u32 = 1;
/// To connect to a socket.
pub const CONNECT: u32 = 2;

/// What confines this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Module {
    /// SELinux, with the context of this process; whether it enforces, where that can be read.
    SeLinux { context: String, enforces: Option<bool> },
    /// AppArmor, with the profile of this process; in `complain` mode it refuses nothing.
    AppArmor { profile: String, enforces: bool },
    /// No label can be read: no module, one without labels, or a seccomp filter.
    Unknown,
}

impl Module {
    /// By the files below `root`, which is `/` outside of tests.
    pub fn at(root: &Path) -> Self {
        let read = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            let text = text.trim_matches(['\0', '\n', ' ']);
            (!text.is_empty()).then(|| escape_foreign(text, 256))
        };
        // Where several modules are stacked, the first file is that of one of them only.
        let labels = ["proc/self/attr/current", "proc/self/attr/apparmor/current"].map(read);
        for label in labels.into_iter().flatten() {
            // user:role:type:level; a profile has no colons but in the name of a namespace.
            if label.split(':').count() >= 3 && !label.contains(' ') {
                return Self::SeLinux { context: label, enforces: read("sys/fs/selinux/enforce").map(|text| text != "0") };
            }
            if label != "unconfined" {
                let (profile, mode) = label.rsplit_once(" (").map_or((label.as_str(), "enforce"), |(profile, mode)| (profile, mode.trim_end_matches(')')));
                return Self::AppArmor { profile: profile.to_owned(), enforces: mode != "complain" };
            }
        }
        Self::Unknown
    }

    /// The finding where this system refuses `what`, for example "the connection to …".
    pub fn refuses(&self, check: &'static str, what: &str) -> Finding {
        let (cause, remedy) = match self {
            Self::SeLinux { context, enforces: Some(false) } => (
                format!("SELinux is permissive, with {context}, so it may be a seccomp filter"),
                "look into the profile for system calls of the container (securityContext.seccompProfile, --security-opt seccomp=…)".to_owned(),
            ),
            Self::SeLinux { context, .. } => (
                format!("SELinux confines this process as {context}"),
                "on the node: ausearch -m avc names the rule; label the pipe directory for containers (chcon -R -t container_file_t DIR, podman run -v DIR:DIR:z), or give the container another type (securityContext.seLinuxOptions)".to_owned(),
            ),
            Self::AppArmor { profile, enforces: false } => (
                format!("the AppArmor profile {profile} only complains, so it may be a seccomp filter"),
                "look into the profile for system calls of the container (securityContext.seccompProfile, --security-opt seccomp=…)".to_owned(),
            ),
            Self::AppArmor { profile, .. } => (
                format!("AppArmor confines this process by the profile {profile}"),
                format!("on the node: journalctl -k | grep apparmor names the rule; allow in {profile} the files of the pipe directory (DIR/** rw,) and its sockets (unix,), or run without it (securityContext.appArmorProfile, --security-opt apparmor=unconfined)"),
            ),
            Self::Unknown => (
                "SELinux, AppArmor or a seccomp filter; this process can read no label of its own".to_owned(),
                "on the node: ausearch -m avc, or journalctl -k | grep -E 'apparmor|audit'".to_owned(),
            ),
        };
        Finding::problem(check, format!("the system refuses {what}, which the permissions allow: {cause}"), remedy)
    }
}

/// Whether the permission bits alone let this process do `wanted`.
pub fn bits_allow(metadata: &Metadata, wanted: u32) -> bool {
    let overrides = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::DAC_OVERRIDE));
    let groups = getgroups().unwrap_or_default();
    let in_group = metadata.gid() == getegid().as_raw() || groups.iter().any(|group| group.as_raw() == metadata.gid());
    let shift = match () {
        () if metadata.uid() == geteuid().as_raw() => 6,
        () if in_group => 3,
        () => 0,
    };
    overrides || (metadata.mode() >> shift) & wanted == wanted
}

/// The folder above `path` that the permissions let this process enter, and that it cannot.
pub fn shut_folder(path: &Path) -> Option<PathBuf> {
    let mut folders: Vec<&Path> = path.ancestors().collect();
    folders.reverse();
    let (above, _) = folders.iter().zip(folders.iter().skip(1)).find(|(_, below)| is_denied(below.symlink_metadata().err().as_ref()))?;
    above.metadata().ok().filter(|metadata| bits_allow(metadata, ENTER)).map(|_| (*above).to_owned())
}

/// Whether the permissions allow to connect to a socket, and only they were asked.
pub fn bits_allow_socket(socket: &Path) -> bool {
    match socket.metadata() {
        Ok(metadata) => bits_allow(&metadata, CONNECT),
        Err(error) => is_denied(Some(&error)) && shut_folder(socket).is_some(),
    }
}

fn is_denied(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const CURRENT: &str = "proc/self/attr/current";

    #[test]
    fn the_modules_are_told_apart_by_the_label() {
        let of = |files: &[(&str, &str)]| Module::at(root(files).path());
        let context = "system_u:system_r:container_t:s0:c5,c6".to_owned();
        let label = "system_u:system_r:container_t:s0:c5,c6\0";
        assert_eq!(of(&[(CURRENT, label)]), Module::SeLinux { context: context.clone(), enforces: None });
        assert_eq!(of(&[(CURRENT, label), ("sys/fs/selinux/enforce", "1")]), Module::SeLinux { context: context.clone(), enforces: Some(true) });
        assert_eq!(of(&[(CURRENT, label), ("sys/fs/selinux/enforce", "0")]), Module::SeLinux { context, enforces: Some(false) });
        assert_eq!(of(&[(CURRENT, "docker-default (enforce)\n")]), Module::AppArmor { profile: "docker-default".into(), enforces: true });
        assert_eq!(of(&[(CURRENT, "snap.x.y (complain)\n")]), Module::AppArmor { profile: "snap.x.y".into(), enforces: false });
        // Both modules: the label of the other one is in the first file.
        let stacked = [(CURRENT, "unconfined\n"), ("proc/self/attr/apparmor/current", "cri-containerd.apparmor.d (enforce)\n")];
        assert_eq!(of(&stacked), Module::AppArmor { profile: "cri-containerd.apparmor.d".into(), enforces: true });
        assert_eq!((of(&[]), of(&[(CURRENT, "unconfined\n")]), of(&[(CURRENT, "")])), (Module::Unknown, Module::Unknown, Module::Unknown));
    }

    #[test]
    fn each_module_has_its_remedy() {
        let refused = |module: Module| module.refuses("daemon", "the connection to /run/cumux/cumux");
        let selinux = refused(Module::SeLinux { context: "a:b:container_t:s0".into(), enforces: Some(true) });
        assert!(selinux.found.contains("SELinux confines this process as a:b:container_t:s0") && selinux.remedy.contains("container_file_t"), "{selinux:?}");
        let apparmor = refused(Module::AppArmor { profile: "docker-default".into(), enforces: true });
        assert!(apparmor.found.contains("by the profile docker-default") && apparmor.remedy.contains("unix,"), "{apparmor:?}");
        for harmless in [Module::SeLinux { context: "a:b:c:d".into(), enforces: Some(false) }, Module::AppArmor { profile: "p".into(), enforces: false }] {
            let finding = refused(harmless);
            assert!(finding.found.contains("seccomp filter") && finding.remedy.contains("seccomp"), "{finding:?}");
        }
        assert!(refused(Module::Unknown).found.contains("can read no label"));
    }

    #[test]
    fn bits_of_the_right_class_count() {
        let folder = tempfile::tempdir().unwrap();
        let allows = |mode: u32| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            bits_allow(&folder.path().metadata().unwrap(), ENTER)
        };
        assert!(allows(0o100) && allows(0o755));
        let overrides = geteuid().is_root();
        assert_eq!((allows(0o011), allows(0o600)), (overrides, overrides), "the bits of others do not count for the owner");
        allows(0o700);
        assert_eq!(shut_folder(folder.path()), None, "nothing is shut here");
    }
}
