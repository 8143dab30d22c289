//! The screen while programs run: looks, keys and pictures, until the programs end or the user ends it.

use std::io;
use std::time::{Duration, Instant};

use memtrace_core::analysis::Key;

use super::terminal::Terminal;
use super::view::{Answer, View};
use super::watch::{Looker, Watch};
use crate::failure::CommandFailure;
use crate::output;

/// Time between two checks of the keys, the size of the window, and the looks.
const TICK: Duration = Duration::from_millis(50);

/// Shows the screen, and leaves the last picture on it.
pub(super) fn run(by: Key, interval: Duration, watch: Watch) -> Result<(), CommandFailure> {
    let mut live =
        Live { view: View::by(by, interval), looker: Looker::begin(watch), asked: None, next: Instant::now() };
    let terminal = Terminal::begin().map_err(|error| unusable(&error))?;
    let shown = live.show(&terminal);
    drop(terminal);
    shown?;
    if let Some(problem) = live.view.problem() {
        return Err(CommandFailure::usage(problem));
    }
    let (width, height) = Terminal::size();
    let mut last = live.view.picture(width, height.saturating_sub(2));
    if live.view.has_ended() {
        last.push("Ended: nobody records any more.".to_owned());
    }
    output::print_lines(last)
}

fn unusable(error: &io::Error) -> CommandFailure {
    CommandFailure::usage(format!("cannot use the terminal: {error}; --once prints one picture"))
}

struct Live {
    view: View,
    looker: Looker,
    /// When the look that is under way began; `None` if no look is under way.
    asked: Option<Instant>,
    next: Instant,
}

impl Live {
    fn show(&mut self, terminal: &Terminal) -> Result<(), CommandFailure> {
        let (mut drawn, mut is_old) = ((0, 0), true);
        while !self.view.has_ended() || self.view.is_frozen() {
            is_old |= self.look()?;
            let size = Terminal::size();
            if is_old || size != drawn {
                Terminal::draw(&self.view.screen(size.0, size.1)).map_err(|error| unusable(&error))?;
                (drawn, is_old) = (size, false);
            }
            for press in terminal.presses(TICK).map_err(|error| unusable(&error))? {
                match self.view.press(press) {
                    Answer::End => return Ok(()),
                    Answer::Look => self.next = Instant::now(),
                    Answer::Draw => {}
                }
                is_old = true;
            }
        }
        Ok(())
    }

    /// Requests a look if it is time for one. True if a look has finished.
    fn look(&mut self) -> Result<bool, CommandFailure> {
        if let Some(seen) = self.looker.seen() {
            let seen = seen?;
            // The first look has to find the names of functions. Later looks do not have this cost, so the
            // first look's cost does not count.
            self.view.pace.cost = if self.view.is_empty() { Duration::ZERO } else { seen.cost };
            self.view.see(seen.files);
            let asked = self.asked.take().unwrap_or_else(Instant::now);
            self.next = asked + self.view.pace.wait();
            return Ok(true);
        }
        if self.asked.is_none() && Instant::now() >= self.next {
            self.looker.ask(self.view.keys());
            self.asked = Some(Instant::now());
        }
        Ok(false)
    }
}
