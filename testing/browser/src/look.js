// How a page is looked at besides its words: whether axe finds something, and whether it is wider than the window.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

/** What axe finds, one line each: on the page, or in a part of it. */
export async function findings(page, within, impacts = ["minor", "moderate", "serious", "critical"]) {
  // The policy of the page lets no script in that is not its own; what the debugger evaluates is not held by it.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  // While a colour fades into another, neither is what is meant.
  await page.evaluate(() => Promise.all(document.getAnimations().map((one) => (one.effect?.getComputedTiming().iterations === Infinity ? undefined : one.finished.catch(() => {})))));
  const { violations } = await page.evaluate(([part, tags]) => globalThis.axe.run(part ?? document, { runOnly: tags, resultTypes: ["violations"] }), [within, RULES]);
  return violations
    .filter(({ impact }) => impacts.includes(impact))
    .map(({ id, impact, nodes }) => {
      const places = nodes.slice(0, 3).map((node) => `${node.target.join(" ")}: ${node.failureSummary?.split("\n")[1]?.trim()}`);
      return `${id} (${impact}): ${places.join("; ")}`;
    });
}

/** By how many pixels the page or its main part is too wide. */
export async function tooWide(page) {
  return await page.evaluate(() => {
    const beyond = (element) => (element ? element.scrollWidth - element.clientWidth : 0);
    return Math.max(document.documentElement.scrollWidth - innerWidth, beyond(document.querySelector("main")), beyond(document.querySelector("dialog[open] .content")));
  });
}

/** A picture for FOREBAY_SHOTS, where that names a directory. */
export async function shoot(page, name) {
  const into = process.env.FOREBAY_SHOTS;
  if (!into) return;
  mkdirSync(into, { recursive: true });
  await page.screenshot({ path: join(into, `${name.replace(/[^\w-]+/g, "-").slice(0, 100)}.png`) });
}
