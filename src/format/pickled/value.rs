//! The content of a pickle, as values that refer to each other and to the bytes of the pickle.
//!
//! Imports nothing.

use std::ops::Range;

/// The number of a value.
pub(super) type Id = u32;

/// A value. Ranges are of bytes of the pickle.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// UTF-8.
    Text(Range<usize>),
    Bytes(Bytes),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or a function that is known by its name.
    Known(Known),
    /// The type of an array's elements, as NumPy writes it: `<f4`.
    Dtype(Dtype),
    /// An array before its state is set.
    NewArray,
    Array(Array),
    /// An image before its state is set.
    NewImage,
    Image(Image),
    /// The numbers of a tensor of PyTorch.
    Storage(Storage),
}

/// Bytes, and their form in the pickle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::format) struct Bytes {
    pub(in crate::format) range: Range<usize>,
    /// The number of bytes, if they are stored as characters of UTF-8 up to U+00FF, as in protocol 2.
    pub(in crate::format) latin1: Option<usize>,
}

impl Bytes {
    /// The number of bytes.
    pub(in crate::format) fn len(&self) -> usize {
        self.latin1.unwrap_or(self.range.end.saturating_sub(self.range.start))
    }
}

/// A type of elements: its kind and size, and the byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dtype {
    pub(super) kind: String,
    pub(super) order: char,
}

impl Dtype {
    pub(super) fn descr(&self) -> String {
        format!("{}{}", self.order, self.kind)
    }
}

/// An array, or a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Array {
    /// NumPy's name of the type; `None` if NumPy does not have it.
    pub(super) descr: Option<String>,
    pub(super) shape: Vec<u64>,
    pub(super) is_fortran: bool,
    pub(super) data: Bytes,
}

/// An image of PIL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) mode: String,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) data: Bytes,
    /// The value None, or the list of the colours' numbers.
    pub(super) palette: Id,
}

/// A storage of PyTorch: numbers of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Storage {
    /// NumPy's name of the type; `None` if NumPy does not have it.
    pub(super) descr: Option<&'static str>,
    pub(super) item_bytes: usize,
    pub(super) range: Range<usize>,
}

/// The known classes and functions, which are never called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    OrderedDict,
    BytesType,
    ByteArray,
    CodecsEncode,
    NdArray,
    Reconstruct,
    Scalar,
    DtypeType,
    FromBuffer,
    ImageType,
    RebuildTensor,
    LoadFromBytes,
    /// A row of [`STORAGES`].
    StorageType(u8),
}

/// PyTorch's storages: class, NumPy's name of the type, bytes of an element.
static STORAGES: &[(&str, Option<&str>, usize)] = &[
    ("FloatStorage", Some("<f4"), 4),
    ("DoubleStorage", Some("<f8"), 8),
    ("HalfStorage", Some("<f2"), 2),
    ("BFloat16Storage", None, 2),
    ("LongStorage", Some("<i8"), 8),
    ("IntStorage", Some("<i4"), 4),
    ("ShortStorage", Some("<i2"), 2),
    ("CharStorage", Some("|i1"), 1),
    ("ByteStorage", Some("|u1"), 1),
    ("BoolStorage", Some("|b1"), 1),
    ("ComplexFloatStorage", Some("<c8"), 8),
    ("ComplexDoubleStorage", Some("<c16"), 16),
];

/// Finds a class or a function by its name.
pub(super) fn known(module: &[u8], name: &[u8]) -> Option<Known> {
    Some(match (module, name) {
        (b"collections", b"OrderedDict") => Known::OrderedDict,
        (b"builtins" | b"__builtin__", b"bytes") => Known::BytesType,
        (b"builtins" | b"__builtin__", b"bytearray") => Known::ByteArray,
        (b"_codecs", b"encode") => Known::CodecsEncode,
        (b"numpy", b"ndarray") => Known::NdArray,
        (b"numpy", b"dtype") => Known::DtypeType,
        (b"numpy.core.multiarray" | b"numpy._core.multiarray", b"_reconstruct") => {
            Known::Reconstruct
        }
        (b"numpy.core.multiarray" | b"numpy._core.multiarray", b"scalar") => Known::Scalar,
        (b"numpy.core.numeric" | b"numpy._core.numeric", b"_frombuffer") => Known::FromBuffer,
        (b"PIL.Image", b"Image") => Known::ImageType,
        (module, name)
            if module.starts_with(b"PIL.")
                && module.ends_with(b"ImagePlugin")
                && name.ends_with(b"ImageFile") =>
        {
            Known::ImageType
        }
        (b"torch._utils", b"_rebuild_tensor_v2") => Known::RebuildTensor,
        (b"torch.storage", b"_load_from_bytes") => Known::LoadFromBytes,
        (b"torch", name) => {
            let place = STORAGES.iter().position(|(class, ..)| class.as_bytes() == name)?;
            Known::StorageType(u8::try_from(place).ok()?)
        }
        _ => return None,
    })
}

/// NumPy's name of the type of a storage's elements, and the bytes of each element.
pub(super) fn storage_type(known: Known) -> Option<(Option<&'static str>, usize)> {
    let Known::StorageType(row) = known else { return None };
    STORAGES.get(usize::from(row)).map(|(_, descr, bytes)| (*descr, *bytes))
}
