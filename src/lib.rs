//! ffrfs mounts a dataset container so that every sample is a plain file.
//!
//! The rooms, ground floor first; a room imports only from rooms below it:
//!
//! | room | what it holds |
//! | --- | --- |
//! | [`mod@format`] | bytes → samples: one file (or folder) a container format, the registry, errors |
//! | [`catalog`] | samples → names: the immutable tree over one or more containers |
//! | [`io`] | system calls: buffers, positioned reads, guarded mappings, processes, mount table |
//! | [`vfs`] | what each call means: lookup, readdir, `read` as a step machine, verification, cache |
//! | [`transport`] | kernel ↔ vfs: `devfuse` serves requests from /dev/fuse |
//! | [`cli`] | one file a sub-command |

pub mod catalog;
pub mod cli;
pub mod format;
pub mod io;
pub mod transport;
pub mod vfs;
