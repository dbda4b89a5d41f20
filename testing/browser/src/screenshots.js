// Starts the demonstration, lets clients work for a while, and takes the README's pictures of it.

import { mkdirSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Guard, launch, login, open } from "./browser.js";
import { Daemon } from "./daemon.js";
import { Client } from "./nbd.js";
import { ADMIN } from "./world.js";

const into = fileURLToPath(new URL("../../../docs/screenshots", import.meta.url));
const at = process.argv.indexOf("--server");
const server = at > 0 && process.argv[at + 1] ? resolve(process.argv[at + 1]) : undefined;
if (!server) {
  console.error("usage: testing/browser/screenshots --server PATH");
  process.exit(2);
}

/** Volumes and who works on them: name, level, client, load. */
const WORK = [
  ["demo/mail", "256M", "127.0.10.11", { depth: 4, bytes: 8192, writes: 50, rate: 380 }],
  ["demo/vdi", "512M", "127.0.10.12", { depth: 6, bytes: 8192, writes: 25, rate: 620 }],
  ["demo/vdi", "512M", "127.0.10.13", { depth: 4, bytes: 16_384, writes: 30, rate: 240 }],
  ["demo/backup", "512M", "127.0.10.21", { depth: 2, bytes: 262_144, writes: 95, rate: 60 }],
  ["demo/files", "1G", "127.0.10.31", { depth: 3, bytes: 32_768, writes: 20, rate: 120 }],
];
const SECONDS = Number(process.env.SCREENSHOT_SECONDS ?? 310);

const daemon = new Daemon(server);
const browser = await launch();
const clients = [];
let failed;
try {
  await daemon.start("demo");
  await daemon.password(ADMIN.name, "admin", ADMIN.password);
  for (const [name, size] of WORK) await daemon.command("volume", "create", name, "--size", size).catch(() => {});
  await daemon.command("level", "create", "office", "--min-iops", "200", "--latency", "50ms");
  await daemon.command("volume", "set", "demo/mail", "--level", "office");
  for (const [name, , from, load] of WORK) {
    const client = await Client.connect({ ...daemon.nbd, from, name });
    client.load(load);
    clients.push(client);
  }
  const guard = new Guard(daemon.url);
  mkdirSync(into, { recursive: true });
  await new Promise((done) => setTimeout(done, SECONDS * 1000));
  for (const [name, scheme, route] of [
    ["dashboard", "light", "dashboard"],
    ["analytics", "dark", `analytics?graphs=${encodeURIComponent("nbd.ops[client]~nbd.bytes[volume]~nbd.ops[latency]")}&seconds=${SECONDS > 300 ? 300 : 60}`],
  ]) {
    const page = await open(browser, guard, { scheme, width: 1280, height: 800 });
    await login(page, daemon.url, ADMIN.name, ADMIN.password);
    await page.goto(`${daemon.url}/#/${route}`);
    await page.mouse.move(700, 30);
    await page.waitForTimeout(9000);
    const path = join(into, `${name}.png`);
    await page.screenshot({ path });
    console.log(`docs/screenshots/${name}.png, ${Math.round(statSync(path).size / 1024)} KiB`);
    await page.context().close();
  }
} catch (error) {
  failed = error;
} finally {
  for (const client of clients) client.stop();
  await browser.close();
  await daemon.end();
}
if (failed) throw failed;
