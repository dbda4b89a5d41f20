// Chromium, and pages that tell of everything that must not happen: an error on the console, an exception, a request that leaves the origin.

import { chromium } from "playwright-core";
import { existsSync } from "node:fs";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--js-flags=--expose-gc"];

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path));
  if (!executablePath) throw new Error("there is no Chromium; install Debian's package chromium, or say where it is with CHROMIUM");
  return await chromium.launch({ executablePath, args: FLAGS });
}

export class Guard {
  constructor(origin) {
    this.origin = origin;
    this.errors = [];
    this.outside = [];
    this.requests = 0;
    /** While the daemon is gone on purpose, the browser says that requests failed. */
    this.expected = false;
  }

  watch(page) {
    page.on("console", (message) => {
      if (message.type() === "error" && !this.expected) this.errors.push(message.text());
    });
    page.on("pageerror", (error) => this.errors.push(`${error.message}\n${error.stack ?? ""}`));
    page.on("request", (request) => {
      this.requests += 1;
      const url = request.url();
      if (!url.startsWith(this.origin) && !url.startsWith("data:") && !url.startsWith("blob:")) this.outside.push(url);
    });
    page.on("websocket", (socket) => {
      if (!socket.url().startsWith(this.origin.replace("http", "ws"))) this.outside.push(socket.url());
    });
  }
}

export async function open(browser, guard, { scheme = "light", width = 1280, height = 720 } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  guard.watch(page);
  return page;
}

export async function login(page, url, name, password) {
  await page.goto(url);
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("navigation", { name: "Screens" }).waitFor();
}
