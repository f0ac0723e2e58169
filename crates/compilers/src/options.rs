//! Options of NVRTC and nvJitLink, as far as they say what is made. Pure.

/// The options with every real architecture (`-arch=sm_90`) made a virtual one (`compute_90`), for
/// which NVRTC makes PTX. `None` where nothing is to be changed: no real architecture is asked for,
/// or intermediate code (LTO) is.
pub fn for_ptx(options: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let is_lto = |option: &Vec<u8>| matches!(option.as_slice(), b"-dlto" | b"--dlto" | b"-dlink-time-opt" | b"--dlink-time-opt");
    if options.iter().any(is_lto) {
        return None;
    }
    let mut changed = false;
    let mut follows = false;
    let new = options
        .iter()
        .map(|option| {
            let (name, value) = split(option);
            let named = is_architecture(name);
            let virtual_one = match value {
                Some(value) if named => to_virtual(value).map(|new| [name, b"=", &new].concat()),
                None if follows => to_virtual(option),
                _ => None,
            };
            follows = named && value.is_none();
            changed |= virtual_one.is_some();
            virtual_one.unwrap_or_else(|| option.clone())
        })
        .collect();
    changed.then_some(new)
}

/// The compute capability that a link is for: 90 for `-arch=sm_90`. `None` for a virtual one.
pub fn capability(options: &[Vec<u8>]) -> Option<u32> {
    let mut values = options.iter().map(|option| split(option)).filter(|(name, _)| is_architecture(name)).filter_map(|(_, value)| value);
    let number = values.next_back()?.strip_prefix(b"sm_")?;
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&number[..digits]).ok()?.parse().ok()
}

/// The registers that a thread may have: 32 for `-maxrregcount=32`. `None` without a limit.
pub fn most_registers(options: &[Vec<u8>]) -> Option<u32> {
    let limits = options.iter().map(|option| split(option)).filter(|(name, _)| matches!(*name, b"-maxrregcount" | b"--maxrregcount"));
    let number = limits.filter_map(|(_, value)| value).next_back()?;
    std::str::from_utf8(number).ok()?.trim().parse().ok().filter(|number| *number > 0)
}

/// The options of a link that makes PTX out of intermediate code.
pub fn for_linked_ptx(options: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut new: Vec<Vec<u8>> = options.iter().filter(|option| !matches!(option.as_slice(), b"-lto" | b"-ptx")).cloned().collect();
    new.extend([b"-lto".to_vec(), b"-ptx".to_vec()]);
    new
}

/// Whether a link is asked for PTX, or for what is to be linked once more.
pub fn leaves_no_cubin(options: &[Vec<u8>]) -> bool {
    options.iter().any(|option| matches!(option.as_slice(), b"-ptx" | b"-r" | b"-relocatable-device-code" | b"--relocatable-device-code"))
}

/// Name and value of `--name=value`.
fn split(option: &[u8]) -> (&[u8], Option<&[u8]>) {
    match option.iter().position(|byte| *byte == b'=') {
        Some(at) => (&option[..at], Some(&option[at + 1..])),
        None => (option, None),
    }
}

fn is_architecture(name: &[u8]) -> bool {
    matches!(name, b"-arch" | b"--arch" | b"--gpu-architecture" | b"-gpu-architecture")
}

fn to_virtual(architecture: &[u8]) -> Option<Vec<u8>> {
    architecture.trim_ascii().strip_prefix(b"sm_").map(|number| [b"compute_", number].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(options: &[&str]) -> Vec<Vec<u8>> {
        options.iter().map(|option| option.as_bytes().to_vec()).collect()
    }

    #[test]
    fn real_architectures_become_virtual_ones() {
        let new = |options: &[&str]| for_ptx(&list(options)).map(|new| new.into_iter().map(|option| String::from_utf8(option).unwrap()).collect::<Vec<_>>());
        assert_eq!(new(&["-I/x", "-arch=sm_90a", "-DARCH=sm_90"]).unwrap(), ["-I/x", "-arch=compute_90a", "-DARCH=sm_90"]);
        assert_eq!(new(&["--gpu-architecture=sm_75"]).unwrap(), ["--gpu-architecture=compute_75"]);
        assert_eq!(new(&["--gpu-architecture", "sm_100f", "-G"]).unwrap(), ["--gpu-architecture", "compute_100f", "-G"]);
        for options in [&["-arch=compute_90"][..], &[], &["-D", "sm_90"], &["-arch=sm_90", "-dlto"], &["--arch"]] {
            assert_eq!(new(options), None, "{options:?}");
        }
    }

    #[test]
    fn a_link_is_for_the_last_architecture() {
        assert_eq!(capability(&list(&["-arch=sm_80", "-lto", "-arch=sm_90a"])), Some(90));
        assert_eq!((capability(&list(&["-arch=compute_90"])), capability(&list(&["-lto"]))), (None, None));
        assert_eq!(for_linked_ptx(&list(&["-lto", "-arch=sm_90", "-O3"])), list(&["-arch=sm_90", "-O3", "-lto", "-ptx"]));
        assert_eq!(most_registers(&list(&["-maxrregcount=64", "--maxrregcount=38", "-arch=sm_90"])), Some(38));
        assert_eq!((most_registers(&list(&["-maxrregcount=0"])), most_registers(&list(&["-maxrregcount=x"])), most_registers(&[])), (None, None, None));
        assert!(leaves_no_cubin(&list(&["-lto", "-ptx"])) && !leaves_no_cubin(&list(&["-lto"])));
    }
}
