//! HDF5 (`.h5`, `.hdf5`), superblocks 0 to 3, as the HDF5 library up to 2.0 writes it: own code, which reads only.
//!
//! Groups are directories, datasets are arrays. A file's structure is read once; a name for each link, 24 bytes for each
//! chunk, and 16 bytes for each value of variable length are kept in memory. Rows take no memory here. `object` reads the
//! messages that describe all objects; metadata of version 2 has checksums, which are compared.

mod arrays;
mod bands;
mod chunked;
mod dataset;
mod datatype;
mod file;
mod filter;
mod group;
mod heap;
mod input;
mod notes;
mod object;
mod padded;
mod shared;
mod shown;
mod superblock;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod tree1;
mod tree2;
mod values;

use super::{Container, Detected, Format, OpenOptions, Result, Source};
use file::Hdf5File;
use std::sync::Arc;

const NAME: &str = "HDF5";

/// The format HDF5.
#[derive(Debug)]
pub struct Hdf5;

impl Format for Hdf5 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["h5", "hdf5", "he5", "hdf"]
    }

    /// A mark behind a user block may be that of a file in another container.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        Ok(match superblock::find(input::reader(source), superblock::MAX_FOREIGN_USER_BLOCK)? {
            Some(0) => Detected::Yes,
            Some(_) => Detected::Perhaps,
            None => Detected::No,
        })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        Ok(Box::new(Hdf5File::open(source, options)?))
    }
}
