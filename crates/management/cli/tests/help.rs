//! The committed reference of the command line, and the configuration file that is shipped, are what the program says.
//!
//! Method: generate and compare with `docs/reference/cli.md` and `packaging/forebay.toml`. With `FOREBAY_UPDATE=1` the files are written instead.

use std::path::Path;

#[test]
fn the_committed_reference_is_the_generated_one() {
    compare("docs/reference/cli.md", &forebay_cli::document());
}

#[test]
fn the_shipped_configuration_is_the_generated_one() {
    compare("packaging/forebay.toml", &forebay_cli::example());
}

fn compare(path: &str, generated: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path);
    if std::env::var_os("FOREBAY_UPDATE").is_some() {
        std::fs::write(&file, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "{path} is not what the commands say. Look at the difference, and if it is meant, regenerate it with: \
         FOREBAY_UPDATE=1 cargo test -p forebay-cli --test help"
    );
}

#[test]
fn every_command_of_the_interface_is_described() {
    let text = forebay_cli::document();
    for command in [
        "forebay serve",
        "forebay demo",
        "forebay config check",
        "forebay config show",
        "forebay pool create",
        "forebay pool import",
        "forebay pool destroy",
        "forebay pool add",
        "forebay disk list",
        "forebay disk replace",
        "forebay disk clear",
        "forebay disk locate",
        "forebay volume resize",
        "forebay volume map",
        "forebay snapshot create",
        "forebay snapshot rollback",
        "forebay snapshot hold",
        "forebay clone create",
        "forebay clone promote",
        "forebay host create",
        "forebay host group set",
        "forebay session drop",
        "forebay task watch",
        "forebay event list",
        "forebay token create",
        "forebay check",
        "forebay completion",
    ] {
        assert!(text.contains(&format!("\n## {command}\n")), "{command}");
    }
    // Help is made for this page's readers, not for the machine that made it.
    assert!(!text.contains('\x1b') && !text.contains("FOREBAY_DATA="));
}
