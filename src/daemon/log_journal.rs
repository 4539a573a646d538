//! Messages to journald as all other logs have them: errors of the system without their numbers (`os error 5`), and no
//! characters in the message that command the terminal of its reader.
//!
//! Other sinks write lines, which are changed as text; journald's takes the fields of an event. Imports nothing of this
//! directory.

use crate::failure::{may_have_numbers, without_numbers};
use crate::format::one_line;
use std::fmt;
use tracing::field::{Field, Value, Visit, display};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Passes events on, with other texts where they hold such numbers or characters.
pub(super) struct ForJournal<L>(pub(super) L);

/// The text of each field of an event, by its place, and whether one of the texts differs from the event's.
struct Texts {
    by_place: Vec<Option<String>>,
    are_changed: bool,
}

impl Texts {
    /// Other fields than the message are data: programs compare them.
    fn put(&mut self, field: &Field, text: String) {
        let shown = if field.name() == "message" { one_line(&text) } else { text.clone() };
        self.are_changed |= shown != text || may_have_numbers(&text);
        if let Some(place) = self.by_place.get_mut(field.index()) {
            *place = Some(without_numbers(shown));
        }
    }
}

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for ForJournal<L> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = event.metadata().fields();
        let mut texts = Texts { by_place: vec![None; fields.len()], are_changed: false };
        event.record(&mut texts);
        if !texts.are_changed {
            return self.0.on_event(event, context);
        }
        let shown: Vec<_> = texts.by_place.into_iter().map(|text| text.map(display)).collect();
        let values: Vec<_> =
            shown.iter().map(|text| text.as_ref().map(|text| text as &dyn Value)).collect();
        let values = fields.value_set_all(&values);
        self.0.on_event(&Event::new(event.metadata(), &values), context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    /// Keeps what it is told.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Vec<String>>>);

    impl Visit for Told {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
        }
    }

    impl<S: Subscriber> Layer<S> for Told {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            event.record(&mut self.clone());
        }
    }

    #[test]
    fn journald_is_told_of_errors_without_their_numbers_and_in_messages_that_command_no_terminal() {
        let told = Told::default();
        let subscriber = tracing_subscriber::registry().with(ForJournal(told.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::from_raw_os_error(libc::EIO);
            tracing::warn!(sample = 7, error = %error, "a (os error 5).zip: {error}");
            tracing::warn!(sample = 8, "all is well");
            tracing::warn!(container = "b\x1b\n", "b\x1b[31m\n\u{9b}: it is bad");
        });
        let lines = told.0.lock().unwrap().clone();
        let expected = [
            "message=a (os error 5).zip: Input/output error",
            "sample=7",
            "error=Input/output error",
            "message=all is well",
            "sample=8",
            "message=b\\x1b[31m\\x0a\\x9b: it is bad",
            "container=b\x1b\n",
        ];
        assert_eq!(lines, expected);
    }
}
