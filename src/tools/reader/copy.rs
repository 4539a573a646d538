//! Copies one sample, checked before its first byte is written.
//!
//! Imports the reader of single samples and of spans.

use super::samples::SampleReader;
use super::types::{SPAN_BYTES, Scratch, Stop};
use crate::catalog::Located;
use crate::failure::Failure;
use crate::format::Content;
use std::io::Write;

impl SampleReader<'_> {
    /// Writes the file of a sample to `out`, which `name` names in errors. Small files are checked in memory; large
    /// ones are read twice if only the whole file can be checked.
    pub(crate) fn copy_checked(
        &self,
        located: &Located,
        out: &mut dyn Write,
        name: &str,
    ) -> Result<(), Stop> {
        let mut scratch = Scratch::default();
        let failed = |error| Failure::output(name, error);
        if located.sample.size_bytes() <= SPAN_BYTES {
            for file in self.read_span(&[*located], &mut scratch)? {
                out.write_all(file?.bytes.get(&scratch.buffer)).map_err(failed)?;
            }
            return Ok(());
        }
        // Each interval of a compressed stream has its own checksum.
        let is_stream = self.container(located).intervals(located.index).is_some();
        let is_encoded = matches!(located.sample.content, Content::Encoded(_));
        if !is_stream && (is_encoded || located.sample.checksum.is_some()) {
            self.check_held(located, &mut scratch, None)?;
        }
        self.stream(located, &mut scratch, &mut |chunk| {
            chunk.each_slice(|bytes| out.write_all(bytes).map_err(failed))
        })
    }
}
