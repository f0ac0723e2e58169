//! Options of NVIDIA's device plugin that have no effect here. They are accepted with a warning, as
//! the same fields of its file are: a DaemonSet that was made for that plugin starts.

use clap::Args;

/// What containers get in place of device files.
const NO_FILES: &str = "containers get the pipe directory of their group and no device files";
/// Who finds cards and directories.
const FOUND: &str = "the daemon finds its cards and its directories itself";
/// Who judges the health of a card.
const HEALTH: &str = "a card becomes Unhealthy and Healthy again without a restart";

macro_rules! options {
    ($($field:ident $option:literal $variable:literal $why:ident;)*) => {
        /// The options, with the variables that they also have there.
        #[derive(Args, Debug, Default)]
        pub struct Theirs {
            $(#[arg(long = $option, env = $variable, hide = true, num_args = 0..=1, default_missing_value = "true")]
            $field: Option<String>,)*
        }

        impl Theirs {
            /// A sentence for each that is set.
            pub fn warnings(&self) -> Vec<String> {
                let set = [$((self.$field.as_ref(), $option, $variable, $why)),*];
                set.into_iter().filter(|(value, ..)| value.is_some()).map(|(_, option, variable, why)| format!("--{option} ({variable}) has no effect: {why}")).collect()
            }
        }
    };
}

options! {
    nvidia_driver_root "nvidia-driver-root" "NVIDIA_DRIVER_ROOT" FOUND;
    nvidia_dev_root "nvidia-dev-root" "NVIDIA_DEV_ROOT" FOUND;
    container_driver_root "container-driver-root" "CONTAINER_DRIVER_ROOT" FOUND;
    mps_root "mps-root" "MPS_ROOT" FOUND;
    device_discovery_strategy "device-discovery-strategy" "DEVICE_DISCOVERY_STRATEGY" FOUND;
    pass_device_specs "pass-device-specs" "PASS_DEVICE_SPECS" NO_FILES;
    device_list_strategy "device-list-strategy" "DEVICE_LIST_STRATEGY" NO_FILES;
    device_id_strategy "device-id-strategy" "DEVICE_ID_STRATEGY" NO_FILES;
    cdi_annotation_prefix "cdi-annotation-prefix" "CDI_ANNOTATION_PREFIX" NO_FILES;
    nvidia_cdi_hook_path "nvidia-cdi-hook-path" "NVIDIA_CDI_HOOK_PATH" NO_FILES;
    nvidia_ctk_path "nvidia-ctk-path" "NVIDIA_CTK_PATH" NO_FILES;
    gdrcopy_enabled "gdrcopy-enabled" "GDRCOPY_ENABLED" NO_FILES;
    gds_enabled "gds-enabled" "GDS_ENABLED" NO_FILES;
    mofed_enabled "mofed-enabled" "MOFED_ENABLED" NO_FILES;
    imex_channel_ids "imex-channel-ids" "IMEX_CHANNEL_IDS" NO_FILES;
    imex_required "imex-required" "IMEX_REQUIRED" NO_FILES;
    restart_on_device_unhealthy "restart-on-device-unhealthy" "RESTART_ON_DEVICE_UNHEALTHY" HEALTH;
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        theirs: Theirs,
    }

    #[test]
    fn options_of_nvidias_plugin_are_taken_with_a_warning() {
        let line = Line::try_parse_from(["plugin", "--pass-device-specs", "--device-list-strategy=envvar", "--nvidia-driver-root", "/"]).unwrap();
        let warnings = line.theirs.warnings();
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].starts_with("--nvidia-driver-root (NVIDIA_DRIVER_ROOT) has no effect: the daemon finds"), "{warnings:?}");
        assert!(Line::try_parse_from(["plugin", "--no-such-option"]).is_err());
    }
}
