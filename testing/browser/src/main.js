// Runs the scenarios one after the other against one daemon, and says what each one showed. They tell one story, from an empty machine on; each makes
// what it needs if it is not there, so that one can be run alone.

import { resolve } from "node:path";
import { launch } from "./browser.js";
import { World } from "./world.js";
import { scenarios } from "./scenarios.js";

function usage() {
  console.error("usage: testing/browser/run --server PATH [SCENARIO…]");
  console.error(`scenarios: ${scenarios.map(({ name }) => name).join(" ")}`);
  process.exit(2);
}

const words = process.argv.slice(2);
let server;
const chosen = [];
while (words.length > 0) {
  const word = words.shift();
  if (word === "--server") server = resolve(words.shift() ?? usage());
  else if (word.startsWith("-")) usage();
  else chosen.push(word);
}
if (!server || chosen.some((name) => !scenarios.some((one) => one.name === name))) usage();

let passed = 0;
let failed = 0;
let world;
let ending;
const end = () => (ending ??= world?.end() ?? Promise.resolve());
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => void end().finally(() => process.exit(130)));

try {
  world = await World.make(server, await launch());
  for (const { name, shows, run, minutes = 10 } of scenarios) {
    if (chosen.length > 0 && !chosen.includes(name)) continue;
    const began = Date.now();
    let timer;
    try {
      const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`not done after ${minutes} minutes`)), minutes * 60_000)));
      const said = await Promise.race([run(world), late]);
      passed += 1;
      console.log(`ok     ${name.padEnd(12)} ${shows}${said ? `: ${said}` : ""} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name.padEnd(12)} ${shows}\n${String(error.stack ?? error).replace(/^/gm, "       ")}`);
      await world.picture(name);
    } finally {
      clearTimeout(timer);
    }
  }
} catch (error) {
  failed += 1;
  console.log(`FAILED ${String(error.stack ?? error)}`);
} finally {
  await end();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
