//! Images of PIL as files: the header that makes a file of the bytes as PIL has them.
//!
//! PNM for modes that it has (RGB, L); TIFF if a palette or single bits belong to the image, since PIL's bytes are
//! TIFF's as they are; else, and for images without pixels, the array that `numpy.asarray` gives.

use super::machine::Unpickled;
use super::value::{Image, Value};
use crate::format::npy;

/// The colours of a palette in TIFF, whether an image uses them or not.
const COLOURS: usize = 256;
const BANDS: usize = 3;

/// The types of fields in TIFF.
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// The header before the bytes of an image, and the ending of the file. `None` if the mode is not known, or the image has other
/// bytes than its size asks for.
pub(super) fn of_image(pickle: &Unpickled, image: &Image) -> Option<(Vec<u8>, &'static str)> {
    let Image { mode, width, height, data, palette } = image;
    let colours = palette_of(pickle, pickle.get(*palette)?)?;
    // As PIL reads it: an image that was given a palette has one.
    let mode = match mode.as_str() {
        "L" if !colours.is_empty() => "P",
        "LA" if !colours.is_empty() => "PA",
        mode => mode,
    };
    let (pixel_bytes, kind) = layout(mode)?;
    let row_bytes = match pixel_bytes {
        0 => width.div_ceil(8),
        _ => width.checked_mul(pixel_bytes)?,
    };
    if row_bytes.checked_mul(*height) != Some(data.len() as u64) {
        return None;
    }
    let is_empty = data.len() == 0;
    let array = |descr: &str, bands: &[u64]| {
        (npy::header(descr, &[&[*height, *width], bands].concat()), ".npy")
    };
    Some(match kind {
        Kind::Pnm(_, bands) if is_empty => array("|u1", bands),
        Kind::Pnm(magic, _) => {
            let ending = if magic == "P6" { ".ppm" } else { ".pgm" };
            (format!("{magic}\n{width} {height}\n255\n").into_bytes(), ending)
        }
        Kind::Array(descr, bands) => array(descr, bands),
        Kind::Bits if is_empty => array("|b1", &[]),
        Kind::Palette(1) if is_empty => array("|u1", &[]),
        Kind::Palette(bands) if is_empty => array("|u1", &[bands.into()]),
        Kind::Bits => (tiff(image, &[1], None)?, ".tif"),
        Kind::Palette(1) => (tiff(image, &[8], Some(&colours))?, ".tif"),
        Kind::Palette(_) => (tiff(image, &[8, 8], Some(&colours))?, ".tif"),
    })
}

/// How the bytes of a mode are shown.
enum Kind {
    /// The magic number, and the dimensions of an array behind height and width.
    Pnm(&'static str, &'static [u64]),
    Array(&'static str, &'static [u64]),
    /// A bit a pixel, rows of whole bytes.
    Bits,
    /// Numbers of colours; a second band has the opacity of each pixel.
    Palette(u8),
}

/// Bytes of a pixel, 0 for a bit, and how the mode is shown.
fn layout(mode: &str) -> Option<(u64, Kind)> {
    Some(match mode {
        "RGB" => (3, Kind::Pnm("P6", &[3])),
        "L" => (1, Kind::Pnm("P5", &[])),
        "1" => (0, Kind::Bits),
        "P" => (1, Kind::Palette(1)),
        "PA" => (2, Kind::Palette(2)),
        "LA" | "La" => (2, Kind::Array("|u1", &[2])),
        "YCbCr" | "LAB" | "HSV" => (3, Kind::Array("|u1", &[3])),
        "RGBA" | "RGBa" | "RGBX" | "CMYK" => (4, Kind::Array("|u1", &[4])),
        "I" => (4, Kind::Array("<i4", &[])),
        "F" => (4, Kind::Array("<f4", &[])),
        "I;16" | "I;16L" => (2, Kind::Array("<u2", &[])),
        "I;16B" => (2, Kind::Array(">u2", &[])),
        _ => return None,
    })
}

/// The colours of a palette: red, green and blue of one colour after the other. `None` if the value is not a palette.
fn palette_of(pickle: &Unpickled, palette: &Value) -> Option<Vec<u8>> {
    let numbers = match palette {
        Value::None => return Some(Vec::new()),
        Value::List(numbers) if numbers.len() <= COLOURS.saturating_mul(BANDS) => numbers,
        _ => return None,
    };
    let number = |id: &u32| match pickle.get(*id)? {
        Value::Int(number) => u8::try_from(*number).ok(),
        _ => None,
    };
    numbers.len().is_multiple_of(BANDS).then(|| numbers.iter().map(number).collect())?
}

/// The header of a TIFF whose only strip is the image's bytes, which stand right behind it. `None` if they are too many.
fn tiff(image: &Image, bits: &[u16], palette: Option<&[u8]>) -> Option<Vec<u8>> {
    let (width, height) = (u32::try_from(image.width).ok()?, u32::try_from(image.height).ok()?);
    let data_bytes = u32::try_from(image.data.len()).ok()?;
    let bands = u32::try_from(bits.len()).ok()?;
    let has_palette = palette.is_some();
    let (fields, colours): (u32, u32) =
        (if has_palette { 10_u32 } else { 9 }, if has_palette { 768 } else { 0 });
    let fields = fields.checked_add(u32::from(bits.len() > 1))?;
    // "II*\0" and the offset of the fields; their number, the fields, and a 0: no further image.
    let palette_at = fields.checked_mul(12)?.checked_add(8 + 2 + 4)?;
    let data_at = colours.checked_mul(2_u32)?.checked_add(palette_at)?;
    let [first, second] = [0, 1].map(|band| bits.get(band).copied().map_or(0, u32::from));
    let mut out = b"II*\0\x08\0\0\0".to_vec();
    out.extend_from_slice(&u16::try_from(fields).ok()?.to_le_bytes());
    let mut field = |tag: u16, kind: u16, count: u32, value: u32| {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
    };
    field(256, LONG, 1, width);
    field(257, LONG, 1, height);
    // Two numbers of 16 bits stand in the field itself.
    field(258, SHORT, bands, first | second << 16);
    // Not compressed.
    field(259, SHORT, 1, 1);
    // 3: colours of a palette; 1: zero is black.
    field(262, SHORT, 1, if has_palette { 3 } else { 1 });
    field(273, LONG, 1, data_at);
    field(277, SHORT, 1, bands);
    field(278, LONG, 1, height);
    field(279, LONG, 1, data_bytes);
    if has_palette {
        field(320, SHORT, colours, palette_at);
    }
    if bits.len() > 1 {
        // The second band has the opacity of a pixel.
        field(338, SHORT, 1, 2);
    }
    out.extend_from_slice(&[0; 4]);
    if let Some(palette) = palette {
        for band in 0..BANDS {
            let of_band = palette.iter().skip(band).step_by(BANDS);
            let all = of_band.copied().chain(std::iter::repeat(0)).take(COLOURS);
            // Colours have 16 bits: both bytes have the same value.
            all.for_each(|colour| out.extend_from_slice(&[colour, colour]));
        }
    }
    Some(out)
}
