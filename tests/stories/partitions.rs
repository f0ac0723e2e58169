//! Static SM partitions and memory-locality partitions, from the control command to the
//! multiprocessor a block runs on.

use cumux_testkit::{Client, Node};
use std::collections::BTreeSet;
use std::process::Output;

const VARIABLE: &str = "CUDA_MPS_SM_PARTITION";

fn static_node() -> Node {
    let node = Node::start();
    // The same folder again, with -S.
    assert!(node.control_output("quit").status.success());
    start(&node, "-S");
    node
}

fn start(node: &Node, option: &str) {
    let output: Output = node.daemon_command().arg(option).output().expect("cumux starts");
    assert!(output.status.success(), "{output:?}");
}

fn uuid(node: &Node) -> String {
    let table = node.control("device_query --csv");
    table.lines().find_map(|line| line.split(',').find(|cell| cell.starts_with("GPU-"))).expect("a device").to_owned()
}

/// The `%smid`s and the count that a program sees.
fn ran(said: &str) -> (BTreeSet<u32>, usize) {
    let values = |word: &str| -> Vec<u32> {
        let line = said.lines().rfind(|line| line.split(' ').next() == Some(word)).unwrap_or_else(|| panic!("no {word} in {said}"));
        line.split(' ').skip(1).map(|value| value.parse().expect("a number")).collect()
    };
    (values("used").into_iter().collect(), values("multiprocessors")[0] as usize)
}

fn in_partition<'a>(node: &'a Node, partition: &str) -> Client<'a> {
    // Percentages mean nothing here, for the process and for its contexts.
    let client = node.test_client("shares").env(VARIABLE, partition).env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10");
    let client = client.env("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1").start();
    client.wait_for_line("ready 0");
    client
}

#[test]
fn clients_run_on_their_partition_and_nowhere_else() {
    let node = static_node();
    let uuid = uuid(&node);
    let add = |chunks: u32| node.control(&format!("sm_partition add {} {chunks}", &uuid[..12])).trim().to_owned();
    let (seven, nine) = (add(7), add(9));
    assert!(seven.starts_with(&format!("{uuid}/")) && seven.len() == 77, "{seven}");
    let more = node.control(&format!("sm_partition add {uuid} 1"));
    assert_eq!(more, "Failed to fulfill the requested SM partition of 1 chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n");
    // The first client: the four SMs that are no chunk go to the oldest partition.
    let (a, b) = (in_partition(&node, &seven), in_partition(&node, &nine));
    let again = in_partition(&node, &seven);
    let table = node.control("lspart");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[2], [&uuid[..12], "-", "0", "16", "0", "132", "-"], "{table}");
    assert_eq!((rows[3][3], rows[3][5], rows[3][6], rows[4][5], rows[4][6]), ("7", "60", "Yes", "72", "Yes"), "{table}");
    assert_eq!(node.control(&format!("sm_partition rm {seven}")), format!("Partition {seven} in use. Terminate all clients before removing.\n"));
    let ((a, seen_a), (b, seen_b), (again, _)) = (ran(&a.expect_ok()), ran(&b.expect_ok()), ran(&again.expect_ok()));
    assert_eq!((seen_a, a.len(), seen_b, b.len()), (60, 60, 72, 72));
    assert!(a.is_disjoint(&b) && again == a, "{a:?} {b:?} {again:?}");
    assert_eq!(node.control(&format!("sm_partition rm {}", seven.replace('/', " "))), format!("Partition {seven} removed\n"));
    assert_eq!(node.control(&format!("sm_partition rm {seven}")), format!("Partition {seven} not found\n"));
}

/// Nothing named, nonsense, two of one device: the document's error from the first call.
#[test]
fn a_client_without_its_partition_is_refused() {
    let node = static_node();
    let uuid = uuid(&node);
    let add = || node.control(&format!("sm_partition add {uuid} 2")).trim().to_owned();
    let (one, two) = (add(), add());
    for named in [None, Some("nonsense"), Some("GPU-00/x"), Some(&*format!("{uuid}/x")), Some(&*format!("{one},{two}"))] {
        let mut client = node.test_client("view");
        if let Some(named) = named {
            client = client.env(VARIABLE, named);
        }
        let outcome = client.start().wait();
        assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "count: cudaErrorInvalidResourceConfiguration"), "{named:?}: {outcome:?}");
    }
    let log = std::fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    assert!(log.contains("CUDA_MPS_SM_PARTITION is not set") && log.contains("two partitions of one device"), "{log}");
    // The beginning of the UUID is enough.
    let client = in_partition(&node, &one.replace(&uuid, &uuid[..10]));
    assert_eq!(ran(&client.expect_ok()).1, 16);
    assert!(node.control("start_server -uid 0 -mlopart").is_empty(), "-mlopart is ignored under -S");
    assert!(node.control("complaints").contains("without MLOPart devices"), "and the doctor says so");
}

/// A daemon that was killed: its successor knows partitions and who holds them; after quit nobody
/// does.
#[test]
fn partitions_outlive_a_killed_daemon() {
    let node = static_node();
    let uuid = uuid(&node);
    let name = node.control(&format!("sm_partition add {uuid} 3")).trim().to_owned();
    let client = in_partition(&node, &name);
    node.kill(node.daemon_pid());
    start(&node, "-S");
    assert!(node.control(&format!("sm_partition rm {name}")).contains("in use"));
    assert_eq!(ran(&client.expect_ok()).0.len(), 24);
    assert_eq!(node.control(&format!("sm_partition rm {name}")), format!("Partition {name} removed\n"));
    assert_eq!(node.control(&format!("sm_partition add {uuid} 3")).trim(), name, "the same again");
    assert!(node.control_output("quit").status.success());
    start(&node, "-S");
    assert_eq!(node.control("lspart").lines().count(), 3);
}

/// A server with memory-locality partitions: enumeration as in the document; elsewhere a clear
/// refusal.
#[test]
fn memory_locality_partitions() {
    let elsewhere = Node::start();
    let text = elsewhere.control("start_server -uid 0 -mlopart");
    assert!(text.contains("not available on NVIDIA H200") && text.contains("Blackwell"), "{text}");
    assert_eq!(elsewhere.control("get_server_list"), "");

    let node = Node::with().device("sim:b300").start();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(node.control(&format!("start_server -uid {uid} -mlopart")), "");
    let server = node.server().pid;
    let table = node.control(&format!("device_query {server} --csv"));
    let rows: Vec<Vec<&str>> = table.lines().skip(2).map(|line| line.split(',').collect()).collect();
    let whole = uuid(&node);
    assert_eq!((rows[0][0], rows[0][2], rows[0][3], rows[0][4]), ("N/A", whole.as_str(), "NVIDIA B300", "M"), "{table}");
    for (part, row) in rows[1..].iter().enumerate() {
        assert_eq!((row[0], row[3], row[4]), (part.to_string().as_str(), format!("NVIDIA B300 MLOPart {part}").as_str(), "MD"), "{table}");
        assert!(row[1] == rows[0][1] && row[2] != whole, "{table}");
    }
    assert!(node.control("device_query --csv").starts_with("Default\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n0,"), "the default is the whole GPU");
    let client = node.test_client("view").start();
    client.wait_for_line("ready");
    client.wait_for_line("name NVIDIA B300 MLOPart 0");
    client.wait_for_line("multiprocessors 74");
    let table = node.control("ps");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].contains(&rows[1][2][..22]) && !whole.starts_with(&rows[1][2][..22]), "its own device: {table}");
    let rows = lines;
    assert!(rows[0].trim_end().ends_with("ATTRIBUTES") && rows[1].trim_end().ends_with(" MD"), "{table}");
    client.expect_ok();
    let text = node.control(&format!("start_server -uid {uid} -mlopart"));
    assert_eq!(text, "", "it runs already");
}
