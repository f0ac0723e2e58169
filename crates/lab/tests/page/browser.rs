//! The page in a browser, where one is installed: no error, nothing wider than its window, light
//! and dark, on paper. One report is that of a lab on an H200, the other has all that a page has.

use cumux_lab::page;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the browser.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A phone, a tablet, a screen.
const WIDTHS: [u32; 3] = [360, 768, 1280];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|file| file.exists())
}

/// A page with the report at each width, which writes down what it finds there.
fn frame(report: &Path) -> String {
    let frames: String = WIDTHS.map(|width| format!("<iframe style=\"width:{width}px;height:800px;border:0\" src=\"{}\"></iframe>", report.display())).concat();
    // What may be wider scrolls by itself (class wide).
    let script = r#"
      onload = () => {
        const found = [...document.querySelectorAll('iframe')].map(frame => {
          const page = frame.contentDocument, root = page.documentElement, width = root.clientWidth;
          const wide = [...page.body.querySelectorAll('*')]
            .filter(it => !it.closest('svg') && !it.parentElement.closest('.wide') && it.getBoundingClientRect().right > width + 1);
          const plots = [...page.querySelectorAll('svg')].filter(it => it.getBoundingClientRect().height < 40).length;
          return `width=${width} overflow=${root.scrollWidth - width} wide=${wide.map(it => it.tagName).join(',')} flat=${plots} ` +
            `svg=${page.querySelectorAll('svg').length} paper=${getComputedStyle(page.body).backgroundColor}`;
        });
        document.body.innerHTML = '<pre>' + found.join('\n') + '</pre>';
      };"#;
    format!("<!doctype html><body>{frames}<script>{script}</script></body>")
}

fn run(browser: &Path, folder: &Path, words: &[&str]) -> (String, String) {
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=8000"]);
    let output = command.arg(format!("--user-data-dir={}", folder.join("profile").display())).args(words).output().expect("the browser starts");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_browser_shows_the_page_at_every_width_in_light_and_dark() {
    let Some(browser) = browser() else {
        println!("NOTE: no browser is installed: the page was not looked at");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    fs::create_dir_all(&folder).expect("a folder");
    let measured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results/lab/report.html").canonicalize().expect("a report");
    let whole = folder.join("whole.html");
    fs::write(&whole, page::html(&super::report("a name that is long enough to be a trouble", 1234.5))).expect("a file");
    for report in [measured, whole] {
        expect_to_be_shown(&browser, &folder, &report);
    }
}

fn expect_to_be_shown(browser: &Path, folder: &Path, report: &Path) {
    let page = folder.join("frame.html");
    fs::write(&page, frame(report)).expect("a file");
    let address = format!("file://{}", page.display());
    let mut papers = Vec::new();
    for scheme in ["1", "0"] {
        let (dom, said) = run(browser, folder, &[&format!("--blink-settings=preferredColorScheme={scheme}"), "--dump-dom", &address]);
        assert!(!said.contains("CONSOLE"), "{said}");
        let lines: Vec<&str> = dom.lines().filter_map(|line| Some(&line[line.find("width=")?..])).collect();
        assert_eq!(lines.len(), WIDTHS.len(), "{dom}");
        for line in &lines {
            assert!(line.contains(" overflow=0 ") && line.contains(" wide= ") && line.contains(" flat=0 ") && !line.contains("svg=0"), "{line}");
        }
        papers.push(lines[0].split("paper=").nth(1).unwrap_or_default().trim_end_matches("</pre>").to_owned());
    }
    assert_ne!(papers[0], papers[1], "light and dark");
    let paper = folder.join("report.pdf");
    run(browser, folder, &[&format!("--print-to-pdf={}", paper.display()), &format!("file://{}", report.display())]);
    assert!(fs::read(&paper).is_ok_and(|bytes| bytes.starts_with(b"%PDF")), "it prints");
}
