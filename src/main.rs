//! The `ffrfs` command.

use ffrfs::io::memory::heap::Heap;
use std::process::ExitCode;

#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    ffrfs::cli::main(std::env::args_os().collect())
}
