//! What changes every second, on a terminal or as lines.
//!
//! On a terminal it is a screen of its own. A key, an error or a panic ends it, and the terminal is as it was before. Seconds come from a thread, so that keys
//! are heard also while the daemon says nothing. Without a terminal, or with `--json`, each second is printed below the one before.

use crate::client::Client;
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::table::{Cell, Tone, colour, render};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::io::{IsTerminal, Write, stdin, stdout};
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

/// Between two looks at keys and seconds: too short to be seen.
const LOOK: Duration = Duration::from_millis(50);
const COLUMN_SPACES: u16 = 2;

/// A second as people see it.
pub struct View {
    pub headline: String,
    pub titles: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
    /// What is said when there are none.
    pub empty: &'static str,
}

/// The result of a second.
pub trait Second: Send {
    /// In the order of one of the source's sorts.
    fn view(&self, sort: usize) -> View;
    /// For programs, on a line.
    fn print_json(&self, sort: usize);
}

/// Whence seconds come.
pub trait Source: Send {
    /// What they can be in order of: shown, and the key is the first letter.
    fn sorts(&self) -> &'static [&'static str];
    /// Waits for the next one.
    fn next(&mut self, client: &Client) -> Result<Box<dyn Second>, Failure>;
}

/// Shows so many seconds; without a number one where the output is for programs, and else until a key ends it.
pub fn run(
    client: Client,
    mut source: impl Source + 'static,
    json: bool,
    count: Option<u64>,
    sort: usize,
) -> Outcome {
    if stdout().is_terminal() && stdin().is_terminal() && !json {
        return on_screen(client, source, count.unwrap_or(u64::MAX), sort);
    }
    for _ in 0..count.unwrap_or(1) {
        let second = source.next(&client)?;
        match json {
            true => second.print_json(sort),
            false => print!("{}", plain(&second.view(sort))),
        }
        // Whoever read it has gone.
        if stdout().flush().is_err() {
            break;
        }
    }
    Ok(Exit::Ok)
}

fn plain(view: &View) -> String {
    let rows = match view.rows.is_empty() {
        true => format!("{}\n", view.empty),
        false => render(&view.titles, &view.rows, colour()),
    };
    format!("{}\n{rows}", view.headline)
}

/// What the user has chosen.
struct Choice {
    sort: usize,
    /// How many rows are above the first that is shown.
    above: usize,
}

impl Choice {
    /// Whether the key ends the screen.
    fn take(&mut self, key: KeyEvent, sorts: &[&str]) -> bool {
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::Down => self.above = self.above.saturating_add(1),
            KeyCode::Tab => self.sort = (self.sort + 1) % sorts.len().max(1),
            KeyCode::Char(key) => {
                if let Some(sort) = sorts.iter().position(|sort| sort.starts_with(key.to_ascii_lowercase())) {
                    (self.sort, self.above) = (sort, 0);
                }
            }
            _ => {}
        }
        false
    }
}

/// The terminal is given back when this goes.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("the terminal does not answer: {error}"),
        "Add --json, or send the output to a file.",
    )
}

fn on_screen(client: Client, mut source: impl Source + 'static, count: u64, sort: usize) -> Outcome {
    let sorts = source.sorts();
    let (sender, seconds) = sync_channel(1);
    // It ends with the command, or with the first error.
    std::thread::spawn(move || {
        loop {
            let second = source.next(&client);
            let is_last = second.is_err();
            if sender.send(second).is_err() || is_last {
                return;
            }
        }
    });
    let mut screen = Screen(ratatui::try_init().map_err(broken)?);
    let (mut choice, mut shown, mut now) = (Choice { sort, above: 0 }, 0, None);
    loop {
        match seconds.try_recv() {
            Ok(second) => {
                now = Some(second?);
                shown += 1;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(Exit::Ok),
        }
        let view = now.as_ref().map(|second| second.view(choice.sort));
        screen.0.draw(|frame| draw(frame, view.as_ref(), &mut choice, sorts, colour())).map_err(broken)?;
        if shown >= count {
            return Ok(Exit::Ok);
        }
        if event::poll(LOOK).map_err(broken)?
            && let Event::Key(key) = event::read().map_err(broken)?
            && key.kind != KeyEventKind::Release
            && choice.take(key, sorts)
        {
            return Ok(Exit::Ok);
        }
    }
}

fn style(tone: Tone, colour: bool) -> Style {
    match tone {
        _ if !colour => Style::new(),
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warning => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    }
}

fn draw(frame: &mut Frame, view: Option<&View>, choice: &mut Choice, sorts: &[&str], colour: bool) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let Some(view) = view else {
        frame.render_widget(Paragraph::new("Waiting for the next second …"), head);
        return;
    };
    frame.render_widget(Paragraph::new(view.headline.as_str()), head);
    // Below the titles.
    let fit = usize::from(body.height.saturating_sub(1));
    choice.above = choice.above.min(view.rows.len().saturating_sub(fit));
    let below = view.rows.len().saturating_sub(choice.above + fit);
    if view.rows.is_empty() {
        frame.render_widget(Paragraph::new(view.empty), body);
    } else {
        frame.render_widget(table(view, choice.above, colour), body);
    }
    let mut keys: Vec<String> = Vec::new();
    if sorts.len() > 1 {
        let sorts = sorts.iter().enumerate();
        let name = |(nth, sort): (usize, &&str)| {
            if nth == choice.sort { format!("[{sort}]") } else { sort.to_string() }
        };
        keys.push(format!("sort (Tab, first letter): {}", sorts.map(name).collect::<Vec<_>>().join(" ")));
    }
    if choice.above + below > 0 {
        keys.push(format!("↑ {} ↓ {below} more", choice.above));
    }
    keys.push("q quits".into());
    frame.render_widget(
        Paragraph::new(keys.join("   ")).style(Style::new().add_modifier(Modifier::REVERSED)),
        foot,
    );
}

fn table(view: &View, above: usize, colour: bool) -> Table<'_> {
    let width = |column: usize| {
        let cells = view.rows.iter().map(|row| row[column].text.chars().count());
        cells.chain([view.titles[column].chars().count()]).max().unwrap_or(0).try_into().unwrap_or(u16::MAX)
    };
    let is_right = |column: usize| view.rows.first().is_some_and(|row| row[column].right);
    let aligned = |text: String, right| match right {
        true => Text::from(Line::from(text).right_aligned()),
        false => Text::from(text),
    };
    let titles =
        view.titles.iter().enumerate().map(|(column, title)| aligned(title.to_string(), is_right(column)));
    let rows = view.rows.iter().skip(above).map(|row| {
        Row::new(
            row.iter().map(|cell| aligned(cell.text.clone(), cell.right).style(style(cell.tone, colour))),
        )
    });
    Table::new(rows, (0..view.titles.len()).map(|column| Constraint::Length(width(column))))
        .header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(COLUMN_SPACES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const SORTS: &[&str] = &["operations", "bytes"];

    fn view(rows: usize) -> View {
        let row = |n| vec![Cell::text(format!("tank/v{n}")), Cell::number(n * 100)];
        View {
            headline: "now".into(),
            titles: vec!["VOLUME", "OPS/S"],
            rows: (0..rows).map(row).collect(),
            empty: "Nobody asks for anything.",
        }
    }

    fn drawn(view: Option<&View>, choice: &mut Choice, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, choice, SORTS, true)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_string()).collect()
    }

    #[test]
    fn what_does_not_fit_is_counted_and_can_be_reached() {
        let mut choice = Choice { sort: 0, above: 0 };
        let lines = drawn(Some(&view(5)), &mut choice, 80, 5);
        assert_eq!(&lines[..4], ["now", "VOLUME   OPS/S", "tank/v0      0", "tank/v1    100"]);
        assert!(lines[4].contains("[operations] bytes") && lines[4].contains("↓ 3 more"), "{lines:?}");
        for _ in 0..9 {
            choice.take(KeyCode::Down.into(), SORTS);
        }
        let lines = drawn(Some(&view(5)), &mut choice, 80, 5);
        assert_eq!((lines[3].as_str(), choice.above), ("tank/v4    400", 3));
        // Rows went away, and the terminal became small.
        assert_eq!(drawn(Some(&view(1)), &mut choice, 80, 5)[2], "tank/v0      0");
        drawn(Some(&view(5)), &mut choice, 3, 1);
        drawn(None, &mut choice, 80, 5);
        assert_eq!(drawn(Some(&view(0)), &mut choice, 80, 5)[1], "Nobody asks for anything.");
    }

    #[test]
    fn keys_sort_and_end() {
        let mut choice = Choice { sort: 0, above: 2 };
        assert!(!choice.take(KeyCode::Char('b').into(), SORTS) && choice.sort == 1 && choice.above == 0);
        assert!(!choice.take(KeyCode::Tab.into(), SORTS) && choice.sort == 0);
        assert!(!choice.take(KeyCode::Char('c').into(), SORTS), "without Ctrl it is a letter");
        assert!(choice.take(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), SORTS));
        assert!(choice.take(KeyCode::Esc.into(), SORTS) && choice.take(KeyCode::Char('q').into(), SORTS));
        choice.take(KeyCode::Tab.into(), &[]);
    }

    #[test]
    fn lines_have_a_headline_and_say_when_there_is_nothing() {
        assert_eq!(plain(&view(1)), "now\nVOLUME   OPS/S\ntank/v0      0\n");
        assert_eq!(plain(&view(0)), "now\nNobody asks for anything.\n");
    }
}
