//! The figures of mounts over time, as `ffrfs top` shows them.

pub(crate) mod figures;
pub(crate) mod sample;
