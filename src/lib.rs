//! ffrfs mounts a dataset container so that every sample is a plain file.
//!
//! The rooms; a room imports only from rooms that stand before it in this table:
//!
//! | room | content |
//! | --- | --- |
//! | [`mod@format`] | bytes → samples: one file (or directory) for each container format, the registry, errors |
//! | [`catalog`] | samples → names: the immutable tree over one or more containers |
//! | [`io`] | system calls: buffers, positioned reads, guarded mappings, processes, mount table |
//! | [`store`] | the places of a dataset's bytes: all its parts, local or elsewhere |
//! | [`vfs`] | the meaning of each call: lookup, readdir, `read` as a step machine, verification, cache |
//! | [`dataset`] | names on a command line → an open dataset: expand, recognise, nest, kept indexes |
//! | [`transport`] | kernel ↔ vfs: `dispatch` and `ops` answer the requests that `devfuse` and `queue` receive |
//! | `tools` | offline work: read samples as a mount does, verify, sum, extract, convert |
//! | `daemon` | the work while a dataset is mounted: serve, reload, settings, logging, metrics |
//! | [`cli`] | arguments and printing, one file for each sub-command |

pub mod catalog;
pub mod cli;
mod daemon;
pub mod dataset;
pub mod failure;
pub mod format;
mod interrupt;
pub mod io;
pub mod store;
mod tools;
pub mod transport;
pub mod vfs;
