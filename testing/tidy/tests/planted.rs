//! Every rule of the tidy test sees the breach it is for: a small, tidy workspace in a temporary directory gets one
//! breach at a time, and exactly that one is reported. The workspace without a breach is reported as tidy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A workspace that goes away with the value.
struct Tree(PathBuf);

impl Tree {
    /// Three crates on three floors, a test crate, and a page: nothing to complain about.
    fn tidy() -> Tree {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let unique = format!("forebay-tidy-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tree = Tree(std::env::temp_dir().join(unique));
        tree.write(
            "Cargo.toml",
            "[workspace]\nresolver = \"2\"\nmembers = [\"crates/*/*\", \"testing/*\"]\nexclude = [\"outside\"]\n",
        );
        tree.package("crates/foundation/base", &[]);
        tree.package("crates/engine/raid", &["crates/foundation/base"]);
        tree.package("crates/service/nbd", &["crates/engine/raid"]);
        tree.package("crates/management/api", &["crates/service/nbd"]);
        tree.package("testing/sim", &["crates/service/nbd"]);
        tree.write(
            "README.md",
            "# A page\n\n## With a heading\n\n[up](#with-a-heading) [docs](docs/a.md#a-b)\n",
        );
        tree.write("docs/a.md", "# A: b\n\n[back](../README.md)\n");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("files lie in the tree")).expect("the tree can be written");
        fs::write(path, text).expect("the tree can be written");
    }

    fn package(&self, directory: &str, needs: &[&str]) {
        self.package_with(directory, needs, &[], "MIT");
    }

    fn package_with(&self, directory: &str, needs: &[&str], for_tests: &[&str], licence: &str) {
        let name = |directory: &str| directory.rsplit('/').next().expect("a path has a last part").to_owned();
        let up = "../".repeat(directory.split('/').count());
        let list = |needs: &[&str]| -> String {
            needs.iter().map(|n| format!("{} = {{ path = \"{up}{n}\" }}\n", name(n))).collect()
        };
        let manifest = format!(
            "[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2024\"\nlicense = \"{licence}\"\n\
             [dependencies]\n{}[dev-dependencies]\n{}",
            name(directory),
            list(needs),
            list(for_tests),
        );
        self.write(&format!("{directory}/Cargo.toml"), &manifest);
        self.write(&format!("{directory}/src/lib.rs"), "//! A crate.\n");
    }

    /// Rule and place of everything that is wrong.
    fn breaches(&self) -> Vec<(String, String)> {
        let found = forebay_tidy::check(&self.0.canonicalize().expect("the tree exists"));
        found.into_iter().map(|breach| (breach.rule.to_owned(), breach.place)).collect()
    }

    fn expect(&self, rule: &str, place: &str) {
        assert_eq!(self.breaches(), [(rule.to_owned(), place.to_owned())]);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}

#[test]
fn a_tidy_tree_is_tidy() {
    assert_eq!(Tree::tidy().breaches(), []);
}

#[test]
fn an_import_from_a_floor_above() {
    let tree = Tree::tidy();
    tree.package("crates/service/nbd", &[]);
    tree.package("crates/engine/raid", &["crates/service/nbd"]);
    tree.expect("floors", "raid");
}

#[test]
fn an_import_from_a_later_room_of_the_same_floor() {
    let tree = Tree::tidy();
    tree.package("crates/engine/pool", &[]);
    tree.package("crates/engine/raid", &["crates/engine/pool"]);
    tree.expect("floors", "raid");
}

#[test]
fn a_test_that_needs_what_stands_above() {
    let tree = Tree::tidy();
    tree.package_with("crates/foundation/base", &[], &["crates/foundation/runtime"], "MIT");
    tree.package("crates/foundation/runtime", &[]);
    tree.expect("floors", "base");
}

#[test]
fn an_import_from_testing() {
    let tree = Tree::tidy();
    tree.package("testing/sim", &[]);
    tree.package("crates/service/nbd", &["testing/sim"]);
    tree.expect("floors", "nbd");
}

#[test]
fn a_crate_without_a_place() {
    let tree = Tree::tidy();
    tree.package("crates/engine/misc", &[]);
    tree.expect("floors", "crates/engine/misc");
}

#[test]
fn tokio_on_the_data_path_directly_and_through_another() {
    let tree = Tree::tidy();
    tree.package("outside/tokio", &[]);
    tree.package("outside/friend", &["outside/tokio"]);
    tree.package("crates/management/api", &["outside/tokio"]);
    assert_eq!(tree.breaches(), [], "management may use it");
    tree.package("crates/service/nbd", &["outside/friend"]);
    tree.expect("data-path", "nbd");
    tree.package("crates/service/nbd", &["outside/tokio"]);
    tree.expect("data-path", "nbd");
}

#[test]
fn a_licence_that_is_not_on_the_list() {
    for licence in ["GPL-3.0-only", "LGPL-2.1-or-later AND MIT", "AGPL-3.0", ""] {
        let tree = Tree::tidy();
        tree.package_with("outside/friend", &[], &[], licence);
        tree.package("crates/service/nbd", &["outside/friend"]);
        tree.expect("licence", "friend 0.1.0");
    }
}

#[test]
fn unsafe_where_it_has_no_place() {
    let tree = Tree::tidy();
    let code = concat!("//! A file.\nfn f() {\n    un", "safe { g() }\n}\n");
    tree.write("crates/engine/raid/src/kernels.rs", code);
    tree.write("crates/engine/raid/tests/a.rs", code);
    tree.write("testing/sim/src/a.rs", code);
    assert_eq!(tree.breaches(), []);
    tree.write("crates/engine/raid/src/code.rs", code);
    tree.expect("unsafe", "crates/engine/raid/src/code.rs:3");
}

#[test]
fn a_file_too_long_to_read_at_a_sitting() {
    let tree = Tree::tidy();
    tree.write("scripts/long.sh", &"true\n".repeat(700));
    assert_eq!(tree.breaches(), []);
    tree.write("scripts/long.sh", &"true\n".repeat(701));
    tree.expect("length", "scripts/long.sh");
}

#[test]
fn a_file_without_its_theory() {
    let tree = Tree::tidy();
    tree.write("crates/engine/raid/src/parity.rs", "// XOR.\npub fn xor() {}\n");
    tree.expect("theory", "crates/engine/raid/src/parity.rs");
}

#[test]
fn unfinished_code() {
    for line in [
        concat!("fn f() { todo", "!() }"),
        concat!("fn f() { unimplemented", "!() }"),
        concat!("fn f() { dbg", "!(1); }"),
        concat!("#[", "ignore = \"slow\"]"),
        concat!("#[allow(", "dead_code)]"),
        concat!("// TO", "DO: the rest"),
    ] {
        let tree = Tree::tidy();
        tree.write("crates/engine/raid/src/parity.rs", &format!("//! Parity.\n{line}\n"));
        tree.expect("unfinished", "crates/engine/raid/src/parity.rs:2");
    }
    let tree = Tree::tidy();
    tree.write("scripts/run", "#!/bin/sh\nmktemp /tmp/a.XXXXXX\n");
    assert_eq!(tree.breaches(), []);
}

#[test]
fn a_path_of_one_machine() {
    for line in
        [concat!("cd /ho", "me/ann/forebay"), concat!("DIR=/wo", "rk/main"), concat!("(/ro", "ot/.cargo)")]
    {
        let tree = Tree::tidy();
        tree.write("scripts/run", &format!("#!/bin/sh\n{line}\n"));
        // A hidden file's name opens with a dot, which no name of ours has: not a breach.
        let expected =
            if line.contains(".cargo") { vec![] } else { vec![("developer-path", "scripts/run:2")] };
        let found = tree.breaches();
        assert!(found.iter().map(|(r, p)| (r.as_str(), p.as_str())).eq(expected), "{line}: {found:?}");
    }
}

#[test]
fn links_that_lead_nowhere() {
    let tree = Tree::tidy();
    tree.write("docs/b.md", "# B\n\nSee [a](a.md) and `[code](none.md)`.\n```\n[x](y)\n```\n[c](c.md)\n");
    tree.expect("link", "docs/b.md:7");
    tree.write("docs/b.md", "# B\n\n[a](a.md#nothing)\n");
    tree.expect("link", "docs/b.md:3");
}

#[test]
fn an_event_that_no_page_explains_and_one_that_nothing_tells() {
    let tree = Tree::tidy();
    let page = |rows: &str| {
        tree.write(
            "docs/reference/events.md",
            &format!("# A\n\n<!-- table: events -->\n| code |\n|---|\n{rows}\n| `x.y` |\n"),
        )
    };
    tree.write(
        "crates/engine/raid/src/lib.rs",
        "//! A crate.\nfn f() { g(Severity::Error,\n  \"disk.gone\") }\n",
    );
    tree.expect("event", "crates/engine/raid/src/lib.rs");
    page("| `disk.gone` | what it means |\n\nelsewhere");
    assert_eq!(tree.breaches(), []);
    page("| `disk.gone` | what it means |\n| `disk.back` | never told |\n\nelsewhere");
    tree.expect("event", "docs/reference/events.md");
}

/// Each place where a person reads, and next to it those where nobody does.
#[test]
fn a_term_that_no_text_uses() {
    let begin = || {
        let tree = Tree::tidy();
        tree.write(
            "docs/development/words.md",
            "# Words\n\n<!-- table: vocabulary -->\n| Not | Say |\n|---|---|\n| ceiling* | limit |\n| of late | recently |\n\nof late\n",
        );
        tree
    };
    let tree = begin();
    tree.write(
        "crates/service/nbd/src/lib.rs",
        "//! Of late.\n/// Of late.\nfn f(ceiling: u8) { g(\"a limit\", b'x', 'y'); x.expect(\"of late\"); assert!(y, \"of late\"); }\n\
         #[cfg(test)]\nmod tests { fn f() { g(\"of late\"); } }\n",
    );
    tree.write("crates/service/nbd/tests/a.rs", "//! A.\nfn f() { g(\"of late\"); }\n");
    tree.write("docs/tutorials/a.md", "# A\n\n`of late`\n\n```\nof late\n```\n\n[a](../a.md) glass ceilin\n");
    tree.write("web/src/a.ts", "// of late\nimport a from \"of late\";\nconst ceiling = \"a limit\";\n");
    assert_eq!(tree.breaches(), []);
    for (path, text) in [
        ("crates/service/nbd/src/lib.rs", "//! A.\nfn f() { g(\"it failed of \\\n    Late\"); }\n"),
        ("crates/service/nbd/src/lib.rs", "//! A.\n#[error(\"it has two ceilings\")]\nstruct E;\n"),
        ("crates/service/nbd/src/lib.rs", "//! A.\n#[cfg(test)]\nmod tests {}\nfn f() { g(\"of late\"); }\n"),
        ("crates/management/api/src/lib.rs", "//! A.\n/// Errors of late.\npub struct S;\n"),
        ("web/src/a.ts", "const text = \"Errors of late\";\n"),
        ("web/src/a.svelte", "<p>Errors of late</p>\n"),
        ("web/src/a.svelte", "<th>Ceiling</th>\n"),
        ("crates/service/nbd/src/lib.rs", "//! A.\nfn f() { g(r#\"of late\"#); }\n"),
        ("docs/tutorials/a.md", "# A\n\nErrors of\nlate\n"),
        ("docs/tutorials/a.md", "# A\n\nErrors of\tlate\n"),
        ("README.md", "# A page\n\n## With a heading\n\nThe ceiling.\n"),
    ] {
        let tree = begin();
        tree.write(path, text);
        tree.expect("vocabulary", path);
    }
}

/// Each section of the list, an entry that is there and one that is not.
#[test]
fn what_a_page_said_and_no_page_says_any_more() {
    let tree = Tree::tidy();
    tree.package("testing/tidy", &[]);
    tree.write(
        "docs/b.md",
        "# B\n\n## One\n\n```text\nforebay pool create --force\n  --log  up to 8 disks\n```\n\n## Two\n\n`disk.gone` `--dry-run` `_total`\n\n\
         | `nbd`, `iscsi` | `ops` |\n|---|---|\n| shards | 1 048 576 of them |\n\nIt takes ten\nseconds.\n\n- One.\n- Two lists.\n",
    );
    let entry = |section: &str, entry: &str| {
        tree.write("testing/tidy/documented.txt", &format!("# A list\n\n[{section}]\n{entry}\n"))
    };
    for (section, there, gone) in [
        ("commands", "forebay pool create", "forebay pool creat"),
        ("options", "forebay pool create: --log --force", "forebay pool create: --dry-run --log"),
        ("options", "forebay pool create: --log", "forebay pool create: --lo"),
        ("events", "disk.gone", "disk.go"),
        ("metrics", "_total", "_seconds"),
        ("statistics", "nbd.ops", "nbd.bytes"),
        ("limits", "1048576 + shard", "104857 + shard"),
        ("limits", "10 s + take", "10 s + shard"),
        ("limits", "8 disk", "8 + shard"),
        ("limits", "none|two + list", "one + two"),
        ("limits", "ops + 576|1048576", "048 + shard"),
    ] {
        entry(section, there);
        assert_eq!(tree.breaches(), [], "{there}");
        entry(section, gone);
        let expected = ("documented".to_owned(), "testing/tidy/documented.txt:4".to_owned());
        assert_eq!(tree.breaches(), [expected], "{gone}");
    }
}
