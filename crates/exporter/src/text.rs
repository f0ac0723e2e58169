//! Families of metrics as text: OpenMetrics 1.0, and the older format of Prometheus for scrapers
//! that do not ask for it.
//!
//! Invariants: a family is written once, with its kind, unit and help, before its samples. Its name
//! ends with its unit. A counter's sample ends with `_total`. Labels without a value are left out:
//! to Prometheus that is the same.

use std::fmt::Write as _;

/// The form in which a scraper wants the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/openmetrics-text`.
    OpenMetrics,
    /// `text/plain; version=0.0.4`.
    Prometheus,
}

impl Format {
    /// The form for a request whose `Accept` header says this.
    #[must_use]
    pub fn of(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What the samples of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows, until what it counts starts anew.
    Counter,
    /// Facts in labels; the value is 1.
    Info,
}

/// A family as it is described once for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// Its name, without `_total` or `_info`.
    pub name: &'static str,
    /// What its samples are.
    pub kind: Kind,
    /// `seconds`, `bytes`, `ratio`, or nothing for numbers of things.
    pub unit: &'static str,
    /// What a sample says, in one line.
    pub help: &'static str,
}

impl Definition {
    /// The name of its samples: what dashboards and rules write.
    #[must_use]
    pub fn sample(&self) -> String {
        match self.kind {
            Kind::Gauge => self.name.to_owned(),
            Kind::Counter => format!("{}_total", self.name),
            Kind::Info => format!("{}_info", self.name),
        }
    }
}

/// The labels of a sample, in the order in which they are written.
pub type Labels = Vec<(&'static str, String)>;

/// A family with its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its description.
    pub definition: &'static Definition,
    /// Its samples: labels and value.
    pub samples: Vec<(Labels, f64)>,
}

/// Families as text. A family without samples is left out.
#[must_use]
pub fn render(families: &[Family], format: Format) -> String {
    let mut out = String::new();
    for Family { definition, samples } in families.iter().filter(|family| !family.samples.is_empty()) {
        let sample = definition.sample();
        let (name, kind) = match (format, definition.kind) {
            (_, Kind::Gauge) => (definition.name, "gauge"),
            (Format::OpenMetrics, Kind::Counter) => (definition.name, "counter"),
            (Format::OpenMetrics, Kind::Info) => (definition.name, "info"),
            // The older format describes samples and has no info.
            (Format::Prometheus, Kind::Counter) => (sample.as_str(), "counter"),
            (Format::Prometheus, Kind::Info) => (sample.as_str(), "gauge"),
        };
        let _ = writeln!(out, "# TYPE {name} {kind}");
        if format == Format::OpenMetrics && !definition.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", definition.unit);
        }
        let _ = writeln!(out, "# HELP {name} {}", escape(definition.help, format == Format::OpenMetrics));
        for (labels, value) in samples {
            out.push_str(&sample);
            write_labels(&mut out, labels);
            let _ = writeln!(out, " {value}");
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_labels(out: &mut String, labels: &Labels) {
    let mut before = '{';
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(out, "{before}{name}=\"{}\"", escape(value, true));
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
}

fn escape(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            // A terminal that shows the text must not be commanded by it.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    static SECONDS: Definition = Definition { name: "a_seconds", kind: Kind::Counter, unit: "seconds", help: "A \"time\"." };
    static FACTS: Definition = Definition { name: "b", kind: Kind::Info, unit: "", help: "Facts." };
    static EMPTY: Definition = Definition { name: "c", kind: Kind::Gauge, unit: "", help: "None." };

    fn families() -> [Family; 3] {
        [
            Family {
                definition: &SECONDS,
                samples: vec![(vec![("pod", String::new()), ("UUID", "GPU-1".into()), ("program", "a\"\\\n\u{1b}é".into())], 1.5), (Vec::new(), 12.0)],
            },
            Family { definition: &FACTS, samples: vec![(vec![("version", "1".into())], 1.0)] },
            Family { definition: &EMPTY, samples: Vec::new() },
        ]
    }

    #[test]
    fn openmetrics_as_the_specification_writes_it() {
        assert_eq!(
            render(&families(), Format::OpenMetrics),
            "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n# HELP a_seconds A \\\"time\\\".\n\
             a_seconds_total{UUID=\"GPU-1\",program=\"a\\\"\\\\\\n\u{fffd}é\"} 1.5\na_seconds_total 12\n\
             # TYPE b info\n# HELP b Facts.\nb_info{version=\"1\"} 1\n# EOF\n"
        );
    }

    #[test]
    fn the_older_format_describes_samples() {
        let text = render(&families(), Format::Prometheus);
        assert!(text.starts_with("# TYPE a_seconds_total counter\n# HELP a_seconds_total A \"time\".\na_seconds_total{"), "{text}");
        assert!(text.contains("# TYPE b_info gauge\n") && !text.contains("UNIT") && !text.contains("EOF"), "{text}");
    }

    #[test]
    fn the_form_is_the_scrapers_choice() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!([Format::of(prometheus), Format::of("*/*"), Format::of("")], [Format::OpenMetrics, Format::Prometheus, Format::Prometheus]);
    }
}
