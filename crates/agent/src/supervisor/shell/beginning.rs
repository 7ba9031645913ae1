//! The work that a supervisor begins: the program, the process beside it, and images of both.

use super::super::companion::{Companion, Said};
use super::super::machine::Event;
use super::super::output::Pump;
use super::super::program::NoStart;
use super::super::ready::Beginning;
use super::super::status::{Cause, Exit};
use super::Shell;
use crate::process::{ProcessId, kill_pid};

/// The reason that is given when a card cannot be saved because its slice servers are gone.
const NO_COMPANION: &str = "the process with the slice servers of its card is gone";

impl Shell {
    /// Handles the messages of the process beside the program.
    pub(super) fn hear_companion(&mut self) {
        let Some(companion) = &mut self.companion else { return };
        let (said, is_silent) = (companion.said(), companion.is_silent());
        for said in said {
            match said {
                Said::Ready if self.program_waits() => {
                    let started = self.start_program();
                    self.tell_start(started);
                }
                Said::Ready => {}
                Said::Saved(saved) => self.tell_card_saved(saved),
            }
        }
        // It would be waited for in vain. How it ends is told like any other end of it.
        if let Some(companion) = self.companion.as_ref().filter(|_| is_silent && self.program_waits()) {
            let _ = kill_pid(companion.process().pid);
        }
    }

    /// Returns whether the program waits for the word of the process beside it.
    fn program_waits(&self) -> bool {
        self.ready.is_some() && !self.machine.status().is_final()
    }

    pub(super) fn tell_start(&mut self, started: Result<Option<ProcessId>, NoStart>) {
        match started {
            Ok(Some(process)) => self.happen(Event::Started(process)),
            // It is told when CRIU ends, or when what runs beside it is there.
            Ok(None) => {}
            Err(failure) => {
                // What was killed for its memory before it had begun is not there to be started.
                let out_of_memory = self.out_of_memory().filter(|_| failure.cause == Cause::NodeFault);
                let failure = out_of_memory.map_or(failure, |(cause, message)| NoStart { cause, message });
                self.happen(Event::StartFailed(failure));
            }
        }
    }

    /// Starts the program: at once, or when what is to run beside it says so.
    pub(super) fn start(&mut self) -> Result<Option<ProcessId>, NoStart> {
        self.pump()?;
        let prepared = self.ready.as_mut().and_then(|ready| ready.as_mut().ok()?.beside.take());
        let Some(prepared) = prepared else { return self.start_program() };
        let imaging = self.imaging.as_mut();
        let imaging =
            imaging.ok_or_else(|| NoStart::by_node("nothing dumps here what its slice servers are beside"))?;
        let namespace = imaging.make_room_for_numbers();
        let namespace =
            namespace.map_err(|error| NoStart::by_node(format!("its image cannot be made room for: {error}")))?;
        let companion = Companion::start(prepared, self.containment.group(), namespace)?;
        imaging.set_beside(companion.process(), companion.patience());
        self.companion = Some(companion);
        Ok(None)
    }

    fn start_program(&mut self) -> Result<Option<ProcessId>, NoStart> {
        let ready = self.ready.take().ok_or_else(|| NoStart::by_node("it was started before"))??;
        self.word = ready.word;
        let process = match (ready.beginning, &mut self.imaging) {
            (Beginning::Program(waiting), _) => Some(waiting.release()?),
            (Beginning::Image(outputs), Some(imaging)) => {
                imaging.begin_restore(self.containment.group(), outputs)?;
                None
            }
            (Beginning::Image(_), None) => return Err(NoStart::by_node("nothing restores images here")),
        };
        Ok(process)
    }

    /// Has the output read: a program that writes what nobody reads is killed for it.
    fn pump(&mut self) -> Result<(), NoStart> {
        let outputs = self.ready.as_mut().and_then(|ready| ready.as_mut().ok()?.outputs.take());
        let started = outputs.map(Pump::start).transpose();
        self.pump = started.map_err(|error| NoStart::by_node(format!("its output cannot be read: {error}")))?;
        Ok(())
    }

    pub(super) fn begin_dump(&mut self) -> Result<(), String> {
        let process = self.machine.status().process.ok_or("there is no process")?;
        let imaging = self.imaging.as_mut().ok_or("nothing dumps processes here")?;
        imaging.begin_dump(process)
    }

    pub(super) fn begin_snapshot(&mut self, number: u64) -> Result<(), String> {
        let process = self.machine.status().process.ok_or("there is no process")?;
        let imaging = self.imaging.as_mut().ok_or("nothing dumps processes here")?;
        imaging.begin_snapshot(number, process, self.containment.group())
    }

    /// The tree stands still: what it has on its card is to be saved.
    pub(super) fn save_card(&mut self) {
        let asked = self.companion.as_mut().map_or_else(|| Err(NO_COMPANION.to_owned()), Companion::save);
        if let Err(why) = asked {
            self.tell_card_saved(Err(why));
        }
    }

    /// Gives up a snapshot when the program is told to stop: processes that stand still for it do not receive the
    /// signal.
    pub(super) fn let_hear(&mut self) {
        let imaging = self.imaging.as_mut().filter(|_| self.machine.awaits_exit());
        if let Some(ended) = imaging.and_then(|imaging| imaging.give_up_snapshot(self.containment.group())) {
            self.image_ended(ended);
        }
    }

    fn tell_card_saved(&mut self, saved: Result<(), String>) {
        let imaging = self.imaging.as_mut();
        if let Some(ended) = imaging.and_then(|imaging| imaging.card_saved(saved, self.containment.group())) {
            self.image_ended(ended);
        }
    }

    /// Returns whether the process that ended is the one beside the program. If so, handles its end: the contents of
    /// the card are lost.
    pub(super) fn companion_ended(&mut self, pid: i32, exit: Exit) -> bool {
        let Some(mut companion) = self.companion.take_if(|companion| companion.process().pid == pid) else {
            return false;
        };
        let has_begun = self.ready.is_none();
        let (cause, message) = self.out_of_memory().unwrap_or_else(|| companion.fault(exit, has_begun));
        self.tell_card_saved(Err(message.clone()));
        // The program waits for it: nothing of it has begun, and nothing else would end that beginning.
        let event = match self.ready.take() {
            Some(_) => Event::StartFailed(NoStart { cause, message }),
            None => Event::CardLost(cause, message),
        };
        self.happen(event);
        true
    }
}
