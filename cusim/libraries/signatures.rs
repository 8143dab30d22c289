//! Empty kernels, made from signatures: the stand-in for nvcc makes them of CUDA's C++, and of the C functions that a
//! crate declares.

/// What PTX begins with.
pub const PTX_HEAD: &str = "// memtrace's stand-in for nvcc: kernels of other names are accepted\n.version 9.0\n.target sm_80\n.address_size 64\n";

/// Launches an empty kernel, as the real functions launch theirs through the runtime.
const LAUNCH: &str = r"#include <dlfcn.h>
static int launch(const char *name, const char *ptx, void **kernel, void **arguments, void *stream) {
    void *driver = dlopen(`libcuda.so.1`, RTLD_NOW);
    if (!driver) return 0;
    int (*load)() = dlsym(driver, `cuLibraryLoadData`), (*get)() = dlsym(driver, `cuLibraryGetKernel`);
    int (*start)() = dlsym(driver, `cuLaunchKernel`);
    void *library = 0;
    if (!load || !get || !start) return 0;
    if (!*kernel && (load(&library, ptx, 0, 0, 0, 0, 0, 0) || get(kernel, library, name))) return 0;
    return start(*kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, (void *)0);
}
";

/// Types that are passed by value, by their bytes.
const SIZES: [(usize, &[&str]); 4] = [
    (1, &["bool", "char", "int8_t", "uint8_t", "u8", "i8", "__nv_fp8_e4m3", "__nv_fp8_e5m2"]),
    (2, &["short", "int16_t", "uint16_t", "u16", "i16", "half", "__half", "nv_bfloat16", "__nv_bfloat16"]),
    (4, &["float", "int32_t", "uint32_t", "u32", "i32", "f32", "half2", "__half2", "__nv_bfloat162", "c_int"]),
    (
        8,
        &[
            "long",
            "size_t",
            "ssize_t",
            "double",
            "int64_t",
            "uint64_t",
            "uintptr_t",
            "u64",
            "i64",
            "f64",
            "usize",
            "isize",
        ],
    ),
];

/// Words that may stand beside a type and do not change its size.
const QUALIFIERS: [&str; 5] = ["const", "signed", "__restrict__", "__restrict", "__grid_constant__"];

#[derive(Clone, Copy)]
struct Parameter {
    /// 0 if the type is not known.
    bytes: usize,
    is_const: bool,
}

/// PTX with each `extern "C" __global__` function of a preprocessed source, without instructions.
pub fn ptx(source: &str) -> String {
    let kernels =
        source.match_indices("__global__").filter_map(|(at, word)| kernel(&source[..at], &source[at + word.len()..]));
    PTX_HEAD.to_owned() + &kernels.collect::<String>()
}

/// A kernel from the text before and after `__global__`.
fn kernel(before: &str, after: &str) -> Option<String> {
    let before = before.rsplit([';', '{', '}', '(', ')']).next()?;
    let is_c = before.split_once("extern").is_some_and(|(_, linkage)| linkage.trim_start().starts_with("\"C\""));
    let declaration =
        after.get(..after.find([';', '{', '}'])?).filter(|text| is_c && after[text.len()..].starts_with('{'))?;
    let (front, list) = declaration.trim_end().strip_suffix(')')?.rsplit_once('(')?;
    let name = words(front).last().filter(|_| !list.contains(')'))?;
    let types = parts(list).map(|part| part.trim_end().trim_end_matches(is_of_word));
    Some(entry(name, &types.map(parameter).collect::<Vec<_>>()))
}

fn entry(name: &str, parameters: &[Parameter]) -> String {
    let declared = parameters.iter().enumerate().map(|(number, Parameter { bytes, is_const })| {
        let kind = match bytes {
            0 => ".unknown".to_owned(),
            8 => ".u64".to_owned(),
            _ => format!(".b{}", 8 * bytes),
        };
        format!("\t.param {kind} {name}_param_{number}{}", if *is_const { " /* const */" } else { "" })
    });
    format!(".visible .entry {name}(\n{}\n)\n{{\n\tret;\n}}\n", declared.collect::<Vec<_>>().join(",\n"))
}

/// C functions, one for each `pub fn` of a Rust source: each C function launches an empty kernel and passes its own
/// pointers to it.
pub fn functions(source: &str) -> String {
    let lines = source.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let source = lines.collect::<Vec<_>>().join("\n");
    LAUNCH.replace('`', "\"") + &source.split("pub fn ").skip(1).filter_map(function).collect::<String>()
}

fn function(text: &str) -> Option<String> {
    let (name, rest) = text.split_once('(')?;
    let list = rest.split_once(')')?.0;
    let typed = parts(list).filter_map(|part| part.split_once(':')).map(|(name, of)| (name.trim(), of.trim()));
    let arguments: Vec<_> = typed.map(|(name, of)| (name, of, parameter(of))).collect();
    let declared = arguments.iter().map(|(name, of, parameter)| format!("{} {name}", c_type(of, parameter.bytes)));
    let declared = declared.collect::<Vec<_>>().join(", ");
    // Numbers of 8 bytes are passed like pointers, too. This does no harm, because they point to nothing.
    let is_passed = |name: &str, of: &str, bytes| bytes == 8 && of != "f64" && !name.contains("stream");
    let passed: Vec<_> =
        arguments.iter().filter(|(name, of, parameter)| is_passed(name, of, parameter.bytes)).collect();
    let parameters: Vec<Parameter> = passed.iter().map(|(.., parameter)| *parameter).collect();
    let ptx = (PTX_HEAD.to_owned() + &entry(name, &parameters)).replace('\n', "\\n");
    let addresses = passed.iter().map(|(name, ..)| format!("&{name}")).collect::<Vec<_>>().join(", ");
    let (array, passed) = match addresses.is_empty() {
        true => (String::new(), "(void **)0"),
        false => (format!("    void *arguments[] = {{{addresses}}};\n"), "arguments"),
    };
    let stream = arguments.iter().map(|(name, ..)| *name).find(|name| name.contains("stream")).unwrap_or("0");
    let declared = if declared.is_empty() { "void" } else { &declared };
    Some(format!(
        "__attribute__((weak)) int {name}({declared}) {{\n    static void *kernel;\n{array}    \
         return launch(\"{name}\", \"{ptx}\", &kernel, {passed}, (void *){stream});\n}}\n"
    ))
}

fn c_type(of: &str, bytes: usize) -> &'static str {
    match (of, bytes) {
        ("f32", _) => "float",
        ("f64", _) => "double",
        (_, 1) => "char",
        (_, 2) => "short",
        (_, 4) => "int",
        _ => "void *",
    }
}

/// A parameter of this type, in C++ or Rust.
fn parameter(of: &str) -> Parameter {
    if let Some((pointed, _)) = of.rsplit_once('*') {
        let is_const = of.starts_with("*const") || words(pointed).any(|word| word == "const");
        return Parameter { bytes: 8, is_const };
    }
    let words: Vec<&str> = words(of).filter(|word| !QUALIFIERS.contains(word)).collect();
    Parameter { bytes: size(&words), is_const: false }
}

/// The bytes of a type that these words name.
fn size(words: &[&str]) -> usize {
    let known = |word: &&str| SIZES.iter().find(|(_, names)| names.contains(word)).map(|(bytes, _)| *bytes);
    let is_int = !words.is_empty() && words.iter().all(|word| ["int", "unsigned"].contains(word));
    words.iter().find_map(known).unwrap_or(if is_int { 4 } else { 0 })
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|part| !part.trim().is_empty())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_of_word(c)).filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_keeps_the_sizes_of_its_parameters_and_which_pointers_are_const() {
        let source = "extern \"C\" __global__ void __launch_bounds__(256) add(const float *__restrict__ a, float *b, \
                      const size_t n, unsigned int m, unsigned long k, __half h, Strides s) { b[0] = a[0]; }";
        let expected = "(\n\t.param .u64 add_param_0 /* const */,\n\t.param .u64 add_param_1,\n\t.param .u64 add_param_2,\n\
                        \t.param .b32 add_param_3,\n\t.param .u64 add_param_4,\n\t.param .b16 add_param_5,\n\
                        \t.param .unknown add_param_6\n)\n{\n\tret;\n}\n";
        assert_eq!(ptx(source), format!("{PTX_HEAD}.visible .entry add{expected}"));
    }

    #[test]
    fn only_kernels_with_c_names_and_a_body_are_kernels() {
        let no_kernels = "template <typename T> __global__ void f(T *a) {}\nextern \"C\" __global__ void g(int *a);\n\
                          extern \"C\" void h(int a) { call(); } __global__ void i(int a) {}";
        assert_eq!(ptx(no_kernels), PTX_HEAD);
    }

    #[test]
    fn a_function_launches_a_kernel_with_its_pointers_on_its_stream() {
        let source = "extern \"C\" { // pub fn no(a: i32);\n pub fn run(x: *const c_void, n: c_int, scale: f64, out: *mut f32, stream: i64);\n}";
        let c = functions(source);
        assert!(c.contains("int run(void * x, int n, double scale, void * out, void * stream) {"), "{c}");
        assert!(c.contains("void *arguments[] = {&x, &out};"), "{c}");
        assert!(c.contains("run_param_0 /* const */,\\n\t.param .u64 run_param_1\\n)"), "{c}");
        assert!(c.contains("&kernel, arguments, (void *)stream);") && !c.contains("no("), "{c}");
    }
}
