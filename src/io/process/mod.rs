//! Processes: this one, those that it forks and watches, facts of /proc about others, and the descriptor store of a service
//! manager.

pub mod cgroup;
pub mod descriptor_store;
mod fork;
mod helper;
mod lasting_helper;
pub mod procfs;
mod this_process;
pub mod workers;

pub use fork::{Forked, Ready, Report, Side, end_child, fork_alone, fork_daemon, in_child};
pub use helper::{Helper, MOST_MESSAGE_BYTES};
pub use lasting_helper::LastingHelper;
pub use this_process::{
    allow_wakes, enter_mount_namespace, leave_terminal, raise_open_files_limit, reset_signals,
    set_name, stderr_is_the_journal, this_thread, wake,
};
