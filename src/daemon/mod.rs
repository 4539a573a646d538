//! The code that runs while a dataset is mounted: serve, reload, settings, logging, memory, metrics, and the figures behind
//! `top`, `stats` and `doctor`.
//!
//! Imports from [`crate::tools`] and the rooms below it.

pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod figures;
pub(crate) mod live;
mod log_file;
mod log_journal;
pub(crate) mod logging;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod mount;
pub(crate) mod notify;
pub(crate) mod patience;
pub(crate) mod reload;
pub(crate) mod remount;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod unmount;
pub(crate) mod upgrade;

use crate::failure::{Exit, Failure};
use crate::transport::MountError;

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        Self::new(Exit::Mount, error)
    }
}
