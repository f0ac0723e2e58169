//! Where the real driver lies. Always absolute paths and never a search: where clients run, a
//! search would find our own `libcuda.so.1`.

/// The environment variable that names the driver: an absolute path, which is then the only one.
pub const VARIABLE: &str = "CUMUX_REAL_LIBCUDA";

/// The dynamic linker's cache, for [`paths`].
pub const CACHE: &str = "/etc/ld.so.cache";

/// File name of the driver's library.
pub const NAME: &str = "libcuda.so.1";

/// The usual paths, tried after the dynamic linker's cache, in this order.
const USUAL: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
];

/// The paths worth trying, best first: what the dynamic linker's cache (the bytes of
/// `/etc/ld.so.cache`) holds for this processor, then the usual ones.
pub fn paths(cache: &[u8]) -> impl Iterator<Item = &[u8]> {
    let usual = USUAL.into_iter().map(str::as_bytes).filter(|path| !cached(cache).any(|known| known == *path));
    cached(cache).chain(usual)
}

/// Reads the cache. Its format (glibc 2.2 and later): magic `glibc-ld.so.cache1.1`, number of
/// entries, length of strings, 20 bytes, then entries of 24 bytes {flags, offset of name, offset of
/// path, version, capabilities}; offsets count from the magic. Any other format yields nothing.
fn cached(cache: &[u8]) -> impl Iterator<Item = &[u8]> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEAD: usize = 48;
    const ENTRY: usize = 24;
    const FLAGS: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };

    let start = cache.windows(MAGIC.len()).position(|window| window == MAGIC).unwrap_or(cache.len());
    let cache = &cache[start..];
    let word = |at: usize| Some(u32::from_ne_bytes(*cache.get(at..)?.first_chunk()?));
    let text = |at: usize| cache.get(at..)?.split(|byte| *byte == 0).next();
    let entry = move |index: usize| {
        let at = HEAD + index * ENTRY;
        if word(at)? != FLAGS || text(word(at + 4)? as usize)? != NAME.as_bytes() {
            return None;
        }
        text(word(at + 8)? as usize).filter(|path| path.starts_with(b"/"))
    };
    let count = word(MAGIC.len()).unwrap_or(0) as usize;
    (0..count.min(cache.len().saturating_sub(HEAD) / ENTRY)).filter_map(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const OURS: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };
    const OTHER: u32 = 0x0803;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = b"ld.so-1.7.0 and what is in it\0glibc-ld.so.cache1.1".to_vec();
        bytes.extend((entries.len() as u32).to_ne_bytes());
        bytes.extend([0; 24]);
        let (mut strings, base) = (Vec::new(), 48 + entries.len() * 24);
        for (flags, name, path) in entries {
            let mut place = |text: &str| {
                let at = (base + strings.len()) as u32;
                strings.extend(text.bytes().chain([0]));
                at
            };
            for word in [*flags, place(name), place(path), 0, 0, 0] {
                bytes.extend(word.to_ne_bytes());
            }
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn the_linkers_cache_comes_first_and_is_read_for_this_processor_only() {
        let whole = cache(&[
            (OTHER, NAME, "/usr/lib32/libcuda.so.1"),
            (OURS, "libcudart.so.13", "/opt/x"),
            (OURS, NAME, "not/absolute"),
            (OURS, NAME, "/usr/lib64/libcuda.so.1"),
        ]);
        assert_eq!(cached(&whole).collect::<Vec<_>>(), [b"/usr/lib64/libcuda.so.1"]);
        let all: Vec<&[u8]> = paths(&whole).collect();
        assert_eq!((all[0], all.len()), (&b"/usr/lib64/libcuda.so.1"[..], USUAL.len()), "no path twice");
        assert!(paths(&[]).all(|path| path.starts_with(b"/") && path.ends_with(NAME.as_bytes())));
    }

    #[test]
    fn a_broken_cache_gives_nothing_and_no_panic() {
        let whole = cache(&[(OURS, NAME, "/opt/driver/libcuda.so.1")]);
        let before = whole.len() - "/opt/driver/libcuda.so.1\0".len();
        for length in 0..=before {
            assert_eq!(cached(&whole[..length]).filter(|path| !path.is_empty()).count(), 0, "{length} bytes");
        }
        let (magic, mut lying) = (before - "libcuda.so.1\0".len() - 24 - 48, whole);
        lying[magic + 20..magic + 24].copy_from_slice(&u32::MAX.to_ne_bytes());
        lying[magic + 56..magic + 60].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(cached(&lying).count(), 0);
    }
}
