//! Turns a [`View`] into lines of text, the same for the screen and for pipes. Columns that do not
//! fit are left out, the least important first. Pure.

use super::view::{Row, Tone, View, number};
use crate::status::bytes;

struct Column {
    title: &'static str,
    width: usize,
    /// The larger, the sooner the column is left out.
    spare: u8,
    text: fn(&Row) -> String,
}

/// Columns after the program's name, which gets the remaining width.
const COLUMNS: [Column; 10] = [
    Column { title: "STATE", width: 10, spare: 1, text: |row| row.state.clone() },
    Column { title: "KERN/S", width: 7, spare: 0, text: |row| shown(row.kernels_rate) },
    Column { title: "GPU %", width: 6, spare: 0, text: |row| row.gpu.map_or_else(|| "-".into(), |gpu| format!("{gpu:.0}")) },
    Column { title: "MEMORY", width: 10, spare: 2, text: |row| bytes(row.memory) },
    Column { title: "LIMIT", width: 10, spare: 8, text: |row| if row.memory_limit == 0 { "-".into() } else { bytes(row.memory_limit) } },
    Column { title: "COAL %", width: 6, spare: 3, text: |row| row.coalesced.map_or_else(|| "-".into(), |part| format!("{part:.0}")) },
    Column { title: "WAIT/S", width: 7, spare: 4, text: |row| shown(row.waits_rate) },
    Column { title: "QUEUED", width: 7, spare: 6, text: |row| row.in_flight.to_string() },
    Column { title: "KERNELS", width: 12, spare: 5, text: |row| row.kernels.to_string() },
    Column { title: "SMS", width: 4, spare: 7, text: |row| sms(row) },
];
const PID: usize = 8;
/// The name's least and usual width.
const NAME: usize = 10;
const NAME_USUAL: usize = 32;

fn shown(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), number)
}

/// The share; a small letter marks a client whose work yields to others'.
fn sms(row: &Row) -> String {
    let all = if row.multiprocessors == 0 { "all".to_owned() } else { row.multiprocessors.to_string() };
    if row.below_normal { format!("{all}↓") } else { all }
}

/// A line and its emphasis; `None` for the titles.
pub type Line = (String, Option<Tone>);

/// Titles and clients, each line at most `width` wide.
pub fn lines(view: &View, width: usize) -> Vec<Line> {
    let (columns, name) = fitting(width);
    let mut titles = format!("{:>PID$} {:<name$}", "PID", "PROGRAM");
    for column in &columns {
        push(&mut titles, column.title, column.width);
    }
    let mut lines = vec![(cut(&titles, width), None)];
    for row in &view.rows {
        let mut line = format!("{:>PID$} {:<name$}", row.pid, cut(&row.program, name));
        for column in &columns {
            push(&mut line, &(column.text)(row), column.width);
        }
        lines.push((cut(&line, width), Some(row.tone)));
    }
    lines
}

fn push(line: &mut String, text: &str, width: usize) {
    line.push(' ');
    line.push_str(&format!("{:>width$}", cut(text, width)));
}

/// The columns that fit, and the width of the name.
fn fitting(width: usize) -> (Vec<&'static Column>, usize) {
    let mut columns: Vec<&Column> = COLUMNS.iter().collect();
    let needed = |columns: &[&Column]| PID + 1 + columns.iter().map(|column| column.width + 1).sum::<usize>();
    while needed(&columns) + NAME > width {
        let Some(most) = columns.iter().enumerate().filter(|(_, column)| column.spare > 0).max_by_key(|(_, column)| column.spare) else { break };
        columns.remove(most.0);
    }
    let name = width.saturating_sub(needed(&columns)).clamp(NAME, NAME_USUAL);
    (columns, name)
}

/// Cuts a text to so many characters; an ellipsis marks the cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.extend((width > 0).then_some('…'));
    short
}

/// The whole view as text.
pub fn page(view: &View, width: usize) -> String {
    let mut text = String::new();
    let mut put = |line: &str| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    view.header.iter().for_each(|line| put(line));
    if !view.rows.is_empty() {
        lines(view, width).iter().for_each(|(line, _)| put(line));
    }
    view.message.iter().for_each(|message| put(message));
    text
}

#[cfg(test)]
mod tests {
    use super::super::view::{Sort, tests::two_looks};
    use super::*;
    use std::path::Path;

    #[test]
    fn the_whole_table() {
        let (before, now) = two_looks();
        let view = View::of(Path::new("/p"), Some(&before), &now, Sort::Gpu);
        let expected = "\
cuda:0  NVIDIA H200  132 SMs  memory 3.06 GiB of 140.00 GiB
server 690 ACTIVE  executor 691 generation 2  clients 4  kernels/s 24k
     PID PROGRAM         STATE  KERN/S  GPU %     MEMORY      LIMIT COAL %  WAIT/S  QUEUED      KERNELS  SMS
    4242 train       held back     24k     60   3.00 GiB          -     75     100     128        13000  all
    4300 infer            idle       0      0   64.0 MiB   1.00 GiB      0       0       0            7  66↓
    4400 broken      error 700       0      0        0 B          -      -       0       0            0  all
    5000 fresh            idle       -      -    1.0 MiB          -      0       -       0            3  all
";
        assert_eq!(page(&view, 108), expected);
    }

    #[test]
    fn narrow_terminals_lose_columns_and_nothing_overflows() {
        let (before, now) = two_looks();
        let view = View::of(Path::new("/p"), Some(&before), &now, Sort::Gpu);
        for width in 1..200 {
            assert!(lines(&view, width).iter().all(|(line, _)| line.chars().count() <= width), "{width}");
        }
        let narrow: Vec<String> = lines(&view, 45).into_iter().map(|(line, _)| line).collect();
        assert_eq!(narrow[0], "     PID PROGRAM         STATE  KERN/S  GPU %");
        assert_eq!(narrow[1], "    4242 train       held back     24k     60");
    }
}
