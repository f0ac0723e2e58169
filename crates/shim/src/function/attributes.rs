//! Attributes of functions, by the limits of the device of the current context.

use super::Function;
use crate::connection::Connection;
use crate::ffi::{Try, error, put, put_if};
use crate::limits::Limits;
use crate::{context, device};
use core::ffi::c_int;
use cumux_abi::CUfunction_attribute as A;
use cumux_wire::module::FunctionInfo;

/// Limits of the device that a function's context is on.
pub(crate) fn limits(session: &Connection) -> &'static Limits {
    let device = context::top().map_or(0, |context| context.device as usize);
    // A session has a device (checked when it was made), and contexts name devices that exist.
    device::all(session).get(device).or_else(|| device::all(session).first()).map_or_else(|| unreachable!("a session has a device"), |device| &device.limits)
}

/// Tells the program an attribute of a function.
pub(crate) fn get_attribute(session: &'static Connection, out: *mut c_int, attribute: A, function: &Function) -> Try {
    put!(out, function.attribute(attribute, limits(session))?);
    Ok(())
}

/// Sets an attribute of a function.
pub(crate) fn set_attribute(session: &'static Connection, attribute: A, value: c_int, function: &Function) -> Try {
    function.set(session, attribute, value, limits(session))
}

/// Offset and bytes of a parameter.
pub(crate) fn tell_parameter(info: &FunctionInfo, index: usize, offset: *mut usize, bytes: *mut usize) -> Try {
    let parameter = info.parameters.get(index).ok_or(error::INVALID_VALUE)?;
    put!(offset, parameter.offset as usize);
    put_if!(bytes, parameter.bytes as usize);
    Ok(())
}
