//! Random programs whose generator keeps its own list of what every operation uses. What the recording claims is held
//! against that list: no claim is wrong, and every block's last use is found that no opaque launch hides.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUfunction, CUgraphExec, CUstream, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED,
};
use memtrace::snapshot::BlockUses;
use memtrace::{Device, Snapshot, StackContext};

use super::kernels::{self, FORMS};
use super::raw;
use super::support::on_gpu;

const PROGRAMS: u64 = 200;
const STEPS: usize = 60;
const SMALLEST: usize = 1 << 12;

/// The signatures of the kernels, as the driver knows them. `{}` is the type of the last pointer of `three`.
const PTX: &str = ".version 9.0\n.target sm_90\n.address_size 64\n\
    .visible .entry three(.param .u64 a, .param .u64 b, .param {} c)\n{ ret; }\n\
    .visible .entry structure(.param .align 8 .b8 s[48])\n{ ret; }\n\
    .visible .entry batched(.param .u64 table, .param .u64 out)\n{ ret; }\n";

/// xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// What the generator knows of a block. Its place in the list, from 1, is its number.
struct Known {
    address: u64,
    size: usize,
    /// Operations before its allocation and before its free.
    born: u64,
    freed: Option<u64>,
    /// Operations that use it, with whether memtrace can see that.
    used: Vec<(u64, bool)>,
    /// Blocks whose addresses it holds.
    holds: Vec<usize>,
}

struct Captured {
    program: CUgraphExec,
    uses: Vec<usize>,
}

struct Program {
    random: Random,
    stream: CUstream,
    three: CUfunction,
    structure: CUfunction,
    batched: CUfunction,
    unknown: CUfunction,
    blocks: Vec<Known>,
    graphs: Vec<Captured>,
    operations: u64,
    opaque: Vec<u64>,
    /// Operations go into a graph: what they use.
    capturing: Option<Vec<usize>>,
}

impl Program {
    fn new(seed: u64, stream: CUstream, last_pointer: &str) -> Self {
        let module = kernels::load(PTX.replace("{}", last_pointer).as_bytes());
        let [three, structure, batched] = ["three", "structure", "batched"].map(|name| kernels::function(module, name));
        let unknown = kernels::function(kernels::load(kernels::FAT_BINARY), "unknown");
        Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            stream,
            three,
            structure,
            batched,
            unknown,
            blocks: Vec::new(),
            graphs: Vec::new(),
            operations: 0,
            opaque: Vec::new(),
            capturing: None,
        }
    }

    /// Notes an operation on these blocks.
    fn operation(&mut self, uses: &[usize]) {
        match &mut self.capturing {
            Some(captured) => captured.extend(uses),
            None => self.note(uses, true),
        }
    }

    fn note(&mut self, uses: &[usize], is_seen: bool) {
        self.operations += 1;
        for block in uses {
            self.blocks[*block].used.push((self.operations, is_seen));
        }
    }

    fn any(&mut self) -> Option<usize> {
        let live: Vec<usize> = (0..self.blocks.len()).filter(|at| self.blocks[*at].freed.is_none()).collect();
        if live.is_empty() { None } else { Some(live[self.random.below(live.len())]) }
    }

    /// A block, and a view of it.
    fn view(&mut self) -> Option<(usize, u64)> {
        let at = self.any()?;
        let (address, size) = (self.blocks[at].address, self.blocks[at].size);
        Some((at, address + if self.random.one_in(2) { 0 } else { self.random.below(size) as u64 }))
    }

    /// What a kernel can reach from these blocks.
    fn reached(&self, mut uses: Vec<usize>) -> Vec<usize> {
        let mut at = 0;
        while let Some(block) = uses.get(at) {
            let more: Vec<usize> =
                self.blocks[*block].holds.iter().filter(|held| !uses.contains(held)).copied().collect();
            uses.extend(more);
            at += 1;
        }
        uses
    }

    fn alloc(&mut self) {
        let size = if self.random.one_in(3) { 1 << 20 } else { SMALLEST } + self.random.below(5000);
        let address = match self.random.below(3) {
            0 => raw::alloc(size).unwrap(),
            _ => raw::alloc_async(size, self.stream).unwrap(),
        };
        let born = self.operations;
        self.blocks.push(Known { address, size, born, freed: None, used: Vec::new(), holds: Vec::new() });
    }

    fn free(&mut self) {
        let Some(at) = self.any() else { return };
        // No table and no graph keeps an address of freed memory.
        for table in 0..self.blocks.len() {
            if self.blocks[table].freed.is_none() && self.blocks[table].holds.contains(&at) {
                self.fill_all(table);
            }
        }
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.graphs).into_iter().partition(|g| g.uses.contains(&at));
        gone.into_iter().for_each(|graph| raw::program_destroy(graph.program).unwrap());
        self.graphs = kept;
        match self.random.one_in(2) {
            true => raw::free(self.blocks[at].address).unwrap(),
            false => raw::free_async(self.blocks[at].address, self.stream).unwrap(),
        }
        self.blocks[at].freed = Some(self.operations);
        self.blocks[at].holds.clear();
    }

    fn fill_all(&mut self, at: usize) {
        kernels::fill(self.blocks[at].address, self.blocks[at].size, self.stream);
        self.blocks[at].holds.clear();
        self.operation(&[at]);
    }

    fn launch_three(&mut self) {
        let views: Vec<(usize, u64)> = (0..3).filter_map(|_| self.view()).collect();
        let [a, b, c] = views[..] else { return };
        let form = FORMS[self.random.below(FORMS.len())];
        kernels::launch(self.three, form, &[vec![a.1], vec![b.1], vec![c.1]], self.stream);
        let uses = self.reached(vec![a.0, b.0, c.0]);
        self.operation(&uses);
    }

    fn launch_structure(&mut self) {
        let Some((at, view)) = self.view() else { return };
        let mut words = vec![3, 1 << 60, 0, 7, u64::MAX, 1];
        let place = self.random.below(words.len());
        words[place] = view;
        let form = FORMS[self.random.below(FORMS.len())];
        kernels::launch(self.structure, form, &[words], self.stream);
        let uses = self.reached(vec![at]);
        self.operation(&uses);
    }

    /// Uploads a table of addresses.
    fn write_table(&mut self) {
        let Some(table) = self.any().filter(|_| self.capturing.is_none()) else { return };
        self.fill_all(table);
        let views: Vec<(usize, u64)> = (0..1 + self.random.below(6)).filter_map(|_| self.view()).collect();
        let words: Vec<u64> = views.iter().flat_map(|(_, view)| [*view, 5]).collect();
        kernels::upload(self.blocks[table].address, &words, self.stream);
        self.blocks[table].holds.extend(views.iter().map(|(at, _)| *at));
        self.operation(&[table]);
    }

    fn launch_batched(&mut self) {
        let Some((table, (out, view))) = self.any().zip(self.view()) else { return };
        let arguments = [vec![self.blocks[table].address], vec![view]];
        kernels::launch(self.batched, FORMS[self.random.below(FORMS.len())], &arguments, self.stream);
        let uses = self.reached(vec![table, out]);
        self.operation(&uses);
    }

    fn copy(&mut self) {
        let Some((from, to)) = self.any().zip(self.any()).filter(|(from, to)| from != to) else { return };
        let (source, target) = (self.blocks[from].address, self.blocks[to].address);
        let (size, stream) = (8 * (1 + self.random.below(SMALLEST / 8)), self.stream);
        match self.random.below(4) {
            0 => kernels::copy_unified(target, source, size, stream),
            // The copy of a table in rows would have to be one, too.
            1 if self.blocks[from].holds.is_empty() => kernels::copy_rows(target, source, size, stream),
            _ => kernels::copy(target, source, size, stream),
        }
        let held = self.blocks[from].holds.clone();
        self.blocks[to].holds.extend(held);
        self.operation(&[from, to]);
    }

    fn move_to_host(&mut self) {
        let Some(at) = self.any().filter(|_| self.capturing.is_none()) else { return };
        kernels::download(self.blocks[at].address, 1 + self.random.below(SMALLEST), self.stream);
        self.operation(&[at]);
    }

    fn fill_part(&mut self) {
        let Some(at) = self.any() else { return };
        kernels::fill_words(self.blocks[at].address, 1 + self.random.below(100), self.stream);
        self.operation(&[at]);
    }

    fn launch_unknown(&mut self) {
        let Some((at, view)) = self.view().filter(|_| self.capturing.is_none()) else { return };
        kernels::launch(self.unknown, FORMS[0], &[vec![view]], self.stream);
        let uses = self.reached(vec![at]);
        self.note(&uses, false);
        self.opaque.push(self.operations);
    }

    fn capture(&mut self) {
        raw::begin_capture(self.stream, CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        self.capturing = Some(Vec::new());
        for _ in 0..1 + self.random.below(5) {
            match self.random.below(4) {
                0 => self.launch_three(),
                1 => self.launch_structure(),
                2 => self.fill_part(),
                _ => self.launch_batched(),
            }
        }
        let program = raw::instantiate(raw::end_capture(self.stream).unwrap(), 0).unwrap();
        let uses = self.capturing.take().unwrap();
        self.graphs.push(Captured { program, uses });
    }

    fn launch_graph(&mut self) {
        if self.graphs.is_empty() {
            return;
        }
        let at = self.random.below(self.graphs.len());
        raw::launch(self.graphs[at].program, self.stream).unwrap();
        // A table may have been written since.
        let uses = self.reached(self.graphs[at].uses.clone());
        self.note(&uses, true);
    }

    fn step(&mut self, opaque: bool) {
        match self.random.below(16) {
            0..3 => self.alloc(),
            3 | 4 => self.free(),
            5 | 6 => self.launch_three(),
            7 => self.launch_structure(),
            8 => self.write_table(),
            9 => self.launch_batched(),
            10 => self.copy(),
            11 => self.move_to_host(),
            12 => self.fill_part(),
            13 => self.capture(),
            14 => self.launch_graph(),
            _ if opaque => self.launch_unknown(),
            _ => {}
        }
    }

    /// What the recording says wrongly, or does not say although it could.
    fn errors(&self, snapshot: &Snapshot) -> Vec<String> {
        let Some(gpu) = snapshot.device(Device::Cuda(0)) else { return Vec::new() };
        let counted = snapshot.gpu_work.as_ref().unwrap().totals.operations;
        let mut errors = Vec::new();
        if counted != self.operations {
            errors.push(format!("{counted} operations instead of {}", self.operations));
        }
        for (at, block) in self.blocks.iter().enumerate() {
            let number = std::num::NonZeroU64::new(at as u64 + 1);
            match gpu.uses_of(number) {
                Some(uses) => errors.extend(self.wrong(block, uses).map(|error| format!("block {}: {error}", at + 1))),
                None => errors.push(format!("block {} has no uses", at + 1)),
            }
        }
        errors
    }

    fn wrong(&self, block: &Known, uses: &BlockUses) -> Option<String> {
        let (first, last) = (block.used.first().map(|used| used.0), block.used.last().map(|used| used.0));
        if uses.is_unused() && last.is_some() {
            return Some(format!("wrong: it is used by {last:?}"));
        }
        if let Some(claimed) = uses.known_last().filter(|claimed| last.is_some_and(|last| last > claimed.operation)) {
            return Some(format!("wrong: last use {} instead of {last:?}", claimed.operation));
        }
        if let Some(claimed) = uses.known_first().filter(|claimed| first.is_some_and(|first| first < claimed.operation))
        {
            return Some(format!("wrong: first use {} instead of {first:?}", claimed.operation));
        }
        let seen = block.used.iter().rev().find(|(_, is_seen)| *is_seen).map_or(0, |(operation, _)| *operation);
        let end = block.freed.unwrap_or(self.operations);
        let is_hidden = self.opaque.iter().any(|opaque| (block.born.max(seen) + 1..=end).contains(opaque));
        let found =
            if seen == 0 { uses.is_unused() } else { uses.known_last().is_some_and(|last| last.operation == seen) };
        (!is_hidden && !found).then(|| format!("missed: last use {seen}, but {uses:?}"))
    }
}

fn run(seed: u64, last_pointer: &str) -> Vec<String> {
    let context = CudaContext::new(0).unwrap();
    let session = memtrace::builder().uses(true).context(StackContext::None).start().unwrap();
    let owned = context.new_stream().unwrap();
    let mut program = Program::new(seed, owned.cu_stream(), last_pointer);
    (0..STEPS).for_each(|_| program.step(!seed.is_multiple_of(3)));
    let errors = program.errors(&session.snapshot());
    drop(session);
    program.graphs.iter().for_each(|graph| raw::program_destroy(graph.program).unwrap());
    program.blocks.iter().filter(|block| block.freed.is_none()).for_each(|block| raw::free(block.address).unwrap());
    errors.into_iter().map(|error| format!("program {seed}: {error}")).collect()
}

#[test]
fn no_claim_about_a_random_program_is_wrong_and_none_is_missing() {
    on_gpu(&[], || {
        let errors: Vec<String> = (1..=PROGRAMS).flat_map(|seed| run(seed, ".u64")).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    });
}

/// The comparison notices a kernel whose signature hides a pointer.
#[test]
fn a_signature_that_lies_makes_wrong_claims() {
    on_gpu(&[], || {
        let errors: Vec<String> = (1..=20).flat_map(|seed| run(seed, ".u32")).collect();
        assert!(errors.iter().any(|error| error.contains("wrong: ")), "{errors:#?}");
    });
}
