//! Tables of a thread: strings, functions, frames, and stacks as a prefix tree.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::analysis::{NO_STACK, shorten_path};
use crate::error::Error;
use crate::export::gathered::Gathered;
use crate::export::viewers::{Numbered, ShownFrames, frame_name};
use crate::snapshot::{Category, SnapshotData, StackId};

/// A frame with its colour.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ColouredFrame {
    function: usize,
    line: Option<usize>,
    /// 0 for a function that was called, more for those inlined into it.
    inline_depth: usize,
    /// Its number in the profile; 0 is *Other*.
    category: usize,
}

pub(super) struct ThreadTables<'a> {
    data: &'a SnapshotData,
    shown: ShownFrames<'a>,
    strings: Numbered<String>,
    /// Name and file as strings.
    functions: Numbered<(usize, Option<usize>)>,
    frames: Numbered<ColouredFrame>,
    /// Caller's stack, and frame.
    stacks: Numbered<(Option<usize>, usize)>,
    known: HashMap<(StackId, Category), usize, RandomState>,
}

impl<'a> ThreadTables<'a> {
    pub(super) fn new(data: &'a SnapshotData) -> Self {
        let shown = ShownFrames::of(data);
        let (strings, functions, frames, stacks) = (Numbered::new(), Numbered::new(), Numbered::new(), Numbered::new());
        Self { data, shown, strings, functions, frames, stacks, known: HashMap::default() }
    }

    pub(super) fn string(&mut self, text: &str) -> usize {
        self.strings.number(text.to_owned())
    }

    /// The stack of a text in place of frames.
    pub(super) fn label(&mut self, label: &str) -> usize {
        let name = self.string(label);
        let frame = self.frame((name, None), None, 0, 0);
        self.stacks.number((None, frame))
    }

    pub(super) fn stack(&mut self, stack: StackId, category: Category) -> usize {
        if let Some(known) = self.known.get(&(stack, category)) {
            return *known;
        }
        let number = self.new_stack(stack, 1 + category as usize);
        self.known.insert((stack, category), number);
        number
    }

    fn new_stack(&mut self, stack: StackId, category: usize) -> usize {
        let mut at = None;
        for (_, frames) in self.shown.of_stack(stack).into_iter().rev() {
            for (inline_depth, frame) in frames.into_iter().rev().enumerate() {
                let name = self.string(frame_name(frame));
                let file = frame.file.as_deref().map(|file| shorten_path(file, &self.data.process.working_dir));
                let file = file.map(|file| self.string(file));
                let line = frame.line.map(|line| line.get() as usize);
                let frame = self.frame((name, file), line, inline_depth, category);
                at = Some(self.stacks.number((at, frame)));
            }
        }
        at.unwrap_or_else(|| self.label(NO_STACK))
    }

    fn frame(
        &mut self,
        function: (usize, Option<usize>),
        line: Option<usize>,
        inline_depth: usize,
        category: usize,
    ) -> usize {
        let function = self.functions.number(function);
        self.frames.number(ColouredFrame { function, line, inline_depth, category })
    }

    pub(super) fn write(&self, out: &mut Gathered<'_>) -> Result<(), Error> {
        let (frames, functions, stacks) = (self.frames.rows(), self.functions.rows(), self.stacks.rows());
        out.put(format!(",\n\"stackTable\":{{\"length\":{}", stacks.len()));
        out.column("prefix", stacks, |((prefix, _), ()), out| out.number_or_null(*prefix))?;
        out.column("frame", stacks, |((_, frame), ()), out| out.number(*frame as u64))?;
        out.put(format!("}},\n\"frameTable\":{{\"length\":{}", frames.len()));
        out.column("address", frames, |_, out| out.put("-1"))?;
        out.column("inlineDepth", frames, |(frame, ()), out| out.number(frame.inline_depth as u64))?;
        out.column("category", frames, |(frame, ()), out| out.number(frame.category as u64))?;
        out.column("subcategory", frames, |_, out| out.put("0"))?;
        out.column("func", frames, |(frame, ()), out| out.number(frame.function as u64))?;
        out.column("line", frames, |(frame, ()), out| out.number_or_null(frame.line))?;
        for name in ["nativeSymbol", "innerWindowID", "column"] {
            out.column(name, frames, |_, out| out.put("null"))?;
        }
        out.put(format!("}},\n\"funcTable\":{{\"length\":{}", functions.len()));
        out.column("name", functions, |((name, _), ()), out| out.number(*name as u64))?;
        out.column("fileName", functions, |((_, file), ()), out| out.number_or_null(*file))?;
        for name in ["isJS", "relevantForJS"] {
            out.column(name, functions, |_, out| out.put("false"))?;
        }
        out.column("resource", functions, |_, out| out.put("-1"))?;
        for name in ["lineNumber", "columnNumber"] {
            out.column(name, functions, |_, out| out.put("null"))?;
        }
        out.put("},\n\"resourceTable\":{\"length\":0,\"lib\":[],\"name\":[],\"host\":[],\"type\":[]}");
        out.put(",\"nativeSymbols\":{\"length\":0,\"address\":[],\"functionSize\":[],\"libIndex\":[],\"name\":[]}");
        out.column("stringArray", self.strings.rows(), |(text, ()), out| out.text(text))?;
        Ok(())
    }
}
