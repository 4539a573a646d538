//! Mounting a dataset: the request, opening and mounting, and the daemon that serves it.

mod confine;
mod deaths;
mod limits;
#[cfg(feature = "remote")]
mod objects;
#[cfg(not(feature = "remote"))]
#[path = "objects_off.rs"]
mod objects;
mod ours;
mod place;
mod prepare;
mod program;
mod request;
mod rules;
mod running;
mod start;
mod stored;
mod supervise;
mod terminal;
mod told;
mod worker;

pub(crate) use place::{name_in, name_of_all};
pub(crate) use request::{Caller, MountRequest, MountSettings};
pub(crate) use start::{check, start};
pub(crate) use terminal::Died;
