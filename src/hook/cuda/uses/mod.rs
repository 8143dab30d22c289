//! Uses of blocks: launches, copies and fills, with the addresses in their arguments.
//!
//! Without a recording of uses, a hook costs two relaxed loads. With one, a launch is examined before the driver gets
//! it, because another thread may free the blocks right after.

mod arguments;
mod copies;
mod cubin;
mod escapes;
mod fat_binary;
mod graph_launch;
mod images;
mod launches;
mod layouts;
mod nodes;
#[cfg(test)]
mod oracle;
mod ptx;
mod regions;
mod scan;
mod submit;

pub(super) use arguments::{Arguments, LaunchStart, stream_of};
pub(super) use copies::{CopyKind, batch, copy, copy_rows, fill, fill_2d, value};
pub(super) use escapes::{TextureResource, encoded, escaped, texture};
pub(super) use graph_launch::graph_launched;
pub(super) use launches::{launch, was_late};
pub(super) use layouts::{forget, found, function_of, loaded, loaded_file, unloading};
pub(super) use nodes::{
    FillNode, KernelNode, added, any_node, child_graph, cloned, copy_node, fill_node, kernel_node, opaque, set,
};
pub(super) use regions::{Region2d, Region3d};
