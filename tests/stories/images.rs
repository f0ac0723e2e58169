//! Images that are broken: a clear error, and the program goes on.

use cumux_testkit::Node;

#[test]
fn broken_images_are_refused_with_reasons() {
    let node = Node::start();
    let said = node.test_client("images").start().expect_ok();
    let line = |what: &str| said.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no line about {what}:\n{said}")).to_owned();
    assert!(line("truncated fatbin").contains("CUDA_ERROR_INVALID_IMAGE"), "{said}");
    let syntax = line("syntax error");
    assert!(syntax.contains("CUDA_ERROR_INVALID_PTX"), "{said}");
    // On a real card the driver's assembler says it, in its words.
    assert!(syntax.contains(if node.is_software() { "line 7, column 17" } else { "line 7" }), "the place is told: {syntax}");
    let unknown = line("unknown instruction");
    assert!(unknown.contains("frobnicate") && unknown.contains("line 6"), "{unknown}");
    assert!(!line("no image").contains("CUDA_SUCCESS"), "{said}");
    assert!(!line("empty").contains("CUDA_SUCCESS"), "{said}");
}
