//! Textures and surfaces by their objects (PTX ISA, *Texture Instructions*, *Surface
//! Instructions*). References (`.texref`, `.surfref`) are refused: CUDA 12 has removed them.

use super::body::{Lowerer, exact_operands, words_of};
use super::error::{Lowered, Trouble, reject};
use super::memory::{elements, select_atomic};
use crate::program::code::{Geometry, LevelOf, Op, Outside, TextureKind, TextureOp, TextureQuery};
use crate::simd::lanes::{NO_SLOT, RegisterSlot};
use cumux_ptx::ast::{Instruction, Opcode as O, Operand, ReduceOp, ScalarType as T};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let words = words_of(i);
    let op = match i.opcode {
        O::Tex => lower_sample(lowerer, i, &words)?,
        O::Tld4 => lower_gather(lowerer, i, &words)?,
        O::Txq | O::Suq => lower_query(lowerer, i, &words)?,
        _ => lower_surface(lowerer, i, &words)?,
    };
    lowerer.emit(Op::Texture(Box::new(op)));
    Ok(())
}

fn geometry_of(word: &str) -> Option<Geometry> {
    Some(match word {
        "1d" => Geometry::Line,
        "2d" => Geometry::Plane,
        "3d" => Geometry::Solid,
        "a1d" => Geometry::Lines,
        "a2d" => Geometry::Planes,
        "cube" => Geometry::Cube,
        "acube" => Geometry::Cubes,
        _ => return None,
    })
}

/// The object and the coordinates of `[object, coordinates]`.
fn lower_place(lowerer: &mut Lowerer<'_>, geometry: Geometry, operand: &Operand) -> Lowered<TextureOp> {
    let Operand::Bracket(parts) = operand else { return reject("an object and coordinates in brackets are needed") };
    // A third part is a sampler of its own; a name is a reference.
    let [object @ Operand::Reg(_), coordinates] = parts.as_slice() else { return Err(Trouble::Refused) };
    let object = lowerer.lower_source64(object, T::B64)?;
    let parts = elements(coordinates);
    let first = usize::from(geometry.has_layers());
    if parts.len() < first + geometry.dimensions() {
        return reject("coordinates are missing");
    }
    let mut op = TextureOp { kind: TextureKind::Gather { component: 0 }, geometry, object, layer: NO_SLOT, coordinates: [NO_SLOT; 3], data: Vec::new() };
    if first == 1 {
        op.layer = lowerer.lower_source32(&parts[0], T::B32)?;
    }
    // Vectors are filled up to four.
    for (part, into) in parts[first..].iter().zip(&mut op.coordinates[..geometry.dimensions()]) {
        *into = lowerer.lower_source32(part, T::F32)?;
    }
    Ok(op)
}

/// The registers of a result.
fn results(lowerer: &mut Lowerer<'_>, operand: &Operand) -> Lowered<Vec<RegisterSlot>> {
    elements(operand).iter().map(|part| lowerer.lower_target32(part)).collect()
}

/// `tex`.
fn lower_sample(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &[&str]) -> Lowered<TextureOp> {
    let types: Vec<T> = i.types().collect();
    let ([T::F32 | T::S32 | T::U32, ctype @ (T::F32 | T::S32)], 4) = (types.as_slice(), i.vector()) else { return Err(Trouble::Refused) };
    let (mode, geometry) = match words {
        [geometry] => ("", *geometry),
        [mode @ ("base" | "level" | "grad"), geometry] => (*mode, *geometry),
        _ => return Err(Trouble::Refused),
    };
    let Some(geometry) = geometry_of(geometry) else { return Err(Trouble::Refused) };
    let [d, place, more @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let mut op = lower_place(lowerer, geometry, place)?;
    let level = match (mode, more) {
        ("" | "base", []) => LevelOf::First,
        ("level", [level]) => LevelOf::Register(lowerer.lower_source32(level, *ctype)?),
        ("grad", [x, y]) if matches!(geometry, Geometry::Line | Geometry::Plane | Geometry::Solid | Geometry::Lines | Geometry::Planes) => {
            let mut axis = |operand| {
                let mut out = [NO_SLOT; 3];
                for (part, into) in elements(operand).iter().zip(&mut out[..geometry.dimensions()]) {
                    *into = lowerer.lower_source32(part, T::F32)?;
                }
                Ok(out)
            };
            LevelOf::Gradients(axis(x)?, axis(y)?)
        }
        // Offsets and comparisons with a depth.
        _ => return Err(Trouble::Refused),
    };
    let whole = *ctype == T::S32;
    if whole && matches!(level, LevelOf::Register(_)) {
        return Err(Trouble::Refused);
    }
    op.kind = TextureKind::Sample { whole, level };
    op.data = results(lowerer, d)?;
    if op.data.len() == 4 { Ok(op) } else { Err(Trouble::Refused) }
}

/// `tld4`.
fn lower_gather(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &[&str]) -> Lowered<TextureOp> {
    let types: Vec<T> = i.types().collect();
    let ([T::F32 | T::S32 | T::U32, T::F32], 4, [d, place]) = (types.as_slice(), i.vector(), i.operands.as_slice()) else { return Err(Trouble::Refused) };
    let (component, geometry) = match words {
        ["r", geometry @ ("2d" | "a2d")] => (0, geometry),
        ["g", geometry @ ("2d" | "a2d")] => (1, geometry),
        ["b", geometry @ ("2d" | "a2d")] => (2, geometry),
        ["a", geometry @ ("2d" | "a2d")] => (3, geometry),
        _ => return Err(Trouble::Refused),
    };
    let Some(geometry) = geometry_of(geometry) else { return Err(Trouble::Refused) };
    let mut op = lower_place(lowerer, geometry, place)?;
    op.kind = TextureKind::Gather { component };
    op.data = results(lowerer, d)?;
    if op.data.len() == 4 { Ok(op) } else { Err(Trouble::Refused) }
}

/// `txq` and `suq`.
fn lower_query(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &[&str]) -> Lowered<TextureOp> {
    let query = match words {
        ["width"] => TextureQuery::Width,
        ["height"] => TextureQuery::Height,
        ["depth"] => TextureQuery::Depth,
        ["array_size"] => TextureQuery::Layers,
        ["num_mipmap_levels"] => TextureQuery::Levels,
        ["normalized_coords"] => TextureQuery::Normalized,
        _ => return Err(Trouble::Refused),
    };
    let [d, place] = exact_operands::<2>(i)?;
    let object = match place {
        Operand::Address { base: cumux_ptx::ast::AddressBase::Reg(register), offset: 0 } => Operand::Reg(*register),
        Operand::Bracket(parts) if matches!(parts.as_slice(), [Operand::Reg(_)]) => parts[0].clone(),
        _ => return Err(Trouble::Refused),
    };
    let object = lowerer.lower_source64(&object, T::B64)?;
    let data = results(lowerer, d)?;
    Ok(TextureOp { kind: TextureKind::Query(query), geometry: Geometry::Line, object, layer: NO_SLOT, coordinates: [NO_SLOT; 3], data })
}

/// `suld`, `sust` and `sured` of bytes.
fn lower_surface(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &[&str]) -> Lowered<TextureOp> {
    let types: Vec<T> = i.types().collect();
    let (["b", rest @ ..], [ty]) = (words, types.as_slice()) else { return Err(Trouble::Refused) };
    let (mut geometry, mut outside) = (None, Outside::Trap);
    for word in rest {
        match *word {
            "trap" => outside = Outside::Trap,
            "clamp" => outside = Outside::Clamp,
            "zero" => outside = Outside::Zero,
            other if geometry.is_none() => geometry = Some(geometry_of(other).ok_or(Trouble::Refused)?),
            _ => return Err(Trouble::Refused),
        }
    }
    let Some(geometry) = geometry.filter(|one| !matches!(one, Geometry::Cube | Geometry::Cubes)) else { return Err(Trouble::Refused) };
    let (first, second) = match i.operands.as_slice() {
        [first, second] => (first, second),
        _ => return Err(Trouble::Refused),
    };
    let (place, data) = if i.opcode == O::Suld { (second, first) } else { (first, second) };
    let mut op = lower_place(lowerer, geometry, place)?;
    let bytes = ty.bytes() as u8;
    let parts = elements(data);
    if parts.len() != usize::from(i.vector()) || !matches!(bytes, 1 | 2 | 4 | 8) {
        return reject("the vector does not fit the type");
    }
    op.kind = match i.opcode {
        O::Suld => TextureKind::Load { bytes, outside },
        O::Sust => TextureKind::Store { bytes, outside },
        _ => {
            let how = match i.reduce() {
                Some(how @ (ReduceOp::Add | ReduceOp::Min | ReduceOp::Max | ReduceOp::And | ReduceOp::Or)) if bytes >= 4 => how,
                _ => return Err(Trouble::Refused),
            };
            TextureKind::Reduce { bytes, how: select_atomic(how, *ty)?, outside }
        }
    };
    for part in parts {
        let slot = match (i.opcode, bytes) {
            (O::Suld, 8) => lowerer.lower_target64(part)?,
            (O::Suld, _) => lowerer.lower_target32(part)?,
            (_, 8) => lowerer.lower_source64(part, *ty)?,
            _ => lowerer.lower_source32(part, *ty)?,
        };
        op.data.push(slot);
    }
    Ok(op)
}
