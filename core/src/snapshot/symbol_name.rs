//! Parser of demangled Rust symbol names.

/// A demangled name of a function or type, without its hash: `<candle_nn::linear::Linear as candle_core::Module>::forward`,
/// `zeros<&candle_core::shape::Shape>`.
#[derive(Clone, Copy, Debug)]
pub struct SymbolName<'a>(pub &'a str);

impl<'a> SymbolName<'a> {
    /// The crate and the path segment below it: `candle_nn` and `linear`. `None` if the name has no path.
    pub fn crate_and_module(self) -> Option<(&'a str, &'a str)> {
        let plain = self.0.trim_start_matches(['<', '&', '*', '(', '[', '\'', '_', ' ']);
        let plain = plain.strip_prefix("mut ").or_else(|| plain.strip_prefix("dyn ")).unwrap_or(plain);
        let (package, path) = plain.split_once("::")?;
        let is_name = !package.is_empty() && package.chars().all(|c| c.is_alphanumeric() || c == '_');
        path.split("::").next().filter(|_| is_name).map(|module| (package, module))
    }

    /// The type that a method belongs to, without path and generics: `Linear`. Empty if unknown.
    pub fn type_name(self) -> &'a str {
        let (around, _) = self.around_and_own();
        let of = around.strip_prefix('<').and_then(|of| of.strip_suffix('>')).unwrap_or(around);
        let of = match of.strip_prefix("impl ") {
            Some(of) => of.rsplit(" for ").next(),
            None => of.split(" as ").next(),
        };
        SymbolName(of.unwrap_or_default().trim_start_matches('&')).function()
    }

    /// The function, without path and generics: `forward`.
    pub fn function(self) -> &'a str {
        let (_, own) = self.around_and_own();
        let types = own.find('<').filter(|at| *at > 0);
        types.and_then(|at| own.get(..at)).unwrap_or(own)
    }

    /// Type or module and function, without paths and generics: `Linear::forward`.
    pub fn short(self) -> String {
        match (self.type_name(), self.function()) {
            ("", function) => function.to_owned(),
            (of, function) => format!("{of}::{function}"),
        }
    }

    /// The last `parts` segments of the path: `linear::Linear` of `candle_nn::linear::Linear`.
    pub fn last(self, parts: usize) -> &'a str {
        let others = self.parts().count().saturating_sub(parts);
        let from: usize = self.parts().take(others).map(|part| part.len() + "::".len()).sum();
        self.0.get(from..).unwrap_or(self.0)
    }

    /// Two segments: first the one before it, then the last segment that is not a list of generics.
    fn around_and_own(self) -> (&'a str, &'a str) {
        let (mut found, mut before) = (("", self.0), "");
        for part in self.parts() {
            if !part.starts_with('<') {
                found = (before, part);
            }
            before = part;
        }
        found
    }

    /// The segments between `::`, ignoring any `::` inside angle brackets.
    fn parts(self) -> impl Iterator<Item = &'a str> {
        let mut rest = Some(self.0);
        std::iter::from_fn(move || {
            let text = rest?;
            let end = end_of_part(text);
            rest = text.get(end + "::".len()..);
            text.get(..end)
        })
    }
}

fn end_of_part(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut before) = (0usize, 0);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            // The `>` of an arrow `->` closes nothing.
            b'>' if before != b'-' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => return at,
            _ => {}
        }
        before = byte;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        // Columns: name, crate, module, type, function, last two segments.
        for (name, package, module, of, own, last) in [
            ("matmul", "", "", "", "matmul", "matmul"),
            ("", "", "", "", "", ""),
            ("candle_core::tensor::Tensor::matmul", "candle_core", "tensor", "Tensor", "matmul", "Tensor::matmul"),
            (
                "<candle_core::tensor::Tensor>::matmul",
                "candle_core",
                "tensor",
                "Tensor",
                "matmul",
                "<candle_core::tensor::Tensor>::matmul",
            ),
            (
                "<&candle_nn::linear::Linear as candle_core::Module>::forward",
                "candle_nn",
                "linear",
                "Linear",
                "forward",
                "<&candle_nn::linear::Linear as candle_core::Module>::forward",
            ),
            (
                "<candle_core::tensor::Tensor as core::ops::arith::Mul<f64>>::mul",
                "candle_core",
                "tensor",
                "Tensor",
                "mul",
                "<candle_core::tensor::Tensor as core::ops::arith::Mul<f64>>::mul",
            ),
            (
                "candle_core::backprop::<impl candle_core::tensor::Tensor>::backward",
                "candle_core",
                "backprop",
                "Tensor",
                "backward",
                "<impl candle_core::tensor::Tensor>::backward",
            ),
            (
                "alloc::str::<impl alloc::slice::Join<&str> for [S]>::join",
                "alloc",
                "str",
                "[S]",
                "join",
                "<impl alloc::slice::Join<&str> for [S]>::join",
            ),
            (
                "candle_core::sort::cuda::<impl candle_core::utils::Map1Any for candle_core::sort::ArgSort>::f",
                "candle_core",
                "sort",
                "ArgSort",
                "f",
                "<impl candle_core::utils::Map1Any for candle_core::sort::ArgSort>::f",
            ),
            (
                "<luminal_cuda::prim::CudaAdd<f32> as luminal::op::Operator>::process",
                "luminal_cuda",
                "prim",
                "CudaAdd",
                "process",
                "<luminal_cuda::prim::CudaAdd<f32> as luminal::op::Operator>::process",
            ),
            (
                "luminal_cuda::prim::CudaAdd<half::f16>::process",
                "luminal_cuda",
                "prim",
                "CudaAdd",
                "process",
                "CudaAdd<half::f16>::process",
            ),
            (
                "candle_core::tensor::Tensor::zeros::<&candle_core::shape::Shape>",
                "candle_core",
                "tensor",
                "Tensor",
                "zeros",
                "zeros::<&candle_core::shape::Shape>",
            ),
            ("zeros<&candle_core::shape::Shape>", "", "", "", "zeros", "zeros<&candle_core::shape::Shape>"),
            (
                "unary_map_vec<f32, f32, fn(f32) -> f32, candle_core::op::Log>",
                "",
                "",
                "",
                "unary_map_vec",
                "unary_map_vec<f32, f32, fn(f32) -> f32, candle_core::op::Log>",
            ),
            ("a::b::<impl Fn() -> x::Y>::c", "a", "b", "Y", "c", "<impl Fn() -> x::Y>::c"),
            ("alloc::vec::Vec<T,A>::insert", "alloc", "vec", "Vec", "insert", "Vec<T,A>::insert"),
            (
                "resnet::iteration::{{closure}}",
                "resnet",
                "iteration",
                "iteration",
                "{{closure}}",
                "iteration::{{closure}}",
            ),
            ("{closure#0}<alloc::vec::Vec<usize>>", "", "", "", "{closure#0}", "{closure#0}<alloc::vec::Vec<usize>>"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "core",
                "ops",
                "FnOnce",
                "call_once{{vtable.shim}}",
                "FnOnce::call_once{{vtable.shim}}",
            ),
            ("__rustc::__rust_alloc", "rustc", "__rust_alloc", "__rustc", "__rust_alloc", "__rustc::__rust_alloc"),
            ("libc.so.6+0x1234", "", "", "", "libc.so.6+0x1234", "libc.so.6+0x1234"),
        ] {
            let symbol = SymbolName(name);
            assert_eq!(symbol.crate_and_module().unwrap_or_default(), (package, module), "{name}");
            assert_eq!((symbol.type_name(), symbol.function(), symbol.last(2)), (of, own, last), "{name}");
        }
    }

    #[test]
    fn a_short_name_has_no_paths_and_no_types() {
        for (name, short) in [
            ("matmul", "matmul"),
            ("net::main", "net::main"),
            ("net::model::pad::<[f32; 4]>", "model::pad"),
            ("<&candle_nn::linear::Linear as candle_core::Module>::forward", "Linear::forward"),
            ("<net::Weights<f32> as candle_nn::var_builder::SimpleBackend>::get", "Weights::get"),
            ("candle_core::backprop::<impl candle_core::tensor::Tensor>::backward", "Tensor::backward"),
            ("net::train::{{closure}}::{{closure}}", "{{closure}}::{{closure}}"),
            ("{closure#0}<net::generate::{closure_env#1}>", "{closure#0}"),
        ] {
            assert_eq!(SymbolName(name).short(), short, "{name}");
        }
    }

    #[test]
    fn a_type_is_called_by_its_last_part() {
        for (type_name, short) in [("f32", "f32"), ("half::bfloat::bf16", "bf16"), ("a::B<c::D>", "B<c::D>")] {
            assert_eq!(SymbolName(type_name).last(1), short);
        }
    }
}
