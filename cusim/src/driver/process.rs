//! The machine that the process's driver simulates.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::code::{Answer, NO_DEVICE, NOT_INITIALIZED};
use crate::faults::{Call, Faults};
use crate::say::give_up;
use crate::{Config, Machine};

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);
/// Beside the machine, so that a slow call is slow without holding up the others.
static FAULTS: OnceLock<Faults> = OnceLock::new();

/// Makes the machine when it is called first.
pub(super) fn start() -> Answer {
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = machine.get_or_insert_with(new_machine);
    machine.check(Call::Init)?;
    if machine.config.devices == 0 { Err(NO_DEVICE) } else { Ok(()) }
}

fn new_machine() -> Machine {
    let config = Config::from_env().unwrap_or_else(|name| give_up(format_args!("{name} makes no sense")));
    let _ = FAULTS.set(config.faults);
    let mut machine =
        Machine::new(config).unwrap_or_else(|_| give_up(format_args!("no addresses for that much memory")));
    if let Err(name) = machine.open_log() {
        give_up(format_args!("the file of {name} cannot be written"));
    }
    machine
}

/// Does something with the machine, under its lock.
pub(super) fn with<T>(action: impl FnOnce(&mut Machine) -> Answer<T>) -> Answer<T> {
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    action(machine.as_mut().ok_or(NOT_INITIALIZED)?)
}

/// Counts a call of that kind, is slow if the script says so, and fails if it says so.
pub(super) fn begin(call: Call) -> Answer {
    pause(call);
    with(|machine| machine.check(call))
}

/// Is slow if the script says so.
pub(super) fn pause(call: Call) {
    let delay = FAULTS.get().map(|faults| faults.delay(call)).unwrap_or_default();
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}
