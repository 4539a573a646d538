//! The values that the known classes and functions would make: arrays of NumPy, images of PIL, tensors of PyTorch.

use super::heap::{Heap, pairs};
use super::value::{Array, Bytes, Dtype, Id, Image, Known, Storage, Value, storage_type};
use crate::format::npy;

/// The most dimensions of an array that NumPy reads.
const MAX_DIMENSIONS: usize = 64;

/// The value that `callable(*arguments)`, or with `is_new` `callable.__new__(callable, *arguments)`, would return.
pub(super) fn call(heap: &Heap<'_>, callable: Known, arguments: Id, is_new: bool) -> Option<Value> {
    let Value::Tuple(arguments) = heap.get(arguments)? else { return None };
    let value = |number: usize| heap.get(*arguments.get(number)?);
    let count = arguments.len();
    Some(match (callable, is_new) {
        (Known::ImageType, _) if count == 0 => Value::NewImage,
        (_, true) => return None,
        (Known::OrderedDict, _) => match count {
            0 => Value::Dict(Vec::new()),
            _ => ordered(heap, value(0)?)?,
        },
        (Known::BytesType, _) if count == 0 => Value::Bytes(Bytes { range: 0..0, latin1: None }),
        (Known::ByteArray, _) => match (count, value(0)) {
            (0, _) => Value::Bytes(Bytes { range: 0..0, latin1: None }),
            (1, Some(Value::Bytes(bytes))) => Value::Bytes(bytes.clone()),
            (2, _) => encoded(heap, value(0)?, value(1)?)?,
            _ => return None,
        },
        (Known::CodecsEncode, _) if count == 2 => encoded(heap, value(0)?, value(1)?)?,
        (Known::Reconstruct, _) if *value(0)? == Value::Known(Known::NdArray) => Value::NewArray,
        (Known::DtypeType, _) => Value::Dtype(Dtype { kind: text(heap, value(0)?)?, order: '|' }),
        (Known::Scalar, _) if count == 2 => {
            Value::Array(array(value(0)?, Vec::new(), false, bytes(value(1)?)?)?)
        }
        (Known::FromBuffer, _) if count == 4 => {
            let is_fortran = match text(heap, value(3)?)?.as_str() {
                "C" => false,
                "F" => true,
                _ => return None,
            };
            let shape = lengths(heap, value(2)?)?;
            Value::Array(array(value(1)?, shape, is_fortran, bytes(value(0)?)?)?)
        }
        (Known::RebuildTensor, _) if count >= 4 && is_unmarked(value(6)) => {
            let Value::Storage(storage) = value(0)? else { return None };
            let shape = lengths(heap, value(2)?)?;
            let strides = lengths(heap, value(3)?)?;
            Value::Array(tensor(storage, int(value(1)?)?, shape, &strides)?)
        }
        _ => return None,
    })
}

/// The value of `target` once its state is set.
pub(super) fn build(heap: &Heap<'_>, target: Id, state: Id) -> Option<Value> {
    let (target, state) = (heap.get(target)?, heap.get(state)?);
    let fields = match state {
        Value::Tuple(fields) | Value::List(fields) => fields,
        _ => return None,
    };
    let field = |number: usize| heap.get(*fields.get(number)?);
    Some(match target {
        // (version, byte order, sub-array, names, fields, …): types of records are not taken apart.
        Value::Dtype(dtype) => {
            let order = text(heap, field(1)?)?;
            let (mut order, rest) = (order.chars(), (field(2)?, field(3)?, field(4)?));
            // Nor are dates and times, whose unit stands in a further field.
            if rest != (&Value::None, &Value::None, &Value::None)
                || dtype.kind.starts_with(['M', 'm'])
            {
                return None;
            }
            Value::Dtype(Dtype { kind: dtype.kind.clone(), order: order.next()? })
        }
        // (version, shape, type, whether in Fortran's order, bytes)
        Value::NewArray if fields.len() == 5 => {
            let Value::Bool(is_fortran) = field(3)? else { return None };
            let shape = lengths(heap, field(1)?)?;
            Value::Array(array(field(2)?, shape, *is_fortran, bytes(field(4)?)?)?)
        }
        // [info, mode, size, palette, bytes]; an image of a file also has its name, and one of a JPEG its components
        Value::NewImage if matches!(fields.len(), 5 | 6 | 8) => {
            let [width, height] = lengths(heap, field(2)?)?[..] else { return None };
            let (mode, data) = (text(heap, field(1)?)?, bytes(field(4)?)?.clone());
            Value::Image(Image { mode, width, height, data, palette: *fields.get(3)? })
        }
        _ => return None,
    })
}

/// A storage of PyTorch that stands elsewhere in the same file: its type, and the number of its elements.
pub(super) fn persistent(heap: &Heap<'_>, id: Id) -> Option<Value> {
    let Value::Tuple(fields) = heap.get(id)? else { return None };
    let field = |number: usize| heap.get(*fields.get(number)?);
    let Value::Known(class) = field(1)? else { return None };
    let (descr, item_bytes) = storage_type(*class)?;
    let is_plain = text(heap, field(0)?)? == "storage"
        && fields.get(5).is_none_or(|view| heap.get(*view) == Some(&Value::None));
    let count = usize::try_from(int(field(4)?)?).ok()?;
    is_plain.then_some(Value::Storage(Storage { descr, item_bytes, range: 0..count }))
}

fn ordered(heap: &Heap<'_>, list: &Value) -> Option<Value> {
    let Value::List(items) = list else { return None };
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        match heap.get(*item)? {
            Value::List(pair) | Value::Tuple(pair) if pair.len() == 2 => all.extend(pairs(pair)?),
            _ => return None,
        }
    }
    Some(Value::Dict(all))
}

/// Makes bytes that are written as characters.
fn encoded(heap: &Heap<'_>, characters: &Value, charset: &Value) -> Option<Value> {
    let Value::Text(range) = characters else { return None };
    if !matches!(text(heap, charset)?.as_str(), "latin1" | "latin-1") {
        return None;
    }
    let characters = str::from_utf8(heap.at(range)).ok()?;
    let mut count = 0_usize;
    for character in characters.chars() {
        u8::try_from(u32::from(character)).ok()?;
        count = count.saturating_add(1);
    }
    // Characters of ASCII are stored as the bytes that they stand for.
    let latin1 = Some(count).filter(|count| *count < characters.len());
    Some(Value::Bytes(Bytes { range: range.clone(), latin1 }))
}

fn array(dtype: &Value, shape: Vec<u64>, is_fortran: bool, data: &Bytes) -> Option<Array> {
    let Value::Dtype(dtype) = dtype else { return None };
    let mut descr = dtype.descr();
    // Types without a byte order, as NumPy writes them.
    if matches!(dtype.order, '|') && npy::item_bytes(&descr).is_some_and(|bytes| bytes > 1) {
        let is_text = dtype.kind.starts_with(['S', 'V']);
        descr = if is_text { descr } else { format!("<{}", dtype.kind) };
    }
    let bytes = count(&shape)?.checked_mul(npy::item_bytes(&descr)?)?;
    (bytes == data.len() as u64).then(|| Array {
        descr: Some(descr),
        shape,
        is_fortran,
        data: data.clone(),
    })
}

/// Whether no mark says that the numbers of a tensor are to be conjugated, or to have the other sign.
fn is_unmarked(marks: Option<&Value>) -> bool {
    match marks {
        None | Some(Value::None) => true,
        Some(Value::Dict(marks)) => marks.is_empty(),
        Some(_) => false,
    }
}

/// The number of elements of an array.
fn count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_u64, |count, length| count.checked_mul(*length))
}

/// Whether elements with these lengths and strides, from the innermost dimension on, lie together.
fn is_in_order<'a>(mut axes: impl Iterator<Item = (&'a u64, &'a u64)>) -> bool {
    let mut step = Some(1_u64);
    axes.all(|(length, stride)| {
        let fits = *length <= 1 || step == Some(*stride);
        step = step.and_then(|step| step.checked_mul(*length));
        fits
    })
}

/// Makes a tensor whose elements lie together.
fn tensor(storage: &Storage, offset: i128, shape: Vec<u64>, strides: &[u64]) -> Option<Array> {
    if shape.len() != strides.len() {
        return None;
    }
    let is_empty = shape.contains(&0);
    let is_c = is_empty || is_in_order(shape.iter().zip(strides).rev());
    if !is_c && !is_in_order(shape.iter().zip(strides)) {
        return None;
    }
    let item = storage.item_bytes;
    let start = usize::try_from(offset).ok()?.checked_mul(item)?;
    let length = usize::try_from(count(&shape)?).ok()?.checked_mul(item)?;
    let start = storage.range.start.checked_add(start)?;
    let end = start.checked_add(length).filter(|end| *end <= storage.range.end)?;
    let data = Bytes { range: start..end, latin1: None };
    Some(Array { descr: storage.descr.map(str::to_owned), shape, is_fortran: !is_c, data })
}

fn text(heap: &Heap<'_>, value: &Value) -> Option<String> {
    let range = match value {
        Value::Text(range) | Value::Bytes(Bytes { range, latin1: None }) => range,
        _ => return None,
    };
    str::from_utf8(heap.at(range)).ok().filter(|text| text.len() <= 64).map(str::to_owned)
}

fn bytes(value: &Value) -> Option<&Bytes> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn int(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Reads a shape, or strides.
fn lengths(heap: &Heap<'_>, value: &Value) -> Option<Vec<u64>> {
    let Value::Tuple(items) = value else { return None };
    if items.len() > MAX_DIMENSIONS {
        return None;
    }
    items.iter().map(|item| u64::try_from(int(heap.get(*item)?)?).ok()).collect()
}
