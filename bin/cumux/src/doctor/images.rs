//! Whether a program's device code will run: its own images and those of the libraries it is linked
//! with, judged as the device would judge them.
//!
//! Device code that a program obtains while it runs (from a compiler in it, from a file, from a
//! library that it opens itself) is not seen here.

use super::Finding;
use crate::device::DeviceName;
use crate::library::{LIBRARY, VARIABLE};
use cumux_device_cuda::survey::{self, Seen};
use cumux_fatbin::{Format, Image, ImageKind, Relocatable, Unlinked, best_compiled, best_ptx, containers, images, link, pieces_of_parts, sections};
use cumux_wire::cuda::DeviceAttribute;
use cumux_wire::result::NO_BINARY_FOR_GPU;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache, ReadRef, elf};
use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const CHECK: &str = "device code";
/// The section of linked code, and that of code still to be linked.
const LINKED: &str = ".nv_fatbin";
const PARTS: &str = "__nv_relfatbin";
/// Images of one file that are judged: libraries can have thousands.
const MOST: usize = 512;
/// Files that are opened for one program.
const MOST_FILES: usize = 512;
const ADVICE: &str = "build it with PTX that every device takes: nvcc -gencode arch=compute_75,code=compute_75";

/// Judges the device code of the program at `path` for a device.
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

/// The format of a file that contains device code alone, for programs that load it while they run:
/// PTX text, a fatbin or a cubin. `None` for every other file.
pub fn bare(bytes: &[u8]) -> Option<Format> {
    let format = cumux_fatbin::identify(bytes).ok()?;
    let is_bare = match format {
        // Comments begin other texts, too.
        Format::Ptx => std::str::from_utf8(bytes).is_ok_and(|text| text.lines().any(|line| line.trim_start().starts_with(".version"))),
        Format::Container => true,
        // Programs of the host have no architecture of a GPU.
        Format::Elf => images(bytes).is_ok_and(|known| known.iter().any(|image| image.arch != 0)),
        Format::Wrapper => false,
    };
    is_bare.then_some(format)
}

/// Judges a file that contains device code alone, see [`bare`].
pub fn bare_findings(path: &Path, bytes: &[u8], device: &DeviceName) -> Option<Finding> {
    let mut tally = Tally::default();
    containers(bytes).into_iter().for_each(|container| tally.add(container, device));
    tally.finding(&path.display().to_string(), device)
}

// ---- Which files

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
        // An RPATH also applies to the library's own dependencies; a RUNPATH does not.
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

/// The dynamic linker's default folders, and those that a distribution adds.
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

/// What a file tells the dynamic linker.
struct Links {
    needed: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
    has_device_code: bool,
}

impl Links {
    /// `None` for what is no 64-bit ELF file. Reads its tables only: libraries can be larger than
    /// the memory.
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

// ---- Images in a file

fn judge_file(path: &Path, bytes: &[u8], device: &DeviceName) -> Result<Vec<Finding>, String> {
    let shown = path.display();
    let all = sections(bytes).map_err(|error| error.to_string())?;
    let of = |name: &str| all.iter().filter(|section| section.name == name).flat_map(|section| containers(section.data)).collect::<Vec<_>>();
    let parts = of(PARTS);
    // Code that the compiler has linked out of parts lies beside them: machine code, never PTX.
    let is_joined = |container: &&[u8]| !parts.is_empty() && images(container).is_ok_and(|known| known.iter().all(|image| image.kind != ImageKind::Ptx));
    let (joined, ordinary): (Vec<&[u8]>, Vec<&[u8]>) = of(LINKED).into_iter().partition(is_joined);
    let mut findings = Vec::new();
    if let Some(relocatable) = Relocatable::of(&joined.concat(), &parts) {
        findings.push(judge_relocatable(&shown.to_string(), &relocatable, &joined, &parts, device));
    }
    let mut tally = Tally { left_out: ordinary.len().saturating_sub(MOST), ..Tally::default() };
    ordinary.iter().take(MOST).for_each(|container| tally.add(container, device));
    findings.extend(tally.finding(&shown.to_string(), device));
    Ok(findings)
}

/// Judges code that is linked from parts when the program starts, where the compiler has linked
/// nothing for the device.
fn judge_relocatable(shown: &str, relocatable: &Relocatable, linked: &[&[u8]], parts: &[&[u8]], device: &DeviceName) -> Finding {
    let has = relocatable.linked.join(", ");
    let known: Vec<Image<'_>> = linked.iter().flat_map(|container| images(container).unwrap_or_default()).collect();
    let capability = match device {
        DeviceName::Cuda(ordinal) => match capability(*ordinal) {
            Some(card) if best_compiled(&known, card).is_some() => {
                return Finding::ok(CHECK, format!("{shown}: built with nvcc -rdc=true, linked for {has}"));
            }
            Some(card) => card,
            None => return unknown_card(shown, device, if relocatable.linked.is_empty() { "code to be linked" } else { &has }),
        },
        DeviceName::Sim(_) => match simulated_capability(device) {
            Ok(capability) => capability,
            Err(why) => return Finding::not_tested(CHECK, why),
        },
    };
    // As a program's `libcuda.so.1` does it.
    let cannot = |faults: Vec<String>| {
        let found = format!("{shown}: built with nvcc -rdc=true: its parts cannot be linked");
        Finding::problem(CHECK, found, "give the linker what is missing, or take out what is there twice").with(faults)
    };
    let text = match pieces_of_parts(parts, capability).map(|pieces| link(&pieces)) {
        Ok(Ok(text)) => text,
        Ok(Err(Unlinked::NoPtx(_))) => return Finding::problem(CHECK, format!("{shown}: {}", relocatable.why()), relocatable.remedy()),
        Ok(Err(Unlinked::NotPtx(faults) | Unlinked::Faults(faults))) => return cannot(faults.iter().map(|fault| one_line(fault)).collect()),
        Err(error) => return cannot(vec![error.to_string()]),
    };
    let mut tally = Tally::default();
    tally.add(text.as_bytes(), device);
    let parts = if relocatable.parts == 1 { "1 part".to_owned() } else { format!("{} parts", relocatable.parts) };
    let shown = format!("{shown}, built with nvcc -rdc=true and linked from {parts} when it starts");
    tally.finding(&shown, device).unwrap_or_else(|| Finding::ok(CHECK, format!("{shown}: no kernels")))
}

/// Compute capability of a software GPU.
fn simulated_capability(device: &DeviceName) -> Result<u32, String> {
    let facts = cumux_device_sim::facts(&device.to_string()).map_err(|error| error.to_string())?;
    let of = |attribute| u32::try_from(facts.attribute(attribute)).unwrap_or(0);
    Ok(of(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 + of(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
}

fn unknown_card(shown: &str, device: &DeviceName, has: &str) -> Finding {
    Finding::not_tested(CHECK, format!("{shown} has {has}: whether {device} takes that is not known here"))
}

/// Compute capability of a real card, where its driver says it.
fn capability(ordinal: u32) -> Option<u32> {
    static CARDS: OnceLock<Vec<Seen>> = OnceLock::new();
    let cards = CARDS.get_or_init(|| survey::cards().unwrap_or_default());
    cards.iter().find(|card| card.ordinal == ordinal).map(|card| card.capability).filter(|capability| *capability != 0)
}

/// The images of one file, taken together.
#[derive(Default)]
struct Tally {
    /// Named as in the compiler's options, `compute_75` for PTX, with the version of PTX.
    architectures: BTreeSet<String>,
    kernels: usize,
    /// Kernels and why they will not run.
    refused: Vec<String>,
    /// Images that cannot be loaded, and why.
    unloadable: Vec<String>,
    /// One of them could not be loaded on any device.
    is_damaged: bool,
    loadable: usize,
    left_out: usize,
}

impl Tally {
    fn add(&mut self, container: &[u8], device: &DeviceName) {
        let known = match images(container) {
            Ok(known) => known,
            Err(error) => {
                self.is_damaged = true;
                return self.unloadable.push(error.to_string());
            }
        };
        if !known.iter().any(Image::has_code) {
            // An empty image, which the compiler's own linker leaves in every program.
            return;
        }
        for image in &known {
            let architecture = image.architecture().unwrap_or_default();
            self.architectures.insert(match image.kind {
                // A text by itself has its version inside.
                ImageKind::Ptx if image.version == (0, 0) => format!("PTX for {architecture}"),
                ImageKind::Ptx => format!("PTX {}.{} for {architecture}", image.version.0, image.version.1),
                ImageKind::Elf => format!("machine code for {architecture}"),
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
                Err(error) => {
                    self.is_damaged |= error.result() != NO_BINARY_FOR_GPU;
                    self.unloadable.push(one_line(&error.to_string()));
                }
            },
            // Its instructions are the driver's business.
            DeviceName::Cuda(ordinal) => match capability(*ordinal) {
                Some(card) if best_compiled(&known, card).or(best_ptx(&known, card)).is_none() => {
                    self.unloadable.push(format!("nothing in it is for sm_{card}"))
                }
                _ => self.loadable += 1,
            },
        }
    }

    /// `None` if the file has no device code at all.
    fn finding(mut self, shown: &str, device: &DeviceName) -> Option<Finding> {
        if self.loadable == 0 && self.unloadable.is_empty() {
            return None;
        }
        let has = self.architectures.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if let DeviceName::Cuda(ordinal) = device
            && capability(*ordinal).is_none()
        {
            return Some(unknown_card(shown, device, &has));
        }
        self.unloadable.sort();
        self.unloadable.dedup();
        let more = if self.left_out == 0 { String::new() } else { format!("; {} more images were not looked at", self.left_out) };
        let details: Vec<String> = self.unloadable.iter().map(|why| format!("not loaded: {why}")).chain(self.refused.iter().cloned()).collect();
        let runs = self.kernels - self.refused.len();
        let kernels = match (device, self.refused.len(), runs) {
            (DeviceName::Cuda(_), ..) => "images".to_owned(),
            (_, 0, 0) => "no kernels".to_owned(),
            (_, 0, 1) => "1 kernel".to_owned(),
            (_, 0, _) => format!("{runs} kernels"),
            (_, _, _) => format!("{runs} of {} kernels", self.kernels),
        };
        // Other reasons are not mended by another architecture.
        let advice = if self.is_damaged { "give what is damaged or is no PTX anew, as nvcc makes it" } else { ADVICE };
        let finding = match (self.loadable, self.unloadable.len(), self.refused.len()) {
            (0, _, _) => Finding::problem(CHECK, format!("{shown}: nothing of it runs on {device} (there is {has}{more})"), advice),
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
            _ => Finding::warning(CHECK, format!("{shown}: {kernels} run on {device}, and not all images can be loaded ({has}{more})"), advice),
        };
        Some(finding.with(details))
    }
}

/// Joins the lines of a reason: some have the source line and a caret below it.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Outcome;

    fn container(payload: &[u8]) -> Vec<u8> {
        let mut all = cumux_fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
        all.extend([1, 0, 16, 0]);
        all.extend((payload.len() as u64).to_le_bytes());
        all.extend(payload);
        all
    }

    #[test]
    fn a_section_is_cut_into_its_containers_whatever_it_holds() {
        let (one, two) = (container(b""), container(&[7; 24]));
        let section = [&one[..], &[0; 8], &two, &[0; 24]].concat();
        assert_eq!(containers(&section), [&one[..], &two]);
        assert_eq!(containers(&two[..20]), [&two[..20]], "one that is cut off is judged as what it is");
        assert_eq!(containers(&[9; 100]), [&[9; 100]]);
        assert!(containers(b"").is_empty());
    }

    #[test]
    fn files_of_device_code_are_told_from_other_files() {
        let text = b"// made by nvcc\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
        assert_eq!(bare(text), Some(Format::Ptx));
        assert_eq!(bare(&container(b"")), Some(Format::Container));
        assert_eq!(bare(b"// a program\nint main() {}\n"), None);
        assert_eq!(bare(&fs::read(std::env::current_exe().unwrap()).unwrap()), None, "a program of the host");
        assert_eq!(bare(b"#!/bin/sh\n"), None);
        let judged = |id: &str| bare_findings(Path::new("k.ptx"), text, &DeviceName::Sim(id.into())).unwrap();
        assert_eq!(judged("h200").found, "k.ptx: 1 kernel for sim:h200 (PTX for compute_80)");
        assert_eq!((judged("t4").outcome, judged("t4").remedy.as_str()), (Outcome::Problem, ADVICE));
        let wrong = String::from_utf8_lossy(text).replace("ret;", "mov.u32 %a, %b;").into_bytes();
        let found = bare_findings(Path::new("k.ptx"), &wrong, &DeviceName::Sim("h200".into())).unwrap();
        assert!(found.outcome == Outcome::Problem && found.remedy.contains("as nvcc makes it"), "{found:?}");
        assert!(found.details[0].starts_with("not loaded: line 5, column ") && !found.details[0].contains('\n'), "{found:?}");
    }

    #[test]
    fn images_are_counted_and_the_worst_is_told() {
        let device = DeviceName::Sim("t4".into());
        let text = |target: &str, body: &str| format!(".version 8.0\n.target {target}\n.address_size 64\n.visible .entry k() {{ {body} ret; }}\n").into_bytes();
        let found = |texts: &[Vec<u8>]| {
            let mut tally = Tally::default();
            texts.iter().for_each(|text| tally.add(text, &device));
            tally.finding("p", &device)
        };
        assert_eq!(found(&[]), None);
        let good = text("sm_75", "");
        let refused = text("sm_75", ".reg .b32 %r<5>; vmad.u32.u32.u32 %r1, %r2, %r3, %r4;");
        let late = text("sm_90", "");
        let one = found(std::slice::from_ref(&good)).unwrap();
        assert!(one.outcome == Outcome::Ok && one.found.starts_with("p: 1 kernel for sim:t4"), "{one:?}");
        let some = found(&[good.clone(), refused.clone()]).unwrap();
        assert!(some.outcome == Outcome::Warning && some.found.contains("1 of 2 kernels") && some.details[0].contains("kernel k: "), "{some:?}");
        let none = found(&[refused]).unwrap();
        assert!(none.outcome == Outcome::Problem && none.found.contains("no kernel of it runs"), "{none:?}");
        let part = found(&[good, late.clone(), b"rubbish".to_vec()]).unwrap();
        assert!(part.outcome == Outcome::Warning && part.details.len() == 2, "{part:?}");
        assert_eq!(found(&[late]).unwrap().outcome, Outcome::Problem);
        let exact = found(&[text("sm_100a", "")]).unwrap();
        assert!(exact.found.contains("for compute_100a)") && exact.details[0].contains("PTX for compute_100a only"), "{exact:?}");
    }
}
