//! The shell: the terminal, its keys, and the reader.

use std::io;
use std::mem::ManuallyDrop;

use crossterm::cursor::Show;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::execute;
use futures::StreamExt;
use nix::sys::signal::Signal;
use ratatui::backend::Backend;
use tokio::sync::{mpsc, watch};

use super::draw::{Palette, draw, rows_in};
use super::keys::{Wish, wish};
use super::read::Reader;
use super::state::State;
use crate::signals::Signals;

/// The most updates that have been read and wait to be shown.
const READ_AHEAD: usize = 16;

/// The terminal as it was, however this ends; a panic puts it right as well.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = ratatui::try_restore();
        let _ = execute!(io::stdout(), Show);
    }
}

/// Shows the pool until somebody leaves, or until the signal that is returned.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn show(
    mut state: State,
    reader: Reader,
    palette: Palette,
    signals: &mut Signals,
) -> io::Result<Option<Signal>> {
    // Never dropped: it says on standard error that the cursor cannot be shown, and panics where that cannot be said.
    let mut terminal = ManuallyDrop::new(ratatui::try_init()?);
    let _restored = Restored;
    let (say, wants) = watch::channel(state.wants());
    let (out, mut updates) = mpsc::channel(READ_AHEAD);
    let reading = tokio::spawn(reader.run(wants, out));
    let _ended = tokio_util::task::AbortOnDropHandle::new(reading);
    let mut events = EventStream::new();
    loop {
        let height = terminal.size()?.height;
        state.resize(rows_in(&state, height));
        terminal.draw(|frame| draw(&state, palette, frame))?;
        say.send_if_modified(|said| {
            let wanted = state.wants();
            // A list that moves by itself is no reason to read at once: only somebody's wish is.
            let asked = (said.tab, &said.detail, said.all, said.paused)
                != (wanted.tab, &wanted.detail, wanted.all, wanted.paused);
            *said = wanted;
            asked
        });
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    if !press(&mut state, key) {
                        return Ok(None);
                    }
                    if wish(key) == Some(Wish::Redraw) {
                        // Not `Terminal::clear`, which asks the terminal where the cursor is, and not all answer.
                        terminal.backend_mut().clear()?;
                        terminal.swap_buffers();
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(None),
            },
            Some(update) = updates.recv() => {
                state.apply(update);
                while let Ok(update) = updates.try_recv() {
                    state.apply(update);
                }
            }
            signal = signals.next() => return Ok(Some(signal)),
        }
    }
}

/// Answers whether to go on.
fn press(state: &mut State, key: KeyEvent) -> bool {
    let left = wish(key) == Some(Wish::Quit) && key.modifiers.contains(KeyModifiers::CONTROL);
    if state.writing && !left {
        match key.code {
            KeyCode::Enter => state.write(None),
            KeyCode::Esc => {
                state.filter.clear();
                state.write(None);
            }
            KeyCode::Backspace => state.write(Some('\u{8}')),
            KeyCode::Char(letter) => state.write(Some(letter)),
            _ => {}
        }
        return true;
    }
    wish(key).is_none_or(|wish| state.on(wish))
}
