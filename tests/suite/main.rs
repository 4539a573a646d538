//! Integration tests: the program as its users see it, on real mounts.
//!
//! One binary, so that there is one thing to link. Tests may run in parallel and in any order; each has
//! its own containers and mount points, and leaves nothing behind.

mod announce;
mod attributes;
mod bench;
mod cache;
mod cache_command;
mod catalog_model;
mod changed;
mod cli;
mod common;
mod containers;
mod convert;
mod corpus;
mod cpus;
mod doctor;
mod documents;
mod engine;
mod extract;
mod few_threads;
mod fixtures;
mod formats;
mod hostile;
mod integrity;
mod killed;
mod lifecycle;
mod manual;
mod memory;
mod metrics;
mod mount8;
mod pack;
mod programs;
mod python_package;
mod readonly;
#[cfg(feature = "remote")]
mod remote;
mod restarts;
mod sandbox;
mod selection;
mod service;
mod settings;
mod stats;
mod tar_tools;
mod teardown;
mod top;
mod trace;
mod units;
mod user;
mod verify;
mod view;
mod warmup;
mod wire;
