// Search in the browser: the sections of all pages are loaded when somebody begins to type.
import MiniSearch from "./minisearch.js";

const RESULTS_MAX = 12;
const root = document.body.dataset.root;
const input = document.getElementById("search");
const found = document.getElementById("found");
let index;

async function load() {
  const sections = await (await fetch(`${root}search.json`)).json();
  const search = new MiniSearch({
    idField: "href",
    fields: ["title", "page", "text"],
    storeFields: ["title", "page", "href", "text"],
    searchOptions: { boost: { title: 4, page: 2 }, prefix: true, fuzzy: 0.15, combineWith: "AND" },
  });
  search.addAll(sections);
  return search;
}

/** The text around the first word that was found. */
function around(text, terms) {
  const lower = text.toLowerCase();
  const at = Math.max(0, Math.min(...terms.map((term) => lower.indexOf(term)).filter((place) => place >= 0), text.length) - 40);
  return `${at > 0 ? "…" : ""}${text.slice(at, at + 130)}…`;
}

async function show() {
  const words = input.value.trim();
  found.hidden = words === "";
  if (words === "") return;
  index ??= load();
  const results = (await index).search(words).slice(0, RESULTS_MAX);
  found.replaceChildren(
    ...results.map((result) => {
      const link = document.createElement("a");
      link.href = root + result.href;
      link.setAttribute("role", "option");
      const title = document.createElement("b");
      title.textContent = result.title === result.page ? result.page : `${result.page} › ${result.title}`;
      const text = document.createElement("span");
      text.textContent = around(result.text, result.terms);
      link.append(title, text);
      return link;
    }),
  );
  if (results.length === 0) found.textContent = `Nothing found for “${words}”.`;
}

input.addEventListener("input", () => void show());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  } else if (event.key === "Escape") {
    found.hidden = true;
    input.blur();
  } else if (!found.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp" || event.key === "Enter")) {
    const links = [...found.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Enter") {
      if (document.activeElement === input) links[0]?.click();
      return;
    }
    event.preventDefault();
    const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
    (next ?? input).focus();
  }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest(".search")) found.hidden = true;
});
