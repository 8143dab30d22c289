//! `mutant-sources ROOT LIST LEFT-OUT STATUS`: rewrites the sources below ROOT so that they contain all mutants of LIST,
//! the JSON of `cargo mutants --list`, in which each has a number `id`. Numbers in the file LEFT-OUT are left out. Writes
//! to STATUS what became of each: the number of its place, or why it is not there. `switch.rs` chooses the mutant at run
//! time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use proc_macro2::Span;
use serde_json::Value;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Expr, ReturnType, parse_quote};

#[derive(Clone)]
struct Mutant {
    id: usize,
    replacement: String,
}

/// Kind, line and column of a mutant.
type Place = (String, usize, usize);

struct Rewriter {
    mutants: HashMap<Place, Vec<Mutant>>,
    is_const: bool,
    status: Vec<(usize, Value)>,
}

impl Rewriter {
    fn take(&mut self, kind: &str, span: Span) -> Vec<Mutant> {
        let start = span.start();
        self.mutants.remove(&(kind.to_owned(), start.line, start.column + 1)).unwrap_or_default()
    }

    fn note(&mut self, mutants: &[Mutant], what: impl Into<Value>) {
        let what = what.into();
        self.status.extend(mutants.iter().map(|mutant| (mutant.id, what.clone())));
    }

    /// A choice between the original expression and the mutants'. `None` if there are none, or if they cannot be.
    fn choice(
        &mut self,
        mutants: &[Mutant],
        changed: &[Expr],
        original: &Expr,
        obstacle: Option<&'static str>,
    ) -> Option<Expr> {
        let first = mutants.first()?.id;
        let obstacle = if self.is_const { Some("const") } else { obstacle };
        self.note(mutants, obstacle.map_or(Value::from(first), Value::from));
        let ids = mutants.iter().map(|mutant| mutant.id);
        obstacle
            .is_none()
            .then(|| parse_quote!((match crate::mutants::at(#first) { #(#ids => #changed,)* _ => #original })))
    }

    fn body(&mut self, block: &mut syn::Block, signature: &syn::Signature) {
        let mutants = block.stmts.first().map(|first| self.take("FnValue", first.span())).unwrap_or_default();
        let outer = std::mem::replace(&mut self.is_const, signature.constness.is_some());
        visit_mut::visit_block_mut(self, block);
        let is_const = std::mem::replace(&mut self.is_const, outer);
        let opaque =
            matches!(&signature.output, ReturnType::Type(_, of) if quote::quote!(#of).to_string().contains("impl "));
        if is_const || opaque {
            return self.note(&mutants, if is_const { "const" } else { "impl" });
        }
        for (at, Mutant { id, replacement }) in mutants.iter().enumerate() {
            let value: Expr = syn::parse_str(replacement).expect("an expression");
            block.stmts.insert(at, parse_quote!(if crate::mutants::is(#id) { return #value; }));
            self.status.push((*id, Value::from(*id)));
        }
    }

    fn in_const(&mut self, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_const, true);
        visit(self);
        self.is_const = outer;
    }
}

/// Whether it is a condition with `let`, of which only a part can be an expression.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

fn let_in(expr: &Expr) -> Option<&'static str> {
    has_let(expr).then_some("let")
}

impl VisitMut for Rewriter {
    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        self.body(&mut item.block, &item.sig);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.body(&mut item.block, &item.sig);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        if let Some(block) = &mut item.default {
            self.body(block, &item.sig);
        }
    }

    fn visit_item_const_mut(&mut self, item: &mut syn::ItemConst) {
        self.in_const(|this| visit_mut::visit_item_const_mut(this, item));
    }

    fn visit_item_static_mut(&mut self, item: &mut syn::ItemStatic) {
        self.in_const(|this| visit_mut::visit_item_static_mut(this, item));
    }

    fn visit_impl_item_const_mut(&mut self, item: &mut syn::ImplItemConst) {
        self.in_const(|this| visit_mut::visit_impl_item_const_mut(this, item));
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        let deleted = self.take("MatchArm", arm.span());
        let guards = arm.guard.as_ref().map(|(_, guard)| guard.span()).map(|span| self.take("MatchArmGuard", span));
        visit_mut::visit_arm_mut(self, arm);
        if let Some((_, guard)) = &mut arm.guard {
            let guards = guards.unwrap_or_default();
            let values: Vec<Expr> = guards.iter().map(|of| syn::parse_str(&of.replacement).expect("a value")).collect();
            if let Some(choice) = self.choice(&guards, &values, guard, let_in(guard)) {
                **guard = choice;
            }
        }
        let Some(Mutant { id, .. }) = deleted.first() else { return };
        let obstacle = arm.guard.as_ref().and_then(|(_, guard)| let_in(guard)).or(self.is_const.then_some("const"));
        self.note(&deleted, obstacle.map_or(Value::from(*id), Value::from));
        if obstacle.is_none() {
            let guard: Expr = match arm.guard.take() {
                Some((_, guard)) => parse_quote!(!crate::mutants::is(#id) && #guard),
                None => parse_quote!(!crate::mutants::is(#id)),
            };
            arm.guard = Some((Default::default(), Box::new(guard)));
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let choice = match expr {
            Expr::Binary(binary) => {
                let mutants = self.take("BinaryOperator", binary.op.span());
                visit_mut::visit_expr_binary_mut(self, binary);
                let obstacle = let_in(&binary.left).or(let_in(&binary.right));
                // An operand such as `a as u64` must not be followed by `<`.
                let left = &binary.left;
                let is_place =
                    matches!(**left, Expr::Paren(_) | Expr::Path(_) | Expr::Field(_) | Expr::Index(_) | Expr::Unary(_));
                if !mutants.is_empty() && !is_place && obstacle.is_none() {
                    binary.left = Box::new(parse_quote!((#left)));
                }
                let with = |of: &Mutant| {
                    let op = syn::parse_str::<BinOp>(&of.replacement).expect("an operator");
                    Expr::Binary(syn::ExprBinary { op, ..binary.clone() })
                };
                let changed: Vec<Expr> = mutants.iter().map(with).collect();
                self.choice(&mutants, &changed, &Expr::Binary(binary.clone()), obstacle)
            }
            Expr::Unary(unary) => {
                let mutants = self.take("UnaryOperator", unary.op.span());
                visit_mut::visit_expr_unary_mut(self, unary);
                self.choice(&mutants, &[(*unary.expr).clone()], &Expr::Unary(unary.clone()), None)
            }
            Expr::Struct(made) if made.rest.is_some() => {
                let spans: Vec<Span> = made.fields.iter().map(Spanned::span).collect();
                let found: Vec<Vec<Mutant>> = spans.iter().map(|span| self.take("StructField", *span)).collect();
                visit_mut::visit_expr_struct_mut(self, made);
                let without = |at: usize| {
                    let mut less = made.clone();
                    let fields = less.fields.into_iter().enumerate().filter(|(other, _)| *other != at);
                    less.fields = fields.map(|(_, field)| field).collect();
                    if !less.fields.empty_or_trailing() {
                        less.fields.push_punct(Default::default());
                    }
                    Expr::Struct(less)
                };
                let changed: Vec<Expr> =
                    found.iter().enumerate().flat_map(|(at, of)| of.iter().map(move |_| at)).map(without).collect();
                self.choice(&found.concat(), &changed, &Expr::Struct(made.clone()), None)
            }
            _ => {
                visit_mut::visit_expr_mut(self, expr);
                None
            }
        };
        if let Some(choice) = choice {
            *expr = choice;
        }
    }
}

fn main() {
    let [root, list, left_out, status] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().expect("four arguments");
    let read = |path: &str| std::fs::read_to_string(path).expect("a file");
    let list: Vec<Value> = serde_json::from_str(&read(&list)).expect("cargo mutants' JSON");
    let left_out: HashSet<usize> = read(&left_out).split_whitespace().map(|id| id.parse().expect("a number")).collect();
    let mut files: BTreeMap<&str, HashMap<Place, Vec<Mutant>>> = BTreeMap::new();
    let mut found: Vec<(usize, Value)> = left_out.iter().map(|id| (*id, "does not compile".into())).collect();
    for mutant in &list {
        let number = |value: &Value| value.as_u64().expect("a number") as usize;
        let text = |key: &str| mutant[key].as_str().expect("a text");
        let id = number(&mutant["id"]);
        if !left_out.contains(&id) {
            let start = &mutant["span"]["start"];
            let place = (text("genre").to_owned(), number(&start["line"]), number(&start["column"]));
            let replacement = text("replacement").to_owned();
            files.entry(text("file")).or_default().entry(place).or_default().push(Mutant { id, replacement });
        }
    }
    for (file, mutants) in files {
        let path = Path::new(&root).join(file);
        let mut tree = syn::parse_file(&std::fs::read_to_string(&path).expect("a source")).expect("Rust");
        let mut rewriter = Rewriter { mutants, is_const: false, status: Vec::new() };
        rewriter.visit_file_mut(&mut tree);
        found.append(&mut rewriter.status);
        found.extend(rewriter.mutants.into_values().flatten().map(|mutant| (mutant.id, "not found".into())));
        std::fs::write(&path, prettyplease::unparse(&tree)).expect("written");
    }
    let found: BTreeMap<String, Value> = found.into_iter().map(|(id, what)| (id.to_string(), what)).collect();
    std::fs::write(status, serde_json::to_string(&found).expect("JSON")).expect("written");
}
