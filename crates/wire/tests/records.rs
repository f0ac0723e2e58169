//! Records: what is encoded decodes to the same, and nothing a stranger writes decodes to something
//! impossible.

use cumux_wire::layout::{ANSWERS, EVENTS, STREAMS};
use cumux_wire::record::{
    ARRAY_FLAGS, ArrayWish, CopyEnd, CopyExtent, DecodeError, HEADER_BYTES, Header, Launch, MAX_BYTES, MAX_PARAMETERS, NO_ANSWER, NO_STREAM, ObjectWish, Op,
    Resource, TextureWish, ViewWish, decode, encode, encode_launch, length, pad,
};
use proptest::prelude::*;

/// Formats of arrays: bytes, halves and singles.
const FORMATS: [u32; 3] = [1, 0x10, 0x20];

fn array() -> impl Strategy<Value = ArrayWish> {
    let size = [1_u64..1 << 18, 0..1 << 18, 0..1 << 18];
    (size, 0_usize..3, 0_u32..3, any::<u32>(), 0_u32..17).prop_map(|(size, format, channels, flags, levels)| ArrayWish {
        size,
        format: FORMATS[format],
        channels: 1 << channels,
        flags: flags & ARRAY_FLAGS,
        levels,
    })
}

fn end_in_array() -> impl Strategy<Value = CopyEnd> {
    (1_u32.., any::<u32>(), any::<[u64; 3]>()).prop_map(|(array, level, at)| CopyEnd::Array { array, level, at })
}

fn end() -> impl Strategy<Value = CopyEnd> {
    let memory = (0_u64..1 << 40).prop_map(|address| CopyEnd::Memory { address, pitch: 8192, slice: 1 << 20 });
    prop_oneof![memory, end_in_array()]
}

fn resource() -> impl Strategy<Value = Resource> {
    prop_oneof![
        any::<[u32; 2]>().prop_map(|[array, level]| Resource::Array { array, level }),
        any::<u32>().prop_map(|array| Resource::Mipmapped { array }),
        any::<([u64; 2], [u32; 2])>().prop_map(|([address, bytes], [format, channels])| Resource::Linear { address, format, channels, bytes }),
        any::<(u64, [u32; 2], [u64; 3])>().prop_map(|(address, [format, channels], size)| Resource::Pitched { address, format, channels, size }),
    ]
}

fn object() -> impl Strategy<Value = ObjectWish> {
    let texture =
        any::<([u32; 3], [u32; 5], [u32; 2], [u32; 4])>().prop_map(|(address, [filter, level_filter, flags, anisotropy, level_bias], levels, border)| {
            TextureWish { address, filter, level_filter, flags, anisotropy, level_bias, levels, border }
        });
    let view = any::<(u32, [u32; 4], [u64; 3])>().prop_map(|(format, ranges, size)| ViewWish { format, ranges, size });
    (resource(), proptest::option::of(texture), proptest::option::of(view)).prop_map(|(resource, texture, view)| ObjectWish { resource, texture, view })
}

fn op() -> impl Strategy<Value = Op> {
    let word = any::<u32>();
    let long = 0_u64..1 << 40;
    let stream = 0..STREAMS as u32;
    let launch = (word, word, [1_u32..65536, 1..65536, 1..65536], [1_u32..8, 1..8, 1..8], any::<bool>(), proptest::collection::vec(any::<u8>(), 0..4096));
    prop_oneof![
        (stream.clone(), word, any::<i32>(), word).prop_map(|(index, device, priority, partition)| Op::StreamCreate { index, device, priority, partition }),
        (1_u32..99, word, 1_u32..999).prop_map(|(partition, device, multiprocessors)| Op::PartitionOpen { partition, device, multiprocessors }),
        word.prop_map(|partition| Op::PartitionClose { partition }),
        (word, long.clone(), long.clone()).prop_map(|(device, address, bytes)| Op::Charge { device, address, bytes }),
        long.clone().prop_map(|address| Op::Refund { address }),
        stream.clone().prop_map(|index| Op::StreamDestroy { index }),
        (word, word, long.clone(), long.clone(), long.clone(), long.clone())
            .prop_map(|(module, device, image, image_bytes, info, info_bytes)| Op::ModuleLoad { module, device, image, image_bytes, info, info_bytes }),
        word.prop_map(|module| Op::ModuleUnload { module }),
        (word, word, word, any::<i32>()).prop_map(|(module, function, attribute, value)| Op::FunctionSet { module, function, attribute, value }),
        (word, long.clone(), 0_u32..30).prop_map(|(device, bytes, shift)| Op::MemAlloc { device, bytes, align: 1 << shift }),
        long.clone().prop_map(|address| Op::MemFree { address }),
        word.prop_map(|device| Op::MemInfo { device }),
        (long.clone(), 12_u32..30, long.clone()).prop_map(|(bytes, shift, fixed)| Op::VmmReserve { bytes, align: 1 << shift, fixed }),
        (long.clone(), long.clone()).prop_map(|(address, bytes)| Op::VmmUnreserve { address, bytes }),
        (word, word, long.clone()).prop_map(|(handle, device, bytes)| Op::VmmCreate { handle, device, bytes }),
        word.prop_map(|handle| Op::VmmRelease { handle }),
        (long.clone(), long.clone(), word, long.clone()).prop_map(|(address, bytes, handle, offset)| Op::VmmMap { address, bytes, handle, offset }),
        (long.clone(), long.clone()).prop_map(|(address, bytes)| Op::VmmUnmap { address, bytes }),
        (long.clone(), long.clone(), 0_u32..4).prop_map(|(address, bytes, access)| Op::VmmAccess { address, bytes, access }),
        (1_u32..99, word, [long.clone(), long.clone(), long.clone(), 1_u64..99]).prop_map(|(partition, device, positions)| Op::PartitionPlace {
            partition,
            device,
            positions
        }),
        (word, word, 0_u32..2).prop_map(|(device, peer, on)| Op::PeerAccess { device, peer, on }),
        (long.clone(), long.clone(), word, 0_u32..4).prop_map(|(address, bytes, device, access)| Op::VmmPeerAccess { address, bytes, device, access }),
        (long.clone(), long.clone(), long.clone()).prop_map(|(user, window, bytes)| Op::HostRegister { user, window, bytes }),
        long.clone().prop_map(|user| Op::HostUnregister { user }),
        (word, long.clone()).prop_map(|(limit, value)| Op::LimitSet { limit, value }),
        (long.clone(), 0_u32..3).prop_map(|(address, kind)| Op::Lend { address, kind }),
        (any::<[u64; 2]>(), 0_u32..3).prop_map(|(token, kind)| Op::Borrow { token, kind }),
        long.clone().prop_map(|address| Op::Return { address }),
        word.prop_map(|handle| Op::VmmLend { handle }),
        (word, any::<[u64; 2]>()).prop_map(|(handle, token)| Op::VmmBorrow { handle, token }),
        (long.clone(), 0_u32..3).prop_map(|(address, action)| Op::EventCell { address, action }),
        Just(Op::Reset),
        (long.clone(), long.clone()).prop_map(|(address, bytes)| Op::WindowUse { address, bytes }),
        launch.prop_map(|(module, function, grid, block, cooperative, parameters)| {
            Op::Launch(Launch { module, function, grid, block, cluster: [0; 3], shared: 48, cooperative, parameters: parameters.into() })
        }),
        (long.clone(), long.clone(), 1_u64..5000, 1_u64..50, 1_u64..9).prop_map(|(target, source, width, height, depth)| Op::Copy {
            target,
            target_pitch: 8192,
            target_slice: 1 << 20,
            source,
            source_pitch: 5000,
            source_slice: 1 << 19,
            extent: CopyExtent { width, height, depth },
        }),
        (long.clone(), word, 0_u32..3, long.clone()).prop_map(|(target, value, shift, width)| Op::Set {
            target,
            value,
            element: 1 << shift,
            width,
            height: 1,
            pitch: 0
        }),
        (any::<bool>(), end_in_array(), end(), 1_u64..5000, 1_u64..50, 1_u64..9).prop_map(|(turned, array, other, width, height, depth)| {
            let (target, source) = if turned { (array, other) } else { (other, array) };
            Op::ArrayCopy { target, source, extent: CopyExtent { width, height, depth } }
        }),
        (word, 1_u32.., array()).prop_map(|(device, array, wish)| Op::ArrayCreate { device, array, wish }),
        word.prop_map(|array| Op::ArrayDestroy { array }),
        (word, object()).prop_map(|(device, wish)| Op::ObjectCreate { device, wish }),
        (word, any::<u64>()).prop_map(|(device, handle)| Op::ObjectDestroy { device, handle }),
        (0..EVENTS as u32).prop_map(|event| Op::EventTime { event }),
        (stream, any::<u64>()).prop_map(|(stream, seq)| Op::Wait { stream, seq }),
        Just(Op::HostCall),
        (long.clone(), any::<u64>()).prop_map(|(address, value)| Op::ValueWrite { address: address & !7, value, bytes: 8 }),
        (long.clone(), any::<u64>(), 0_u32..4).prop_map(|(address, value, condition)| Op::ValueWait { address: address & !3, value, bytes: 4, condition }),
        long.prop_map(|address| Op::FreeInStream { address }),
        Just(Op::Nop),
    ]
}

fn header(op: &Op, stream: u32, answer: u32) -> Header {
    Header { stream: if op.in_stream() { stream } else { NO_STREAM }, answer, seq: 7, request: 9 }
}

proptest! {
    #[test]
    fn a_launch_by_itself_is_the_same_record(op in op().prop_filter("a launch", |op| matches!(op, Op::Launch(_))), seq in any::<u64>()) {
        let Op::Launch(launch) = &op else { unreachable!("filtered") };
        let header = Header { stream: 3, answer: NO_ANSWER, seq, request: 0 };
        let (mut wrapped, parameters) = (Vec::new(), &launch.parameters);
        encode(&header, &op, &mut wrapped);
        // Whatever was encoded there before.
        for mut bare in [Vec::new(), vec![1; 40], vec![0xFF; MAX_BYTES]] {
            let length = encode_launch(&header, &launch.into(), parameters.len(), |out| out.copy_from_slice(parameters), &mut bare);
            prop_assert_eq!(&wrapped, &bare[..length]);
        }
    }

    #[test]
    fn every_record_comes_back(op in op(), stream in 0..STREAMS as u32, answer in prop_oneof![Just(NO_ANSWER), 0..ANSWERS as u32]) {
        let header = header(&op, stream, answer);
        let mut bytes = Vec::new();
        encode(&header, &op, &mut bytes);
        prop_assert!(bytes.len().is_multiple_of(8) && bytes.len() <= MAX_BYTES);
        let first = bytes[..8].try_into().expect("eight bytes");
        prop_assert_eq!(length(first, bytes.len()), Ok((bytes.len(), false)));
        let record = decode(&bytes).expect("what was encoded decodes");
        prop_assert_eq!(record.header, header);
        prop_assert_eq!(record.op, op);
    }

    /// A lie in any byte is refused or becomes another possible record; it never panics and never
    /// yields what the checks promise to exclude.
    #[test]
    fn a_lie_in_any_byte_stays_harmless(op in op(), lies in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encode(&header(&op, 3, 1), &op, &mut bytes);
        for (at, value) in lies {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for candidate in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(record) = decode(candidate) {
                prop_assert!(record.header.answer == NO_ANSWER || (record.header.answer as usize) < ANSWERS);
                prop_assert_eq!(record.op.in_stream(), record.header.stream != NO_STREAM);
                match record.op {
                    Op::Launch(launch) => {
                        prop_assert!(launch.parameters.len() <= MAX_PARAMETERS);
                        prop_assert!(launch.block.iter().map(|d| u64::from(*d)).product::<u64>() <= 1024);
                        prop_assert!(!launch.grid.contains(&0));
                    }
                    Op::Wait { stream, .. } => prop_assert!((stream as usize) < STREAMS),
                    Op::Set { element, .. } => prop_assert!(matches!(element, 1 | 2 | 4)),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn noise_is_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        if let Some(first) = bytes.first_chunk::<8>()
            && let Ok((claimed, _)) = length(*first, bytes.len())
        {
            prop_assert!(claimed >= 8 && claimed <= bytes.len());
        }
    }
}

#[test]
fn impossible_fields_are_named() {
    let mut bytes = Vec::new();
    let launch = Launch { grid: [1; 3], block: [1025, 1, 1], ..Launch::default() };
    encode(&Header { stream: 0, answer: NO_ANSWER, seq: 1, request: 0 }, &Op::Launch(launch), &mut bytes);
    assert_eq!(decode(&bytes), Err(DecodeError::Field("launch dimensions")));
    bytes.clear();
    let copy = Op::linear_copy(u64::MAX - 3, 0, 8);
    encode(&Header { stream: 0, answer: NO_ANSWER, seq: 1, request: 0 }, &copy, &mut bytes);
    assert_eq!(decode(&bytes), Err(DecodeError::Field("copy extent")));
}

/// The error says at which byte the field would have ended that is not there.
#[test]
fn a_record_that_ends_within_its_fields_is_too_short() {
    let mut bytes = Vec::new();
    let op = Op::Wait { stream: 5, seq: 9 };
    encode(&Header { stream: 0, answer: NO_ANSWER, seq: 1, request: 0 }, &op, &mut bytes);
    let whole = bytes.len();
    bytes.truncate(whole - 8);
    bytes[..4].copy_from_slice(&(whole as u32 - 8).to_le_bytes());
    let refused = decode(&bytes).unwrap_err();
    assert_eq!(refused, DecodeError::Short { bytes: whole - 8, needed: HEADER_BYTES + 4 + 8 });
    assert_eq!(refused.to_string(), format!("a record of {} bytes ends before byte {}, where a field of its operation ends", whole - 8, HEADER_BYTES + 12));
}

/// A pad is what an encoded pad begins with, and its length is read back.
#[test]
fn a_pad_is_recognised() {
    let mut encoded = Vec::new();
    encode(&Header { stream: NO_STREAM, answer: NO_ANSWER, seq: 0, request: 0 }, &Op::Pad, &mut encoded);
    assert_eq!(pad(encoded.len() as u32)[..], encoded[..8]);
    assert_eq!(length(pad(8), 64), Ok((8, true)));
    assert!(length(pad(72), 64).is_err() && length(pad(12), 64).is_err());
}
