//! Demangles the names of symbols.

use std::fmt;

use cpp_demangle::{DemangleOptions, Symbol};

/// The most bytes of a symbol and of its name. A C++ symbol may refer to its own parts repeatedly, so a short
/// symbol may have a name of any length.
const LONGEST: usize = 4096;

/// The name of a Rust function without its hash, or of a C++ function without its parameters. Any other symbol
/// stays unchanged.
pub(super) fn demangled(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    of_cpp(symbol).unwrap_or_else(|| symbol.to_owned())
}

fn of_cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") || symbol.len() > LONGEST {
        return None;
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let mut name = Name(String::new());
    Symbol::new(symbol).ok()?.structured_demangle(&mut name, &options).ok()?;
    Some(name.0)
}

struct Name(String);

impl fmt::Write for Name {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (symbol, name) in [
            ("_ZN3net5LayerC4Em", "net::Layer::Layer"),
            ("_ZN3net4makeINS_5LayerEEESt10unique_ptrIT_St14default_deleteIS3_EEm", "net::make<net::Layer>"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvCs6xxl1lAjzDf_1a5alloc", "a::alloc"),
            ("main", "main"),
            ("_Zmalformed", "_Zmalformed"),
        ] {
            assert_eq!(demangled(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn a_name_that_repeats_its_parts_stays_as_it_is() {
        // Each substitution refers twice to the one before.
        let doubling: String = (0..30).map(|n| format!("S{n}_S{n}_E1aI")).collect();
        for symbol in [format!("_Z1fI1aI1b{doubling}"), format!("_Z{}", "P".repeat(3000)), "_Z".repeat(5000)] {
            assert!(demangled(&symbol).len() <= symbol.len().max(LONGEST), "{symbol}");
        }
    }
}
