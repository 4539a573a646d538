//! Members of one container, or files of a directory, as another container.

pub(crate) mod losses;
pub(crate) mod ordered;
pub(crate) mod shards;
pub(crate) mod write;
