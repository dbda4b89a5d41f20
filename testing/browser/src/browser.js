// Chromium, and pages that tell of everything that must not happen: an error on the console, an exception, a request that leaves the origin.

import { chromium } from "playwright-core";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--js-flags=--expose-gc"];

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path));
  if (!executablePath) throw new Error("there is no Chromium; install Debian's package chromium, or say where it is with CHROMIUM");
  // A page that does not come from the daemon itself may not speak with it otherwise.
  const args = process.env.INTERFACE ? [...FLAGS, "--disable-features=LocalNetworkAccessChecks"] : FLAGS;
  return await chromium.launch({ executablePath, args });
}

const FOUND_OUT_MS = 10_000;

export class Guard {
  constructor(origin) {
    this.origin = origin;
    this.errors = [];
    this.outside = [];
    this.requests = 0;
    /** While something is refused or gone on purpose, the browser says that requests failed. */
    this.expected = false;
    /** When the last login was ended on purpose: pages that are open find it out with their next request, and the browser says so. */
    this.ended = 0;
  }

  /** Lets errors pass while something is done that makes some; what the browser says of it may come a moment later. */
  async during(work) {
    this.expected = true;
    try {
      return await work();
    } finally {
      await new Promise((done) => setTimeout(done, 600));
      this.expected = false;
      this.ended = Date.now();
    }
  }

  isExpected(text) {
    return this.expected || (text.includes("status of 401") && Date.now() - this.ended < FOUND_OUT_MS);
  }

  watch(page) {
    page.on("console", (message) => {
      if (message.type() === "error" && !this.isExpected(message.text())) this.errors.push(`${message.text()} (${message.location().url})`);
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
  if (process.env.INTERFACE) await instead(context, process.env.INTERFACE);
  const page = await context.newPage();
  // Only what never comes takes so long, also while other tests use the processors.
  page.setDefaultTimeout(60_000);
  guard.watch(page);
  return page;
}

const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

/** The interface from a directory instead of from the daemon, for whoever works on it: no build of the daemon in between. */
async function instead(context, directory) {
  await context.route(
    (url) => !url.pathname.startsWith("/api/"),
    async (route) => {
      const { pathname } = new URL(route.request().url());
      const path = pathname === "/" ? "/index.html" : pathname;
      try {
        await route.fulfill({ body: readFileSync(join(directory, path)), contentType: TYPES[path.split(".").pop()] ?? "application/octet-stream" });
      } catch {
        await route.fulfill({ status: 404, body: "" });
      }
    },
  );
}

export async function login(page, url, name, password) {
  await page.goto(url);
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  // On a phone, the menu is in a drawer.
  await page.locator("#main").waitFor();
}
