//! Bits that do not begin where bytes do.
