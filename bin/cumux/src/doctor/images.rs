//! What of a program's device code will run: its own images and those of the libraries it is linked with, judged as the device would judge them.
//!
//! Device code that a program gets when it runs (from a compiler in it, from a file, from a library that it opens itself) is not seen here.

use super::Finding;
use crate::device::DeviceName;
use crate::library::{LIBRARY, VARIABLE};
use cumux_fatbin::{Image, ImageKind, Relocatable, best_compiled, best_ptx, images, sections};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache, ReadRef, elf};
use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const CHECK: &str = "device code";
/// Where linked code lies, and code that is to be linked yet.
const LINKED: &str = ".nv_fatbin";
const PARTS: &str = "__nv_relfatbin";
/// Images of one file that are judged: libraries can have thousands.
const MOST: usize = 512;
/// Files that are opened for one program.
const MOST_FILES: usize = 512;
const ADVICE: &str = "build it with PTX that every device takes: nvcc -gencode arch=compute_75,code=compute_75";

/// What of the program at `path` runs on a device.
pub fn findings(path: &Path, device: &DeviceName) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for file in files(path) {
        match fs::read(&file).map_err(|error| error.to_string()).and_then(|bytes| judge_file(&file, &bytes, device)) {
            Ok(findings) => found.extend(findings),
            Err(error) => found.push(Finding::warning(CHECK, format!("{}: {error}", file.display()), "let this user read it, or give it anew")),
        }
    }
    if found.is_empty() {
        found.push(Finding::ok(
            CHECK,
            format!("{} carries none, nor do the libraries it is linked with: what it gets when it runs is not seen here", path.display()),
        ));
    }
    found
}

// ---- which files

/// The program and the libraries it is linked with that have device code.
fn files(program: &Path) -> Vec<PathBuf> {
    let paths = std::env::var(VARIABLE).unwrap_or_default();
    let searched: Vec<PathBuf> = paths.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut todo = VecDeque::from([(program.to_owned(), Vec::new())]);
    while let Some((path, inherited)) = todo.pop_front() {
        let path = path.canonicalize().unwrap_or(path);
        if seen.len() >= MOST_FILES || !seen.insert(path.clone()) {
            continue;
        }
        let Some(links) = Links::of(&path) else { continue };
        // An RPATH holds for what the library links itself, too; a RUNPATH does not.
        let rpath: Vec<PathBuf> = if links.runpath.is_empty() { links.rpath.iter().chain(&inherited).cloned().collect() } else { Vec::new() };
        let order = || rpath.iter().chain(&searched).chain(&links.runpath).cloned().chain(system_folders());
        for name in links.needed.iter().filter(|name| *name != LIBRARY) {
            if let Some(library) = order().map(|folder| folder.join(name)).find(|path| path.is_file()) {
                todo.push_back((library, rpath.clone()));
            }
        }
        if links.has_device_code {
            found.push(path);
        }
    }
    found
}

/// Where the dynamic linker looks without being told, and what a distribution tells it.
fn system_folders() -> impl Iterator<Item = PathBuf> {
    let known = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    let mut configured = Vec::new();
    let files = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.chain([PathBuf::from("/etc/ld.so.conf")]) {
        let text = fs::read_to_string(file).unwrap_or_default();
        configured.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    configured.into_iter().chain(known)
}

/// What a file wants from the dynamic linker.
struct Links {
    needed: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
    has_device_code: bool,
}

impl Links {
    /// `None` for what is no 64-bit ELF file. Reads its tables only: libraries can be larger than the memory.
    fn of(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let (endian, data) = (file.endian(), &cache);
        let sections = file.elf_header().sections(endian, data).ok()?;
        let has_device_code =
            sections.iter().any(|section| sections.section_name(endian, section).is_ok_and(|name| [LINKED, PARTS].map(str::as_bytes).contains(&name)));
        let mut links = Self { needed: Vec::new(), rpath: Vec::new(), runpath: Vec::new(), has_device_code };
        let dynamic = file.elf_program_headers().iter().find_map(|header| header.dynamic(endian, data).ok().flatten()).unwrap_or(&[]);
        let strings = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_DYNAMIC).and_then(|section| {
            let table = sections.section(section.link(endian)).ok()?;
            let (offset, bytes) = table.file_range(endian)?;
            data.read_bytes_at(offset, bytes).ok()
        });
        let text = |at: u64| {
            let rest = strings?.get(usize::try_from(at).ok()?..)?;
            Some(String::from_utf8_lossy(rest.split(|byte| *byte == 0).next()?).into_owned())
        };
        let origin = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let folders = |list: String| -> Vec<PathBuf> {
            let expanded = list.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin);
            expanded.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect()
        };
        for entry in dynamic {
            match entry.tag(endian) {
                elf::DT_NEEDED => links.needed.extend(text(entry.val(endian))),
                elf::DT_RPATH => links.rpath.extend(text(entry.val(endian)).map(folders).unwrap_or_default()),
                elf::DT_RUNPATH => links.runpath.extend(text(entry.val(endian)).map(folders).unwrap_or_default()),
                _ => {}
            }
        }
        Some(links)
    }
}

// ---- what is in them

fn judge_file(path: &Path, bytes: &[u8], device: &DeviceName) -> Result<Vec<Finding>, String> {
    let shown = path.display();
    let all = sections(bytes).map_err(|error| error.to_string())?;
    let of = |name: &str| all.iter().filter(|section| section.name == name).flat_map(|section| containers(section.data)).collect::<Vec<_>>();
    let (linked, parts) = (of(LINKED), of(PARTS));
    let mut findings = Vec::new();
    let relocatable = Relocatable::of(&linked.concat(), &parts);
    if let Some(relocatable) = &relocatable {
        findings.push(judge_relocatable(&shown.to_string(), relocatable, &linked, device));
    }
    let mut tally = Tally::default();
    // What was linked out of the parts is spoken of already.
    for container in linked.iter().filter(|_| relocatable.is_none()).take(MOST) {
        tally.add(container, device);
    }
    tally.left_out = linked.len().saturating_sub(MOST);
    findings.extend(tally.finding(&shown.to_string(), device));
    Ok(findings)
}

/// Each container of a section; what is damaged ends the list, and is judged as what it is.
fn containers(mut section: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !section.is_empty() {
        let length = match cumux_fatbin::total_len(section) {
            Ok(cumux_fatbin::Length::Known(length)) => usize::try_from(length).unwrap_or(usize::MAX).min(section.len()),
            _ => section.len(),
        };
        let (container, rest) = section.split_at(length.max(1));
        found.push(container);
        section = &rest[rest.iter().take_while(|byte| **byte == 0).count()..];
    }
    found
}

fn judge_relocatable(shown: &str, relocatable: &Relocatable, linked: &[&[u8]], device: &DeviceName) -> Finding {
    let runs = capability(device).is_some_and(|card| {
        let known: Vec<Image<'_>> = linked.iter().flat_map(|container| images(container).unwrap_or_default()).collect();
        matches!(device, DeviceName::Cuda(_)) && best_compiled(&known, card).is_some()
    });
    if runs {
        return Finding::ok(CHECK, format!("{shown}: built with nvcc -rdc=true, linked for {}", relocatable.linked.join(", ")));
    }
    Finding::problem(CHECK, format!("{shown}: {}", relocatable.why()), relocatable.remedy())
}

/// Compute capability of a device, where it is known.
fn capability(device: &DeviceName) -> Option<u32> {
    let facts = crate::processes::facts(&device.to_string()).into_iter().next()?;
    u32::try_from(facts.attribute(75) * 10 + facts.attribute(76)).ok()
}

/// The images of one file, taken together.
#[derive(Default)]
struct Tally {
    /// As the compiler's options name them, `compute_75` for PTX, with the version of PTX.
    architectures: BTreeSet<String>,
    kernels: usize,
    /// Kernels and why they will not run.
    refused: Vec<String>,
    /// Images that cannot be loaded, and why.
    unloadable: Vec<String>,
    loadable: usize,
    left_out: usize,
}

impl Tally {
    fn add(&mut self, container: &[u8], device: &DeviceName) {
        let known = match images(container) {
            Ok(known) => known,
            Err(error) => return self.unloadable.push(error.to_string()),
        };
        if !known.iter().any(has_code) {
            // What the compiler's own linker leaves in every program.
            return;
        }
        for image in &known {
            self.architectures.insert(match image.kind {
                ImageKind::Ptx => format!("PTX {}.{} for compute_{}", image.version.0, image.version.1, image.arch),
                ImageKind::Elf => format!("machine code for sm_{}", image.arch),
                ImageKind::Other(kind) => format!("an image of type {kind}"),
            });
        }
        match device {
            DeviceName::Sim(_) => match cumux_device_sim::judge_kernels(&device.to_string(), container) {
                Ok(kernels) => {
                    self.loadable += 1;
                    self.kernels += kernels.len();
                    self.refused.extend(kernels.into_iter().filter_map(|kernel| Some(format!("kernel {}: {}", kernel.name, kernel.refused?))));
                }
                Err(error) => self.unloadable.push(error.to_string()),
            },
            // What its instructions are is the driver's business.
            DeviceName::Cuda(_) => match capability(device) {
                Some(card) if best_compiled(&known, card).or(best_ptx(&known, card)).is_none() => {
                    self.unloadable.push(format!("nothing in it is for sm_{card}"))
                }
                _ => self.loadable += 1,
            },
        }
    }

    /// `None` where there is no code at all.
    fn finding(mut self, shown: &str, device: &DeviceName) -> Option<Finding> {
        if self.loadable == 0 && self.unloadable.is_empty() {
            return None;
        }
        let has = self.architectures.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        self.unloadable.sort();
        self.unloadable.dedup();
        let more = if self.left_out == 0 { String::new() } else { format!("; {} more images were not looked at", self.left_out) };
        let details: Vec<String> = self.unloadable.iter().map(|why| format!("not loaded: {why}")).chain(self.refused.iter().cloned()).collect();
        let runs = self.kernels - self.refused.len();
        let kernels = match (device, self.refused.len(), runs) {
            (DeviceName::Cuda(_), ..) => "images".to_owned(),
            (_, 0, 1) => "1 kernel".to_owned(),
            (_, 0, _) => format!("{runs} kernels"),
            (_, _, _) => format!("{runs} of {} kernels", self.kernels),
        };
        let finding = match (self.loadable, self.unloadable.len(), self.refused.len()) {
            (0, _, _) => Finding::problem(CHECK, format!("{shown}: nothing of it runs on {device} (there is {has}{more})"), ADVICE),
            (_, 0, 0) => Finding::ok(CHECK, format!("{shown}: {kernels} for {device} ({has}{more})")),
            (_, 0, _) if runs == 0 => Finding::problem(
                CHECK,
                format!("{shown}: no kernel of it runs on {device} ({has}{more})"),
                "launches of these kernels are refused; use a real card, or other kernels",
            ),
            (_, 0, _) => Finding::warning(
                CHECK,
                format!("{shown}: {kernels} run on {device} ({has}{more})"),
                "launches of the others are refused with CUDA_ERROR_NOT_SUPPORTED; everything else goes on",
            ),
            _ => Finding::warning(CHECK, format!("{shown}: {kernels} run on {device}, and not all images can be loaded ({has}{more})"), ADVICE),
        };
        Some(finding.with(details))
    }
}

/// Whether there is anything to run in an image. The compiler's linker leaves machine code without a function in programs that have nothing to link.
fn has_code(image: &Image<'_>) -> bool {
    if image.kind != ImageKind::Elf {
        return true;
    }
    let Ok(bytes) = image.bytes(1 << 30) else { return true };
    let Ok(file) = elf::FileHeader64::<Endianness>::parse(&*bytes) else { return true };
    let named = file.endian().and_then(|endian| {
        let sections = file.sections(endian, &*bytes)?;
        Ok(sections.iter().any(|section| sections.section_name(endian, section).is_ok_and(|name| name.starts_with(b".text"))))
    });
    named.unwrap_or(true)
}
