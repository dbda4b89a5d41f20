// The site of the documentation: links, anchors and the list of pages.
import { describe, expect, it } from "vitest";
import { anchor, menu, render, target } from "../docs/site.js";

const known = new Set(["index.md", "how-to/disks.md", "reference/cli.md", "development/decisions/0001-a.md"]);

describe("links", () => {
  it("lead to pages, files of the site and elsewhere, and to no file of the source tree", () => {
    const from = "how-to/disks.md";
    expect(target(from, "../reference/cli.md#forebay-pool", known)).toBe("../reference/cli.html#forebay-pool");
    expect(target(from, "#a", known)).toBe("#a");
    expect(target(from, "https://example.org/x.md", known)).toBe("https://example.org/x.md");
    expect(target(from, "../screenshots/dashboard.png", known)).toBe("../screenshots/dashboard.png");
    expect(target(from, "../../crates/engine/pool/src/open.rs", known)).toBeNull();
    expect(target(from, "../../README.md", known)).toBeNull();
    expect(target(from, "missing.md", known)).toBeNull();
  });
  it("that lead nowhere become text", () => {
    const page = render("how-to/disks.md", "# Disks\n\n[here](../reference/cli.md), [there](../../crates/x.rs) and [`code`](../../y.rs)\n", known);
    expect(page.body).toContain('<a href="../reference/cli.html">here</a>');
    expect(page.body).toContain("<span>there</span> and <span><code>code</code></span>");
  });
});

describe("pages", () => {
  it("have the anchors that links to them use", () => {
    expect(anchor("Data is lost: `pool import --force`")).toBe("data-is-lost-pool-import---force");
    expect(render("a.md", "# A b\n\n## C, d\n", known).headings).toEqual([
      { id: "a-b", title: "A b", level: 1 },
      { id: "c-d", title: "C, d", level: 2 },
    ]);
  });
  it("are cut into sections for the search", () => {
    const { sections } = render("a.md", "# A\n\nfirst *words*\n\n## B\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n", known);
    expect(sections.map(({ id, text }) => [id, text.join(" ").trim()])).toEqual([
      ["", ""],
      ["a", "A first words"],
      ["b", "B x y 1 2 code\n".trim()],
    ]);
  });
  it("without a title are refused", () => {
    expect(() => render("a.md", "words\n", known)).toThrow("a.md");
  });
  it("stand in the menu as the home page names them, each once, and none is missing", () => {
    const home = "# Home\n\n## How to\n\n- [Disks](how-to/disks.md) and [again](how-to/disks.md#x)\n\n## Reference\n\n[Commands](reference/cli.md)\n";
    expect(menu(home, known)).toEqual([
      { title: "How to", pages: ["how-to/disks.md"] },
      { title: "Reference", pages: ["reference/cli.md"] },
    ]);
    expect(() => menu("# Home\n\n## How to\n\n[Disks](how-to/disks.md)\n", known)).toThrow("reference/cli.md");
  });
});
