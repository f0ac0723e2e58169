//! CUDA arrays, mipmapped ones too.
//!
//! On a device that executes texture instructions itself ([`has_textures`]), an array is device
//! memory of the client, row after row, and the handle stands for its address and layout here. So
//! copies to and from arrays are copies of rectangles, and what lies in them outlives executors as
//! all memory does.
//!
//! A real card stores arrays in an order of its own, which only its driver knows
//! ([`makes_textures`]). There the executor makes the array, and the handle stands for a number by
//! which the executor knows it. Copies name that number.
//!
//! [`has_textures`]: cumux_wire::facts::Capabilities::has_textures
//! [`makes_textures`]: cumux_wire::facts::Capabilities::makes_textures

use crate::bands::{ArraySide, Side};
use crate::connection::Connection;
use crate::context::Context;
use crate::ffi::{Try, error, get, put};
use crate::handle::{Kind, Table};
use crate::log::{because, unsupported};
use crate::memory::{self, Sort};
use crate::{capture, context, device, process};
use core::ffi::c_uint;
use cumux_abi::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST, CUarray,
    CUdevice_attribute as Attribute, CUmipmappedArray,
};
use cumux_wire::record::{ARRAY_FLAGS, ArrayWish, CopyExtent, Op};
use cumux_wire::texture::{Channel, Level, MOST_LEVELS, Shape};
use std::sync::Arc;

/// Rows begin at multiples of this.
const ROW_ALIGN: u64 = 64;
/// Levels begin at multiples of this.
const LEVEL_ALIGN: u64 = 512;

/// Where an array lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the program's device memory, row after row.
    Memory(Level),
    /// Where the device's driver has put it. The number is the executor's.
    Driver {
        /// The array's number, one for all levels.
        number: u32,
        /// Its level.
        level: u32,
    },
}

/// An array, or a level of a mipmapped one.
#[derive(Debug)]
pub(crate) struct Array {
    /// The word that the program holds.
    handle: u64,
    context: u64,
    /// By the program's ordinals.
    pub device: u32,
    /// As the program described it.
    pub described: CUDA_ARRAY3D_DESCRIPTOR,
    /// A channel of a texel.
    pub channel: Channel,
    /// Where it lies.
    pub place: Place,
    /// True for a level: it ends with its mipmapped array.
    is_level: bool,
}

/// A mipmapped array.
#[derive(Debug)]
pub(crate) struct Mipmapped {
    context: u64,
    /// Its levels, the largest first.
    pub levels: Vec<Arc<Array>>,
}

static ARRAYS: Table<Array> = Table::new(Kind::Array);
static MIPMAPPED: Table<Mipmapped> = Table::new(Kind::MipmappedArray);

/// The array that a handle names.
pub(crate) fn find(handle: CUarray) -> Try<Arc<Array>> {
    ARRAYS.get(handle.addr() as u64).ok_or(error::INVALID_HANDLE)
}

/// The mipmapped array that a handle names.
pub(crate) fn find_mipmapped(handle: CUmipmappedArray) -> Try<Arc<Mipmapped>> {
    MIPMAPPED.get(handle.addr() as u64).ok_or(error::INVALID_HANDLE)
}

/// The arrays of a context end with it. Memory in which arrays lie is the context's.
pub(crate) fn end_context(session: &'static Connection, context: &Context) {
    for array in ARRAYS.remove_all(|array| array.context == context.id) {
        if let Place::Driver { number, level: 0 } = array.place {
            // A connection that has gone wrong has nothing to give back.
            let _ = session.control(&Op::ArrayDestroy { array: number });
        }
    }
    MIPMAPPED.remove_all(|mipmapped| mipmapped.context == context.id);
}

/// Who makes the arrays and objects of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// This library, in the program's memory.
    Library,
    /// The device's driver, in the executor.
    Driver,
}

/// Who makes the arrays and objects of a device.
///
/// # Errors
/// NOT_SUPPORTED where nobody does.
pub(crate) fn maker(session: &Connection, ordinal: u32) -> Try<Maker> {
    let device = device::all(session).get(ordinal as usize).ok_or(error::INVALID_DEVICE)?;
    match &device.facts.capabilities {
        capabilities if capabilities.has_textures => Ok(Maker::Library),
        capabilities if capabilities.makes_textures => Ok(Maker::Driver),
        _ => Err(unsupported("arrays, textures and surfaces on a device that has none")),
    }
}

impl Array {
    fn as_c(&self) -> CUarray {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// Bytes of a texel.
    pub fn texel(&self) -> u64 {
        u64::from(self.channel.bytes()) * u64::from(self.described.NumChannels)
    }

    fn has(&self, flag: c_uint) -> bool {
        self.described.Flags & flag != 0
    }

    /// True if surface objects of it can be made. Programs make them of levels, too, whose array
    /// was made without the flag: kernels that fill a level from the one before.
    pub fn is_surface(&self) -> bool {
        self.has(CUDA_ARRAY3D_SURFACE_LDST) || self.is_level
    }

    /// What a texture or surface shows of it.
    pub fn shape(&self) -> Shape {
        let CUDA_ARRAY3D_DESCRIPTOR { Height, Depth, .. } = self.described;
        match (self.has(CUDA_ARRAY3D_CUBEMAP), self.has(CUDA_ARRAY3D_LAYERED)) {
            (true, false) => Shape::Cube,
            (true, true) => Shape::Cubes,
            (false, true) if Height == 0 => Shape::Lines,
            (false, true) => Shape::Planes,
            (false, false) if Depth != 0 => Shape::Solid,
            (false, false) if Height != 0 => Shape::Plane,
            (false, false) => Shape::Line,
        }
    }

    /// Texels along x, y and z, and layers.
    pub fn size(&self) -> ([u32; 3], u32) {
        let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, .. } = self.described;
        let [width, height, depth] = [Width, Height, Depth].map(|n| n.max(1) as u32);
        if self.has(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) { ([width, height, 1], depth) } else { ([width, height, depth], 1) }
    }

    /// The box of a copy: its first byte of a row, first row and first slice or layer, and its
    /// extent.
    pub fn side(&self, [x, y, z]: [u64; 3], extent: CopyExtent) -> Try<Side> {
        let ([width, height, depth], layers) = self.size();
        let slices = u64::from(depth.max(layers));
        let texel = self.texel();
        let fits = |from: u64, count: u64, limit: u64| from.checked_add(count).is_some_and(|end| end <= limit);
        let inside = fits(x, extent.width, u64::from(width) * texel) && fits(y, extent.height, height.into()) && fits(z, extent.depth, slices);
        if !inside || !x.is_multiple_of(texel) || !extent.width.is_multiple_of(texel) {
            return Err(error::INVALID_VALUE);
        }
        let at = |address: u64, pitch: u64, slice: u64| Side::known(address + z * slice + y * pitch + x, pitch, slice);
        Ok(match self.place {
            Place::Memory(Level { address, pitch, slice }) => at(address, pitch, slice),
            Place::Driver { number, level } => {
                let (pitch, rows) = (u64::from(width) * texel, u64::from(height));
                let array = ArraySide { handle: self.handle, number, level, rows, device: self.device, context: self.context };
                Side { array: Some(array), ..at(0, pitch, pitch * rows) }
            }
        })
    }

    /// The bytes of an array of one dimension from an offset on.
    pub fn line(&self, offset: u64, bytes: u64) -> Try<Side> {
        if self.shape() != Shape::Line {
            return Err(because(error::INVALID_VALUE, "this copy is for arrays of one dimension"));
        }
        let Place::Memory(place) = self.place else {
            return self.side([offset, 0, 0], CopyExtent { width: bytes, height: 1, depth: 1 });
        };
        let end = offset.checked_add(bytes).filter(|end| *end <= self.described.Width as u64 * self.texel()).ok_or(error::INVALID_VALUE)?;
        Ok(Side::known(place.address + offset, end, end))
    }
}

/// The layout of a level: bytes of a row and of a slice, and of all slices.
fn lay_out(described: &CUDA_ARRAY3D_DESCRIPTOR, texel: u64) -> Option<(u64, u64, u64)> {
    let pitch = (described.Width as u64).checked_mul(texel)?.checked_next_multiple_of(ROW_ALIGN)?;
    let slice = pitch.checked_mul(described.Height.max(1) as u64)?;
    Some((pitch, slice, slice.checked_mul(described.Depth.max(1) as u64)?))
}

/// The size of a level: layers stay, everything else is halved.
fn level_of(whole: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let halved = |n: usize| if n == 0 { 0 } else { (n >> level).max(1) };
    let layered = whole.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: halved(whole.Width),
        Height: halved(whole.Height),
        Depth: if layered { whole.Depth } else { halved(whole.Depth) },
        ..*whole
    }
}

/// Checks a description. Gives what a channel is.
fn check(session: &Connection, ordinal: u32, described: &CUDA_ARRAY3D_DESCRIPTOR) -> Try<Channel> {
    let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Flags, .. } = *described;
    if Flags & !ARRAY_FLAGS != 0 {
        return Err(unsupported(format!("arrays with flags {:#x}: sparse ones, deferred ones, depth and video", Flags & !ARRAY_FLAGS)));
    }
    let Some(channel) = Channel::of(described.Format) else {
        return Err(unsupported(format!("arrays of format {:#x}: only integers, halves and singles are supported", described.Format.0)));
    };
    let (layered, cube) = (Flags & CUDA_ARRAY3D_LAYERED != 0, Flags & CUDA_ARRAY3D_CUBEMAP != 0);
    let shaped = match (cube, layered) {
        (true, false) => Width == Height && Depth == 6,
        (true, true) => Width == Height && Depth != 0 && Depth.is_multiple_of(6),
        (false, true) => Depth != 0,
        (false, false) => Height != 0 || Depth == 0,
    };
    if Width == 0 || !shaped || !matches!(described.NumChannels, 1 | 2 | 4) {
        return Err(error::INVALID_VALUE);
    }
    let limits = match (cube, layered) {
        (true, false) => [Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH; 3],
        (true, true) => {
            let width = Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH;
            [width, width, Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS]
        }
        (false, true) if Height == 0 => {
            let width = Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH;
            [width, width, Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS]
        }
        (false, true) => [
            Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
            Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
            Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
        ],
        (false, false) if Depth != 0 => [
            Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
            Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
            Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
        ],
        (false, false) if Height != 0 => {
            let height = Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT;
            [Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, height, height]
        }
        (false, false) => [Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH; 3],
    };
    let most = |attribute| device::all(session).get(ordinal as usize).and_then(|device| device.attribute(attribute)).unwrap_or(0);
    let too_large = [Width, Height, Depth].into_iter().zip(limits).find(|(size, limit)| most(*limit) > 0 && *size > most(*limit) as usize);
    match too_large {
        Some((size, limit)) => Err(because(error::INVALID_VALUE, format!("an array of {size} where the device has {} at most", most(limit)))),
        None => Ok(channel),
    }
}

/// Makes an array of so many levels, or one that is not mipmapped. Gives its levels.
fn make(session: &Connection, context: &Context, whole: &CUDA_ARRAY3D_DESCRIPTOR, levels: Option<u32>) -> Try<Vec<Arc<Array>>> {
    let maker = maker(session, context.device)?;
    let channel = check(session, context.device, whole)?;
    let places = match maker {
        Maker::Library => make_in_memory(session, context, whole, channel, levels)?,
        Maker::Driver => have_made(session, context, whole, levels)?,
    };
    let whole_place = places.first().map(|(_, place)| *place);
    let made: Option<Vec<Arc<Array>>> = places
        .into_iter()
        .map(|(described, place)| {
            let make = |handle| Arc::new(Array { handle, context: context.id, device: context.device, described, channel, place, is_level: levels.is_some() });
            ARRAYS.insert(make).map(|(_, array)| array)
        })
        .collect();
    match (made, whole_place) {
        (Some(made), _) => Ok(made),
        (None, whole_place) => {
            if let Some(place) = whole_place {
                free(session, place)?;
            }
            Err(error::OUT_OF_MEMORY)
        }
    }
}

/// Has the device's driver make an array. Gives the size and place of each level.
fn have_made(session: &Connection, context: &Context, whole: &CUDA_ARRAY3D_DESCRIPTOR, levels: Option<u32>) -> Try<Vec<(CUDA_ARRAY3D_DESCRIPTOR, Place)>> {
    capture::refuse_unsafe_call()?;
    let number = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
    let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format, NumChannels, Flags } = *whole;
    let size = [Width, Height, Depth].map(|count| count as u64);
    let wish = ArrayWish { size, format: Format.0, channels: NumChannels, flags: Flags, levels: levels.unwrap_or(0) };
    memory::request_memory(session, &Op::ArrayCreate { device: context.device, array: number, wish })?;
    Ok((0..levels.unwrap_or(1)).map(|level| (level_of(whole, level), Place::Driver { number, level })).collect())
}

/// Makes an array in the program's memory, one level after the other in one allocation. Gives the
/// size and place of each level.
fn make_in_memory(
    session: &Connection,
    context: &Context,
    whole: &CUDA_ARRAY3D_DESCRIPTOR,
    channel: Channel,
    levels: Option<u32>,
) -> Try<Vec<(CUDA_ARRAY3D_DESCRIPTOR, Place)>> {
    let texel = u64::from(channel.bytes()) * u64::from(whole.NumChannels);
    let mut bytes = 0u64;
    let mut places = Vec::new();
    for level in 0..levels.unwrap_or(1) {
        let described = level_of(whole, level);
        let (pitch, slice, all) = lay_out(&described, texel).ok_or(error::OUT_OF_MEMORY)?;
        places.push((described, Level { address: bytes, pitch, slice }));
        bytes = bytes.checked_add(all).and_then(|end| end.checked_next_multiple_of(LEVEL_ALIGN)).ok_or(error::OUT_OF_MEMORY)?;
    }
    capture::refuse_unsafe_call()?;
    let address = memory::allocate_as(session, context.id, context.device, bytes, Sort::Array)?;
    Ok(places.into_iter().map(|(described, place)| (described, Place::Memory(Level { address: address + place.address, ..place }))).collect())
}

/// Gives the memory of an array back: of all levels, where this is the place of the first.
fn free(session: &Connection, place: Place) -> Try {
    match place {
        Place::Memory(level) => {
            let gone = memory::write_allocations().remove(level.address).ok_or(error::INVALID_VALUE)?;
            memory::release(session, &gone)
        }
        Place::Driver { number, .. } => session.control(&Op::ArrayDestroy { array: number }),
    }
}

pub unsafe fn cuArray3DCreate_v2(out: *mut CUarray, described: *const CUDA_ARRAY3D_DESCRIPTOR) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    let described = get!(described);
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let made = make(session, &context, &described, None)?;
    put!(out, made[0].as_c());
    Ok(())
}

pub unsafe fn cuArrayCreate_v2(out: *mut CUarray, described: *const CUDA_ARRAY_DESCRIPTOR) -> Try {
    let CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels } = get!(described);
    let described = CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth: 0, Format, NumChannels, Flags: 0 };
    // SAFETY: `out` is the C caller's, as this function's contract says; the description is ours.
    unsafe { cuArray3DCreate_v2(out, &raw const described) }
}

pub unsafe fn cuArrayDestroy(handle: CUarray) -> Try {
    let session = process::enter()?;
    let array = find(handle)?;
    if array.is_level {
        return Err(because(error::INVALID_HANDLE, "a level ends with its mipmapped array"));
    }
    capture::refuse_unsafe_call()?;
    context::drain_by_id(session, array.context)?;
    ARRAYS.remove(array.handle).ok_or(error::INVALID_HANDLE)?;
    free(session, array.place)
}

pub unsafe fn cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, handle: CUarray) -> Try {
    process::enter()?;
    put!(out, find(handle)?.described);
    Ok(())
}

pub unsafe fn cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, handle: CUarray) -> Try {
    process::enter()?;
    let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Format, NumChannels, .. } = find(handle)?.described;
    put!(out, CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels });
    Ok(())
}

pub unsafe fn cuMipmappedArrayCreate(out: *mut CUmipmappedArray, described: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    let described = get!(described);
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let layered = described.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    let longest = described.Width.max(described.Height).max(if layered { 0 } else { described.Depth }).max(1);
    // As the driver: no more than the size allows, and one at least.
    let levels = levels.clamp(1, 1 + longest.ilog2()).min(MOST_LEVELS as u32);
    let levels = make(session, &context, &described, Some(levels))?;
    let (handle, _) = MIPMAPPED.insert(|_| Arc::new(Mipmapped { context: context.id, levels })).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, core::ptr::without_provenance_mut(handle as usize));
    Ok(())
}

pub unsafe fn cuMipmappedArrayGetLevel(out: *mut CUarray, handle: CUmipmappedArray, level: c_uint) -> Try {
    process::enter()?;
    let mipmapped = find_mipmapped(handle)?;
    put!(out, mipmapped.levels.get(level as usize).ok_or(error::INVALID_VALUE)?.as_c());
    Ok(())
}

pub unsafe fn cuMipmappedArrayDestroy(handle: CUmipmappedArray) -> Try {
    let session = process::enter()?;
    let mipmapped = find_mipmapped(handle)?;
    capture::refuse_unsafe_call()?;
    context::drain_by_id(session, mipmapped.context)?;
    MIPMAPPED.remove(handle.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    for level in &mipmapped.levels {
        ARRAYS.remove(level.handle);
    }
    mipmapped.levels.first().map_or(Ok(()), |first| free(session, first.place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_abi::CUarray_format;

    fn described(size: [usize; 3], flags: c_uint) -> CUDA_ARRAY3D_DESCRIPTOR {
        let [Width, Height, Depth] = size;
        CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format: CUarray_format::CU_AD_FORMAT_FLOAT, NumChannels: 2, Flags: flags }
    }

    fn array(size: [usize; 3], flags: c_uint) -> Array {
        let described = described(size, flags);
        let (pitch, slice, _) = lay_out(&described, 8).unwrap();
        let place = Place::Memory(Level { address: 0x1000, pitch, slice });
        Array { handle: 0, context: 0, device: 0, described, channel: Channel::Single, place, is_level: false }
    }

    #[test]
    fn shapes_follow_sizes_and_flags() {
        let shapes = [
            ([9, 0, 0], 0, Shape::Line, ([9, 1, 1], 1)),
            ([9, 4, 0], 0, Shape::Plane, ([9, 4, 1], 1)),
            ([9, 4, 3], 0, Shape::Solid, ([9, 4, 3], 1)),
            ([9, 0, 5], CUDA_ARRAY3D_LAYERED, Shape::Lines, ([9, 1, 1], 5)),
            ([9, 4, 5], CUDA_ARRAY3D_LAYERED, Shape::Planes, ([9, 4, 1], 5)),
            ([4, 4, 6], CUDA_ARRAY3D_CUBEMAP, Shape::Cube, ([4, 4, 1], 6)),
            ([4, 4, 12], CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED, Shape::Cubes, ([4, 4, 1], 12)),
        ];
        for (size, flags, shape, expected) in shapes {
            let array = array(size, flags);
            assert_eq!((array.shape(), array.size()), (shape, expected), "{size:?}");
        }
    }

    #[test]
    fn copies_stay_inside() {
        let array = array([9, 4, 3], 0);
        let extent = |width, height, depth| CopyExtent { width, height, depth };
        let side = array.side([8, 1, 2], extent(64, 3, 1)).unwrap();
        assert_eq!((side.address, side.pitch, side.slice), (0x1000 + 2 * 512 + 128 + 8, 128, 512));
        for (from, extent) in [([8, 0, 0], extent(72, 1, 1)), ([0, 2, 0], extent(8, 3, 1)), ([0, 0, 3], extent(8, 1, 1)), ([4, 0, 0], extent(8, 1, 1))] {
            assert!(array.side(from, extent).is_err(), "{from:?}");
        }
        assert!(array.side([u64::MAX - 7, 0, 0], extent(8, 1, 1)).is_err() && array.line(0, 8).is_err());
    }

    #[test]
    fn copies_of_a_drivers_array_name_it_and_stay_inside() {
        let array = Array { handle: 77, place: Place::Driver { number: 5, level: 1 }, ..array([9, 4, 3], 0) };
        let extent = |width, height, depth| CopyExtent { width, height, depth };
        let side = array.side([8, 1, 2], extent(64, 3, 1)).unwrap();
        let named = side.array.unwrap();
        assert_eq!((named.handle, named.number, named.level, side.place(&named)), (77, 5, 1, [8, 1, 2]));
        assert!(array.side([8, 0, 0], extent(72, 1, 1)).is_err() && array.line(0, 8).is_err());
        let line = Array { place: Place::Driver { number: 6, level: 0 }, ..self::array([9, 0, 0], 0) };
        let side = line.line(16, 56).unwrap();
        assert_eq!(side.place(&side.array.unwrap()), [16, 0, 0]);
        assert!(line.line(16, 64).is_err());
    }

    #[test]
    fn levels_are_halved_and_layers_are_not() {
        let size = |of: CUDA_ARRAY3D_DESCRIPTOR| [of.Width, of.Height, of.Depth];
        assert_eq!(size(level_of(&described([20, 6, 5], 0), 2)), [5, 1, 1]);
        assert_eq!(size(level_of(&described([20, 6, 5], CUDA_ARRAY3D_LAYERED), 4)), [1, 1, 5]);
        assert_eq!(size(level_of(&described([20, 0, 0], 0), 1)), [10, 0, 0]);
    }
}
