//! Mounting a dataset: the request, opening and mounting, and the daemon that serves it.

mod limits;
mod prepare;
mod request;
mod start;
mod supervise;

pub(crate) use request::{Caller, MountRequest, MountSettings};
pub(crate) use start::{Died, start};
