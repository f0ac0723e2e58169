//! Texture and surface objects.
//!
//! On a device that executes texture instructions itself they are descriptions in the pinned
//! window, which the device reads ([`cumux_wire::texture`]). The handle that a kernel gets is the
//! description's address. On a real card the executor has the driver make them, and a program gets
//! the driver's own handle, because kernels are given it as an ordinary number.

use crate::array::{Maker, Place};
use crate::connection::Connection;
use crate::context::Context;
use crate::ffi::{Try, error, get, put};
use crate::log::unsupported;
use crate::memory;
use crate::sync::lock;
use crate::{array, context, process};
use cumux_abi::{
    CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION, CU_TRSF_NORMALIZED_COORDINATES, CU_TRSF_READ_AS_INTEGER, CU_TRSF_SEAMLESS_CUBEMAP, CU_TRSF_SRGB,
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUarray_format, CUdeviceptr, CUfilter_mode, CUresourceViewFormat,
    CUresourcetype, CUsurfObject, CUtexObject,
};
use cumux_wire::record::{ObjectWish, Op, Resource, TextureWish, ViewWish};
use cumux_wire::texture::{AddressMode, Channel, DESCRIPTION_BYTES, Description, Level, Sampling, Shape};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Texels of linear memory at most (`CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH`).
const MOST_LINEAR: u64 = 1 << 28;

/// What the program said of an object.
struct Object {
    context: u64,
    maker: Maker,
    resource: CUDA_RESOURCE_DESC,
    /// `None` for a surface.
    texture: Option<(CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC)>,
}

// SAFETY: the pointers in it are handles of the program: words, which nobody follows.
unsafe impl Send for Object {}

/// Handle and device of an object. Drivers of two cards may give the same handle.
type Key = (u64, u32);

/// All objects.
static OBJECTS: Mutex<BTreeMap<Key, Object>> = Mutex::new(BTreeMap::new());

/// The objects of a context end with it.
pub(crate) fn end_context(session: &'static Connection, context: &Context) {
    let mut objects = lock(&OBJECTS);
    objects.retain(|key, object| {
        let stays = object.context != context.id;
        if !stays {
            // A connection that has gone wrong has nothing to give back.
            let _ = give_back(session, *key, object.maker);
        }
        stays
    });
}

/// Ends an object that nobody knows any more.
fn give_back(session: &Connection, (handle, device): Key, maker: Maker) -> Try {
    match maker {
        Maker::Library => {
            session.window.return_piece(handle);
            Ok(())
        }
        Maker::Driver => session.control(&Op::ObjectDestroy { device, handle }),
    }
}

/// The object of this handle on the current context's device, or on the only device that has one.
fn find(objects: &BTreeMap<Key, Object>, handle: u64, is_texture: bool) -> Option<(Key, &Object)> {
    let device = context::top().map(|context| context.device);
    let mut known = objects.range((handle, 0)..=(handle, u32::MAX)).filter(|(_, object)| object.texture.is_some() == is_texture);
    let first = known.clone().next();
    known.find(|((_, of), _)| Some(*of) == device).or(first).map(|(key, object)| (*key, object))
}

/// Writes a description and remembers the object. Gives the handle.
fn add(session: &Connection, context: &Context, described: &Description, object: Said) -> Try<u64> {
    let handle = session.window.take_piece(DESCRIPTION_BYTES as u64, 64)?;
    let announced = session.announce_window(handle + DESCRIPTION_BYTES as u64);
    if announced.is_err() || !session.window.write(handle, &described.encode()) {
        session.window.return_piece(handle);
        return announced.and(Err(error::UNKNOWN));
    }
    remember(context, handle, Maker::Library, object);
    Ok(handle)
}

/// What the program says of an object when it makes it: [`Object`] has the meanings.
type Said = (CUDA_RESOURCE_DESC, Option<(CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC)>);

fn remember(context: &Context, handle: u64, maker: Maker, (resource, texture): Said) {
    lock(&OBJECTS).insert((handle, context.device), Object { context: context.id, maker, resource, texture });
}

/// Has the device's driver make an object. Gives the handle.
fn have_made(session: &Connection, context: &Context, wish: ObjectWish, object: Said) -> Try<u64> {
    let [handle, ..] = session.call(&Op::ObjectCreate { device: context.device, wish })?;
    remember(context, handle, Maker::Driver, object);
    Ok(handle)
}

/// A resource as the executor knows it. It has been checked.
fn name_resource(context: &Context, resource: &CUDA_RESOURCE_DESC) -> Try<Resource> {
    let number = |array: &array::Array| match array.place {
        Place::Driver { number, level } if array.device == context.device => Ok((number, level)),
        _ => Err(error::INVALID_VALUE),
    };
    match resource.resType {
        CUresourcetype::CU_RESOURCE_TYPE_ARRAY => {
            // SAFETY: the type says which part of the union is meant; any bits are a handle.
            let (array, level) = number(&*array::find(unsafe { resource.res.array.hArray })?)?;
            Ok(Resource::Array { array, level })
        }
        CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            // SAFETY: as above.
            let mipmapped = array::find_mipmapped(unsafe { resource.res.mipmap.hMipmappedArray })?;
            let (array, _) = number(mipmapped.levels.first().ok_or(error::INVALID_HANDLE)?)?;
            Ok(Resource::Mipmapped { array })
        }
        CUresourcetype::CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: as above; any bits are numbers.
            let linear = unsafe { resource.res.linear };
            let (address, bytes) = (find_memory(linear.devPtr)?, linear.sizeInBytes as u64);
            Ok(Resource::Linear { address, format: linear.format.0, channels: linear.numChannels, bytes })
        }
        CUresourcetype::CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: as above; any bits are numbers.
            let plane = unsafe { resource.res.pitch2D };
            let size = [plane.width, plane.height, plane.pitchInBytes].map(|count| count as u64);
            Ok(Resource::Pitched { address: find_memory(plane.devPtr)?, format: plane.format.0, channels: plane.numChannels, size })
        }
        _ => Err(error::INVALID_VALUE),
    }
}

fn texture_wish(texture: &CUDA_TEXTURE_DESC) -> TextureWish {
    TextureWish {
        address: texture.addressMode.map(|mode| mode.0),
        filter: texture.filterMode.0,
        level_filter: texture.mipmapFilterMode.0,
        flags: texture.flags,
        anisotropy: texture.maxAnisotropy,
        level_bias: texture.mipmapLevelBias.to_bits(),
        levels: [texture.minMipmapLevelClamp, texture.maxMipmapLevelClamp].map(f32::to_bits),
        border: texture.borderColor.map(f32::to_bits),
    }
}

fn view_wish(view: &CUDA_RESOURCE_VIEW_DESC) -> ViewWish {
    ViewWish {
        format: view.format.0,
        ranges: [view.firstMipmapLevel, view.lastMipmapLevel, view.firstLayer, view.lastLayer],
        size: [view.width, view.height, view.depth].map(|count| count as u64),
    }
}

/// Forgets an object.
fn remove(handle: u64, is_texture: bool) -> Try {
    let session = process::enter()?;
    let known = |objects: &BTreeMap<Key, Object>| find(objects, handle, is_texture).map(|(key, object)| (key, object.context));
    let (key, context) = known(&lock(&OBJECTS)).ok_or(error::INVALID_VALUE)?;
    // Work under way may still use it.
    context::drain_by_id(session, context)?;
    // A separate statement, so that the lock is released.
    let gone = lock(&OBJECTS).remove(&key);
    gone.map_or(Ok(()), |object| give_back(session, key, object.maker))
}

/// The memory at an address, as the executor knows it.
fn find_memory(address: CUdeviceptr) -> Try<u64> {
    let allocations = memory::read_allocations();
    let known = allocations.find(address).ok_or(error::INVALID_VALUE)?;
    if matches!(known.sort, memory::Sort::MappedHost { .. }) {
        return Err(crate::log::because(error::INVALID_VALUE, "a texture of host memory at reserved addresses: use its memory on the device"));
    }
    Ok(known.wire_address(address))
}

fn channel_of(format: CUarray_format, channels: u32) -> Try<(Channel, u8)> {
    let Some(channel) = Channel::of(format) else {
        return Err(unsupported(format!("textures of format {:#x}: only integers, halves and singles are supported", format.0)));
    };
    if matches!(channels, 1 | 2 | 4) { Ok((channel, channels as u8)) } else { Err(error::INVALID_VALUE) }
}

/// What an array is, or all levels of one.
fn describe_levels(levels: &[Arc<array::Array>]) -> Try<Description> {
    let Some(first) = levels.first() else { return Err(error::INVALID_VALUE) };
    let (size, layers) = first.size();
    // A place of the driver's is not described.
    let place = |level: &Arc<array::Array>| if let Place::Memory(place) = level.place { place } else { Level::default() };
    let places = levels.iter().map(place).collect();
    let channels = first.described.NumChannels as u8;
    Ok(Description { shape: first.shape(), channel: first.channel, channels, size, layers, levels: places, sampling: None })
}

/// What a resource is, without how it is sampled.
fn describe_resource(resource: &CUDA_RESOURCE_DESC) -> Try<Description> {
    match resource.resType {
        CUresourcetype::CU_RESOURCE_TYPE_ARRAY => {
            // SAFETY: the type says which part of the union is meant; any bits are a handle.
            let handle = unsafe { resource.res.array.hArray };
            describe_levels(&[array::find(handle)?])
        }
        CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            // SAFETY: as above.
            let handle = unsafe { resource.res.mipmap.hMipmappedArray };
            describe_levels(&array::find_mipmapped(handle)?.levels)
        }
        CUresourcetype::CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: as above; any bits are numbers.
            let linear = unsafe { resource.res.linear };
            let (channel, channels) = channel_of(linear.format, linear.numChannels)?;
            let texel = u64::from(channel.bytes()) * u64::from(channels);
            let width = linear.sizeInBytes as u64 / texel;
            if width == 0 || width > MOST_LINEAR || !linear.devPtr.is_multiple_of(texel) {
                return Err(error::INVALID_VALUE);
            }
            let level = Level { address: find_memory(linear.devPtr)?, pitch: 0, slice: 0 };
            Ok(Description { shape: Shape::Linear, channel, channels, size: [width as u32, 1, 1], layers: 1, levels: vec![level], sampling: None })
        }
        CUresourcetype::CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: as above; any bits are numbers.
            let plane = unsafe { resource.res.pitch2D };
            let (channel, channels) = channel_of(plane.format, plane.numChannels)?;
            let texel = u64::from(channel.bytes()) * u64::from(channels);
            let (width, height, pitch) = (plane.width as u64, plane.height as u64, plane.pitchInBytes as u64);
            let sized = (1..1 << 20).contains(&width) && (1..1 << 20).contains(&height);
            if !sized || pitch < width * texel || !pitch.is_multiple_of(texel) || !plane.devPtr.is_multiple_of(texel) {
                return Err(error::INVALID_VALUE);
            }
            let level = Level { address: find_memory(plane.devPtr)?, pitch, slice: 0 };
            let size = [width as u32, height as u32, 1];
            Ok(Description { shape: Shape::Plane, channel, channels, size, layers: 1, levels: vec![level], sampling: None })
        }
        _ => Err(error::INVALID_VALUE),
    }
}

fn address_mode(mode: CUaddress_mode) -> Try<AddressMode> {
    Ok(match mode {
        CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP => AddressMode::Wrap,
        CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP => AddressMode::Clamp,
        CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR => AddressMode::Mirror,
        CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER => AddressMode::Border,
        _ => return Err(error::INVALID_VALUE),
    })
}

fn is_linear(filter: CUfilter_mode) -> Try<bool> {
    match filter {
        CUfilter_mode::CU_TR_FILTER_MODE_POINT => Ok(false),
        CUfilter_mode::CU_TR_FILTER_MODE_LINEAR => Ok(true),
        _ => Err(error::INVALID_VALUE),
    }
}

/// How a texture is sampled, as far as the device does it as a card.
fn describe_sampling(texture: &CUDA_TEXTURE_DESC, resource: &Description) -> Try<Sampling> {
    let flags = texture.flags;
    let known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
    if flags & !known != 0 {
        return Err(error::INVALID_VALUE);
    }
    if flags & CU_TRSF_SRGB != 0 {
        return Err(unsupported("textures that convert from sRGB"));
    }
    let (linear, linear_levels) = (is_linear(texture.filterMode)?, is_linear(texture.mipmapFilterMode)?);
    let is_cube = matches!(resource.shape, Shape::Cube | Shape::Cubes);
    if flags & CU_TRSF_SEAMLESS_CUBEMAP != 0 && is_cube && linear {
        return Err(unsupported("cubemaps that are filtered across their edges"));
    }
    let several = resource.levels.len() > 1;
    if texture.maxAnisotropy > 1 && several {
        return Err(unsupported("anisotropic filtering"));
    }
    let as_numbers = flags & CU_TRSF_READ_AS_INTEGER == 0;
    let is_real = matches!(resource.channel, Channel::Half | Channel::Single) || as_numbers && resource.channel.can_be_normalized();
    // Whole numbers have no weighted mean.
    if !is_real && (linear || linear_levels && several) {
        return Err(error::INVALID_VALUE);
    }
    if !is_real && texture.borderColor.iter().any(|part| *part != 0.0) {
        return Err(unsupported("a border colour of whole numbers"));
    }
    let mut address = [AddressMode::Clamp; 3];
    for (into, mode) in address.iter_mut().zip(texture.addressMode) {
        *into = address_mode(mode)?;
    }
    Ok(Sampling {
        address,
        linear,
        linear_levels,
        normalized: flags & CU_TRSF_NORMALIZED_COORDINATES != 0,
        as_numbers,
        level_bias: texture.mipmapLevelBias,
        levels: [texture.minMipmapLevelClamp, texture.maxMipmapLevelClamp],
        border: texture.borderColor,
    })
}

/// Refuses a view that shows something else than all of the resource.
fn check_view(view: &CUDA_RESOURCE_VIEW_DESC, resource: &Description) -> Try {
    let last_level = resource.levels.len() as u32 - 1;
    let whole_size =
        [view.width, view.height, view.depth].iter().zip(resource.size).all(|(of_view, size)| *of_view as u64 <= 1 || *of_view as u64 == u64::from(size));
    let is_whole = view.format == CUresourceViewFormat::CU_RES_VIEW_FORMAT_NONE
        && whole_size
        && (view.firstMipmapLevel, view.firstLayer) == (0, 0)
        && (view.lastMipmapLevel == last_level || view.lastMipmapLevel == 0 && last_level == 0)
        && (view.lastLayer == 0 || view.lastLayer == resource.layers - 1);
    if is_whole { Ok(()) } else { Err(unsupported("views of a part of a resource or in another format")) }
}

pub unsafe fn cuTexObjectCreate(
    out: *mut CUtexObject,
    resource: *const CUDA_RESOURCE_DESC,
    texture: *const CUDA_TEXTURE_DESC,
    view: *const CUDA_RESOURCE_VIEW_DESC,
) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    let (resource, texture) = (get!(resource), get!(texture));
    if out.is_null() || resource.flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let maker = array::maker(session, context.device)?;
    let mut described = describe_resource(&resource)?;
    if maker == Maker::Driver {
        // The driver checks the rest.
        let (view, has_view) = if view.is_null() { (CUDA_RESOURCE_VIEW_DESC::default(), false) } else { (get!(view), true) };
        let view_wish = has_view.then(|| view_wish(&view));
        let wish = ObjectWish { resource: name_resource(&context, &resource)?, texture: Some(texture_wish(&texture)), view: view_wish };
        put!(out, have_made(session, &context, wish, (resource, Some((texture, view))))?);
        return Ok(());
    }
    described.sampling = Some(describe_sampling(&texture, &described)?);
    let view = if view.is_null() {
        CUDA_RESOURCE_VIEW_DESC::default()
    } else {
        let view = get!(view);
        check_view(&view, &described)?;
        view
    };
    put!(out, add(session, &context, &described, (resource, Some((texture, view))))?);
    Ok(())
}

/// Destroys an object. Programs destroy what they may not have created: 0 is no object, and no
/// error either (GROMACS and NVIDIA's volumeFiltering rely on that; not compared with a card).
fn destroy(handle: u64, is_texture: bool) -> Try {
    if handle == 0 { process::enter().map(drop) } else { remove(handle, is_texture) }
}

pub unsafe fn cuTexObjectDestroy(handle: CUtexObject) -> Try {
    destroy(handle, true)
}

pub unsafe fn cuSurfObjectCreate(out: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    let resource = get!(resource);
    if out.is_null() || resource.flags != 0 || resource.resType != CUresourcetype::CU_RESOURCE_TYPE_ARRAY {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: the type says which part of the union is meant; any bits are a handle.
    let handle = unsafe { resource.res.array.hArray };
    // A device without surfaces has made no array that could be named here.
    let array = array::find(handle)?;
    if !array.is_surface() {
        return Err(error::INVALID_VALUE);
    }
    if let Place::Driver { .. } = array.place {
        let wish = ObjectWish { resource: name_resource(&context, &resource)?, texture: None, view: None };
        put!(out, have_made(session, &context, wish, (resource, None))?);
        return Ok(());
    }
    let described = describe_levels(&[array])?;
    put!(out, add(session, &context, &described, (resource, None))?);
    Ok(())
}

pub unsafe fn cuSurfObjectDestroy(handle: CUsurfObject) -> Try {
    destroy(handle, false)
}

/// What the program said of an object.
fn with_object<T>(handle: u64, is_texture: bool, answer: impl FnOnce(&Object) -> Option<T>) -> Try<T> {
    process::enter()?;
    let objects = lock(&OBJECTS);
    find(&objects, handle, is_texture).and_then(|(_, object)| answer(object)).ok_or(error::INVALID_VALUE)
}

pub unsafe fn cuTexObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, handle: CUtexObject) -> Try {
    put!(out, with_object(handle, true, |object| Some(object.resource))?);
    Ok(())
}

pub unsafe fn cuTexObjectGetTextureDesc(out: *mut CUDA_TEXTURE_DESC, handle: CUtexObject) -> Try {
    put!(out, with_object(handle, true, |object| object.texture.map(|(texture, _)| texture))?);
    Ok(())
}

pub unsafe fn cuTexObjectGetResourceViewDesc(out: *mut CUDA_RESOURCE_VIEW_DESC, handle: CUtexObject) -> Try {
    put!(out, with_object(handle, true, |object| object.texture.map(|(_, view)| view))?);
    Ok(())
}

pub unsafe fn cuSurfObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, handle: CUsurfObject) -> Try {
    put!(out, with_object(handle, false, |object| Some(object.resource))?);
    Ok(())
}
