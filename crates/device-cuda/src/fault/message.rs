//! What the driver prints on its standard error, line by line. Pure.
//!
//! With core dumps on, the driver announces a fault of the card there, before any of its calls
//! reports one (`docs/decisions/0112`). It also prints failed assertions there.

/// The driver begins to handle a fault. From now on, completed work proves nothing about its
/// client.
const DUMP_BEGINS: &str = "coredump: Starting GPU coredump generation";
/// The core dump is written.
const DUMP_ENDS: &str = "coredump: All done";
/// Words that every line about a core dump has.
const DUMP: &str = "] coredump:";
/// The type of an exception that a multiprocessor has found.
const EXCEPTION: &str = "Detected an exception of type ";
/// The first line of a kernel's stack: its function.
const STACK: &str = "#0\t";

/// What this crate says in the driver's place when it sees that the driver begins to look at a
/// fault.
pub(crate) const FAULT_NOTICED: &str = "cumux: the driver looks at a fault";

/// True if the driver begins to handle a fault with these bytes.
pub(crate) fn announces_fault(printed: &[u8]) -> bool {
    printed.windows(DUMP_BEGINS.len()).any(|bytes| bytes == DUMP_BEGINS.as_bytes())
}

/// What one line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DriverMessage {
    /// The driver begins to look at a fault: it announces it soon.
    FaultNoticed,
    /// The driver has noticed a fault and begins to write a core dump.
    FaultBegins,
    /// An exception of this type, in the words of the debugger's interface.
    Exception(String),
    /// The function in which an exception occurred.
    Function(String),
    /// The core dump is written.
    DumpWritten,
    /// A kernel's assertion has failed; the line without its end.
    Assertion(String),
    /// A line about the core dump that says nothing new.
    Progress,
    /// Anything else.
    Other(String),
}

/// Reads one line, with or without its end.
pub(crate) fn read_line(line: &str) -> DriverMessage {
    let line = line.trim_end_matches(['\n', '\r']);
    if line == FAULT_NOTICED {
        DriverMessage::FaultNoticed
    } else if line.contains(DUMP_BEGINS) {
        DriverMessage::FaultBegins
    } else if line.contains(DUMP_ENDS) {
        DriverMessage::DumpWritten
    } else if let Some((_, kind)) = line.split_once(EXCEPTION) {
        DriverMessage::Exception(kind.trim().to_owned())
    } else if let Some(function) = line.split_once(STACK).and_then(|(_, frame)| frame.split_once('\t')) {
        DriverMessage::Function(function.1.trim().to_owned())
    } else if line.contains(DUMP) || line.trim().is_empty() {
        DriverMessage::Progress
    } else if line.contains("Assertion `") && line.ends_with("failed.") {
        DriverMessage::Assertion(line.to_owned())
    } else {
        DriverMessage::Other(line.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_driver_580_are_read() {
        assert_eq!(read_line("[06:00:14.868100] coredump: Starting GPU coredump generation\n"), DriverMessage::FaultBegins);
        assert!(announces_fault(b"[06:00:14.868100] coredump: Starting GPU coredump generation\n") && !announces_fault(b"coredump: Sta"));
        assert_eq!(read_line("[06:00:14.868151] coredump: SM 1/132 has finished state collection"), DriverMessage::Progress);
        assert_eq!(
            read_line("[06:00:14.869022] coredump: Detected an exception of type CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS (14)"),
            DriverMessage::Exception("CUDBG_EXCEPTION_WARP_ILLEGAL_ADDRESS (14)".into())
        );
        assert_eq!(read_line("[06:00:22.711274] coredump:   #0\t0x7fbe037a1e90\tk_misaligned"), DriverMessage::Function("k_misaligned".into()));
        assert_eq!(read_line("[06:00:26.656613] coredump:   #1\t0x0\t[Unknown]"), DriverMessage::Progress);
        assert_eq!(read_line("[06:00:14.870440] coredump: All done (took 00s)"), DriverMessage::DumpWritten);
        let assertion = "kern.cu:9: void k_assert(int): block: [0,0,0], thread: [0,0,0] Assertion `x==0` failed.";
        assert_eq!(read_line(&format!("{assertion}\n")), DriverMessage::Assertion(assertion.into()));
        assert_eq!(read_line(&format!("{FAULT_NOTICED}\n")), DriverMessage::FaultNoticed);
        assert_eq!(read_line(""), DriverMessage::Progress);
        assert_eq!(read_line("something else"), DriverMessage::Other("something else".into()));
    }
}
