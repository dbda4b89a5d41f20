// What the scenarios share: the daemon, the browser, who may log in, and the load. Everything is made when it is first needed.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Guard, login, open } from "./browser.js";
import { Daemon } from "./daemon.js";
import { Client } from "./nbd.js";

/** Only what never comes takes so long, also while other tests use the processors. */
export const PATIENCE_MS = 120_000;
export const ADMIN = { name: "anna", password: "correct horse battery" };
export const VIEWER = { name: "victor", password: "staple only to look at" };

export class World {
  static async make(server, browser) {
    const world = new World();
    world.browser = browser;
    world.daemon = new Daemon(server);
    world.clients = [];
    world.pages = [];
    try {
      await world.daemon.start();
    } catch (error) {
      await world.end();
      throw error;
    }
    world.guard = new Guard(world.daemon.url);
    return world;
  }

  get url() {
    return this.daemon.url;
  }

  async end() {
    for (const client of this.clients ?? []) client.stop();
    await this.browser?.close().catch(() => {});
    await this.daemon?.end();
  }

  /** A picture of what went wrong, where somebody wants one. */
  async picture(name) {
    const into = process.env.PICTURES;
    const page = this.pages.at(-1);
    if (!into || !page || page.isClosed()) return;
    mkdirSync(into, { recursive: true });
    await page.screenshot({ path: join(into, `${name}.png`) }).catch(() => {});
  }

  async users() {
    const { items } = await this.daemon.json("user", "list").then((list) => ({ items: list.items ?? list }));
    return items.map((user) => user.name);
  }

  async ensureAdmin() {
    if (!(await this.users()).includes(ADMIN.name)) await this.daemon.password(ADMIN.name, "admin", ADMIN.password);
  }

  async ensurePool() {
    await this.ensureAdmin();
    const pools = await this.daemon.json("pool", "list");
    if ((pools.items ?? pools).some((pool) => pool.name === "tank")) return;
    await this.daemon.command("pool", "create", "tank", "--layout", "mirror", this.daemon.disk(), this.daemon.disk(), this.daemon.disk());
  }

  async ensureVolume(name, ...options) {
    await this.ensurePool();
    const volumes = await this.daemon.json("volume", "list");
    if ((volumes.items ?? volumes).some((volume) => volume.name === name)) return;
    await this.daemon.command("volume", "create", name, "--size", "64M", ...options);
  }

  /** A client at an address of the loopback network. */
  async client(name, from = "127.0.0.1") {
    const client = await Client.connect({ ...this.daemon.nbd, from, name });
    this.clients.push(client);
    return client;
  }

  /** A quiet client and one that is the guilty one. */
  async ensureLoad() {
    await this.ensureVolume("tank/db");
    await this.ensureVolume("tank/bulk");
    this.clients = this.clients.filter((client) => !client.stopped);
    if (!this.quiet || this.quiet.stopped) {
      this.quiet = await this.client("tank/db", "127.0.0.1");
      this.quiet.load({ depth: 1, rate: 40, writes: 60 });
    }
    if (!this.guilty || this.guilty.stopped) {
      this.guilty = await this.client("tank/bulk", "127.0.0.2");
      this.guilty.load({ depth: 16, bytes: 65_536, writes: 90, rate: 400 });
    }
  }

  stopLoad() {
    for (const client of this.clients) client.stop();
    this.clients = [];
    this.quiet = undefined;
    this.guilty = undefined;
  }

  /** A page of somebody who is logged in. */
  async page(options = {}, who = ADMIN) {
    await this.ensureAdmin();
    const page = await open(this.browser, this.guard, options);
    this.pages.push(page);
    await login(page, this.url, who.name, who.password);
    return page;
  }

  async done(page) {
    await page.context().close();
    this.pages = this.pages.filter((one) => one !== page);
  }
}

export async function until(what, check) {
  const end = Date.now() + PATIENCE_MS;
  let last;
  while (Date.now() < end) {
    try {
      last = await check();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`${what}: not after ${PATIENCE_MS / 1000} s (${last instanceof Error ? last.message : JSON.stringify(last)})`);
}

export { assert };
