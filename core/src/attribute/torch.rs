//! Frames of PyTorch programs: the origin of a Python or C++ frame, and the operator or the backward pass that it
//! belongs to.

use std::borrow::Cow;

use super::{Attribution, Origin};
use crate::snapshot::Frame;

/// Python packages that belong to the framework.
const PACKAGES: [&str; 4] = ["torch", "torchgen", "functorch", "triton"];
/// Folders and files of PyTorch where it is not in a folder of packages, as after `pip install --target` or a build.
const OWN_FILES: [&str; 8] =
    ["nn/modules/", "nn/functional.py", "optim/", "autograd/", "cuda/", "_", "utils/data/", "utils/checkpoint.py"];
/// Suffixes of overloads. The dispatch functions of operators have them after the operator: `sum_dim_IntList`.
/// Overloads that begin with a capital letter need no entry.
const OVERLOADS: [&str; 11] = [
    "_memory_format",
    "_dtype_layout",
    "_dtype",
    "_device",
    "_dim",
    "_int",
    "_out",
    "_self",
    "_generator",
    "_start",
    "_other",
];
/// The prefix of the dispatcher's functions: `at::_ops::mul_Tensor::call`.
const DISPATCH: &str = "at::_ops::";
const AUTOGRAD: &str = "torch::autograd::";
const ALLOCATOR: &str = "c10::cuda::CUDACachingAllocator::";
/// PyTorch's own code in C++.
const NAMESPACES: [&str; 3] = ["at::", "c10::", "torch::"];
/// Prefixes of functions that tell nothing about the program: those of the interpreter, of threads, of the allocator,
/// and those that recorded the stack.
const MACHINERY: [&str; 22] = [
    "_Py",
    "Py",
    "pymain_",
    "pyrun_",
    "run_mod",
    "run_eval_code_obj",
    "cfunction_",
    "method_vectorcall",
    "slot_tp_",
    "_start",
    "__libc_",
    "__cxa_",
    "clone",
    "__clone",
    "start_thread",
    "pthread_",
    "execute_native_thread_routine",
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::cuda::(anonymous namespace)::gather",
    ALLOCATOR,
    "c10::impl::wrap_kernel_functor_unboxed_",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TorchCall<'a> {
    Operator(&'a str),
    /// An operator or a module that counts only if there is no other.
    Weak(&'a str),
    /// A backward pass, at this node of its graph: `MmBackward0`.
    Backward(Option<&'a str>),
}

/// Whether a recording is of a program in C, C++ or a similar language: apart from std and memtrace, it contains no
/// other code.
pub(crate) fn is_native(data: &Attribution<'_>) -> bool {
    let is_code = |frame: &&Frame| {
        let origin = Origin::of(&data.settings.rules, frame);
        matches!(origin, Origin::Framework | Origin::Library | Origin::Workspace)
    };
    let mut code = data.stacks.frames.iter().filter(is_code).peekable();
    code.peek().is_some() && code.all(|frame| native(frame.file_or_empty()) == Origin::Workspace)
}

/// Whether this is a function of PyTorch's caching allocator.
pub(super) fn is_allocator(frame: &Frame) -> bool {
    frame.function_or_empty().starts_with(ALLOCATOR)
}

/// The origin of a frame that has a file, but not one of Rust's.
pub(super) fn origin(file: &str, function: &str) -> Origin {
    if !is_script(file) {
        let begins = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        return match () {
            () if begins(&[DISPATCH, AUTOGRAD]) => Origin::Framework,
            () if begins(&MACHINERY) => Origin::Std,
            () if begins(&NAMESPACES) => Origin::Unknown,
            () => native(file),
        };
    }
    let (is_of_windows, file) = (file.contains('\\'), &*slashed(file));
    match file.rsplit_once("-packages/").map(|(_, path)| path.split('/').next().unwrap_or_default()) {
        Some(package) if PACKAGES.contains(&package) => Origin::Framework,
        Some(_) => Origin::Library,
        None if file.contains("/torchinductor_") || is_of_torch(file) => Origin::Framework,
        None if file.contains("/lib/python") || is_of_windows && file.contains("/Lib/") => Origin::Std,
        None if file.starts_with("<frozen ") => Origin::Std,
        None => Origin::Workspace,
    }
}

fn is_of_torch(file: &str) -> bool {
    let is_own = |(folder, path): (&str, &str)| {
        folder.ends_with("/pytorch") || OWN_FILES.iter().any(|own| path.starts_with(own))
    };
    file.rsplit_once("/torch/").is_some_and(is_own)
}

/// The origin of a frame whose file is in C, C++ or another compiled language.
fn native(file: &str) -> Origin {
    let Some((_, "c" | "cc" | "cpp" | "cxx" | "C" | "h" | "hh" | "hpp" | "hxx" | "cu" | "cuh" | "f90" | "zig")) =
        file.rsplit_once('.')
    else {
        return Origin::Unknown;
    };
    // These folders contain installed headers. The C library's own paths are relative.
    let is_systems = ["/usr/include/", "/usr/lib/"].iter().any(|folder| file.starts_with(folder));
    let is_programs = file.starts_with('/') && !is_systems && !file.contains("/include/c++/");
    if is_programs { Origin::Workspace } else { Origin::Unknown }
}

/// A Windows path with forward slashes.
fn slashed(file: &str) -> Cow<'_, str> {
    if file.contains('\\') { file.replace('\\', "/").into() } else { file.into() }
}

/// Whether the file is Python's. Python names code without a file `<string>` or `<ipython-input-3-0a1b>`.
pub(super) fn is_script(file: &str) -> bool {
    file.ends_with(".py") || file.starts_with('<') && file.ends_with('>')
}

/// Whether this is the step of one of PyTorch's optimizers.
pub(super) fn is_optimizer(frame: &Frame) -> bool {
    let file = slashed(frame.file_or_empty());
    let path = file.rsplit_once("/torch/optim/").map(|(_, path)| path);
    path.is_some_and(|path| !path.starts_with("lr_scheduler") && !path.starts_with("swa_utils"))
        && frame.function_or_empty() == "step"
}

pub(super) fn call(frame: &Frame) -> Option<TorchCall<'_>> {
    if frame.file_or_empty().ends_with(".py") { python_call(frame) } else { cpp_call(frame.function_or_empty()) }
}

fn cpp_call(function: &str) -> Option<TorchCall<'_>> {
    if let Some(rest) = function.strip_prefix(DISPATCH) {
        let name = without_overload(rest.split("::").next()?);
        let is_helper = name.starts_with("empty") || name.starts_with("new_empty");
        return Some(if is_helper { TorchCall::Weak(name) } else { TorchCall::Operator(name) });
    }
    let rest = function.strip_prefix(AUTOGRAD)?;
    if rest.starts_with("Engine::") {
        return Some(TorchCall::Backward(None));
    }
    let node = rest.strip_suffix("::apply")?.rsplit("::").next()?;
    (node != "Node").then_some(TorchCall::Backward(Some(node)))
}

fn python_call(frame: &Frame) -> Option<TorchCall<'_>> {
    let file = slashed(frame.file_or_empty());
    let (_, path) = file.rsplit_once("/torch/")?;
    let name = frame.function_or_empty();
    let is_plain = !name.starts_with(['_', '<']);
    let stem = frame.file_or_empty().rsplit(['/', '\\']).next()?.strip_suffix(".py")?;
    match path {
        "autograd/__init__.py" if name == "backward" => Some(TorchCall::Backward(None)),
        "autograd/graph.py" if name == "_engine_run_backward" => Some(TorchCall::Backward(None)),
        "nn/functional.py" | "functional.py" if is_plain => Some(TorchCall::Operator(name)),
        "nn/modules/module.py" | "nn/modules/container.py" => None,
        _ if path.starts_with("nn/modules/") && matches!(name, "forward" | "_conv_forward") => {
            Some(TorchCall::Weak(stem))
        }
        _ => None,
    }
}

/// Removes the overload: `sum` for `sum_dim_IntList`.
fn without_overload(name: &str) -> &str {
    let capital = name.match_indices('_').find(|(at, _)| name[at + 1..].starts_with(|c: char| c.is_ascii_uppercase()));
    let plain = capital.map_or(name, |(at, _)| &name[..at]);
    let plain = if plain.is_empty() { name } else { plain };
    let overload = OVERLOADS.iter().find_map(|overload| plain.strip_suffix(overload));
    overload.filter(|plain| !plain.is_empty()).unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{Story, stacks};

    fn frame(function: &str, file: &str) -> Frame {
        Frame { function: Some(function.into()), file: Some(file.into()), line: None, inlined: false }
    }

    #[test]
    fn files_and_names_tell_whose_code_it_is() {
        for (file, function, whose) in [
            ("/home/u/env/lib/python3.10/site-packages/torch/nn/modules/linear.py", "forward", Origin::Framework),
            ("/usr/lib/python3/dist-packages/transformers/models/gpt2.py", "forward", Origin::Library),
            ("/home/u/.conda/lib/python3.9/runpy.py", "_run_code", Origin::Std),
            ("<frozen runpy>", "_run_code", Origin::Std),
            ("/opt/wheels/torch/nn/modules/linear.py", "forward", Origin::Framework),
            ("/opt/wheels/torch/_tensor.py", "backward", Origin::Framework),
            ("/src/pytorch/torch/hub.py", "load", Origin::Framework),
            ("/home/u/torch/train.py", "main", Origin::Workspace),
            ("/home/u/project/model.py", "forward", Origin::Workspace),
            ("<ipython-input-3-0a1b2c>", "<module>", Origin::Workspace),
            (r"C:\work\.venv\Lib\site-packages\torch\nn\modules\linear.py", "forward", Origin::Framework),
            (r"C:\work\.venv\Lib\site-packages\transformers\trainer.py", "step", Origin::Library),
            (r"C:\Python311\Lib\threading.py", "run", Origin::Std),
            (r"C:\work\train.py", "step", Origin::Workspace),
            ("/tmp/torchinductor_u/qo/cqobcc.py", "call", Origin::Framework),
            ("RegisterCUDA_0.cpp", "at::_ops::mul_Tensor::call", Origin::Framework),
            ("??", "torch::unwind::unwind", Origin::Std),
            ("??", "_PyEval_EvalFrameDefault", Origin::Std),
            ("bindings.cpp", "my_kernels::forward", Origin::Unknown),
            ("/home/u/app/src/bindings.cpp", "my_kernels::forward", Origin::Workspace),
            ("/home/u/app/buffer.c", "grow", Origin::Workspace),
            ("/home/u/pytorch/c10/core/CPUAllocator.cpp", "c10::alloc_cpu", Origin::Unknown),
            ("/usr/include/c++/12/bits/new_allocator.h", "std::__new_allocator<char>::allocate", Origin::Unknown),
        ] {
            assert_eq!(origin(file, function), whose, "{file} {function}");
        }
    }

    #[test]
    fn a_program_is_native_if_it_has_code_in_c_alone() {
        let is = |files: &[&str]| {
            let frames = files.iter().map(|file| frame("f", file)).collect();
            is_native(&Attribution::new(&Story::cpu().stacks(stacks(frames, [[0]])).build()))
        };
        let (c, rust, std) = ("/home/u/a.c", "/home/u/src/main.rs", "/rustc/0/library/alloc/src/vec/mod.rs");
        assert_eq!(
            [is(&[c]), is(&[c, std]), is(&[c, rust]), is(&[rust]), is(&[std])],
            [true, true, false, false, false]
        );
        assert!(!is(&[c, "/home/u/train.py"]));
    }

    #[test]
    fn the_step_of_an_optimizer_is_a_function_of_its_file() {
        let in_torch =
            |function, file| is_optimizer(&frame(function, &format!("/env/site-packages/torch/optim/{file}")));
        assert!(in_torch("step", "adamw.py") && in_torch("step", "optimizer.py"));
        assert!(!in_torch("zero_grad", "optimizer.py") && !in_torch("step", "lr_scheduler.py"));
        assert!(!is_optimizer(&frame("step", "/home/u/torch/game.py")));
    }

    #[test]
    fn frames_tell_of_operators_and_backward_passes() {
        let in_torch = |path| format!("/env/lib/python3.10/site-packages/torch/{path}");
        for (function, file, told) in [
            ("at::_ops::bmm::redispatch", "??".into(), Some(TorchCall::Operator("bmm"))),
            ("at::_ops::mul_Tensor::call", "??".into(), Some(TorchCall::Operator("mul"))),
            ("at::_ops::sum_dim_IntList::call", "??".into(), Some(TorchCall::Operator("sum"))),
            ("at::_ops::pow_Tensor_Scalar::call", "??".into(), Some(TorchCall::Operator("pow"))),
            ("at::_ops::_to_copy::call", "??".into(), Some(TorchCall::Operator("_to_copy"))),
            ("at::_ops::empty_memory_format::call", "??".into(), Some(TorchCall::Weak("empty"))),
            (
                "torch::autograd::generated::BmmBackward0::apply",
                "??".into(),
                Some(TorchCall::Backward(Some("BmmBackward0"))),
            ),
            ("torch::autograd::AccumulateGrad::apply", "??".into(), Some(TorchCall::Backward(Some("AccumulateGrad")))),
            ("torch::autograd::Engine::thread_main", "??".into(), Some(TorchCall::Backward(None))),
            ("torch::autograd::THPVariable_mul", "x.cpp".into(), None),
            ("softmax", in_torch("nn/functional.py"), Some(TorchCall::Operator("softmax"))),
            ("softmax", in_torch("nn/functional.py").replace('/', r"\"), Some(TorchCall::Operator("softmax"))),
            ("forward", in_torch("nn/modules/linear.py").replace('/', r"\"), Some(TorchCall::Weak("linear"))),
            ("forward", in_torch("nn/modules/linear.py"), Some(TorchCall::Weak("linear"))),
            ("forward", in_torch("nn/modules/container.py"), None),
            ("_call_impl", in_torch("nn/modules/module.py"), None),
            ("forward", "/home/u/model.py".into(), None),
        ] {
            assert_eq!(call(&frame(function, &file)), told, "{function} {file}");
        }
    }
}
