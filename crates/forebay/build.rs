//! Puts the browser interface into the program: a table of the files under `web/dist`, which `make web` makes. Here and not where they are
//! served, so that a change of a screen compiles this crate only.
//!
//! Where they are not, because nobody has built them, one page takes their place that says so: the daemon builds and serves its API without
//! Node.js.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../web/dist");
    // A directory's own time changes when files come and go, not when what is in it does: each file is named.
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-changed=src/not_built.html");
    let mut files = Vec::new();
    if root.join("index.html").is_file() {
        collect(&root, &root, &mut files);
    } else {
        let page =
            Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/not_built.html");
        files.push(("index.html".to_string(), page));
    }
    files.sort();
    // Copies: the interface may be built anew before the compiler gets to read it.
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let mut table = String::from("static FILES: &[File] = &[\n");
    for (nth, (path, file)) in files.iter().enumerate() {
        println!("cargo::rerun-if-changed={}", file.display());
        let copy = out.join(format!("interface.{nth}"));
        fs::copy(file, &copy).unwrap_or_else(|error| panic!("{}: {error}; build again", file.display()));
        let copy = copy.display().to_string();
        writeln!(table, "    File {{ path: {path:?}, bytes: include_bytes!({copy:?}) }},")
            .expect("a string takes everything");
    }
    table.push_str("];\n");
    fs::write(out.join("interface.rs"), table).expect("the build directory can be written");
}

/// All files below, with their paths as URLs have them.
fn collect(root: &Path, directory: &Path, files: &mut Vec<(String, PathBuf)>) {
    println!("cargo::rerun-if-changed={}", directory.display());
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(|path| path.to_str()) {
            files.push((name.to_string(), path.clone()));
        }
    }
}
