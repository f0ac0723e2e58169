//! Any bytes are a record that keeps the promises of `decode`, or an error.
#![no_main]

use cumux_wire::layout::{ANSWERS, STREAMS};
use cumux_wire::record::{MAX_PARAMETERS, NO_ANSWER, NO_STREAM, Op, decode, encode, length};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(first) = data.first_chunk::<8>()
        && let Ok((claimed, _)) = length(*first, data.len())
    {
        assert!(claimed >= 8 && claimed <= data.len());
    }
    let Ok(record) = decode(data) else { return };
    assert!(record.header.answer == NO_ANSWER || (record.header.answer as usize) < ANSWERS);
    assert_eq!(record.op.in_stream(), record.header.stream != NO_STREAM);
    match &record.op {
        Op::Launch(launch) => assert!(launch.parameters.len() <= MAX_PARAMETERS && !launch.grid.contains(&0)),
        Op::Wait { stream, .. } => assert!((*stream as usize) < STREAMS),
        _ => {}
    }
    // What was accepted says the same when it is written again.
    let mut bytes = Vec::new();
    encode(&record.header, &record.op, &mut bytes);
    assert_eq!(decode(&bytes).as_ref(), Ok(&record));
});
