//! Any text as a URL: refused, or taken apart so that the displayed URL, without the secret query, means the same.

#![no_main]

use ffrfs::store::remote::Location;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some(Ok(location)) = Location::parse(text) else { return };
    let shown = location.to_string();
    let again = Location::parse(&shown).expect("a URL").expect("a location");
    assert_eq!(again, Location { query: String::new(), ..location.clone() });
    if let Some(parent) = location.parent() {
        assert!(parent.is_prefix() && location.key.starts_with(&parent.key));
        assert!(parent.join("x").key.ends_with('x'));
    }
});
