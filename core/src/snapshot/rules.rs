//! Attribution rules: the table `rules.txt` and its parser. A rule states a fact about a framework's crates and
//! functions.
//!
//! Rules are data of the snapshot, not code of `attribute`. Programs add rules, captures contain them, and every reader
//! of the recording applies the same ones.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use super::Category;
use crate::error::{Error, Kind};

static KNOWN: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::default();
    // The result can be ignored: a test parses every line.
    let _ = table.add(include_str!("rules.txt"));
    table
});

/// Attribution rules: which crates are frameworks, where their operators are, and what their blocks are for.
///
/// The built-in table covers candle, cudarc and their dependencies. A program adds rules for others:
/// ```
/// # use memtrace_core as memtrace;
/// use memtrace::Rules;
///
/// let mut rules = Rules::default();
/// rules.add(
///     "framework my_kernels             # its lines are not the user's
///      operators my_kernels ops.rs      # its functions are operators
///      helper    dispatch_*             # but these are not
///      category  KV_CACHE my_kernels paged.rs",
/// )?;
/// assert!(rules.add("framwork my_kernels").is_err());
/// # Ok::<(), memtrace::Error>(())
/// ```
///
/// | line | says |
/// |---|---|
/// | `framework CRATE` | its lines say nothing about who needed the memory |
/// | `operators CRATE FILE` | the functions of the file are operators |
/// | `own CRATE` | one call of an operator of this crate allocates at most once with each stack; a repeated stack is another call |
/// | `pool CRATE` | a thread pool, which runs other crates' jobs; flamegraphs merge its frames into one |
/// | `tracer CRATE` | makes, enters and leaves spans; its own blocks belong to no span |
/// | `operator CRATE FILE [TYPE::]FUNCTION [NAME]` | an operator although `helper` covers its name; it is called NAME, or after its type |
/// | `helper FUNCTION` | a function of an `operators` file that is not an operator |
/// | `kernel FUNCTION` | as `helper`, and nothing that the function calls is an operator either |
/// | `category CATEGORY CRATE FILE [FUNCTION]` | the [`Category`] of blocks allocated in it; the outermost such call decides |
/// | `allocator CRATE FILE [FUNCTION]` | hands out parts of its blocks to tensors, so a block has neither an operator nor a category |
/// | `variable CRATE FILE [FUNCTION]` | blocks allocated in it are variables: a backward pass computes their gradients |
/// | `structure CRATE FILE [FUNCTION]` | what it allocates itself is not a tensor's elements, so these blocks are no variables and no state |
/// | `input CRATE FILE FUNCTION` | an operator that brings data in when the program calls it |
/// | `constant CRATE FILE FUNCTION` | an operator that fills a block with a constant, for any purpose |
/// | `move CRATE FILE FUNCTION` | an operator that only moves elements, such as one that picks a batch |
/// | `product CRATE FILE FUNCTION` | an operator that multiplies tensors; in training, a model works in the function that calls it |
/// | `join FUNCTION` | an operator that joins tensors, such as one that extends a cache |
/// | `loop FUNCTION` | an operator that repeats the same work within one call, such as an optimizer |
/// | `square CRATE FILE FUNCTION` | an operator that makes a square matrix from a row |
/// | `forward FUNCTION` | a function, of any crate, in which a model works |
/// | `optimizer CRATE FILE FUNCTION` | a function in which an optimizer works |
/// | `step NAME` | a scope in which an optimizer works |
/// | `pass CRATE FILE FUNCTION` | the function that runs a backward pass |
/// | `gradient FUNCTION [OPERATOR]` | an operator whose results in a backward pass (of that operator) are gradients; other results are intermediate |
/// | `backward CRATE VERSION LINE:OPERATOR…` | from that line on, the backward pass works for that operator |
/// | `span CRATE FILE FUNCTION` | a function of a model that runs inside a span of its own |
/// | `passes_on LIBRARY` | a shared library that allocates only on behalf of its callers |
///
/// Crates are spelled as in `use`, files are relative to `src`. A name that ends in `/` is a folder; a `*` at the beginning
/// or the end of a name matches anything; `#` begins a comment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Rules {
    added: Table,
    /// The folder of memtrace's sources in the recorded program, with a slash at its end; empty if it is not known.
    own_folder: String,
}

/// Declares the rules that state one fact about a function, file, crate or name: fact, keyword and operands.
macro_rules! facts {
    ($($fact:ident $keyword:literal $form:literal,)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Fact {
            $($fact,)*
        }

        impl Fact {
            pub(crate) const ALL: [Self; FACTS.len()] = [$(Self::$fact),*];
        }

        const FACTS: [(&str, Fact, &str); [$($keyword),*].len()] = [$(($keyword, Fact::$fact, $form)),*];
    };
}

facts! {
    Framework "framework" "CRATE",
    Own "own" "CRATE",
    Pool "pool" "CRATE",
    Tracer "tracer" "CRATE",
    Operators "operators" "CRATE FILE",
    Helper "helper" "NAME",
    Kernel "kernel" "NAME",
    Allocator "allocator" "CRATE FILE [FUNCTION]",
    Variable "variable" "CRATE FILE [FUNCTION]",
    Structure "structure" "CRATE FILE [FUNCTION]",
    Input "input" "CRATE FILE FUNCTION",
    Constant "constant" "CRATE FILE FUNCTION",
    Move "move" "CRATE FILE FUNCTION",
    Product "product" "CRATE FILE FUNCTION",
    Join "join" "NAME",
    Loop "loop" "NAME",
    Square "square" "CRATE FILE FUNCTION",
    Forward "forward" "NAME",
    Optimizer "optimizer" "CRATE FILE FUNCTION",
    Step "step" "NAME",
    Pass "pass" "CRATE FILE FUNCTION",
    Span "span" "CRATE FILE FUNCTION",
    PassesOn "passes_on" "NAME",
}

const OTHERS: [&str; 4] = ["operator", "category", "gradient", "backward"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    /// Indexed by [`Fact`]. A name without a crate and a file is stored as a function pattern; so is a crate without a
    /// file.
    facts: [Vec<FunctionPattern>; FACTS.len()],
    methods: Vec<Method>,
    categories: Vec<(Category, FunctionPattern)>,
    gradients: Vec<(Pattern, Pattern)>,
    backward: Vec<Arms>,
    text: String,
    lines: usize,
}

/// Limits, because each rule may be compared with every frame.
const MOST_LINES: usize = 512;
const MOST_BYTES: usize = 1 << 16;

/// A name, possibly with a `*` at one end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Is(String),
    Start(String),
    End(String),
    /// `quantized/` matches the folder and the file `quantized.rs`.
    Folder(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FunctionPattern {
    package: Pattern,
    file: Pattern,
    function: Pattern,
}

/// An operator that is recognised by its type, or that has a name other than its function's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Method {
    place: FunctionPattern,
    /// `None` matches any type.
    of: Option<Pattern>,
    /// `None` names the operator after its type.
    name: Option<String>,
}

/// The arms of the `match` in one version's backward pass: the line where each begins, and the operator whose gradients
/// it computes. Sorted by line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arms {
    package: Pattern,
    version: String,
    from: Vec<(u32, String)>,
}

impl Rules {
    /// Appends rules.
    ///
    /// # Errors
    /// If a line is not a valid rule, or if there would be more than 512 rules or 64 KiB of them. Then no rule is
    /// added.
    pub fn add(&mut self, lines: &str) -> Result<(), Error> {
        let mut added = self.added.clone();
        added.add_within(lines).map_err(|wrong| Kind::Rules(wrong.quoted()))?;
        self.added = added;
        Ok(())
    }

    /// Appends the rules of a file; errors name the line by its number.
    pub fn add_file(&mut self, file: &Path, lines: &str) -> Result<(), Error> {
        let mut added = self.added.clone();
        added.add_within(lines).map_err(|wrong| Kind::Rules(wrong.numbered(file)))?;
        self.added = added;
        Ok(())
    }

    /// The rules added to the built-in table.
    pub fn added(&self) -> &str {
        &self.added.text
    }

    /// Sets the folder of memtrace's sources. The frames of memtrace in the recorded program have paths below it.
    #[doc(hidden)]
    pub fn set_own_folder(&mut self, folder: &str) {
        folder.clone_into(&mut self.own_folder);
    }

    pub(crate) fn own_folder(&self) -> &str {
        &self.own_folder
    }

    /// Is this a source file of memtrace's library, in the paths of the recorded program?
    pub(crate) fn is_own_file(&self, file: &str) -> bool {
        let below = Some(&*self.own_folder).filter(|folder| !folder.is_empty());
        let below = below.and_then(|folder| file.strip_prefix(folder));
        below.is_some_and(|path| ["src/", "core/src/", "preload/src/"].iter().any(|folder| path.starts_with(folder)))
    }

    fn tables(&self) -> [&Table; 2] {
        [&KNOWN, &self.added]
    }

    /// Does a rule state this fact about the function?
    pub(crate) fn says(&self, fact: Fact, package: &str, file: &str, function: &str) -> bool {
        let mut places = self.tables().into_iter().flat_map(|table| table.facts.get(fact as usize)).flatten();
        places.any(|place| place.fits(package, file, function))
    }

    /// Does a rule state this fact about a plain name, or about a crate as in `use`?
    pub(crate) fn names(&self, fact: Fact, name: &str) -> bool {
        self.says(fact, "", "", name)
    }

    pub(crate) fn is_operator(&self, package: &str, file: &str, function: &str) -> bool {
        let helps = || self.names(Fact::Helper, function) || self.names(Fact::Kernel, function);
        self.says(Fact::Operators, package, file, function) && !helps()
    }

    /// The operator's name, if a rule `operator` covers the function: the rule's NAME, or else the type `of`.
    pub(crate) fn method<'a>(&'a self, package: &str, file: &str, function: &str, of: &'a str) -> Option<&'a str> {
        let mut methods = self.tables().into_iter().flat_map(|table| &table.methods);
        let is_one = |method: &&Method| {
            method.place.fits(package, file, function) && method.of.as_ref().is_none_or(|pattern| pattern.fits(of))
        };
        methods.find(is_one).map(|method| method.name.as_deref().unwrap_or(of)).filter(|name| !name.is_empty())
    }

    /// The category of blocks allocated in this function.
    pub(crate) fn category(&self, package: &str, file: &str, function: &str) -> Option<Category> {
        let mut places = self.tables().into_iter().flat_map(|table| &table.categories);
        places.find(|(_, place)| place.fits(package, file, function)).map(|(category, _)| *category)
    }

    /// The operator whose gradients this line of the backward pass computes.
    pub(crate) fn backward(&self, package: &str, version: &str, line: u32) -> Option<&str> {
        let mut all = self.tables().into_iter().flat_map(|table| &table.backward);
        let arms = all.find(|arms| arms.package.fits(package) && [version, "*"].contains(&arms.version.as_str()))?;
        let after = arms.from.partition_point(|(from, _)| *from <= line);
        arms.from.get(after.checked_sub(1)?).map(|(_, operator)| operator.as_str())
    }

    /// Are the results of this operator gradients, within the backward pass of operator `of`?
    pub(crate) fn is_gradient(&self, function: &str, of: &str) -> bool {
        let mut gradients = self.tables().into_iter().flat_map(|table| &table.gradients);
        gradients.any(|(gradient, within)| gradient.fits(function) && within.fits(of))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.added.text).finish()
    }
}

/// A parse error, with the line if it concerns one.
#[derive(Debug, PartialEq)]
struct Wrong<'a> {
    line: Option<(usize, &'a str)>,
    why: Cow<'static, str>,
}

impl Wrong<'_> {
    fn quoted(&self) -> String {
        self.line.map_or(self.why.to_string(), |(_, line)| format!("{line:?} {}", self.why))
    }

    fn numbered(&self, file: &Path) -> String {
        let file = file.display();
        match self.line {
            Some((number, _)) => format!("in line {number} of {file} {}", self.why),
            None => format!("{} with {file}", self.why),
        }
    }
}

impl Table {
    fn add_within<'a>(&mut self, lines: &'a str) -> Result<(), Wrong<'a>> {
        let too_many = |why: &'static str| Wrong { line: None, why: why.into() };
        if self.text.len() + lines.len() > MOST_BYTES {
            return Err(too_many("table would be longer than 64 KiB"));
        }
        self.add(lines)?;
        if self.lines > MOST_LINES { Err(too_many("table would have more than 512 lines")) } else { Ok(()) }
    }

    fn add<'a>(&mut self, lines: &'a str) -> Result<(), Wrong<'a>> {
        for (at, line) in lines.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let words: Vec<&str> = line.split_whitespace().collect();
            self.line(&words).map_err(|why| Wrong { line: Some((at + 1, line)), why })?;
            if !line.is_empty() {
                self.text.push_str(&words.join(" "));
                self.text.push('\n');
                self.lines += 1;
            }
        }
        Ok(())
    }

    fn line(&mut self, words: &[&str]) -> Result<(), Cow<'static, str>> {
        match words {
            [] => {}
            ["operator", package, file, function, name @ ..] if name.len() < 2 => {
                let (of, function) = match function.rsplit_once("::") {
                    Some((of, function)) => (Some(Pattern::new(of)), function),
                    None => (None, *function),
                };
                let name = name.first().map(|name| (*name).to_owned());
                self.methods.push(Method { place: FunctionPattern::new(package, file, function), of, name });
            }
            ["category", word, package, file, function @ ..] if function.len() < 2 => {
                let category = Category::from_word(word).ok_or_else(no_category)?;
                let function = function.first().unwrap_or(&"*");
                self.categories.push((category, FunctionPattern::new(package, file, function)));
            }
            ["gradient", function, of @ ..] if of.len() < 2 => {
                let of = of.first().unwrap_or(&"*");
                self.gradients.push((Pattern::new(function), Pattern::new(of)));
            }
            ["backward", package, version, from @ ..] if !from.is_empty() => {
                let from = from.iter().map(|arm| arm_of(arm)).collect::<Option<Vec<_>>>();
                let from =
                    from.filter(|from| from.is_sorted()).ok_or("needs LINE:OPERATOR in the order of the lines")?;
                let version = (*version).to_owned();
                self.backward.push(Arms { package: Pattern::package(package), version, from });
            }
            [word, rest @ ..] => {
                let (fact, place) = fact(word, rest)?;
                self.facts[fact as usize].push(place);
            }
        }
        Ok(())
    }
}

fn fact(word: &str, rest: &[&str]) -> Result<(Fact, FunctionPattern), Cow<'static, str>> {
    let Some((_, fact, form)) = FACTS.into_iter().find(|(known, ..)| *known == word) else {
        let words: Vec<&str> = FACTS.iter().map(|(word, ..)| *word).chain(OTHERS).collect();
        let why = format!("begins with none of {}", words.join(", "));
        return Err(if OTHERS.contains(&word) { WRONG_NUMBER.into() } else { why.into() });
    };
    let place = match (form, rest) {
        ("CRATE", [package]) => FunctionPattern::new("*", "*", &package.replace('-', "_")),
        ("NAME", [name]) => FunctionPattern::new("*", "*", name),
        ("CRATE FILE" | "CRATE FILE [FUNCTION]", [package, file]) => FunctionPattern::new(package, file, "*"),
        ("CRATE FILE [FUNCTION]" | "CRATE FILE FUNCTION", [package, file, function]) => {
            FunctionPattern::new(package, file, function)
        }
        _ => return Err(WRONG_NUMBER.into()),
    };
    Ok((fact, place))
}

const WRONG_NUMBER: &str = "has the wrong number of words";

fn no_category() -> Cow<'static, str> {
    format!("names no category; the categories are {}", Category::ALL.map(Category::word).join(", ")).into()
}

/// Parses `185:add`: the arm of the operator `add` begins in line 185.
fn arm_of(arm: &str) -> Option<(u32, String)> {
    let (line, operator) = arm.split_once(':')?;
    Some((line.parse().ok()?, operator.to_owned())).filter(|_| !operator.is_empty())
}

impl FunctionPattern {
    fn new(package: &str, file: &str, function: &str) -> Self {
        Self { package: Pattern::package(package), file: Pattern::new(file), function: Pattern::new(function) }
    }

    fn fits(&self, package: &str, file: &str, function: &str) -> bool {
        self.function.fits(function) && self.package.fits(package) && self.file.fits(file)
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        match (text.strip_prefix('*'), text.strip_suffix('*'), text.strip_suffix('/')) {
            (Some(""), ..) => Self::Any,
            (_, Some(start), _) => Self::Start(start.to_owned()),
            (Some(end), ..) => Self::End(end.to_owned()),
            (.., Some(folder)) => Self::Folder(folder.to_owned()),
            _ => Self::Is(text.to_owned()),
        }
    }

    /// A pattern of a crate name. Crates are compared as spelled in `use`.
    fn package(name: &str) -> Self {
        Self::new(&name.replace('-', "_"))
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(this) => name == this,
            Self::Start(start) => name.starts_with(start),
            Self::End(end) => name.ends_with(end),
            Self::Folder(folder) => name.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with(['/', '.'])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_can_be_read() {
        let mut table = Table::default();
        assert_eq!(table.add(include_str!("rules.txt")), Ok(()));
        assert!(table.facts.iter().all(|places| !places.is_empty()) && table.facts[0].len() > 20);
        assert_eq!(Rules::default().added(), "");
    }

    #[test]
    fn lines_are_added_whole_or_not_at_all() {
        let mut rules = Rules::default();
        rules.add("framework my-kernels # mine\n\n  operators my_kernels  ops/").unwrap();
        assert!(rules.names(Fact::Framework, "my_kernels") && rules.is_operator("my_kernels", "ops/gelu.rs", "gelu"));
        assert_eq!(rules.added(), "framework my-kernels\noperators my_kernels ops/\n");
        let before = rules.clone();
        for wrong in [
            "helper",
            "framework a b",
            "category WEIGHT a b",
            "category INPUT a b c d",
            "allocator a",
            "frame a",
            "backward a 1",
            "backward a 1 2:x 1:y",
            "backward a 1 x",
            "gradient",
            "input a b",
        ] {
            let error = rules.add(&format!("step mine\n{wrong}")).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
            assert!(rules == before && !rules.names(Fact::Step, "mine"));
        }
        assert!(rules.add(&"step mine\n".repeat(600)).unwrap_err().to_string().contains("512 lines"));
        assert!(rules.add(&"x".repeat(70_000)).unwrap_err().to_string().contains("64 KiB"));
    }

    #[test]
    fn stars_stand_for_anything() {
        let rules = Rules::default();
        let is_framework = |package| rules.names(Fact::Framework, package);
        assert!(is_framework("gemm_f32") && is_framework("gemm") && !is_framework("gemmi"));
        assert!(!rules.is_operator("candle_core", "tensor.rs", "sum_impl"));
        assert!(!rules.is_operator("candle_core", "tensor.rs", "{closure#0}"));
        assert!(rules.is_operator("candle_core", "quantized/mod.rs", "quantize"));
        assert!(!rules.is_operator("candle_core", "quantized_x.rs", "quantize"));
        assert_eq!(rules.category("gemm_common", "gemm.rs", "x"), Some(Category::Workspace));
        assert_eq!(rules.category("candle_nn", "optim.rs", "new"), Some(Category::OptimizerState));
        assert_eq!(rules.category("candle_nn", "optim.rs", "step"), None);
        assert!(rules.says(Fact::Allocator, "cubecl_cuda", "compute/storage/gpu.rs", "alloc"));
        assert!(!rules.says(Fact::Allocator, "cubecl_runtime", "compute/storage/gpu.rs", "alloc"));
        let backward = |version, line| rules.backward("candle_core", version, line);
        assert_eq!(
            [184, 185, 190, 191].map(|line| backward("0.11.1", line)),
            [None, Some("add"), Some("add"), Some("sub")]
        );
        assert_eq!((backward("0.8.4", 190), backward("0.7.0", 190)), (Some("sub"), None));
        assert!(rules.says(Fact::Input, "candle_core", "tensor.rs", "from_vec"));
        assert!(rules.is_gradient("add", "matmul") && rules.is_gradient("add", ""));
        assert!(rules.is_gradient("conv2d", "upsample_nearest2d") && !rules.is_gradient("conv2d", "conv2d"));
        assert!(
            rules.says(Fact::Optimizer, "", "train/sgd.rs", "step")
                && !rules.says(Fact::Optimizer, "", "train.rs", "step")
        );
    }
}
