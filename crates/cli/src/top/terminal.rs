//! The shell: the terminal, its keys, and the reader.

use std::io;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures::StreamExt;
use ratatui::backend::Backend;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::draw::{Palette, draw, rows_in};
use super::keys::{Wish, wish};
use super::read::Reader;
use super::state::State;

/// The most updates that have been read and wait to be shown.
const READ_AHEAD: usize = 16;

/// The terminal as it was, however this ends; a panic puts it right as well.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = ratatui::try_restore();
    }
}

/// Shows the pool until somebody leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn show(mut state: State, reader: Reader, palette: Palette) -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut terminal = ratatui::try_init()?;
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
                        return Ok(());
                    }
                    if wish(key) == Some(Wish::Redraw) {
                        // Not `Terminal::clear`, which asks the terminal where the cursor is, and not all answer.
                        terminal.backend_mut().clear()?;
                        terminal.swap_buffers();
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            Some(update) = updates.recv() => {
                state.apply(update);
                while let Ok(update) = updates.try_recv() {
                    state.apply(update);
                }
            }
            _ = terminated.recv() => return Ok(()),
            _ = hung_up.recv() => return Ok(()),
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
