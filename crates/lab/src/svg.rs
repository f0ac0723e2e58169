//! Plots as SVG, drawn in the page's own colours: classes `s0`, `s1`, … are the series, and what
//! stands for something predicted is dashed. Simple enough that a library for it would weigh more.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Colours that the page has for series.
const COLOURS: usize = 6;

/// Text that is safe between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number with as many digits as one reads.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "-".to_owned(),
        size if size >= 1e9 => format!("{:.1} G", value / 1e9),
        size if size >= 1e6 => format!("{:.1} M", value / 1e6),
        size if size >= 1e4 => format!("{:.0} k", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number at an axis: a whole one has no digits behind the point.
fn tick_label(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e4 { format!("{value:.0}") } else { number(value) }
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// Doublings are equally far apart.
    Log,
}

/// Points with a name.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub name: String,
    /// Its colour.
    pub colour: usize,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

/// The number that an axis can show. What is no number is shown as zero.
fn within(scale: Scale, value: f64) -> f64 {
    const MOST: f64 = 1e15;
    let value = if value.is_nan() { 0.0 } else { value.clamp(-MOST, MOST) };
    if scale == Scale::Log { value.max(1.0 / MOST) } else { value }
}

struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0)) {
            let value = within(scale, value);
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        if scale == Scale::Linear {
            low = low.min(0.0);
        }
        if high <= low {
            high = if low > 0.0 { low * 2.0 } else { low + 1.0 };
        }
        Self { scale, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let of = |value: f64| if self.scale == Scale::Log { value.ln() } else { value };
        let part = (of(within(self.scale, value)) - of(self.low)) / (of(self.high) - of(self.low));
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round numbers on the axis: 1, 2 and 5 times powers of ten, or even steps where those are too
    /// few.
    fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Log {
            let first = self.low.log10().floor() as i32;
            let all = (first..first + 40).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
            let mut ticks: Vec<f64> = all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
            while ticks.len() > 7 {
                // One of each power of ten.
                ticks = ticks.into_iter().step_by(3).collect();
            }
            if ticks.len() >= 2 {
                return ticks;
            }
        }
        let even = |part: f64| match self.scale {
            Scale::Linear => self.low + (self.high - self.low) * part,
            Scale::Log => self.low * (self.high / self.low).powf(part),
        };
        (0..=4).map(|step| even(f64::from(step) / 4.0)).collect()
    }
}

/// A plot's frame, axes and what is in it. It has a label, and a name for each axis.
fn frame([label, x_name, y_name]: [&str; 3], x: &Axis, y: &Axis, x_ticks: &[f64], inside: &str, legend: &str) -> String {
    let mut out = format!("<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", escape(label));
    for tick in y.ticks() {
        let at = y.place(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            tick_label(tick)
        );
    }
    for tick in x_ticks {
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\" class=\"mid\">{}</text>", x.place(*tick), HEIGHT - BOTTOM + 16.0, tick_label(*tick));
    }
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" class=\"mid\">{}</text><text transform=\"translate(12 {:.1}) rotate(-90)\" class=\"mid\">{}</text>{inside}</svg>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escape(x_name),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(y_name)
    );
    let _ = write!(out, "<figcaption>{legend}</figcaption></figure>");
    out
}

fn legend(series: &[Series]) -> String {
    let of = |series: &Series| {
        let dashed = if series.dashed { " dashed" } else { "" };
        format!("<span class=\"key k{}{dashed}\">{}</span> ", series.colour % COLOURS, escape(&series.name))
    };
    series.iter().map(of).collect()
}

/// Lines through points.
pub(crate) fn lines(label: &str, x_name: &str, y_name: &str, scales: (Scale, Scale), series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| series.points.iter());
    let x = Axis::new(scales.0, all().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::new(scales.1, all().map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut ticks: Vec<f64> = all().map(|point| point.0).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    if ticks.len() > 8 {
        ticks = x.ticks();
    }
    let mut inside = String::new();
    for series in series {
        let dashed = if series.dashed { " dashed" } else { "" };
        let class = format!("s{}{dashed}", series.colour % COLOURS);
        let points: Vec<String> = series.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x.place(*a), y.place(*b))).collect();
        let _ = write!(inside, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
        if series.points.len() <= 8 {
            for (a, b) in &series.points {
                let title = format!("{}: {} at {}", series.name, number(*b), number(*a));
                let _ = write!(
                    inside,
                    "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}</title></circle>",
                    x.place(*a),
                    y.place(*b),
                    escape(&title)
                );
            }
        }
    }
    frame([label, x_name, y_name], &x, &y, &ticks, &inside, &legend(series))
}

/// Points and the diagonal on which they would lie if both numbers were equal.
pub(crate) fn scatter(label: &str, x_name: &str, y_name: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| series.points.iter()).flat_map(|point| [point.0, point.1]);
    let x = Axis::new(Scale::Log, all(), LEFT, WIDTH - RIGHT);
    let y = Axis::new(Scale::Log, all(), HEIGHT - BOTTOM, TOP);
    let mut inside =
        format!("<line class=\"axis\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>", x.place(x.low), y.place(y.low), x.place(x.high), y.place(y.high));
    for series in series {
        for (a, b) in &series.points {
            let title = format!("{}: measured {}, predicted {}", series.name, number(*a), number(*b));
            let class = series.colour % COLOURS;
            let _ = write!(
                inside,
                "<circle class=\"s{class} dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}</title></circle>",
                x.place(*a),
                y.place(*b),
                escape(&title)
            );
        }
    }
    let ticks = x.ticks();
    frame([label, x_name, y_name], &x, &y, &ticks, &inside, &legend(series))
}

/// A row for each program, with a bar where it worked.
pub(crate) fn timeline(label: &str, rows: &[Vec<(f64, f64)>]) -> String {
    let end = rows.iter().flatten().map(|span| span.1).filter(|at| at.is_finite()).fold(1.0, f64::max);
    let height = 28.0 * rows.len() as f64 + 34.0;
    let place = |at: f64| LEFT + (at / end).clamp(0.0, 1.0) * (WIDTH - RIGHT - LEFT);
    let mut out = format!("<figure><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">", escape(label));
    for (number, row) in rows.iter().enumerate() {
        let top = 6.0 + 28.0 * number as f64;
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>", LEFT - 6.0, top + 15.0, number + 1);
        for (from, to) in row {
            let (from, to) = (place(*from), place(*to));
            let _ =
                write!(out, "<rect class=\"f{}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"20\"/>", number % COLOURS, (to - from - 0.5).max(0.7));
        }
    }
    for step in 0..=4 {
        let at = end * f64::from(step) / 4.0;
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.0}\" class=\"mid\">{} ms</text>", place(at), height - 8.0, tick_label(at / 1e3));
    }
    out.push_str("</svg></figure>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_numbers_no_place_is_outside() {
        for points in
            [vec![], vec![(0.0, 0.0)], vec![(1.0, f64::NAN), (f64::INFINITY, 2.0)], vec![(1.0, 5.0), (2.0, 5.0)], vec![(1e-300, 1e308), (1.0, -1e308)]]
        {
            let series = Series { name: "<a>".into(), colour: 9, dashed: true, points };
            for scale in [Scale::Linear, Scale::Log] {
                let text = lines("l", "x", "y", (scale, scale), std::slice::from_ref(&series));
                assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("<a>"), "{text}");
            }
        }
        assert!(timeline("t", &[vec![(0.0, 10.0)], vec![]]).contains("<rect"));
    }

    #[test]
    fn whole_numbers_have_no_digits_behind_the_point() {
        assert_eq!([0.0, 16.0, 500.0, 13.5, 20_000.0, 0.5].map(tick_label), ["0", "16", "500", "13.5", "20 k", "0.50"]);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<b a=\"1\" c='2'>&\u{7}"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd}");
    }
}
