//! Messages about the daemon to the user who mounts: that it died at its start, and where its messages go. Imports the log.

use crate::daemon::logging::{self, Destination};
use crate::failure::say;
use std::io::IsTerminal;

/// The daemon ended before it reported success or failure.
#[derive(Debug, thiserror::Error)]
#[error("the daemon died while it was starting{}{how}", if how.is_empty() { "" } else { ": " })]
pub(crate) struct Died {
    /// How the daemon died, if that is known.
    pub(crate) how: String,
}

/// Says where messages go, if that is a place where users would not look.
pub(super) fn say_where_messages_go() {
    match logging::destination() {
        Destination::State(path) if std::io::stderr().is_terminal() => {
            let path = path.display();
            say(format_args!(
                "ffrfs: messages go to {path}: there is no journald and no syslog here"
            ));
        }
        Destination::Nowhere(why) => {
            tracing::warn!("messages go nowhere: {why}; name a file with --log-file");
        }
        _ => {}
    }
}
