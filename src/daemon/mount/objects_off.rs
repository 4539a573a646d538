//! Replaces `objects` in a program that was built without clients of stores.

use super::request::MountRequest;
use crate::io::confine::Rules;

/// No program prints credentials.
pub(super) fn run_programs_outside(_: &MountRequest) {}

/// Adds no needs.
pub(super) fn add_needs(_: &mut Rules, _: &MountRequest) {}
