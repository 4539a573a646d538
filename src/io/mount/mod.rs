//! Mounts: the mount table, the ID that tells one mount from all others, its FUSE connection, and the helper program that
//! mounts for users.

pub mod control_file;
pub mod fuse_connection;
pub mod fusermount;
pub mod made;
pub mod mount_id;
pub mod mounts;
pub mod passed_connection;
pub mod unshared;
