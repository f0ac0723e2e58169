//! Whether a program finds our library, by the same search as the dynamic linker's, as far as that
//! can be seen from outside.

use super::{Finding, Outcome};
use crate::device::DeviceName;
use crate::library::{self, LIBRARY, VARIABLE};
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _};
use object::{Endianness, elf};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The path of our library, and whether it comes first in this shell.
pub fn library_findings() -> Vec<Finding> {
    let ours = match library::folder() {
        Ok(folder) => folder,
        Err(error) => return vec![Finding::problem("library", format!("{error:#}"), "cumux install --prefix DIR puts both in place")],
    };
    let found = Finding::ok("library", ours.join(LIBRARY).display().to_string());
    vec![found, search_path(std::env::var(VARIABLE).ok().as_deref(), &ours)]
}

fn search_path(variable: Option<&str>, ours: &Path) -> Finding {
    let check = "library path";
    let remedy = format!("use cumux run -- CMD, or export {VARIABLE}={}", ours.display());
    let first = variable.unwrap_or("").split(':').filter(|part| !part.is_empty()).map(|part| Path::new(part).join(LIBRARY)).find(|file| file.exists());
    match first {
        Some(file) if library::is_ours(&file) => Finding::ok(check, format!("{} comes first", file.display())),
        Some(file) => Finding::warning(check, format!("{} comes first and is not ours: programs started from here are not served", file.display()), remedy),
        None => Finding::warning(check, format!("{VARIABLE} has no {LIBRARY}: programs started from here, without cumux run, are not served"), remedy),
    }
}

/// What is wrong with one program, and whether its device code will run on these devices.
pub fn findings(program: &Path, devices: &[DeviceName]) -> Vec<Finding> {
    let check = "program";
    let Some(path) = resolve(program) else {
        return vec![Finding::problem(check, format!("{} is not found", program.display()), "give its path, or a name that is in PATH")];
    };
    let shown = path.display().to_string();
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return vec![Finding::problem(check, format!("{shown} is no regular file"), "give the path of a program")];
    }
    let (metadata, bytes) = match path.metadata().and_then(|metadata| Ok((metadata, fs::read(&path)?))) {
        Ok(both) => both,
        Err(error) => return vec![Finding::problem(check, format!("{shown} cannot be read: {error}"), "let this user read it")],
    };
    let mut findings = Vec::new();
    if metadata.permissions().mode() & 0o6000 != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
        findings.push(Finding::problem(
            check,
            format!("{shown} changes its user or group when started (setuid): the linker ignores {VARIABLE}"),
            format!("start it as its owner, or put the folder of {LIBRARY} into /etc/ld.so.conf.d"),
        ));
    }
    if let Some(interpreter) = script_interpreter(&bytes) {
        findings.push(Finding::ok(check, format!("{shown} is a script of {interpreter}: what it starts is served as long as it keeps {VARIABLE}")));
        return findings;
    }
    if let Some(format) = super::images::bare(&bytes) {
        findings.push(Finding::ok(check, format!("{shown} is no program: it is device code that a program can load ({format})")));
        findings.extend(devices.iter().filter_map(|device| super::images::bare_findings(&path, &bytes, device)));
        return findings;
    }
    let form = elf(&shown, &bytes);
    let is_program = form.outcome != Outcome::Problem;
    findings.push(form);
    if is_program {
        findings.extend(devices.iter().flat_map(|device| super::images::findings(&path, device)));
    }
    findings
}

fn elf(shown: &str, bytes: &[u8]) -> Finding {
    let check = "program";
    let Ok(file) = ElfFile64::<Endianness>::parse(bytes) else {
        return Finding::problem(check, format!("{shown} is no 64-bit ELF program"), "CUDA programs of this service are 64-bit Linux programs");
    };
    let endian = file.endian();
    let headers = file.elf_program_headers();
    if !headers.iter().any(|header| header.p_type(endian) == elf::PT_INTERP) {
        return Finding::problem(
            check,
            format!("{shown} is linked statically: it loads no library by path"),
            "link it dynamically (the CUDA runtime itself may be static)",
        );
    }
    let dynamic = headers.iter().find_map(|header| header.dynamic(endian, bytes).ok().flatten()).unwrap_or(&[]);
    let has = |tag: elf::DynamicTag| dynamic.iter().any(|entry| entry.tag(endian) == tag);
    if has(elf::DT_RPATH) && !has(elf::DT_RUNPATH) {
        return Finding::warning(
            check,
            format!("{shown} carries an RPATH, which comes before {VARIABLE}"),
            format!("if a {LIBRARY} lies there: patchelf --remove-rpath, or link with --enable-new-dtags"),
        );
    }
    Finding::ok(check, format!("{shown} is linked dynamically"))
}

fn script_interpreter(bytes: &[u8]) -> Option<String> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}

fn resolve(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 || program.exists() {
        return program.exists().then(|| program.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_read() {
        let found = findings(Path::new("/dev/zero"), &[crate::device::software()]);
        assert!(matches!(&found[..], [one] if one.outcome != Outcome::Ok && one.found.contains("no regular file")), "{found:?}");
    }

    #[test]
    fn this_test_is_dynamic_and_text_is_no_program() {
        let own = std::env::current_exe().unwrap();
        let device = [crate::device::software()];
        let found = findings(&own, &device);
        assert!(found.iter().all(|finding| finding.outcome == Outcome::Ok), "{found:?}");
        assert!(found.last().unwrap().found.contains("carries none"), "{found:?}");
        assert_eq!(elf("x", b"no program").outcome, Outcome::Problem);
        assert_eq!(findings(Path::new("/no/such/program"), &device)[0].outcome, Outcome::Problem);
        assert_eq!(script_interpreter(b"#!/bin/sh -e\nexit").as_deref(), Some("/bin/sh -e"));
    }

    #[test]
    fn a_foreign_library_in_front_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LIBRARY), "somebody else's").unwrap();
        let finding = search_path(folder.path().to_str(), Path::new("/ours"));
        assert_eq!(finding.outcome, Outcome::Warning);
        assert!(finding.remedy.contains("/ours"));
        fs::write(folder.path().join(LIBRARY), "… cumux-shim …").unwrap();
        assert_eq!(search_path(folder.path().to_str(), Path::new("/ours")).outcome, Outcome::Ok);
        assert_eq!(search_path(None, Path::new("/ours")).outcome, Outcome::Warning);
    }
}
