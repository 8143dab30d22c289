//! The place of a frame's function, as rules name it: crate, file and function.

use std::borrow::Cow;

use super::origin::{package_and_path, version_of};
use crate::snapshot::{Fact, Frame, Rules, SymbolName};

/// The place of a frame's function: the crate as in `use`, its version if known, and the file relative to `src`.
pub(super) struct FramePlace<'a> {
    pub(super) package: String,
    pub(super) version: &'a str,
    pub(super) file: Cow<'a, str>,
    pub(super) function: &'a str,
}

impl<'a> FramePlace<'a> {
    /// Taken from the file, or from the symbol name if there is no file. The crate of a file outside of any `src` is
    /// unknown.
    pub(super) fn of(frame: &'a Frame) -> Self {
        let name = SymbolName(frame.function_or_empty());
        let function = name.function();
        if let Some((package, path)) = frame.file.as_deref().and_then(package_and_path) {
            let version = version_of(frame.file_or_empty());
            return Self { package: package.replace('-', "_"), version, file: path.into(), function };
        }
        if let Some(file) = &frame.file {
            let file = file.rsplit('/').next().unwrap_or_default().into();
            return Self { package: String::new(), version: "", file, function };
        }
        let (package, module) = name.crate_and_module().unwrap_or_default();
        let file = if module.is_empty() { String::new() } else { format!("{module}.rs") };
        Self { package: package.to_owned(), version: "", file: file.into(), function }
    }

    pub(super) fn is(&self, rules: &Rules, fact: Fact) -> bool {
        rules.says(fact, &self.package, &self.file, self.function)
    }

    /// The operator's name, if the function is an operator. `function` is its full symbol name.
    pub(super) fn operator(&self, rules: &'a Rules, function: &'a str) -> Option<&'a str> {
        let Self { package, file, function: name, .. } = self;
        let is_one = !name.is_empty() && rules.is_operator(package, file, name);
        if is_one { Some(name) } else { rules.method(package, file, name, SymbolName(function).type_name()) }
    }

    /// The operator that the function implements: `sum` for `sum_impl`.
    pub(super) fn implemented(&self, rules: &Rules) -> Option<&'a str> {
        let name = self.function.strip_suffix("_impl")?;
        rules.is_operator(&self.package, &self.file, name).then_some(name)
    }
}
