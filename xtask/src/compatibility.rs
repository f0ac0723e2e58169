//! `cargo xtask compatibility`: writes COMPATIBILITY.md from `crates/abi/surface/surface.txt`, the
//! list that the shim itself is built from.

use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = "crates/abi/surface/surface.txt";
const SESSION: &str = "tests/replay/session-580.txt";
const PAGE: &str = "COMPATIBILITY.md";

const HEAD: &str = "# Compatibility

Made by `cargo xtask compatibility` from `crates/abi/surface/surface.txt`, the list that `libcuda.so.1` is built from, and from
`tests/replay/session-580.txt`, a session with NVIDIA's control daemon. Do not edit.

The surface is that of NVIDIA's driver 580 (CUDA 13.0): every name it exports is exported, and `cuGetProcAddress` answers every name, flag
and version as it does. What is refused returns `CUDA_ERROR_NOT_SUPPORTED` (801), and its reason is told once on the program's standard error under
`cumux run` or with `CUMUX_VERBOSE=1` (`CUMUX_LOG` writes it into a log). Programs that are not served (no daemon, or `CUDA_MPS_PIPE_DIRECTORY` empty) reach the real driver directly and are not concerned.

- **served**: carried out by the executor, in the client's order
- **local**: answered inside the client, without a round trip
- **but not**: what of a function is refused
- **refused**: not supported

That every function answers as it stands here is tested: each is called in a served program, and each part that is refused (`stories::programs`); which
ones wait for the executor is read from the sources (`listed` of `crates/shim`). It is tested on a software GPU. On a real card arrays, texture
and surface objects are the driver's: it has what of `cuTexObjectCreate` is refused here, and they end with their executor (decision 0125). Kernels that say how a graph goes on (`cudaGraphSetConditional`) need PTX there: machine code says it to NVIDIA's driver alone, and such a kernel is refused once the program has made a condition (decision 0130).
Managed memory is pinned host memory there, so `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS` is 0, and atomics of host and card at the same time lose sums behind PCIe.

**Which of them programs ask for** is in their logs (`CUMUX_LOG`: \"is not supported\"). CuPy's and Numba's programs of `tests/programs` and 22 of
NVIDIA's samples, from `clock` to `vectorAdd`, asked for none (`CUMUX_LOG=FILE cumux run --device sim:h200 -- PROGRAM`, 2026-11-25). `tests/gpu/programs.py` lists what Python programs on a card ask for:
of the 300 in `docs/programs-on-a-card.md` one of PyCUDA's asked for texture references in PTX of its own (`cuModuleGetTexRef`), and three of PyTorch's, which then go on without, for memory that other nodes could reach (`cuMemCreate`).

Old names of a function and its forms for per-thread default streams (`_ptsz`, `_ptds`) are answered like the function; they are counted and
not listed.
";

/// Writes the page anew.
pub fn run() -> Result<()> {
    let root = repository_root()?;
    let page = page(&root)?;
    fs::write(root.join(PAGE), page).with_context(|| format!("cannot write {PAGE}"))
}

/// Fails when the committed page differs from what the list gives.
pub fn check() -> Result<()> {
    let root = repository_root()?;
    let committed = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    ensure!(committed == page(&root)?, "{PAGE} is out of date; run `cargo xtask compatibility`");
    Ok(())
}

fn repository_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask has no parent folder")?.to_path_buf())
}

fn page(root: &Path) -> Result<String> {
    let list = fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let session = fs::read_to_string(root.join(SESSION)).with_context(|| format!("cannot read {SESSION}"))?;
    Ok(render(&list)? + &commands(&session)?)
}

/// The section on commands: where our answers differ from the recorded ones, and why. The story
/// `replay` keeps it true.
fn commands(session: &str) -> Result<String> {
    let mut rows = String::new();
    let (mut asked, mut command, mut recorded, mut ours) = (0, "", Vec::new(), None::<Vec<&str>>);
    for (number, line) in session.lines().enumerate() {
        if let Some(input) = line.strip_prefix(">>> ") {
            (command, recorded, ours) = (input, Vec::new(), None);
            asked += 1;
        } else if let Some(also) = line.strip_prefix("also: ") {
            let [theirs, ours, why] = also.split(" | ").collect::<Vec<_>>()[..] else { bail!("{SESSION}:{}: expected three parts", number + 1) };
            writeln!(rows, "| | {theirs} | {ours} | {why} |")?;
        } else if line == "differs:" {
            ours = Some(Vec::new());
        } else if let Some(why) = line.strip_prefix("because: ") {
            let ours = ours.take().with_context(|| format!("{SESSION}:{}: no answer of ours before the reason", number + 1))?;
            writeln!(rows, "| `{command}` | `{}` | `{}` | {why} |", recorded.join(" "), ours.join(" "))?;
        } else if let Some(ours) = ours.as_mut() {
            ours.push(line);
        } else if !line.starts_with(['#', '!', '[']) {
            recorded.push(line);
        }
    }
    Ok(format!(
        "\n# Commands, files and logs\n\nThe {asked} commands of a session that was recorded from driver 580 are put to our daemon again by the story `replay`, output and exit status for \
         output and exit status. This is all that differs; the first column is empty for what no command shows.\n\n\
         | command | NVIDIA's daemon | cumux | why |\n|---|---|---|---|\n{rows}"
    ))
}

/// How a name is answered, after aliases and variants were resolved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Served,
    Local,
    Refused,
}

struct Line<'a> {
    name: &'a str,
    answer: &'a str,
    third: &'a str,
    why: String,
}

fn render(list: &str) -> Result<String> {
    let mut sections: Vec<(&str, Vec<Line<'_>>)> = Vec::new();
    for (number, text) in list.lines().enumerate() {
        if let Some(title) = text.strip_prefix("## ") {
            sections.push((title, Vec::new()));
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let [name, answer, third, ref why @ ..] = words[..] else {
            bail!("{LIST}:{}: expected a name, an answer and a third word", number + 1);
        };
        let section = sections.last_mut().with_context(|| format!("{LIST}:{}: a name before any section", number + 1))?;
        if matches!(answer, "served" | "local" | "always") && !why.is_empty() && !why.starts_with(&["but", "not"]) {
            bail!("{LIST}:{}: behind the module of {name} stands neither nothing nor `but not …`", number + 1);
        }
        section.1.push(Line { name, answer, third, why: why.join(" ") });
    }
    let by_name: HashMap<&str, &Line<'_>> = sections.iter().flat_map(|(_, lines)| lines).map(|line| (line.name, line)).collect();

    let mut summary = String::from("\n| area | served | local | refused |\n|---|---:|---:|---:|\n");
    let mut details = String::new();
    let mut totals = [0; 3];
    let mut variables = 0;
    for (title, lines) in &sections {
        let mut counts = [0; 3];
        let mut named: [Vec<&Line<'_>>; 3] = Default::default();
        for line in lines {
            let Some(answer) = resolve(&by_name, line.name)? else {
                variables += 1;
                continue;
            };
            counts[answer as usize] += 1;
            if !matches!(line.answer, "alias" | "variant") {
                named[answer as usize].push(line);
            }
        }
        if counts == [0; 3] {
            continue;
        }
        writeln!(summary, "| {title} | {} | {} | {} |", counts[0], counts[1], counts[2])?;
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
        section(&mut details, title, &named)?;
    }
    writeln!(summary, "| **all functions** | **{}** | **{}** | **{}** |", totals[0], totals[1], totals[2])?;
    writeln!(summary, "\nThe {variables} exported variables of the debugger interface exist and stay zero.")?;
    Ok(format!("{HEAD}{summary}{details}"))
}

fn section(text: &mut String, title: &str, named: &[Vec<&Line<'_>>; 3]) -> Result<()> {
    writeln!(text, "\n## {title}\n")?;
    for (word, lines) in ["served", "local"].iter().zip(named) {
        for (but, names) in by_reason(lines) {
            match but {
                "" => writeln!(text, "- {word}: {names}")?,
                but => writeln!(text, "- {word}, {but}: {names}")?,
            }
        }
    }
    for (why, names) in by_reason(&named[Answer::Refused as usize]) {
        writeln!(text, "- refused ({why}): {names}")?;
    }
    Ok(())
}

/// Groups names with the same text behind them, in the order of their first; the group without text
/// comes first.
fn by_reason<'a>(lines: &[&'a Line<'_>]) -> Vec<(&'a str, String)> {
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for line in lines.iter().filter(|line| line.why.is_empty()).chain(lines.iter().filter(|line| !line.why.is_empty())) {
        match reasons.iter_mut().find(|(why, _)| *why == line.why) {
            Some((_, names)) => names.push_str(&format!(", `{}`", line.name)),
            None => reasons.push((&line.why, format!("`{}`", line.name))),
        }
    }
    reasons
}

/// `None` for a variable.
fn resolve(by_name: &HashMap<&str, &Line<'_>>, name: &str) -> Result<Option<Answer>> {
    let line = by_name.get(name).with_context(|| format!("{name} is not in {LIST}"))?;
    Ok(match line.answer {
        "served" => Some(Answer::Served),
        "local" | "always" => Some(Answer::Local),
        "refused" => Some(Answer::Refused),
        "data" => None,
        "alias" | "variant" => resolve(by_name, line.third)?,
        other => bail!("{name}: unknown answer {other:?} in {LIST}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "# head
## Things
cuThing_v2 served thing
cuThing alias cuThing_v2
cuThing_v2_ptsz variant cuThing_v2
cuOther refused thing not yet
cuPart served thing but not on Sundays
cuFar served thing
## Words
cudbgWord data 8
";

    #[test]
    fn aliases_and_variants_count_and_are_not_listed() {
        let page = render(SAMPLE).expect("the sample is well formed");
        assert!(page.contains("| Things | 5 | 0 | 1 |"), "{page}");
        assert!(page.contains("- served: `cuThing_v2`, `cuFar`\n- served, but not on Sundays: `cuPart`\n- refused (not yet): `cuOther`\n"), "{page}");
        assert!(!page.contains("## Words"), "{page}");
        assert!(page.contains("The 1 exported variables"), "{page}");
    }

    #[test]
    fn differences_become_a_table() {
        let session = "# head\nalso: a | b | c\n>>> x 1\nsame\n[rc=0]\n>>> y\none\ntwo\n[rc=0]\ndiffers:\nthree\nbecause: of it\n";
        let page = commands(session).expect("well formed");
        assert!(page.contains("The 2 commands") && page.contains("| | a | b | c |\n| `y` | `one two` | `three` | of it |\n"), "{page}");
        assert!(commands("also: a | b\n").is_err() && commands(">>> x\nbecause: z\n").is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = render("## Things\ncuThing served\n").expect_err("a word is missing");
        assert!(error.to_string().contains(":2:"), "{error}");
        assert!(render("## Things\ncuThing alias cuNobody\n").is_err());
        assert!(render("## Things\ncuThing served thing sometimes\n").is_err());
    }
}
