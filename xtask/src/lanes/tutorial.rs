//! Checks the screens of docs/tutorial.md: each must be a part of the output of the same command in docs/tool.md.

use anyhow::{Context, Result, ensure};

use crate::lane::Run;

pub(super) fn run(run: &Run) -> Result<()> {
    let page = |name: &str| Ok::<_, anyhow::Error>(run.shell.read_file(run.root.join(name))?);
    let (tutorial, printed) = (page("docs/tutorial.md")?, page("docs/tool.md")?);
    let screens = screens(&tutorial);
    ensure!(screens.len() >= 5, "docs/tutorial.md has only {} screens", screens.len());
    let all = self::screens(&printed);
    for screen in screens {
        let command = screen.first().context("an empty screen")?;
        ensure!(
            all.iter().any(|whole| is_part(&screen, whole)),
            "docs/tool.md does not show what docs/tutorial.md has of `{command}`"
        );
    }
    Ok(())
}

/// The lines of each block with a terminal.
fn screens(page: &str) -> Vec<Vec<&str>> {
    let blocks = page.split("```console\n").skip(1).filter_map(|after| after.split("```").next());
    blocks.map(|block| block.lines().collect()).collect()
}

/// Whether the lines are those of the whole screen, in order. `…` stands for any lines that are left out.
fn is_part(screen: &[&str], whole: &[&str]) -> bool {
    match screen {
        [] => whole.is_empty(),
        ["…", rest @ ..] => (0..=whole.len()).any(|left_out| is_part(rest, &whole[left_out..])),
        [line, rest @ ..] => whole.first() == Some(line) && is_part(rest, &whole[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_may_leave_out_lines_where_it_says_so() {
        let whole = ["$ x", "a", "b", "c"];
        for screen in
            [&["$ x", "a", "b", "c"][..], &["$ x", "…", "c"], &["$ x", "a", "…"], &["$ x", "…", "b", "…"], &["…"]]
        {
            assert!(is_part(screen, &whole), "{screen:?}");
        }
        for screen in [
            &["$ x", "a"][..],
            &["$ x", "b", "…"],
            &["$ x", "…", "c", "b"],
            &["$ y", "…"],
            &["$ x", "…", "d", "…"],
            &[],
        ] {
            assert!(!is_part(screen, &whole), "{screen:?}");
        }
        assert_eq!(screens("```console\n$ x\na\n```\n\n```sh\nb\n```\n"), [["$ x", "a"]]);
    }
}
