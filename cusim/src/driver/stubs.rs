//! Stubs of functions that are not simulated, so that programs load.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::say::say;

macro_rules! not_simulated {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $crate::code::Code {
            static SAID: AtomicBool = AtomicBool::new(false);
            refuse(&SAID, stringify!($name))
        }
    )* };
}

include!(concat!(env!("OUT_DIR"), "/driver.rs"));

fn refuse(said: &AtomicBool, name: &str) -> crate::code::Code {
    if !said.swap(true, Ordering::Relaxed) {
        say(format_args!("{name} is not simulated"));
    }
    crate::code::NOT_SUPPORTED
}
