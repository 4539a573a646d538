//! Seconds on the command line.

use crate::format::quoted;
use std::time::Duration;

/// Parses seconds, from a tenth of a second to a day.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{} is not a number of seconds from 0.1 to 86400", quoted(text));
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_from_a_tenth_of_a_second_to_a_day() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "x", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
