// The documentation as a site: the pages of `docs/`, with a menu, and a search that works without a network. The daemon serves it under `/docs`.
//
// `docs/index.md` is the list of pages: the menu has them in its order, under its headings, and a page that it does not name fails the build (decisions are
// named by their own folder). Links between pages lead to the pages of the site; links to files of the source tree, which a reader of the site does not
// have, become plain text. Nothing is inline, because the daemon's content security policy allows no inline scripts.

import MarkdownIt from "markdown-it";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, normalize, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const FROM = join(HERE, "../../docs");
const TO = join(HERE, "../dist/docs");
const HOME = "index.md";
const DECISIONS = "development/decisions/";

/** The anchor of a heading, as where the pages are read in the repository. */
export function anchor(title) {
  const kept = [...title.toLowerCase()].filter((c) => /[\p{L}\p{N}_ -]/u.test(c));
  return kept.join("").replaceAll(" ", "-");
}

/** All pages below a directory, by their paths. */
function pages(directory, below = "") {
  return readdirSync(join(directory, below), { withFileTypes: true }).flatMap((entry) => {
    const path = below + entry.name;
    if (entry.isDirectory()) return pages(directory, `${path}/`);
    return entry.name.endsWith(".md") ? [path] : [];
  });
}

/** Where a link on page `from` leads: to a page, a file of the site, elsewhere, or (`null`) to what the site does not have. */
export function target(from, href, known) {
  if (/^[a-z]+:/i.test(href) || href.startsWith("#")) return href;
  const [path, hash] = href.split("#", 2);
  const to = normalize(join(dirname(from), path))
    .split(sep)
    .join("/");
  const end = hash === undefined ? "" : `#${hash}`;
  const way = relative(dirname(from), to).split(sep).join("/");
  if (known.has(to)) return way.replace(/\.md$/, ".html") + end;
  return /\.(png|svg|json)$/.test(to) && !to.startsWith("..") ? way + end : null;
}

/** A page: its title, its text as HTML, its headings, and its sections for the search. */
export function render(path, text, known) {
  const markdown = new MarkdownIt({ html: true });
  const tokens = markdown.parse(text, {});
  const headings = [];
  const sections = [{ id: "", title: "", text: [] }];
  const dropped = [];
  tokens.forEach((token, nth) => {
    if (token.type === "heading_open") {
      const title = tokens[nth + 1].children.map((child) => child.content).join("");
      const id = anchor(title);
      if (headings.some((heading) => heading.id === id)) throw new Error(`${path}: two headings are called “${title}”`);
      token.attrSet("id", id);
      headings.push({ id, title, level: Number(token.tag.slice(1)) });
      sections.push({ id, title, text: [] });
    } else if (token.type === "fence" || token.type === "code_block") {
      sections.at(-1).text.push(token.content);
    } else if (token.type === "inline") {
      sections.at(-1).text.push(token.children.map((child) => (/break$/.test(child.type) ? " " : child.content)).join(""));
      for (const child of token.children) {
        if (child.type === "link_open") {
          const to = target(path, child.attrGet("href"), known);
          dropped.push(to === null);
          if (to === null) [child.tag, child.attrs] = ["span", []];
          else child.attrSet("href", to);
        } else if (child.type === "link_close" && dropped.pop()) {
          child.tag = "span";
        }
      }
    }
  });
  const title = headings.find((heading) => heading.level === 1)?.title;
  if (title === undefined) throw new Error(`${path}: a page begins with a heading of the first level`);
  const body = markdown.renderer.render(tokens, markdown.options, {}).replaceAll("<table>", '<div class="wide"><table>').replaceAll("</table>", "</table></div>");
  return { path, title, body, headings, sections };
}

/** The menu: under each heading of the home page the pages that it names. */
export function menu(home, known) {
  const groups = [];
  for (const line of home.split("\n")) {
    const heading = /^## (.+)$/.exec(line);
    if (heading) groups.push({ title: heading[1], pages: [] });
    for (const [, href] of line.matchAll(/\]\(([^)\s]+)\)/g)) {
      const path = normalize(href.split("#")[0]).split(sep).join("/");
      const group = groups.at(-1);
      if (group && known.has(path) && path !== HOME && !groups.some(({ pages }) => pages.includes(path))) group.pages.push(path);
    }
  }
  const listed = new Set(groups.flatMap(({ pages }) => pages));
  const missing = [...known].filter((path) => path !== HOME && !path.startsWith(DECISIONS) && !listed.has(path));
  if (missing.length > 0) throw new Error(`docs/${HOME} does not name ${missing.join(", ")}`);
  return groups;
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

function whole(page, groups, titles) {
  const up = "../".repeat(page.path.split("/").length - 1);
  const link = (path, words = titles.get(path)) => {
    const current = path === page.path ? ' aria-current="page"' : "";
    return `<a href="${up}${path.replace(/\.md$/, ".html")}"${current}>${escaped(words)}</a>`;
  };
  const list = groups
    .filter(({ pages }) => pages.length > 0)
    .map(({ title, pages }) => {
      const open = pages.includes(page.path) || (page.path.startsWith(DECISIONS) && pages.some((path) => path.startsWith("development/")));
      return `<details${open ? " open" : ""}><summary>${escaped(title)}</summary>${pages.map((path) => link(path)).join("")}</details>`;
    });
  const order = groups.flatMap(({ pages }) => pages);
  const at = order.indexOf(page.path);
  const beside = [at > 0 ? `<span>‹ ${link(order[at - 1])}</span>` : "<span></span>", at >= 0 && at + 1 < order.length ? `<span>${link(order[at + 1])} ›</span>` : ""];
  const toc = page.headings.filter(({ level }) => level === 2);
  const contents =
    toc.length < 3
      ? ""
      : `<nav class="contents" aria-label="On this page"><b>On this page</b>${toc.map(({ id, title }) => `<a href="#${id}">${escaped(title)}</a>`).join("")}</nav>`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(page.title)} · Forebay</title>
<link rel="icon" href="${up}../favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${up}site/tokens.css">
<link rel="stylesheet" href="${up}site/common.css">
<link rel="stylesheet" href="${up}site/docs.css">
<script src="${up}site/theme.js"></script>
<script type="module" src="${up}site/search.js"></script>
</head>
<body data-root="${up}">
<a class="skip" href="#text">Skip to the text</a>
<header>
<a class="brand" href="${up}index.html">Forebay <span>documentation</span></a>
<div class="search" role="search"><input id="search" type="search" placeholder="Search  ( / )" aria-label="Search the documentation" autocomplete="off"><div id="found" role="listbox" aria-label="Found" hidden></div></div>
<a class="pages" href="#pages">Pages</a>
<a class="app" href="${up}../">Open the appliance</a>
</header>
<div class="columns">
<nav class="menu" id="pages" aria-label="Pages">${list.join("")}</nav>
<main id="text">${page.body}<footer>${beside.join("")}</footer></main>
${contents}
</div>
</body>
</html>
`;
}

export function build(from = FROM, to = TO) {
  const known = new Set(pages(from));
  const read = (path) => readFileSync(join(from, path), "utf8");
  const groups = menu(read(HOME), known);
  const all = [...known].map((path) => render(path, read(path), known));
  const titles = new Map(all.map((page) => [page.path, page.title]));
  rmSync(to, { recursive: true, force: true });
  for (const page of all) {
    const file = join(to, page.path.replace(/\.md$/, ".html"));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, whole(page, groups, titles));
  }
  const sections = all.flatMap((page) =>
    page.sections.map(({ id, title, text }) => ({
      page: page.title,
      title: title || page.title,
      href: page.path.replace(/\.md$/, ".html") + (id ? `#${id}` : ""),
      text: text.join(" ").replaceAll(/\s+/g, " "),
    })),
  );
  writeFileSync(join(to, "search.json"), JSON.stringify(sections.filter(({ text }) => text !== "")));
  const site = join(to, "site");
  mkdirSync(site);
  for (const name of ["docs.css", "theme.js", "search.js"]) cpSync(join(HERE, name), join(site, name));
  for (const name of ["tokens.css", "common.css"]) cpSync(join(HERE, "../src/styles", name), join(site, name));
  cpSync(join(HERE, "../node_modules/minisearch/dist/es/index.js"), join(site, "minisearch.js"));
  cpSync(join(HERE, "../node_modules/minisearch/LICENSE.txt"), join(site, "minisearch.LICENSE.txt"));
  cpSync(join(from, "screenshots"), join(to, "screenshots"), { recursive: true });
  cpSync(join(from, "reference/openapi.json"), join(to, "reference/openapi.json"));
  return all.length;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(`${build()} pages of documentation`);
