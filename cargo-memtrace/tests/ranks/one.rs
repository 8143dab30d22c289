//! Commands that read one recording.

use super::*;

#[test]
fn a_command_that_reads_one_recording_says_so_of_a_folder_with_several() {
    let folder = tempfile::tempdir().unwrap();
    let several = folder.path().join("ranks");
    fs::create_dir(&several).unwrap();
    capture(&several, "a.memtrace", &rank(0));
    // With one, it is clear what is meant.
    ends(0, folder.path(), &["leaks", "ranks"]);
    capture(&several, "b.memtrace", &rank(1));
    let commands: [&[&str]; 8] = [
        &["advise", "ranks"],
        &["leaks", "ranks"],
        &["temporaries", "ranks"],
        &["explain", "ranks", "model.rs:7"],
        &["diff", "ranks", "ranks/a.memtrace"],
        &["view", "ranks", "-o", "out.html"],
        &["timeline", "ranks"],
        &["export", "ranks", "--to", "json", "-o", "-"],
    ];
    for command in commands {
        let (out, error) = ends(2, folder.path(), command);
        let wanted = "error: ranks has 2 recordings, and this command reads one: name it; `cargo memtrace report ranks` \
                      shows them as ranks\n";
        assert_eq!((&*out, &*error), ("", wanted), "{command:?}");
    }
    assert!(ends(2, folder.path(), &["report", "ranks", "--at", "end"]).1.contains("at their peaks"));
}
