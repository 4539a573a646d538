//! The figures of a mount over time, as `ffrfs top` shows them.

pub(crate) mod sample;
pub(crate) mod state;
