//! Does `scripts/run-steps` say what passed and what failed, and nothing else, also when steps run together or hang?
//!
//! Method: the script with steps of our own. That steps run together is shown by two that end only if both run: one reads what the
//! other writes into a pipe.

use std::path::Path;
use std::process::{Command, Output};

fn run(words: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/run-steps");
    Command::new(script).args(words).env("STEP_SECONDS", "20").output().expect("bash is there")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn last_line(output: &Output) -> String {
    printed(output).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn passes_and_failures_are_counted() {
    let counted = "counted=echo 'test result: ok. 12 passed; 0 failed'; echo '3 passed, 0 failed'";
    let good = run(&[counted, "plain=true"]);
    assert_eq!((last_line(&good).as_str(), good.status.code()), ("16 passed, 0 failed", Some(0)));
    for (failing, expected) in [
        ("bad=echo 'a reason'; exit 3", "1 passed, 1 failed"),
        ("bad=echo 'a reason'; echo '4 passed, 2 failed'", "5 passed, 2 failed"),
    ] {
        for words in [vec![failing, "good=true"], vec!["--together", "2", failing, "good=true"]] {
            let bad = run(&words);
            assert_eq!((last_line(&bad).as_str(), bad.status.code()), (expected, Some(1)), "{words:?}");
            assert_eq!(printed(&bad).matches("a reason\n").count(), 2, "its output, and its end again");
        }
    }
    assert_eq!(run(&[]).status.code(), Some(1), "nothing passed");
}

#[test]
fn steps_of_a_group_run_together_and_others_do_not() {
    let temp = std::env::temp_dir().join(format!("forebay-steps-test.{}", std::process::id()));
    std::fs::create_dir_all(&temp).expect("a directory");
    let path = temp.display();
    let made = format!("made=mkfifo {path}/pipe");
    let [writes, reads] = [
        format!("writes=echo from the other > {path}/pipe; touch {path}/written"),
        format!("reads=cat {path}/pipe; echo one; echo two"),
    ];
    let after = format!("after=test -e {path}/written");
    let together = run(&[&made, "--together", "2", &writes, &reads, "third=true", "--apart", &after]);
    std::fs::remove_dir_all(&temp).expect("our directory");
    let text = printed(&together);
    assert_eq!(last_line(&together), "5 passed, 0 failed", "{text}");
    assert!(text.contains("from the other\none\ntwo\n"), "a step's output is in one piece: {text}");
}

#[test]
fn a_step_that_hangs_fails_alone() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/run-steps");
    for words in
        [vec!["hangs=sleep 1000", "good=true"], vec!["--together", "2", "hangs=sleep 1000", "good=true"]]
    {
        let output = Command::new(&script).args(&words).env("STEP_SECONDS", "5").output().expect("bash");
        assert_eq!(last_line(&output), "1 passed, 1 failed", "{words:?}");
        assert!(printed(&output).contains("FAILED (took longer than 5 s)"), "{words:?}");
    }
}

#[test]
fn with_stop_the_first_failure_is_the_last_step() {
    let output = run(&["--stop", "bad=false", "never=echo never"]);
    assert_eq!(last_line(&output), "0 passed, 1 failed");
    assert!(!printed(&output).contains("never"));
}
