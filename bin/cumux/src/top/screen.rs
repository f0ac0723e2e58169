//! The terminal: keys, and a drawing that is a pure function of its input ([`draw`]).
//!
//! Whatever happens to the terminal, the command can end: keys and signals are read on threads of
//! their own, because a terminal that has gone or was stopped (Ctrl-S) blocks its readers and
//! writers for ever. The main thread checks by itself whether the terminal is still there.

use super::table;
use super::view::{Sample, Sort, Tone, View};
use crate::error::Interrupted;
use anyhow::Context as _;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two drawings, if no key is pressed.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// How long the screen may take to be restored after a signal.
const GRACE: Duration = Duration::from_secs(1);
/// The age from which an answer is marked as old.
const OLD: Duration = Duration::from_secs(5);

/// The command of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Quit,
    Pause,
    Sort(Sort),
    Scroll(isize),
}

fn wish(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('p' | ' ') => Some(Wish::Pause),
        KeyCode::Char('g') => Some(Wish::Sort(Sort::Gpu)),
        KeyCode::Char('k') => Some(Wish::Sort(Sort::Kernels)),
        KeyCode::Char('m') => Some(Wish::Sort(Sort::Memory)),
        KeyCode::Char('c') => Some(Wish::Sort(Sort::Coalesced)),
        KeyCode::Down => Some(Wish::Scroll(1)),
        KeyCode::Up => Some(Wish::Scroll(-1)),
        KeyCode::PageDown => Some(Wish::Scroll(10)),
        KeyCode::PageUp => Some(Wish::Scroll(-10)),
        _ => None,
    }
}

/// What the user has chosen to see.
#[derive(Debug, Clone, Copy)]
struct Choice {
    paused: bool,
    colours: bool,
    /// First client on the screen.
    from: usize,
    /// Seconds since the last answer, if that is worth a line.
    silent: Option<u64>,
}

/// A message of the threads beside the screen.
enum News {
    Key(KeyEvent),
    /// The terminal has another size.
    Other,
    Signal(i32),
    /// Keys can no longer be read.
    NoKeyboard(io::Error),
}

/// Forwards signals. If the main thread hangs in a stopped terminal, the signal takes its usual
/// effect.
fn watch_signals(news: Sender<News>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if news.send(News::Signal(signal)).is_err() {
                return;
            }
            thread::sleep(GRACE);
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Forwards keys. This thread ends only with the process: while the terminal is gone, the library
/// underneath tries to read from it for ever.
fn watch_keyboard(news: Sender<News>) -> io::Result<()> {
    thread::Builder::new().name("keys".into()).spawn(move || {
        loop {
            let told = match event::read() {
                Ok(Event::Key(key)) => News::Key(key),
                Ok(_) => News::Other,
                Err(error) => News::NoKeyboard(error),
            };
            let last = matches!(told, News::NoKeyboard(_));
            if news.send(told).is_err() || last {
                return;
            }
        }
    })?;
    Ok(())
}

/// Whether the other side of the terminal has gone: its window was closed, its session killed.
fn is_hung_up() -> bool {
    let stdin = io::stdin();
    let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())).is_ok() && watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Runs until the user quits, a signal comes, or the terminal has gone.
pub fn run(pipe: &Path, samples: &Receiver<Sample>, sort: Sort) -> anyhow::Result<u8> {
    let (sender, news) = channel();
    watch_signals(sender.clone()).context("cannot watch for signals")?;
    let terminal = ratatui::try_init().context("this terminal cannot show a screen: use --once, or send the output to a file");
    let outcome = terminal.and_then(|terminal| {
        watch_keyboard(sender).context("cannot watch the keyboard")?;
        show(terminal, &news, pipe, samples, sort)
    });
    // A terminal that has gone cannot be restored, and need not be.
    let _ = ratatui::try_restore();
    outcome
}

fn show(mut terminal: DefaultTerminal, news: &Receiver<News>, pipe: &Path, samples: &Receiver<Sample>, mut sort: Sort) -> anyhow::Result<u8> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut choice = Choice { paused: false, colours, from: 0, silent: None };
    let (mut before, mut now): (Option<Sample>, Option<Sample>) = (None, None);
    let mut heard = Instant::now();
    let outcome = loop {
        for sample in samples.try_iter() {
            heard = Instant::now();
            // While paused, new answers are dropped: the display stays.
            if !choice.paused {
                before = now.replace(sample);
            }
        }
        let silence = heard.elapsed();
        choice.silent = (silence > OLD).then_some(silence.as_secs());
        if let Some(sample) = &now {
            let view = View::of(pipe, before.as_ref(), sample, sort);
            choice.from = choice.from.min(view.rows.len().saturating_sub(1));
            if terminal.draw(|frame| draw(frame, &view, choice)).is_err() {
                break Err(Interrupted(SIGHUP).into());
            }
        }
        if is_hung_up() {
            break Err(Interrupted(SIGHUP).into());
        }
        let key = match news.recv_timeout(REDRAW_INTERVAL) {
            Ok(News::Key(key)) => key,
            Ok(News::Other) | Err(RecvTimeoutError::Timeout) => continue,
            Ok(News::Signal(signal)) => break Err(Interrupted(signal).into()),
            // The keyboard of a terminal that has gone may say so before the signal does.
            Ok(News::NoKeyboard(_)) if is_hung_up() => break Err(Interrupted(SIGHUP).into()),
            Ok(News::NoKeyboard(error)) => break Err(error).context("the keyboard cannot be read"),
            Err(RecvTimeoutError::Disconnected) => break Err(Interrupted(SIGHUP).into()),
        };
        match wish(key) {
            Some(Wish::Quit) => break Ok(0),
            Some(Wish::Pause) => choice.paused = !choice.paused,
            Some(Wish::Sort(by)) => sort = by,
            Some(Wish::Scroll(by)) => choice.from = choice.from.saturating_add_signed(by),
            None => {}
        }
    };
    // Dropping the terminal shows the cursor, and panics where it can neither do that nor report
    // it.
    if terminal.show_cursor().is_err() {
        std::mem::forget(terminal);
    }
    outcome
}

/// Draws one frame.
fn draw(frame: &mut Frame, view: &View, choice: Choice) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let colour = |style: Style, colour| if choice.colours { style.fg(colour) } else { style };
    let plain = Style::new();
    let mut lines: Vec<Line> = view.header.iter().map(|line| Line::styled(table::cut(line, width), plain.add_modifier(Modifier::BOLD))).collect();
    let mut notes: Vec<String> = view.message.iter().cloned().collect();
    notes.extend(choice.silent.map(|seconds| format!("The daemon has not answered for {seconds} s; what is shown is old.")));
    notes.extend(choice.paused.then(|| "Paused: p goes on.".to_owned()));
    lines.extend(notes.iter().map(|note| Line::styled(table::cut(note, width), colour(plain, Color::Yellow))));
    if !view.rows.is_empty() {
        let mut rows = table::lines(view, width).into_iter();
        lines.extend(rows.next().map(|(titles, _)| Line::styled(format!("{titles:<width$}"), plain.add_modifier(Modifier::REVERSED))));
        lines.extend(rows.skip(choice.from).map(|(row, tone)| {
            let style = match tone {
                Some(Tone::Bad) => colour(plain.add_modifier(Modifier::BOLD), Color::Red),
                Some(Tone::Quiet) => plain.add_modifier(Modifier::DIM),
                _ => plain,
            };
            Line::styled(row, style)
        }));
    }
    // The last line is for the keys.
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), Line::default());
    let keys = format!("q quit  p pause  sort: g GPU  k kernels  m memory  c coalesced  (by {})", view.sort.word());
    lines.push(Line::styled(table::cut(&keys, width), colour(plain, Color::DarkGray)));
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::two_looks;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    fn picture(width: u16, height: u16, choice: Choice, sort: Sort) -> (String, Buffer) {
        let (before, now) = two_looks();
        let view = View::of(Path::new("/p"), Some(&before), &now, sort);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &view, choice)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let text = (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n").collect();
        (text, buffer)
    }

    const USUAL: Choice = Choice { paused: false, colours: true, from: 0, silent: None };

    #[test]
    fn the_whole_screen() {
        let expected = "\
cuda:0  NVIDIA H200  132 SMs  memory 3.06 GiB of 140.00 GiB
server 690 ACTIVE  executor 691 generation 2  clients 4  kernels/s 24k
     PID PROGRAM              STATE  KERN/S  GPU %     MEMORY COAL %  WAIT/S
    4242 train            held back     24k     60   3.00 GiB     75     100
    4300 infer                 idle       0      0   64.0 MiB      0       0
    4400 broken           error 700       0      0        0 B      -       0
    5000 fresh                 idle       -      -    1.0 MiB      0       -

q quit  p pause  sort: g GPU  k kernels  m memory  c coalesced  (by GPU)
";
        assert_eq!(picture(76, 9, USUAL, Sort::Gpu).0, expected);
    }

    #[test]
    fn small_screens_show_what_fits() {
        for (width, height) in [(1, 1), (5, 2), (20, 4), (300, 60)] {
            picture(width, height, USUAL, Sort::Memory);
        }
        let (text, _) = picture(46, 5, Choice { from: 2, ..USUAL }, Sort::Gpu);
        assert!(text.lines().nth(3).unwrap().contains("broken"), "scrolled:\n{text}");
    }

    #[test]
    fn pause_and_silence_are_said() {
        let (text, _) = picture(80, 12, Choice { paused: true, silent: Some(7), ..USUAL }, Sort::Kernels);
        assert!(text.contains("Paused: p goes on.") && text.contains("not answered for 7 s") && text.contains("(by kernels)"), "{text}");
    }

    #[test]
    fn without_colour_there_is_none() {
        let coloured = |choice| picture(80, 12, choice, Sort::Gpu).1.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert!(coloured(USUAL));
        assert!(!coloured(Choice { colours: false, silent: Some(9), paused: true, ..USUAL }));
    }

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let key = |code| wish(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!([key(KeyCode::Char('q')), key(KeyCode::Esc)], [Some(Wish::Quit); 2]);
        assert_eq!(wish(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('c')), Some(Wish::Sort(Sort::Coalesced)));
        assert_eq!(['g', 'k', 'm'].map(|c| key(KeyCode::Char(c))), [Sort::Gpu, Sort::Kernels, Sort::Memory].map(|sort| Some(Wish::Sort(sort))));
        assert_eq!((key(KeyCode::Char('p')), key(KeyCode::Char('x'))), (Some(Wish::Pause), None));
    }
}
