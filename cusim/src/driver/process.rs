//! The machine that the process's driver simulates, behind one lock.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::code::{Answer, NO_DEVICE, NOT_INITIALIZED};
use crate::faults::{CallKind, Faults};
use crate::say::give_up;
use crate::{Config, SimMachine};

static MACHINE: Mutex<Option<SimMachine>> = Mutex::new(None);
/// The faults are outside of the lock, so that a slow call does not delay others.
static FAULTS: OnceLock<Faults> = OnceLock::new();

thread_local! {
    /// How long the current call waits after its work, before it returns.
    static LATENESS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// `cuInit`: the first call creates the machine.
pub(super) fn start() -> Answer {
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = machine.get_or_insert_with(new_machine);
    machine.check(CallKind::Init, 0)?;
    if machine.config.devices == 0 { Err(NO_DEVICE) } else { Ok(()) }
}

fn new_machine() -> SimMachine {
    let config = Config::from_env().unwrap_or_else(|name| give_up(format_args!("the value of {name} is not valid")));
    let _ = FAULTS.set(config.faults);
    let mut machine = SimMachine::new(config).unwrap_or_else(|_| {
        give_up(format_args!("this process has not enough address space for MEMTRACE_CUSIM_MEMORY"))
    });
    if let Err(name) = machine.open_log() {
        give_up(format_args!("the file that {name} names cannot be written"));
    }
    machine
}

/// Runs an action on the machine, under its lock.
pub(super) fn with<T>(action: impl FnOnce(&mut SimMachine) -> Answer<T>) -> Answer<T> {
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    action(machine.as_mut().ok_or(NOT_INITIALIZED)?)
}

/// Runs an action on a device, by its ordinal.
pub(super) fn with_device<T>(ordinal: i32, action: impl FnOnce(&mut SimMachine, usize) -> Answer<T>) -> Answer<T> {
    with(|machine| {
        let device = machine.device(ordinal)?;
        action(machine, device)
    })
}

/// Counts a call, and delays or fails it as the fault script says.
pub(super) fn begin(call: CallKind) -> Answer {
    pause(call);
    with(|machine| machine.check(call, 0))
}

/// Delays a call as the fault script says.
pub(super) fn pause(call: CallKind) {
    let Some(faults) = FAULTS.get() else { return };
    LATENESS.set(faults.lateness(call));
    sleep(faults.delay(call));
}

/// Delays a call before it returns, as the fault script says.
pub(super) fn linger() {
    sleep(LATENESS.replace(Duration::ZERO));
}

fn sleep(delay: Duration) {
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}
