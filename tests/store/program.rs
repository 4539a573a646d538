//! The store of the tests as a program, for measurements: `store ROOT [PORT [THREADS]]`. The first directories below ROOT
//! are its buckets. It prints its endpoint, and ends with its standard input. `control.rs` says how programs steer it.

#[path = "mod.rs"]
mod store;

use std::io::{Read, Write};
use std::path::PathBuf;

fn main() {
    let mut args = std::env::args_os().skip(1);
    let Some(root) = args.next().map(PathBuf::from).filter(|root| root.is_dir()) else {
        eprintln!("usage: store ROOT [PORT [THREADS]]");
        std::process::exit(2);
    };
    let mut number = |otherwise: u16| match args.next() {
        Some(text) => text.to_str().and_then(|text| text.parse().ok()).expect("a number"),
        None => otherwise,
    };
    let (port, threads) = (number(0), number(2));
    let store = store::Store::start(port, usize::from(threads), Some(&root));
    println!("{}", store.endpoint());
    std::io::stdout().flush().expect("write the endpoint");
    // The process that started this one holds the other end of the pipe: this one does not outlive it.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
