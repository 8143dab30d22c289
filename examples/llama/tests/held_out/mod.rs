//! Programs by an author who had only the definition in docs/findings.md, and who marked the expected lines. `g_`
//! accumulates at the line that ends in `// <- grows`, `c_` does not. The finding was right in all of them at the first
//! run.

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Name, source, program.
pub(crate) type Program = (&'static str, &'static str, fn() -> Result<()>);

macro_rules! programs {
    ($($name:ident)*) => {
        $(mod $name;)*
        pub(crate) const PROGRAMS: &[Program] = &[$((stringify!($name), include_str!(concat!(stringify!($name), ".rs")), $name::run)),*];
    };
}

programs! {
    c_adamw
    c_best_checkpoint
    c_double_buffer
    c_epoch_metrics
    c_grad_accum
    c_growing
    c_hard_examples
    c_kv_concat
    c_kv_layers
    c_kv_prealloc
    c_load_weights
    c_lru
    c_pool_warm
    c_random_cache
    c_replay
    c_server_rest
    c_warm_cache
    g_channel_unread
    g_dead_letters
    g_ema_graph
    g_epoch_logits
    g_failed_requests
    g_finished_tasks
    g_hidden_carry
    g_mask_cache
    g_rl_episodes
    g_running_loss
    g_tree_memo
    g_unjoined
}
