//! Arrays, texture objects and surface objects, and copies that arrays take part in.

use super::CardAddress;
use super::context::Driver;
use super::handle::{Array, MipmappedArray, Stream};
use crate::fault::{Call, CudaError};
use core::ptr::null_mut;
use cumux_abi::types as t;
use cumux_device::{ArrayWish, TextureWish, ViewWish};

/// What an object shows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown {
    /// An array, or a level of a mipmapped one.
    Array(Array),
    /// All levels of a mipmapped array.
    Mipmapped(MipmappedArray),
    /// Memory, one texel after the other.
    Linear {
        /// The address of the first texel.
        address: CardAddress,
        /// A `CUarray_format`.
        format: u32,
        /// Channels of a texel.
        channels: u32,
        /// Bytes of all texels.
        bytes: u64,
    },
    /// Rows of texels in memory.
    Pitched {
        /// The address of the first texel.
        address: CardAddress,
        /// A `CUarray_format`.
        format: u32,
        /// Channels of a texel.
        channels: u32,
        /// Texels of a row, rows, and bytes from row to row.
        size: [u64; 3],
    },
}

/// One end of an [`ArrayCopy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayCopyEnd {
    /// Memory.
    Memory {
        /// The address of the first byte.
        address: CardAddress,
        /// Bytes from row to row.
        pitch: u64,
        /// Rows from slice to slice.
        rows: u64,
    },
    /// An array, or a level of a mipmapped one.
    Array {
        /// The array.
        array: Array,
        /// The first byte of a row, the first row, and the first slice or layer.
        at: [u64; 3],
    },
}

/// The copy of a box of bytes from or to an array. It lies within the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayCopy {
    /// Where the bytes go.
    pub target: ArrayCopyEnd,
    /// Where they come from.
    pub source: ArrayCopyEnd,
    /// Bytes of a row, rows, and slices.
    pub extent: [u64; 3],
}

impl ArrayCopy {
    /// As the driver takes it. Memory may be the host's or the card's: the driver sees that by the
    /// address.
    fn described(&self) -> t::CUDA_MEMCPY3D {
        let (array, memory) = (t::CUmemorytype::CU_MEMORYTYPE_ARRAY, t::CUmemorytype::CU_MEMORYTYPE_UNIFIED);
        let [width, height, depth] = self.extent.map(|count| count as usize);
        let mut copy = t::CUDA_MEMCPY3D { WidthInBytes: width, Height: height, Depth: depth, ..t::CUDA_MEMCPY3D::default() };
        match self.source {
            ArrayCopyEnd::Memory { address, pitch, rows } => {
                (copy.srcMemoryType, copy.srcDevice, copy.srcPitch, copy.srcHeight) = (memory, address, pitch as usize, rows as usize);
            }
            ArrayCopyEnd::Array { array: handle, at } => {
                (copy.srcMemoryType, copy.srcArray) = (array, handle.raw());
                [copy.srcXInBytes, copy.srcY, copy.srcZ] = at.map(|count| count as usize);
            }
        }
        match self.target {
            ArrayCopyEnd::Memory { address, pitch, rows } => {
                (copy.dstMemoryType, copy.dstDevice, copy.dstPitch, copy.dstHeight) = (memory, address, pitch as usize, rows as usize);
            }
            ArrayCopyEnd::Array { array: handle, at } => {
                (copy.dstMemoryType, copy.dstArray) = (array, handle.raw());
                [copy.dstXInBytes, copy.dstY, copy.dstZ] = at.map(|count| count as usize);
            }
        }
        copy
    }
}

fn describe_array(wish: &ArrayWish) -> t::CUDA_ARRAY3D_DESCRIPTOR {
    let [width, height, depth] = wish.size.map(|count| count as usize);
    t::CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: t::CUarray_format(wish.format),
        NumChannels: wish.channels,
        Flags: wish.flags,
    }
}

fn describe_shown(shown: &Shown) -> t::CUDA_RESOURCE_DESC {
    let mut resource = t::CUDA_RESOURCE_DESC::default();
    // Writing a field of a union is safe: the kind beside it says which was written.
    match *shown {
        Shown::Array(array) => {
            resource.resType = t::CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
            resource.res.array.hArray = array.raw();
        }
        Shown::Mipmapped(array) => {
            resource.resType = t::CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
            resource.res.mipmap.hMipmappedArray = array.raw();
        }
        Shown::Linear { address, format, channels, bytes } => {
            resource.resType = t::CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
            resource.res.linear.devPtr = address;
            resource.res.linear.format = t::CUarray_format(format);
            resource.res.linear.numChannels = channels;
            resource.res.linear.sizeInBytes = bytes as usize;
        }
        Shown::Pitched { address, format, channels, size: [width, height, pitch] } => {
            resource.resType = t::CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
            resource.res.pitch2D.devPtr = address;
            resource.res.pitch2D.format = t::CUarray_format(format);
            resource.res.pitch2D.numChannels = channels;
            resource.res.pitch2D.width = width as usize;
            resource.res.pitch2D.height = height as usize;
            resource.res.pitch2D.pitchInBytes = pitch as usize;
        }
    }
    resource
}

fn describe_texture(wish: &TextureWish) -> t::CUDA_TEXTURE_DESC {
    t::CUDA_TEXTURE_DESC {
        addressMode: wish.address.map(t::CUaddress_mode),
        filterMode: t::CUfilter_mode(wish.filter),
        flags: wish.flags,
        maxAnisotropy: wish.anisotropy,
        mipmapFilterMode: t::CUfilter_mode(wish.level_filter),
        mipmapLevelBias: f32::from_bits(wish.level_bias),
        minMipmapLevelClamp: f32::from_bits(wish.levels[0]),
        maxMipmapLevelClamp: f32::from_bits(wish.levels[1]),
        borderColor: wish.border.map(f32::from_bits),
        ..t::CUDA_TEXTURE_DESC::default()
    }
}

fn describe_view(wish: &ViewWish) -> t::CUDA_RESOURCE_VIEW_DESC {
    let [width, height, depth] = wish.size.map(|count| count as usize);
    let [first_level, last_level, first_layer, last_layer] = wish.ranges;
    t::CUDA_RESOURCE_VIEW_DESC {
        format: t::CUresourceViewFormat(wish.format),
        width,
        height,
        depth,
        firstMipmapLevel: first_level,
        lastMipmapLevel: last_level,
        firstLayer: first_layer,
        lastLayer: last_layer,
        ..t::CUDA_RESOURCE_VIEW_DESC::default()
    }
}

impl Driver {
    /// Creates an array without mipmaps. Its contents are undefined.
    ///
    /// # Errors
    /// The driver's, for example because the card is full.
    pub(crate) fn create_array(&self, wish: &ArrayWish) -> Call<Array> {
        let (mut array, described) = (null_mut(), describe_array(wish));
        // SAFETY: the call reads a local and writes one handle, a local.
        CudaError::check(unsafe { (self.table()?.cuArray3DCreate_v2)(&raw mut array, &raw const described) })?;
        Ok(Array::of(array))
    }

    /// Creates a mipmapped array, with undefined contents, and finds its levels. They end with it.
    ///
    /// # Errors
    /// The driver's, for example because the card is full.
    pub(crate) fn create_mipmapped(&self, wish: &ArrayWish) -> Call<(MipmappedArray, Vec<Array>)> {
        let (mut mipmapped, described) = (null_mut(), describe_array(wish));
        // SAFETY: the call reads a local and writes one handle, a local.
        CudaError::check(unsafe { (self.table()?.cuMipmappedArrayCreate)(&raw mut mipmapped, &raw const described, wish.levels) })?;
        let mipmapped = MipmappedArray::of(mipmapped);
        let levels: Call<Vec<Array>> = (0..wish.levels).map(|level| self.find_level(mipmapped, level)).collect();
        match levels {
            Ok(levels) => Ok((mipmapped, levels)),
            Err(error) => {
                self.destroy_mipmapped(mipmapped);
                Err(error)
            }
        }
    }

    fn find_level(&self, mipmapped: MipmappedArray, level: u32) -> Call<Array> {
        let mut array = null_mut();
        // SAFETY: a live array; the call writes one handle, a local.
        CudaError::check(unsafe { (self.table()?.cuMipmappedArrayGetLevel)(&raw mut array, mipmapped.raw(), level) })?;
        Ok(Array::of(array))
    }

    /// Destroys an array. The caller is its owner.
    pub(crate) fn destroy_array(&self, array: Array) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of a live array.
            let _ = unsafe { (table.cuArrayDestroy)(array.raw()) };
        }
    }

    /// Destroys a mipmapped array with its levels. The caller is its owner.
    pub(crate) fn destroy_mipmapped(&self, mipmapped: MipmappedArray) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of a live array.
            let _ = unsafe { (table.cuMipmappedArrayDestroy)(mipmapped.raw()) };
        }
    }

    /// Creates a texture object. Returns the number that kernels get.
    ///
    /// # Errors
    /// The driver's, for an object that cannot be.
    pub(crate) fn create_texture(&self, shown: &Shown, texture: &TextureWish, view: Option<&ViewWish>) -> Call<u64> {
        let (mut object, resource, texture) = (0, describe_shown(shown), describe_texture(texture));
        let view = view.map(describe_view);
        let view = view.as_ref().map_or(core::ptr::null(), |view| &raw const *view);
        // SAFETY: live arrays, or addresses that the call does not follow; the call reads locals (a
        // null view is allowed) and writes one number, a local.
        CudaError::check(unsafe { (self.table()?.cuTexObjectCreate)(&raw mut object, &raw const resource, &raw const texture, view) })?;
        Ok(object)
    }

    /// Creates a surface object. Returns the number that kernels get.
    ///
    /// # Errors
    /// The driver's, for example because the array was not made for surfaces.
    pub(crate) fn create_surface(&self, shown: &Shown) -> Call<u64> {
        let (mut object, resource) = (0, describe_shown(shown));
        // SAFETY: as for `create_texture`.
        CudaError::check(unsafe { (self.table()?.cuSurfObjectCreate)(&raw mut object, &raw const resource) })?;
        Ok(object)
    }

    /// Destroys a texture object. The caller is its owner.
    pub(crate) fn destroy_texture(&self, object: u64) {
        if let Ok(table) = self.table() {
            // SAFETY: the call takes no pointers.
            let _ = unsafe { (table.cuTexObjectDestroy)(object) };
        }
    }

    /// Destroys a surface object. The caller is its owner.
    pub(crate) fn destroy_surface(&self, object: u64) {
        if let Ok(table) = self.table() {
            // SAFETY: the call takes no pointers.
            let _ = unsafe { (table.cuSurfObjectDestroy)(object) };
        }
    }

    /// Queues a copy from or to an array.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn copy_array(&self, copy: &ArrayCopy, stream: Stream) -> Call<()> {
        let _turn = self.submission.enter(stream);
        let described = copy.described();
        // SAFETY: card addresses, live arrays and a live stream; the call reads one local.
        CudaError::check(unsafe { (self.table()?.cuMemcpy3DAsync_v2)(&raw const described, stream.raw()) })
    }
}
