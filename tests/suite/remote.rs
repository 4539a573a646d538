//! Containers in object stores and behind HTTP, as their users see them: read from `tests/store`, which does what a
//! test wants a store to do.

mod real_servers;
mod store;
