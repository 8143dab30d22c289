//! Categories of small training programs, described event by event.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::Either;
use crate::recording::DeviceView;
use crate::snapshot::testing::{Story, frame, registry, stacks};
use crate::snapshot::{BlockUse, BlockUses, Category, Frame, IdleTime, StackId, Stacks};

/// Variables of a model, and the table that holds them.
const VARIABLE: StackId = StackId(1);
const TABLE: StackId = StackId(2);
/// A product and another result of the function `judge`, and a product and another result of `main` itself.
const PRODUCT: StackId = StackId(3);
const RESULT: StackId = StackId(4);
const OWN_PRODUCT: StackId = StackId(5);
const OWN_RESULT: StackId = StackId(6);
/// A sum of a backward pass, and a block on the way to it.
const GRADIENT: StackId = StackId(7);
const ON_THE_WAY: StackId = StackId(8);
/// A block of a worker thread.
const SCRATCH: StackId = StackId(9);
/// `cat`, `index_select`, and `copy` in the function `frozen`.
const CAT: StackId = StackId(10);
const SELECT: StackId = StackId(11);
const COPY: StackId = StackId(12);
/// `from_vec` in `load` at line 4, by the first call and by others. `from_vec` in `batch` at line 5.
const FIRST_WEIGHT: StackId = StackId(13);
const OTHER_WEIGHT: StackId = StackId(14);
const BATCH: StackId = StackId(15);
/// A result of the program's optimizer `apply`.
const STATE: StackId = StackId(16);
/// A block that describes a copy.
const STRUCTURE: StackId = StackId(17);

fn of_candle(function: &str, file: &str) -> Frame {
    frame(&format!("candle_core::{function}"), &registry(&format!("candle-core-0.11.1/src/{file}")), 1)
}

fn own(function: &str, line: u32) -> Frame {
    frame(&format!("net::{function}"), "/home/u/net/src/main.rs", line)
}

fn table() -> Stacks {
    let frames = vec![
        frame("candle_nn::var_map::VarMap::get", &registry("candle-nn-0.11.1/src/var_map.rs"), 1),
        of_candle("tensor::Tensor::randn_f64", "tensor.rs"),
        of_candle("tensor::Tensor::matmul", "tensor.rs"),
        of_candle("tensor::Tensor::affine", "tensor.rs"),
        of_candle("tensor::Tensor::add", "tensor.rs"),
        of_candle("tensor::Tensor::backward", "backprop.rs"),
        of_candle("cpu_backend::Conv2D::f", "cpu_backend/mod.rs"),
        frame("rayon_core::join::join", &registry("rayon-core-1.13.0/src/join/mod.rs"), 130),
        of_candle("tensor::Tensor::cat", "tensor_cat.rs"),
        of_candle("tensor::Tensor::index_select", "tensor.rs"),
        of_candle("tensor::Tensor::copy", "tensor.rs"),
        of_candle("tensor::Tensor::from_vec", "tensor.rs"),
        own("main", 1),
        own("judge", 2),
        own("frozen", 3),
        own("load", 4),
        own("batch", 5),
        own("apply", 6),
        of_candle("storage::Storage::try_clone", "storage.rs"),
    ];
    let of_frames: [&[u32]; 17] = [
        &[1, 0, 12],
        &[0, 12],
        &[2, 13, 12],
        &[3, 13, 12],
        &[2, 12],
        &[3, 12],
        &[4, 5, 12],
        &[2, 5, 12],
        &[6, 7],
        &[8, 13, 12],
        &[9, 13, 12],
        &[18, 10, 14, 12],
        &[11, 15, 12],
        &[11, 15, 15, 12],
        &[11, 16, 12],
        &[3, 17, 12],
        &[10, 14, 12],
    ];
    stacks(frames, of_frames)
}

/// A story whose blocks are found by their labels.
struct Training {
    story: Story,
    seqs: HashMap<String, NonZeroU64>,
    /// For each block, the blocks at whose allocs its longest pause ends and its last use is.
    uses: Vec<(String, String, String)>,
}

impl Training {
    fn new() -> Self {
        let mut story = Story::cpu();
        story.stacks(table());
        Self { story, seqs: HashMap::new(), uses: Vec::new() }
    }

    fn on(&mut self, stack: StackId, size: u64, labels: &str) -> &mut Self {
        for label in labels.split(' ') {
            self.story.alloc(label, size).on(stack);
            let seq = NonZeroU64::new(self.seqs.len() as u64 + 1).unwrap();
            assert_eq!(self.seqs.insert(label.to_owned(), seq), None, "{label} is told once");
        }
        self
    }

    fn free(&mut self, labels: &str) -> &mut Self {
        labels.split(' ').for_each(|label| _ = self.story.free(label));
        self
    }

    /// Adds this many small results of the program itself, each freed at once.
    fn pass_time(&mut self, results: usize) -> &mut Self {
        for _ in 0..results {
            let label = format!("result {}", self.seqs.len());
            self.story.alloc(&label, 8).on(OWN_RESULT).free(&label);
            self.seqs.insert(label, NonZeroU64::new(self.seqs.len() as u64 + 1).unwrap());
        }
        self
    }

    /// The block is unused until the first alloc, and its last use is at the second.
    fn uses(&mut self, label: &str, pauses_until: &str, last: &str) -> &mut Self {
        self.uses.push((label.to_owned(), pauses_until.to_owned(), last.to_owned()));
        self
    }

    fn categories(&self, labels: &str) -> Vec<Category> {
        self.either(labels).into_iter().map(|(category, _)| category).collect()
    }

    fn either(&self, labels: &str) -> Vec<(Category, Option<Either>)> {
        let mut data = self.story.build();
        let used = |(label, to, last): &(String, String, String)| {
            let [seq, to, last] = [label, to, last].map(|label| self.seqs[label]);
            let last = BlockUse { operation: last.get(), after_alloc: last.get(), ..BlockUse::default() };
            let idle = IdleTime { operations: 1, from_alloc: seq.get(), to_alloc: to.get(), ..IdleTime::default() };
            BlockUses { count: 2, first: Some(last), last: Some(last), idle: Some(idle), ..BlockUses::new(seq, 0) }
        };
        data.devices[0].uses = self.uses.iter().map(used).collect();
        data.devices[0].uses.sort_by_key(|uses| uses.seq);
        let categories = DeviceView::of(&data, &data.devices[0]).categories().clone();
        let of = |label| Some(self.seqs[label]);
        labels.split(' ').map(|label| (categories.get(of(label)), categories.either(of(label)))).collect()
    }
}

/// A forward pass and a backward pass, with one gradient for the only variable.
fn iteration(training: &mut Training, n: usize) {
    training.on(PRODUCT, 500, &format!("x{n}")).on(RESULT, 600, &format!("y{n}"));
    training.on(ON_THE_WAY, 700, &format!("w{n}")).on(GRADIENT, 8000, &format!("g{n}"));
    training.free(&format!("w{n}")).pass_time(1).free(&format!("y{n} x{n}"));
}

#[test]
fn a_gradient_that_becomes_the_first_momentum_is_none() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "v");
    for n in 0..4 {
        iteration(&mut training, n);
        if n > 0 {
            training.free(&format!("g{n}"));
        }
    }
    let gradient = (Category::Gradient, None);
    assert_eq!(training.either("g0 g1 g2"), [(Category::Unknown, None), gradient, gradient]);
}

#[test]
fn gradients_that_are_summed_over_batches_are_some_although_later_passes_leave_them() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "v");
    for n in [0, 2, 4] {
        iteration(&mut training, n);
        iteration(&mut training, n + 1);
        training.free(&format!("g{n} g{}", n + 1));
    }
    assert_eq!(training.categories("g0 g1 g2 g3"), [Category::Gradient; 4]);
}

#[test]
fn scratch_of_workers_takes_the_pass_that_the_program_is_in() {
    let with = |others: bool| {
        let mut training = Training::new();
        training.on(VARIABLE, 8000, "v").on(PRODUCT, 500, "x");
        training.story.thread(2);
        training.on(SCRATCH, 900, "forward").free("forward");
        training.story.thread(3);
        if others {
            training.on(OWN_PRODUCT, 90, "other");
        }
        training.story.thread(1);
        training.on(ON_THE_WAY, 700, "w");
        training.story.thread(2);
        training.on(SCRATCH, 900, "backward").free("backward");
        training.story.thread(1);
        training.on(GRADIENT, 8000, "g").free("w").pass_time(1);
        training.story.thread(2);
        training.on(SCRATCH, 900, "stays");
        training.story.thread(1);
        training.pass_time(2).categories("forward backward stays")
    };
    assert_eq!(with(false), [Category::Temporary, Category::AutogradDetail, Category::Unknown]);
    assert_eq!(with(true)[1], Category::Unknown, "it may work for the other thread");
}

#[test]
fn only_the_elements_of_a_tensor_can_be_a_variable() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "v").on(TABLE, 8464, "table");
    assert_eq!(training.categories("v table"), [Category::Parameter, Category::Unknown]);
}

/// Two caches, each of them read once. They are put in another order after each join.
fn with_beams(training: &mut Training) {
    for n in 1..6u64 {
        let (join, copy) = (format!("k{n} v{n}"), format!("ck{n} cv{n}"));
        training.on(CAT, 100 * n, &join);
        if n > 1 {
            training.free(&format!("ck{} cv{}", n - 1, n - 1));
        }
        training.on(RESULT, 10 * n, &format!("scores{n}")).free(&format!("scores{n}")).pass_time(12);
        training.on(SELECT, 100 * n, &copy).free(&join).pass_time(12);
    }
}

#[test]
fn caches_that_are_reordered_between_joins_are_caches_and_so_are_the_copies() {
    let mut training = Training::new();
    with_beams(&mut training);
    assert_eq!(training.categories("k1 v1 k3 ck3 cv4 v5 cv5"), [Category::KvCache; 7]);
}

#[test]
fn a_model_works_in_functions_that_multiply_before_the_first_backward_pass() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "v");
    for n in 0..4 {
        training.on(OWN_RESULT, 50, &format!("data{n}")).on(PRODUCT, 60, &format!("tried{n}")).pass_time(40);
        training.free(&format!("tried{n}"));
        iteration(&mut training, n);
        training.free(&format!("data{n} g{n}"));
    }
    let expected = [Category::Activation, Category::Activation, Category::Temporary, Category::Unknown];
    assert_eq!(training.categories("x1 y1 tried1 data1"), expected);
}

#[test]
fn in_a_function_that_also_goes_back_nothing_is_a_models_for_its_products() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "v");
    for n in 0..4 {
        training.on(OWN_PRODUCT, 500, &format!("x{n}")).on(OWN_RESULT, 600, &format!("y{n}")).pass_time(12);
        training.on(GRADIENT, 8000, &format!("g{n}")).pass_time(12).free(&format!("x{n} y{n} g{n}"));
    }
    assert_eq!(training.categories("x1 y1"), [Category::Unknown; 2]);
}

#[test]
fn a_function_that_only_multiplies_data_is_no_models() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "v");
    for n in 0..4 {
        training.on(PRODUCT, 500, &format!("data{n}")).on(OWN_RESULT, 600, &format!("y{n}")).pass_time(12);
        training.on(GRADIENT, 8000, &format!("g{n}")).pass_time(12).free(&format!("data{n} y{n} g{n}"));
    }
    assert_eq!(training.categories("data1 y1"), [Category::Unknown; 2]);
}

#[test]
fn one_copy_for_each_variable_is_a_copy_of_the_model() {
    let copies = |sizes: &[u64]| {
        let mut training = Training::new();
        training.on(VARIABLE, 8000, "v").on(VARIABLE, 800, "b").on(STRUCTURE, 224, "structure");
        sizes.iter().enumerate().for_each(|(n, size)| _ = training.on(COPY, *size, &format!("c{n}")));
        iteration(&mut training, 0);
        training.categories("c0")
    };
    assert_eq!(copies(&[8000, 800]), [Category::Parameter]);
    assert_eq!(copies(&[8000]), [Category::Unknown]);
    assert_eq!(copies(&[8000, 800, 800]), [Category::Unknown]);
}

#[test]
fn data_of_a_line_that_also_loads_what_stays_is_no_input() {
    let mut training = Training::new();
    for n in 0..5 {
        training.on(FIRST_WEIGHT, 1000, &format!("w{n}"));
        training.on(OTHER_WEIGHT, 1000, &format!("w{n}a w{n}b w{n}c")).on(BATCH, 300, &format!("x{n}")).pass_time(12);
        if n > 0 {
            let before = n - 1;
            training.free(&format!("w{before} w{before}a w{before}b w{before}c"));
        }
        training.pass_time(12).free(&format!("x{n}"));
    }
    assert_eq!(training.categories("w1 w1a x1"), [Category::Unknown, Category::Unknown, Category::Input]);
}

#[test]
fn what_a_backward_pass_reads_last_is_no_activation_if_it_was_made_before_the_pass() {
    let mut training = Training::new();
    training.on(OWN_RESULT, 50, "data").on(VARIABLE, 8000, "v");
    iteration(&mut training, 0);
    training.free("data").uses("data", "w0", "w0").uses("x0", "w0", "w0");
    assert_eq!(training.categories("data x0"), [Category::Unknown, Category::Activation]);
}

#[test]
fn what_pauses_during_the_pass_is_an_optimizers_state_only_if_a_gradient_flows_into_it() {
    let with = |is_fed: bool| {
        let mut training = Training::new();
        training.on(VARIABLE, 8000, "v");
        for n in 0..4usize {
            iteration(&mut training, n);
            training.on(STATE, 8000, &format!("s{n}"));
            if n > 0 {
                let before = format!("s{}", n - 1);
                training.free(&before).uses(&before, &format!("s{n}"), &format!("s{n}"));
            }
            let last = if is_fed { format!("s{n}") } else { format!("g{n}") };
            training.free(&format!("g{n}")).uses(&format!("g{n}"), &last, &last);
        }
        training.categories("s1")
    };
    assert_eq!(with(true), [Category::OptimizerState]);
    assert_eq!(with(false), [Category::Unknown], "an average of weights looks the same");
}

#[test]
fn weights_that_are_gone_before_the_first_forward_pass_are_no_parameters() {
    let mut training = Training::new();
    training.on(VARIABLE, 8000, "source").pass_time(12).free("source").on(VARIABLE, 8000, "v");
    iteration(&mut training, 0);
    assert_eq!(training.categories("source v"), [Category::Unknown, Category::Parameter]);
}

#[test]
fn outside_of_models_functions_only_a_site_from_before_the_first_backward_pass_has_activations() {
    let with = |begin: usize| {
        let mut training = Training::new();
        training.on(VARIABLE, 8000, "v");
        for n in 0..4 {
            training.on(PRODUCT, 500, &format!("x{n}")).on(RESULT, 600, &format!("y{n}"));
            if n >= begin {
                training.on(STATE, 50, &format!("s{n}"));
            }
            training.on(GRADIENT, 8000, &format!("g{n}")).pass_time(12).free(&format!("y{n} x{n} g{n}"));
            if n >= begin {
                training.free(&format!("s{n}"));
            }
        }
        training.categories("s2")
    };
    assert_eq!(with(0), [Category::Activation]);
    assert_eq!(with(1), [Category::Unknown], "an update may have made it");
}

#[test]
fn results_that_come_again_are_temporary_if_they_are_live_for_at_most_half_of_the_time() {
    let with = |live: usize, rest: usize| {
        let mut training = Training::new();
        for n in 0..5 {
            let label = format!("y{n}");
            training.on(RESULT, 600, &label).pass_time(live).free(&label).pass_time(rest);
        }
        training.categories("y1")
    };
    assert_eq!([with(12, 11), with(12, 10)], [[Category::Temporary], [Category::Unknown]]);
}

#[test]
fn what_is_freed_after_a_pass_is_a_detail_of_it_only_if_another_of_its_results_is_kept() {
    let with = |labels: [&str; 2], freed: &str| {
        let mut training = Training::new();
        training.on(GRADIENT, 700, "earlier").pass_time(1);
        training.on(GRADIENT, 8000, labels[0]).on(GRADIENT, 800, labels[1]).free(freed).pass_time(1);
        training.either("w")
    };
    let own = [(Category::AutogradDetail, None)];
    assert_eq!([with(["kept", "w"], "w"), with(["w", "kept"], "w")], [own, own]);
    assert_eq!(with(["w", "other"], "w other"), [(Category::Unknown, Some(Either::GradientOrGraph))]);
}

#[test]
fn results_are_temporary_if_they_are_freed_before_a_repeatedly_entered_scope_ends() {
    let with = |times: u64| {
        let mut training = Training::new();
        for n in 0..times {
            let (label, others) = (format!("y{n}"), format!("a{n} b{n}"));
            training.story.at(10 * n + 1).enter("step");
            training.on(RESULT, 600, &label).pass_time(8).on(PRODUCT, 8, &others).free(&others).free(&label);
            training.story.leave("step").at(10 * n + 2);
            training.pass_time(1);
        }
        training.categories("y0")
    };
    assert_eq!(with(2), [Category::Temporary]);
    assert_eq!(with(1), [Category::Unknown], "the scope may be the whole program");
}

#[test]
fn data_that_is_loaded_once_may_be_weights_only_if_it_stays() {
    let mut training = Training::new();
    training.on(BATCH, 300, "x").free("x").on(FIRST_WEIGHT, 1000, "w");
    let stays = (Category::Unknown, Some(Either::InputOrWeights));
    assert_eq!(training.either("x w"), [(Category::Unknown, None), stays]);
}
