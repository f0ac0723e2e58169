//! Limits and priorities: the daemon's defaults, a server's own values, and what a client gets.
//!
//! Pure. Invariants: a percentage is above 0 and at most 100; a client can only tighten the limits
//! of daemon and server; a value that cannot be read changes nothing, as in NVIDIA's daemon.

pub use cumux_wire::facts::uuid_text;
use cumux_wire::message::{DeviceFacts, Grant, Home, Wisher};
/// Share of the device's SMs, above 0 and at most 100 percent.
pub use cumux_wire::share::Share as Percentage;

/// The variable with a percentage of the SMs, for daemon and clients.
pub const PERCENTAGE_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// The variable with memory limits by device, for daemon and clients.
pub const PINNED_VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
/// The variable with a client's priority, for daemon and clients.
pub const PRIORITY_VARIABLE: &str = "CUDA_MPS_CLIENT_PRIORITY";
/// In which executor a client is: `own` or `shared`.
pub const ISOLATION_VARIABLE: &str = "CUMUX_ISOLATION";
/// Where kernels that call themselves, or through addresses, run on a card: `own` or `shared`. Of
/// the daemon alone.
pub const UNBOUNDED_VARIABLE: &str = "CUMUX_UNBOUNDED_KERNELS";
/// The variable by which a client's contexts get shares of their own. Its percentage is then read
/// when a context is made.
pub const PER_CONTEXT_VARIABLE: &str = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING";
/// The variable with the devices that a program sees.
pub const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// A limit of device memory in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryLimit {
    mib: u64,
}

impl MemoryLimit {
    /// Reads an integer with `G` or `M` in either case, and an optional `B` after it. Any other
    /// text is no limit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
        let (digits, scale) = if let Some(digits) = text.strip_suffix(['g', 'G']) { (digits, 1024) } else { (text.strip_suffix(['m', 'M'])?, 1) };
        let mib = digits.parse::<u64>().ok()?.checked_mul(scale)?;
        // More than the bytes that fit in 64 bits is no limit either.
        (mib > 0 && mib < u64::MAX >> 20).then_some(Self { mib })
    }

    /// The limit in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.mib << 20
    }

    /// The text that the commands print.
    #[must_use]
    pub fn text(self) -> String {
        if self.mib >= 1024 { format!("{}G", self.mib / 1024) } else { format!("{}M", self.mib) }
    }
}

/// Limits by device name (ordinal or UUID) as the user wrote it, the latest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryLimits(Vec<(String, MemoryLimit)>);

impl MemoryLimits {
    /// Reads the syntax of the environment variable: `0=1G,GPU-…=512M`. Pieces that cannot be read
    /// are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut limits = Self::default();
        for (device, value) in text.split(',').filter_map(|piece| piece.split_once('=')) {
            limits.set(device.trim(), value);
        }
        limits
    }

    /// Sets the limit of one device name; false if the value cannot be read.
    pub fn set(&mut self, device: &str, value: &str) -> bool {
        let Some(limit) = MemoryLimit::parse(value) else { return false };
        if device.is_empty() {
            return false;
        }
        self.0.retain(|(name, _)| name != device);
        self.0.push((device.to_owned(), limit));
        true
    }

    /// The limit that was set under exactly this name.
    #[must_use]
    pub fn get(&self, device: &str) -> Option<MemoryLimit> {
        self.0.iter().find(|(name, _)| name == device).map(|(_, limit)| *limit)
    }

    /// The latest limit for a device, under whichever of its names.
    #[must_use]
    pub fn of(&self, ordinal: usize, facts: &DeviceFacts) -> Option<MemoryLimit> {
        self.0.iter().rev().find(|(name, _)| names(name, ordinal, facts)).map(|(_, limit)| *limit)
    }
}

/// Whether `name` (ordinal, UUID, or the start of one) means this device.
#[must_use]
pub fn names(name: &str, ordinal: usize, facts: &DeviceFacts) -> bool {
    match name.parse::<usize>() {
        Ok(number) => number == ordinal,
        Err(_) => name.len() > "GPU-".len() && uuid_text(facts.uuid).starts_with(&name.to_ascii_lowercase().replacen("gpu-", "GPU-", 1)),
    }
}

/// In which executor clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Together with all others.
    #[default]
    Shared,
    /// Each in one of its own.
    Own,
}

impl Isolation {
    /// Reads `own` or `shared`. Any other text is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "own" => Some(Self::Own),
            "shared" => Some(Self::Shared),
            _ => None,
        }
    }

    /// The text that the commands print.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Own => "own",
        }
    }

    fn home(self, by: Wisher) -> Home {
        match self {
            Self::Shared => Home::Shared,
            Self::Own => Home::Own { by },
        }
    }
}

/// The defaults of a daemon for new servers, or of a server for new clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Share of the SMs of every device.
    pub percentage: Percentage,
    /// Memory limits by device.
    pub memory: MemoryLimits,
    /// 0 normal, 1 below normal.
    pub priority: u8,
    /// In which executor clients are that do not say so themselves.
    pub isolation: Isolation,
}

impl Default for Settings {
    fn default() -> Self {
        Self { percentage: Percentage::ALL, memory: MemoryLimits::default(), priority: 0, isolation: Isolation::Shared }
    }
}

impl Settings {
    /// The defaults in a daemon's environment.
    #[must_use]
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            percentage: variable(PERCENTAGE_VARIABLE).and_then(|text| Percentage::parse(&text)).unwrap_or(Percentage::ALL),
            memory: variable(PINNED_VARIABLE).map(|text| MemoryLimits::parse(&text)).unwrap_or_default(),
            priority: u8::from(variable(PRIORITY_VARIABLE).as_deref().map(str::trim) == Some("1")),
            isolation: variable(ISOLATION_VARIABLE).and_then(|text| Isolation::parse(&text)).unwrap_or_default(),
        }
    }

    /// The lines that a server with these settings writes into its log at its start. Devices come
    /// with their places in the daemon's list, and may be missing where they are not known yet.
    #[must_use]
    pub fn lines(&self, devices: &[(usize, DeviceFacts)]) -> Vec<String> {
        let mut lines = vec![format!("Active Threads Percentage set to {}", self.percentage.text())];
        for (ordinal, facts) in devices {
            if let Some(limit) = self.memory.of(*ordinal, facts) {
                lines.push(format!("Device pinned memory limit for device {ordinal} set to {:#x} bytes", limit.bytes()));
            }
        }
        lines.push(format!("Server Priority set to {}", self.priority));
        lines
    }

    /// The grant of a client with this environment: for each limit the tighter value, and the
    /// client's own priority if it states one. Without devices if it sees none.
    #[must_use]
    pub fn for_client(&self, environment: &[(String, String)], devices: &[DeviceFacts]) -> Grant {
        let all: Vec<usize> = (0..devices.len()).collect();
        self.for_client_among(environment, devices, &all)
    }

    /// As [`Settings::for_client`], for a client that sees only the devices at these places.
    #[must_use]
    pub fn for_client_among(&self, environment: &[(String, String)], devices: &[DeviceFacts], places: &[usize]) -> Grant {
        let value = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        // With shares for each context, the program's own percentage belongs to them, not to the
        // process.
        let per_context = value(PER_CONTEXT_VARIABLE).is_some_and(|text| text.trim() == "1");
        let asked = value(PERCENTAGE_VARIABLE).filter(|_| !per_context).and_then(Percentage::parse).unwrap_or(Percentage::ALL);
        let limits = value(PINNED_VARIABLE).map(MemoryLimits::parse).unwrap_or_default();
        let limit = |(own, place): (usize, usize), facts: &DeviceFacts| {
            let asked = limits.of(own, facts);
            asked.into_iter().chain(self.memory.of(place, facts)).min().map_or(0, MemoryLimit::bytes)
        };
        let among: Vec<DeviceFacts> = places.iter().filter_map(|place| devices.get(*place).cloned()).collect();
        let seen: Vec<usize> = visible(value(VISIBLE_VARIABLE), &among).into_iter().filter_map(|own| places.get(own).copied()).collect();
        Grant {
            share: asked.min(self.percentage),
            priority: match value(PRIORITY_VARIABLE).map(str::trim) {
                Some("0") => 0,
                Some("1") => 1,
                _ => u32::from(self.priority),
            },
            home: match value(ISOLATION_VARIABLE).and_then(Isolation::parse) {
                Some(stated) => stated.home(Wisher::Client),
                None => self.isolation.home(Wisher::Default),
            },
            sms: Vec::new(),
            group: None,
            devices: seen.iter().enumerate().map(|(own, place)| (u32::try_from(*place).unwrap_or(u32::MAX), limit((own, *place), &devices[*place]))).collect(),
        }
    }
}

/// The settings in an environment that are ignored without a word to the program, as in NVIDIA's
/// daemon: a sentence for each, for the log and for `cumux doctor`. `devices` may be empty where
/// they are not known.
#[must_use]
pub fn complaints(environment: &[(String, String)], devices: &[DeviceFacts]) -> Vec<String> {
    let mut all = Vec::new();
    for (name, value) in environment {
        match name.as_str() {
            PERCENTAGE_VARIABLE if Percentage::parse(value).is_none() => {
                all.push(format!("{name}={value} is no percentage and limits nothing: write a number above 0 and at most 100"));
            }
            PINNED_VARIABLE => all.extend(value.split(',').filter_map(|piece| limit_complaint(piece, devices)).map(|why| format!("{name}={value}: {why}"))),
            PRIORITY_VARIABLE if !matches!(value.trim(), "0" | "1") => {
                all.push(format!("{name}={value} is no priority and is passed over: write 0 (normal) or 1 (below normal)"));
            }
            ISOLATION_VARIABLE if Isolation::parse(value).is_none() => {
                all.push(format!(
                    "{name}={value} is passed over, and the default holds (get_default_isolation): write own (an executor for this program alone) or shared"
                ));
            }
            UNBOUNDED_VARIABLE if Isolation::parse(value).is_none() => {
                all.push(format!("{name}={value} is passed over: write shared to let such kernels run beside other programs, or leave it out"));
            }
            _ => {}
        }
    }
    all
}

/// What is wrong with one piece `device=limit`.
fn limit_complaint(piece: &str, devices: &[DeviceFacts]) -> Option<String> {
    let Some((device, value)) = piece.split_once('=') else {
        return Some(format!("\"{piece}\" sets no limit: write <device>=<integer>G or M, as in 0=2G"));
    };
    let device = device.trim();
    if MemoryLimit::parse(value).is_none() {
        return Some(format!("\"{value}\" is no limit, so device {device} has none: write an integer with G or M, as in {device}=2G"));
    }
    if !devices.is_empty() && !devices.iter().enumerate().any(|(ordinal, facts)| names(device, ordinal, facts)) {
        return Some(format!("there is no device {device}, so its limit holds nowhere: device_query lists the devices"));
    }
    let odd = value.trim().ends_with(['b', 'B']);
    odd.then(|| format!("\"{value}\" is read as {}: the documented form has no B", MemoryLimit::parse(value).map_or_else(String::new, MemoryLimit::text)))
}

/// The devices that a program with this value of `CUDA_VISIBLE_DEVICES` sees, as places in
/// `devices`. The value is a list of ordinals and UUIDs; the beginning of a UUID is enough if it is
/// unique. An unknown name hides itself and all names after it. A device named twice hides all.
#[must_use]
pub fn visible(variable: Option<&str>, devices: &[DeviceFacts]) -> Vec<usize> {
    let Some(list) = variable else { return (0..devices.len()).collect() };
    let mut seen = Vec::new();
    for name in list.split(',').map(str::trim) {
        let mut meant = devices.iter().enumerate().filter(|(place, facts)| names(name, *place, facts)).map(|(place, _)| place);
        let (Some(place), None) = (meant.next(), meant.next()) else { break };
        if seen.contains(&place) {
            return Vec::new();
        }
        seen.push(place);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> DeviceFacts {
        DeviceFacts {
            id: "sim:h200".into(),
            name: "NVIDIA H200".into(),
            uuid: [0xfb, 0x18, 0x11, 0xf5, 0xc0, 0x8f, 0x96, 0x54, 0xf7, 0xbe, 0x16, 0x48, 0x33, 0x92, 0xe3, 0xca],
            pci: [0, 6, 0],
            memory: 1 << 40,
            attributes: cumux_wire::facts::Attributes::default(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        }
    }

    /// Values and outcomes as recorded from driver 580.
    #[test]
    fn memory_limits_as_recorded() {
        let gib = Some(1 << 30);
        let cases = [
            ("0=1G", gib),
            ("0=1024M", gib),
            ("0=1g", gib),
            ("0=1GB", gib),
            ("0=1048576K", None),
            ("0=1073741824", None),
            ("0=2G,0=1G", gib),
            ("1=1G", None),
            ("abc", None),
            ("0=", None),
            ("GPU-fb1811f5-c08f-9654-f7be-16483392e3ca=1G", gib),
            ("GPU-fb18=1G", gib),
            ("GPU-ab18=1G", None),
            ("0=99999999999999999999G", None),
            ("0=18014398509481983G", None),
        ];
        for (text, expected) in cases {
            assert_eq!(MemoryLimits::parse(text).of(0, &facts()).map(MemoryLimit::bytes), expected, "{text}");
        }
    }

    #[test]
    fn what_is_passed_over_in_silence_is_told_elsewhere() {
        let told = |name: &str, value: &str| complaints(&[(name.into(), value.into())], &[facts()]).join("; ");
        for (value, word) in
            [("0=1GB", "read as 1G"), ("0=1048576K", "integer with G or M"), ("abc", "sets no limit"), ("0=", "is no limit"), ("3=1G", "no device 3")]
        {
            assert!(told(PINNED_VARIABLE, value).contains(word), "{value}: {}", told(PINNED_VARIABLE, value));
        }
        assert_eq!(told(PINNED_VARIABLE, "0=1G,GPU-fb18=2048M"), "");
        assert!(told(PERCENTAGE_VARIABLE, "150").contains("at most 100") && told(PERCENTAGE_VARIABLE, "33.3").is_empty());
        assert!(told(PRIORITY_VARIABLE, "2").contains("below normal") && told(PRIORITY_VARIABLE, "1").is_empty());
        assert!(told(UNBOUNDED_VARIABLE, "yes").contains("write shared") && told(UNBOUNDED_VARIABLE, "shared").is_empty());
        assert!(told(ISOLATION_VARIABLE, "ow").contains("write own") && told(ISOLATION_VARIABLE, "shared").is_empty());
    }

    #[test]
    fn percentages_as_recorded() {
        for (text, expected) in
            [("25", Some("25.0")), ("33.5", Some("33.5")), ("250", None), ("abc", None), ("0", None), ("-5", None), ("nan", None), ("101", None)]
        {
            assert_eq!(Percentage::parse(text).map(Percentage::text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_client_can_only_tighten() {
        let mut settings = Settings { percentage: Percentage::parse("50").unwrap(), ..Settings::default() };
        assert!(settings.memory.set("0", "2G"));
        let with = |pairs: &[(&str, &str)]| {
            let environment: Vec<_> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let got = settings.for_client(&environment, &[facts()]);
            (got.share.text(), got.devices[0].1 >> 30)
        };
        assert_eq!(with(&[]), ("50.0".into(), 2));
        assert_eq!(with(&[(PERCENTAGE_VARIABLE, "12.5"), (PINNED_VARIABLE, "0=1G")]), ("12.5".into(), 1));
        assert_eq!(with(&[(PERCENTAGE_VARIABLE, "80"), (PINNED_VARIABLE, "0=4G")]), ("50.0".into(), 2));
        assert_eq!(with(&[(PERCENTAGE_VARIABLE, "junk"), (PINNED_VARIABLE, "junk")]), ("50.0".into(), 2));
        assert_eq!(with(&[(PERCENTAGE_VARIABLE, "10"), (PER_CONTEXT_VARIABLE, "1")]), ("50.0".into(), 2), "its contexts read it themselves");
    }

    #[test]
    fn a_client_states_its_priority_or_has_the_default() {
        let of = |default, stated: Option<&str>| {
            let environment: Vec<_> = stated.map(|text| (PRIORITY_VARIABLE.to_owned(), text.to_owned())).into_iter().collect();
            Settings { priority: default, ..Settings::default() }.for_client(&environment, &[facts()]).priority
        };
        assert_eq!([of(0, None), of(1, None), of(0, Some("1")), of(1, Some("0")), of(1, Some("2")), of(0, Some("low"))], [0, 1, 1, 0, 1, 0]);
    }

    #[test]
    fn a_client_states_its_isolation_or_has_the_default() {
        let of = |default, stated: Option<&str>| {
            let environment: Vec<_> = stated.map(|text| (ISOLATION_VARIABLE.to_owned(), text.to_owned())).into_iter().collect();
            Settings { isolation: default, ..Settings::default() }.for_client(&environment, &[facts()]).home
        };
        use Isolation::{Own, Shared};
        let (client, default) = (Home::Own { by: Wisher::Client }, Home::Own { by: Wisher::Default });
        assert_eq!([of(Shared, None), of(Shared, Some("own")), of(Shared, Some("mine"))], [Home::Shared, client, Home::Shared]);
        assert_eq!([of(Own, None), of(Own, Some("own")), of(Own, Some("shared")), of(Own, Some("mine"))], [default, client, Home::Shared, default]);
    }

    #[test]
    fn visible_devices_as_the_driver_reads_them() {
        let mut devices = vec![facts(), facts(), facts()];
        devices[1].uuid[0] = 0xaa;
        devices[2].uuid[0] = 0xab;
        let see = |text| visible(Some(text), &devices);
        assert_eq!(visible(None, &devices), [0, 1, 2]);
        assert_eq!(see("2,0"), [2, 0]);
        assert_eq!(see(" 1 , 9, 0"), [1], "what follows a wrong one is not seen");
        assert_eq!([see(""), see("-1"), see("x,0"), see("0,0")], [const { Vec::<usize>::new() }; 4]);
        assert_eq!(see("GPU-ab1811f5,GPU-fb18"), [2, 0]);
        assert_eq!(see("GPU-a"), [0; 0], "two begin so");
        let limits: Vec<(String, String)> = vec![(VISIBLE_VARIABLE.into(), "2,1".into()), (PINNED_VARIABLE.into(), "0=1G".into())];
        let mut settings = Settings::default();
        assert!(settings.memory.set("1", "3G"));
        let grant = settings.for_client(&limits, &devices);
        assert_eq!(grant.devices, [(2, 1 << 30), (1, 3 << 30)], "a client counts its own devices, the server all");
    }

    #[test]
    fn a_default_under_one_name_is_not_shown_under_another() {
        let mut limits = MemoryLimits::default();
        assert!(limits.set("0", "3G"));
        assert!(limits.set("GPU-fb1811f5-c08f-9654-f7be-16483392e3ca", "5G"));
        assert!(!limits.set("0", "zz"));
        assert_eq!(limits.get("0").map(MemoryLimit::text).as_deref(), Some("3G"));
        assert_eq!(limits.of(0, &facts()).map(MemoryLimit::text).as_deref(), Some("5G"), "the later one counts");
    }
}
