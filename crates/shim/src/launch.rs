//! Launches: checked here, parameters gathered by the layout that loading returned, one record
//! pushed. No allocation on the way.

mod cache;
mod early;

pub use early::*;

use crate::callback::Work;
use crate::conditional;
use crate::connection::Connection;
use crate::connection::pipe::TimelineId;
use crate::ffi::{Try, error, forward, get, list};
use crate::function::{self, Function};
use crate::limits::{Config, Limits, check};
use crate::log::unsupported;
use crate::stream::Stream;
use crate::{callback, context, device, library, process};
use cache::{Key, Known};
use core::ffi::{c_uint, c_void};
use cumux_abi::{CUfunction, CUhostFn, CUlaunchAttributeID as Id, CUlaunchConfig, CUstream};
use cumux_wire::module::FunctionInfo;
use cumux_wire::record::{Launch, LaunchFields, MAX_PARAMETERS};
use std::sync::Arc;

/// Where the parameters are.
#[derive(Debug, Clone, Copy)]
enum Parameters {
    /// One pointer a parameter.
    Each(*mut *mut c_void),
    /// Already packed.
    Packed(*const u8, usize),
    /// The function has none.
    None,
}

/// Finds out how the program passes its parameters.
///
/// # Safety
/// Both pointers are what a C caller passed to a launch call.
unsafe fn parameters(info: &FunctionInfo, each: *mut *mut c_void, extra: *mut *mut c_void) -> Try<Parameters> {
    match (each.is_null(), extra.is_null()) {
        (false, true) => Ok(if info.parameters.is_empty() { Parameters::None } else { Parameters::Each(each) }),
        (true, false) => {
            // SAFETY: the caller vouches for the program's parameters, as this function's own
            // contract asks.
            unsafe { packed(extra) }
        }
        (true, true) if info.parameters.is_empty() => Ok(Parameters::None),
        _ => Err(error::INVALID_VALUE),
    }
}

/// Reads the list of `extra`: pairs of a name and a value, up to an end mark.
unsafe fn packed(extra: *mut *mut c_void) -> Try<Parameters> {
    const END: usize = 0;
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    let (mut buffer, mut bytes) = (core::ptr::null::<u8>(), None);
    for pair in 0..4 {
        match get!(extra.wrapping_add(pair * 2)).addr() {
            END => break,
            POINTER => buffer = get!(extra.wrapping_add(pair * 2 + 1)).cast_const().cast(),
            SIZE => bytes = Some(get!(get!(extra.wrapping_add(pair * 2 + 1)).cast::<usize>())),
            _ => return Err(error::INVALID_VALUE),
        }
    }
    let bytes = bytes.ok_or(error::INVALID_VALUE)?;
    if (buffer.is_null() && bytes != 0) || bytes > MAX_PARAMETERS {
        return Err(error::INVALID_VALUE);
    }
    let (buffer, bytes) = if buffer.is_null() { (core::ptr::dangling(), 0) } else { (buffer, bytes) };
    Ok(Parameters::Packed(buffer, bytes))
}

/// Copies a parameter. Most have four or eight bytes, for which a call would be the larger part.
///
/// # Safety
/// The program says that `source` points to as many bytes as `target` has.
unsafe fn copy_parameter(source: *const u8, target: &mut [u8]) {
    // SAFETY: the caller vouches for the bytes; the program's pointer may be aligned in any way.
    unsafe {
        match target.len() {
            4 => target.copy_from_slice(&source.cast::<[u8; 4]>().read_unaligned()),
            8 => target.copy_from_slice(&source.cast::<[u8; 8]>().read_unaligned()),
            bytes => core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), bytes),
        }
    }
}

/// Bytes of the parameter block of a launch.
fn block_bytes(info: &FunctionInfo, from: Parameters) -> usize {
    match from {
        Parameters::None => 0,
        // Of a parameter of 4 KiB, NCCL passes what it uses; the driver takes that.
        Parameters::Packed(_, bytes) => bytes.max(info.parameter_bytes as usize),
        Parameters::Each(_) => info.parameter_bytes as usize,
    }
}

/// Writes the parameter block, all of it: what the program does not pass is zero.
///
/// # Safety
/// `from` came from [`parameters`] with the same function, and `out` has [`block_bytes`].
unsafe fn gather(info: &FunctionInfo, from: Parameters, out: &mut [u8]) {
    match from {
        Parameters::None => {}
        Parameters::Packed(buffer, bytes) => {
            let (passed, rest) = out.split_at_mut(bytes);
            // SAFETY: the program says that its buffer is that long.
            passed.copy_from_slice(unsafe { core::slice::from_raw_parts(buffer, bytes) });
            rest.fill(0);
        }
        Parameters::Each(pointers) => {
            // Up to here, every byte is written.
            let mut end = 0;
            for (index, parameter) in info.parameters.iter().enumerate() {
                let (start, past) = (parameter.offset as usize, parameter.offset as usize + parameter.bytes as usize);
                if start > end
                    && let Some(gap) = out.get_mut(end..start)
                {
                    gap.fill(0);
                }
                let Some(target) = out.get_mut(start..past) else { continue };
                // SAFETY: the program passes one pointer a parameter, each to that many bytes.
                unsafe {
                    let source = pointers.add(index).read();
                    if source.is_null() {
                        target.fill(0);
                    } else {
                        copy_parameter(source.cast(), target);
                    }
                }
                end = end.max(past);
            }
            if end < out.len() {
                out[end..].fill(0);
            }
        }
    }
}

/// The parameter block as a value of its own.
///
/// # Safety
/// `from` came from [`parameters`] with the same function.
unsafe fn gathered(info: &FunctionInfo, from: Parameters) -> cumux_wire::record::Parameters {
    let mut block = cumux_wire::record::Parameters::from_elem(0, block_bytes(info, from));
    // SAFETY: the caller vouches for `from`, and the block has the bytes.
    unsafe { gather(info, from, &mut block) };
    block
}

/// Why a kernel is refused that only NVIDIA's driver would understand, once there are conditions.
const TELLS_DRIVER: &str = "its machine code says to NVIDIA's driver alone how a graph goes on (cudaGraphSetConditional), and there is no PTX of it that can be used: build the \
                            program with PTX for this card, too, as nvcc -arch=native does, and an nvcc that is no newer than the driver";

/// Whether the device runs the kernel at all, which it said when the module was loaded. Only this
/// launch is refused: nothing else of the program is wrong.
pub(crate) fn permitted(info: &FunctionInfo) -> Try {
    let why = if info.tells_driver && conditional::were_made() { Some(TELLS_DRIVER) } else { info.refused.as_deref() };
    match why {
        None => Ok(()),
        Some(why) => {
            crate::log::tell(format_args!("kernel {}: {why}; its launches are refused (CUDA_ERROR_NOT_SUPPORTED)", shortened(&info.name)));
            Err(error::NOT_SUPPORTED)
        }
    }
}

/// The launch with the cluster that it will have: what it asks for, or what the program has set on
/// the function. A cluster that the kernel names stays out of it, as the device knows that one.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CLUSTER_SIZE` for a cluster that the kernel, the function or the device does
/// not take.
fn with_cluster(function: &Function, config: &Config, limits: &Limits, multiprocessors: impl Fn() -> u32) -> Try<Config> {
    let set = function.required_cluster();
    let own = function.info.cluster;
    if config.cluster == [0; 3] && set == [0; 3] && own == [0; 3] {
        return Ok(*config);
    }
    let asked = if config.cluster == [0; 3] { set } else { config.cluster };
    if asked != [0; 3] && own != [0; 3] && asked != own {
        return Err(error::INVALID_CLUSTER_SIZE);
    }
    let cluster = if asked == [0; 3] { own } else { asked };
    let blocks = cluster.iter().fold(1_u32, |product, n| product.saturating_mul(*n));
    if limits.clusters && blocks > 1 {
        let threads = config.block.iter().fold(1_u32, |product, n| product.saturating_mul(*n));
        let room = limits.active_clusters(&*function.info, threads, config.shared, cluster, multiprocessors());
        if blocks > limits.largest_cluster(function.takes_larger_clusters()) || room == 0 {
            return Err(error::INVALID_CLUSTER_SIZE);
        }
    }
    Ok(Config { cluster: asked, ..*config })
}

/// Checks that a kernel of a graph can be launched with the clusters that it has now.
///
/// # Errors
/// As [`with_cluster`], and what [`check`] says.
pub(crate) fn check_cluster(function: &Function, launch: &Launch) -> Try {
    let session = process::enter()?;
    check_room(session, function, launch, context::multiprocessors(session))
}

/// Checks that a kernel of a graph can be launched on so many multiprocessors.
///
/// # Errors
/// As [`check_cluster`].
pub(crate) fn check_room(session: &Connection, function: &Function, launch: &Launch, multiprocessors: u32) -> Try {
    let Launch { grid, block, cluster, shared, cooperative, .. } = *launch;
    let limits = function::attributes::limits(session);
    let config = with_cluster(function, &Config { grid, block, cluster, shared, cooperative }, limits, || multiprocessors)?;
    check(&*function.info, function.max_dynamic(limits), limits, multiprocessors, &config)
}

/// The beginning of a name that is too long for a message.
fn shortened(name: &str) -> &str {
    name.char_indices().nth(200).map_or(name, |(end, _)| &name[..end])
}

/// Checks a launch that will be pushed later.
///
/// # Safety
/// The pointers are what a C caller passed as kernel parameters.
pub(crate) unsafe fn prepare(
    session: &'static Connection,
    function: &Function,
    config: &Config,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Try<Launch> {
    permitted(&function.info)?;
    let limits = function::attributes::limits(session);
    let config = &with_cluster(function, config, limits, || context::multiprocessors(session))?;
    check(&*function.info, function.max_dynamic(limits), limits, context::multiprocessors(session), config)?;
    // SAFETY: the caller vouches for the program's parameters, as this function's own contract
    // asks.
    unsafe {
        let from = parameters(&function.info, each, extra)?;
        Ok(whole(function, config, from))
    }
}

/// What a launch says beside its parameters.
fn fields(function: &Function, config: &Config) -> LaunchFields {
    let Config { grid, block, cluster, shared, cooperative } = *config;
    LaunchFields { module: function.origin.module, function: function.origin.index, grid, block, cluster, shared, cooperative }
}

/// Everything that a launch says.
///
/// # Safety
/// `from` came from [`parameters`] with the same function.
unsafe fn whole(function: &Function, config: &Config, from: Parameters) -> Launch {
    let LaunchFields { module, function: index, grid, block, cluster, shared, cooperative } = fields(function, config);
    // SAFETY: as this function's own contract asks.
    let parameters = unsafe { gathered(&function.info, from) };
    Launch { module, function: index, grid, block, cluster, shared, cooperative, parameters }
}

/// Pushes a checked launch.
///
/// # Safety
/// `from` came from [`parameters`] with the same function.
#[inline]
unsafe fn push(session: &Connection, timeline: TimelineId, fields: &LaunchFields, info: &FunctionInfo, from: Parameters) -> Try {
    // SAFETY: as this function's own contract asks, and the record has a place of that length.
    let gather = |out: &mut [u8]| unsafe { gather(info, from, out) };
    session.push_launch(timeline, fields, block_bytes(info, from), gather).map(drop)
}

/// Checks and pushes a launch, or takes it into a capture. One that only depends on what is noted
/// as a change can be known by its key next time.
///
/// # Safety
/// The pointers are what a C caller passed to a launch call.
unsafe fn launch(
    session: &'static Connection,
    key: Key,
    function: &Arc<Function>,
    config: &Config,
    stream: &Stream,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Try {
    if function.origin.context != stream.context {
        return Err(error::INVALID_HANDLE);
    }
    permitted(&function.info)?;
    let device = device::named(session, stream.device.cast_signed())?;
    let limits = &device.limits;
    let config = &with_cluster(function, config, limits, || context::multiprocessors_of(session, stream))?;
    // The setting is only needed by launches that use dynamic shared memory.
    let dynamic = if config.shared == 0 { 0 } else { function.max_dynamic(limits) };
    // What the launch may run on only matters to those that must fit on it.
    let multiprocessors = if config.cooperative { context::multiprocessors_of(session, stream) } else { 0 };
    check(&*function.info, dynamic, limits, multiprocessors, config)?;
    // SAFETY: the caller vouches for the program's parameters, as this function's own contract
    // asks.
    let from = unsafe { parameters(&function.info, each, extra)? };
    // SAFETY: found for this function just now.
    if crate::capture::capture_launch(stream, function, || unsafe { whole(function, config, from) })? {
        return Ok(());
    }
    let fields = fields(function, config);
    // The share that clusters and grid-wide barriers must fit on changes without notice.
    if config.cluster == [0; 3] && function.info.cluster == [0; 3] && !config.cooperative {
        cache::put(key, Known { session, timeline: stream.timeline, fields, limits, info: Arc::clone(&function.info) });
    }
    // SAFETY: found for this function just now.
    unsafe { push(session, stream.timeline, &fields, &function.info, from) }
}

/// A launch whose function and stream this thread has used together before; `None` where it must
/// be looked at in full.
///
/// # Safety
/// The pointers are what a C caller passed to a launch call.
unsafe fn again(known: &mut Known, config: &Config, each: *mut *mut c_void, extra: *mut *mut c_void) -> Option<Try> {
    if !known.takes(config) {
        return None;
    }
    let done = || {
        known.session.health()?;
        // SAFETY: the caller vouches for the program's parameters, as this function's own contract
        // asks.
        unsafe {
            let from = parameters(&known.info, each, extra)?;
            push(known.session, known.timeline, &known.fields, &known.info, from)
        }
    };
    Some(done())
}

/// The plain form.
unsafe fn plain(function: CUfunction, config: &Config, stream: CUstream, each: *mut *mut c_void, extra: *mut *mut c_void) -> Try {
    let key = Key::now(function, stream);
    // SAFETY: the caller vouches for the program's parameters, as this function's own contract
    // asks.
    let done = cache::with(&key, |known| unsafe { again(known, config, each, extra) });
    if let Some(done) = done {
        return done;
    }
    // SAFETY: as above.
    unsafe { full(key, function, config, stream, each, extra) }
}

/// [`plain`] where nothing is known.
#[cold]
#[inline(never)]
unsafe fn full(key: Key, function: CUfunction, config: &Config, stream: CUstream, each: *mut *mut c_void, extra: *mut *mut c_void) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    let function = library::find_function(session, function)?;
    // SAFETY: the caller vouches for the program's parameters, as this function's own contract
    // asks.
    unsafe { launch(session, key, &function, config, &stream, each, extra) }
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Try {
    let config = Config { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], cluster: [0; 3], shared, cooperative: false };
    forward!(plain(function, &config, stream, each, extra))
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuLaunchCooperativeKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    each: *mut *mut c_void,
) -> Try {
    let config = Config { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], cluster: [0; 3], shared, cooperative: true };
    forward!(plain(function, &config, stream, each, core::ptr::null_mut()))
}

/// Reads a launch configuration with its attributes.
///
/// # Safety
/// `config` is what a C caller passed.
pub(crate) unsafe fn read_config(config: *const CUlaunchConfig) -> Try<(Config, CUstream)> {
    let given = get!(config);
    let mut read = Config {
        grid: [given.gridDimX, given.gridDimY, given.gridDimZ],
        block: [given.blockDimX, given.blockDimY, given.blockDimZ],
        cluster: [0; 3],
        shared: given.sharedMemBytes,
        cooperative: false,
    };
    for attribute in list!(given.attrs.cast_const(), given.numAttrs as usize) {
        // SAFETY: the id says which member of the union is set.
        unsafe {
            match attribute.id {
                Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => read.cooperative = attribute.value.cooperative != 0,
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    let cluster = attribute.value.clusterDim;
                    read.cluster = [cluster.x, cluster.y, cluster.z];
                }
                // Hints, or orders that running later and one after the other satisfies.
                Id::CU_LAUNCH_ATTRIBUTE_IGNORE
                | Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
                | Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
                | Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
                | Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                | Id::CU_LAUNCH_ATTRIBUTE_PRIORITY
                | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
                | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
                | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
                | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {}
                other => return Err(unsupported(format!("launches with attribute {}", other.0))),
            }
        }
    }
    Ok((read, given.hStream))
}

pub unsafe fn cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, each: *mut *mut c_void, extra: *mut *mut c_void) -> Try {
    // SAFETY: an argument of an exported function; its C caller vouches for it.
    let (config, stream) = unsafe { read_config(config)? };
    forward!(plain(function, &config, stream, each, extra))
}

pub unsafe fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) -> Try {
    let session = process::enter()?;
    let function = function.ok_or(error::INVALID_VALUE)?;
    let stream = context::stream(session, stream)?;
    let work = Work::Host { function, data: data.expose_provenance() };
    if crate::capture::capture_host(&stream, work)? {
        return Ok(());
    }
    callback::push(session, stream.timeline, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::{null_mut, without_provenance_mut};
    use cumux_wire::module::Parameter;

    fn info() -> FunctionInfo {
        let parameters = vec![Parameter { offset: 0, bytes: 8 }, Parameter { offset: 8, bytes: 2 }, Parameter { offset: 12, bytes: 4 }];
        FunctionInfo { parameters, parameter_bytes: 16, ..FunctionInfo::default() }
    }

    #[test]
    fn who_tells_the_driver_is_refused_once_there_are_conditions() {
        let told = FunctionInfo { tells_driver: true, ..info() };
        assert!(permitted(&told).is_ok(), "no handle of ours is there");
        conditional::note_made();
        assert_eq!((permitted(&told).unwrap_err(), permitted(&info()).is_ok()), (error::NOT_SUPPORTED, true));
        let refused = FunctionInfo { refused: Some("why".into()), ..info() };
        assert_eq!(permitted(&refused).unwrap_err(), error::NOT_SUPPORTED);
    }

    #[test]
    fn parameters_land_at_their_offsets() {
        let (mut a, mut b, mut c) = (0x1122_3344_5566_7788_u64, 0xABCD_u16, 7_u32);
        let mut each: [*mut c_void; 3] = [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut c).cast()];
        let mut out = vec![0xFF; 16];
        // SAFETY: three pointers to the three values.
        unsafe {
            let from = parameters(&info(), each.as_mut_ptr(), null_mut()).unwrap();
            assert_eq!(block_bytes(&info(), from), out.len());
            gather(&info(), from, &mut out);
        }
        let mut expected = a.to_le_bytes().to_vec();
        expected.extend([0xCD, 0xAB, 0, 0, 7, 0, 0, 0]);
        assert_eq!(out.as_slice(), expected);
    }

    #[test]
    fn packed_parameters_are_taken_whole_and_what_is_not_passed_is_zero() {
        let buffer: Vec<u8> = (0..16).collect();
        let ask = |mut size: usize| {
            let pointer = buffer.as_ptr().cast_mut().cast::<c_void>();
            let mut extra: [*mut c_void; 5] = [without_provenance_mut(1), pointer, without_provenance_mut(2), (&raw mut size).cast(), null_mut()];
            // SAFETY: a list as the manual describes it.
            unsafe { parameters(&info(), null_mut(), extra.as_mut_ptr()).map(|from| gathered(&info(), from)) }
        };
        assert_eq!(ask(16), Ok(buffer.clone().into()));
        let mut shorter = buffer.clone();
        shorter[15] = 0;
        assert_eq!(ask(15), Ok(shorter.into()));
        assert_eq!(ask(0), Ok(vec![0; 16].into()));
        assert_eq!(ask(1 << 20), Err(error::INVALID_VALUE));
        let mut unknown: [*mut c_void; 1] = [without_provenance_mut(9)];
        // SAFETY: a list with an unknown name.
        assert!(unsafe { parameters(&info(), null_mut(), unknown.as_mut_ptr()) }.is_err());
    }

    #[test]
    fn parameters_must_come_exactly_one_way() {
        let mut something = null_mut();
        // SAFETY: nothing is read through these.
        unsafe {
            assert!(parameters(&info(), null_mut(), null_mut()).is_err());
            assert!(parameters(&info(), &raw mut something, &raw mut something).is_err());
            assert!(matches!(parameters(&FunctionInfo::default(), null_mut(), null_mut()), Ok(Parameters::None)));
        }
    }
}
