// Five tasks from the first click to the result, at four widths, each in light and in dark. Every step fits its window, and axe finds nothing on any screen.

import { login, open } from "../browser.js";
import { findings, shoot, tooWide } from "../look.js";
import { assert, until } from "../world.js";

const SIZES = [
  [390, 844],
  [820, 1180],
  [1366, 768],
  [1920, 1080],
];
const PHONE = 700;
const COLLEAGUE = "correct horse at work";
const itemsOf = (answer) => answer.items ?? answer;

/** One width: the page, what was looked at already, and what was wrong. */
class Player {
  constructor(world, page, width) {
    this.world = world;
    this.page = page;
    this.width = width;
    this.seen = new Set();
    this.wrong = [];
    this.steps = 0;
  }

  async scheme(name) {
    this.theme = name;
    await this.page.emulateMedia({ colorScheme: name });
  }

  /** After each step. `screen` names what is shown: axe looks at it once. */
  async look(screen, page = this.page) {
    await until(`${screen} is loaded`, async () => (await page.getByText("Loading…", { exact: true }).count()) === 0);
    const where = `${this.width} px, ${this.theme}, ${screen}`;
    this.steps += 1;
    const wide = await tooWide(page);
    if (wide > 0) this.wrong.push(`${where}: ${wide} pixels too wide`);
    if (!this.seen.has(screen)) {
      this.seen.add(screen);
      const isDialog = (await page.locator("dialog[open]").count()) > 0;
      for (const one of await findings(page, isDialog ? "dialog[open]" : undefined)) this.wrong.push(`${where}: ${one}`);
    }
    await shoot(page, `${this.width}-${String(this.steps).padStart(2, "0")}-${screen}-${this.theme}`);
  }

  /** To a screen by the main menu, which is a drawer on a phone. */
  async to(title, page = this.page) {
    if (this.width <= PHONE) await page.getByRole("button", { name: /^Menu/ }).click();
    await page.getByRole("navigation", { name: "Screens" }).getByRole("link", { name: new RegExp(`^${title}`) }).click();
    await page.getByRole("heading", { name: title, level: 1 }).waitFor();
  }

  tab(name, page = this.page) {
    return page.getByRole("navigation", { name: /^Parts of/ }).getByRole("link", { name: new RegExp(`^${name}`) }).click();
  }

  async choose(menu, item, page = this.page) {
    await page.getByRole("button", { name: menu, exact: true }).click();
    await page.getByRole("menuitem", { name: item, exact: true }).click();
  }

  /** A message says that it is done; it is closed, so that it covers nothing of the next step. */
  async told(text, page = this.page) {
    const messages = page.getByRole("log", { name: "Messages" });
    await messages.getByText(text, { exact: true }).first().waitFor();
    const close = messages.getByRole("button", { name: "Close the message" });
    while ((await close.count()) > 0) await close.first().click({ timeout: 2000 }).catch(() => {});
  }

  get dialog() {
    return this.page.getByRole("dialog");
  }
}

/** A volume for a host: in the list with a mapping afterwards, or all in the guide. */
async function create(player) {
  const { page, width, dialog } = player;
  const name = `vm${width}`;
  const inGuide = width === 820 || width === 1920;
  await player.to("Volumes");
  await player.look("volumes");
  if (inGuide) {
    await player.tab("Guide");
    await page.getByRole("heading", { name: "Create a volume" }).waitFor();
    await page.getByLabel("Pool or project").selectOption("depot");
    await page.getByLabel("Name of the volume").fill(name);
    await page.getByLabel("Size", { exact: true }).fill("64M");
    await page.getByRole("checkbox", { name: "esx5", exact: true }).check();
    await player.look("guide");
    await page.getByRole("button", { name: "Create volume" }).click();
    await page.getByRole("heading", { name: `depot/${name} is ready` }).waitFor();
    await player.told(`Volume depot/${name} is created.`);
    await page.getByText("Mapped to esx5 as LUN").waitFor();
    await player.look("guide at its end");
  } else {
    await page.getByRole("button", { name: "New volume" }).click();
    await dialog.getByLabel("Pool or project").selectOption("depot");
    await dialog.getByLabel("Name", { exact: true }).fill(name);
    await dialog.getByLabel("Size", { exact: true }).fill("64M");
    await player.look("new volume");
    await dialog.getByRole("button", { name: "Create volume" }).click();
    await player.told(`Volume depot/${name} is created.`);
    await page.getByRole("link", { name: `depot/${name}`, exact: true }).click();
    await page.getByRole("heading", { name: `depot/${name}`, level: 1 }).waitFor();
    await player.look("volume");
    await player.tab("Hosts");
    await page.getByRole("button", { name: "Map to a host" }).click();
    await dialog.getByLabel("Host or group").selectOption("esx5");
    await player.look("map");
    await dialog.getByRole("button", { name: "Map", exact: true }).click();
    await player.told(`depot/${name} is mapped to esx5.`);
    await page.getByText("Mapped to esx5 as LUN").waitFor();
    await player.look("hosts of a volume");
  }
  const volume = itemsOf(await player.world.daemon.json("volume", "list")).find((one) => one.name === `depot/${name}`);
  assert.deepEqual(volume?.spec.hosts, ["esx5"]);
}

/** A disk has failed: from the sentence of the dashboard to the disk, and to a new one in its place. */
async function replace(player) {
  const { page, dialog, world } = player;
  const poolOf = async () => itemsOf(await world.daemon.json("pool", "list")).find(({ name }) => name === "depot");
  const disksOf = (pool) => pool.status.groups.flatMap((group) => group.disks);
  const [victim] = disksOf(await poolOf());
  const number = victim.status.number;
  await world.daemon.command("disk", "offline", `depot/${number}`, "--yes");
  await player.to("Dashboard");
  const status = page.getByRole("region", { name: "Status" });
  await until("the dashboard says it", async () => /depot/.test(await status.innerText()));
  await player.look("dashboard with a failed disk");
  await status.getByRole("button", { name: "Show details" }).click();
  await page.getByRole("heading", { name: "depot", level: 1 }).waitFor();
  await page.getByText(`depot/${number} offline`).first().waitFor();
  await player.look("pool with a failed disk");
  await player.tab("Disks");
  await player.choose(`Actions for depot/${number}`, "Replace");
  await dialog.getByLabel("Path", { exact: true }).fill(world.daemon.disk());
  await dialog.getByRole("list", { name: "Planned changes" }).waitFor();
  await player.look("replace a disk");
  await dialog.getByRole("button", { name: "Replace disk" }).click();
  await until("the pool is whole", async () => {
    const pool = await poolOf();
    const disks = disksOf(pool);
    return pool.status.state === "online" && !pool.status.rebuild && disks.every((disk) => disk.status.state === "online" && disk.status.number !== number);
  });
  await player.told(`Disk ${number} of depot is replaced.`);
  await until("the old disk has left the page", async () => (await page.getByRole("button", { name: `Actions for depot/${number}`, exact: true }).count()) === 0);
  await player.look("disks of a pool");
}

/** Which client makes it slow? From the latency of the dashboard to its name. */
async function slow(player) {
  const { page } = player;
  await player.to("Dashboard");
  await until("there is a latency", async () => /\d (ns|µs|ms|s)\b/.test(await page.getByRole("region", { name: "Latency" }).innerText()));
  await until("there are clients", async () => (await page.getByRole("region", { name: "Busiest clients" }).innerText()).includes("127.0.0.2"));
  await player.look("dashboard");
  await page.getByRole("region", { name: "Latency" }).getByRole("link", { name: "Explore" }).click();
  const graph = (name) => page.getByRole("region", { name, exact: true });
  const latency = graph("qos.p99[volume]");
  await latency.getByText("tank/bulk").waitFor();
  await player.look("analytics");
  await latency.getByRole("button", { name: "Explore tank/bulk" }).click();
  await page.getByRole("menuitem", { name: "Clients of tank/bulk over NBD" }).click();
  const clients = graph("nbd.ops[volume=tank/bulk][client]");
  await until("the guilty client is the first", async () => (await clients.locator(".legend tbody tr").first().innerText()).includes("127.0.0.2"));
  await clients.scrollIntoViewIfNeeded();
  await player.look("clients of a volume");
}

/** A snapshot, a deletion that was a mistake, and all of it back from the trash. */
async function restore(player) {
  const { page, dialog, width } = player;
  const name = `depot/paper${width}`;
  await player.world.ensureVolume(name);
  await page.goto(`${player.world.url}/#/volumes/show/${encodeURIComponent(name)}`);
  await page.getByRole("button", { name: "Take snapshot" }).click();
  await dialog.getByLabel("Name", { exact: true }).fill("before");
  await player.look("take a snapshot");
  await dialog.getByRole("button", { name: "Take snapshot" }).click();
  await player.told(`Snapshot ${name}@before is taken.`);
  await player.tab("Snapshots");
  await page.getByRole("button", { name: `Actions for ${name}@before` }).waitFor();
  await player.look("snapshots of a volume");
  await player.choose(`Actions for ${name}`, "Delete");
  await dialog.getByRole("list", { name: "Planned changes" }).waitFor();
  await player.look("delete a volume");
  // Its page leads to the volumes that there are.
  const shown = page.url();
  await dialog.getByRole("button", { name: "Move to the trash" }).click();
  await player.told(`${name} is in the trash.`);
  await page.getByRole("heading", { name: "Volumes", level: 1 }).waitFor();
  // An address that was kept says that it is gone.
  await player.world.guard.during(async () => {
    await page.goto(shown);
    await page.getByText(`There is no volume ${name}.`).waitFor();
    await player.look("volume that is gone");
    await player.to("Protection");
  });
  await page.getByRole("button", { name: `Actions for ${name}` }).waitFor();
  await player.look("protection");
  await player.choose(`Actions for ${name}`, "Restore");
  await player.look("restore a volume");
  await dialog.getByRole("button", { name: "Restore" }).click();
  await player.told(`${name} is restored.`);
  const snapshots = itemsOf(await player.world.daemon.json("snapshot", "list"));
  assert.ok(snapshots.some((one) => one.name === `${name}@before`), "the snapshot is back with it");
}

/** A colleague who may view everything, and what is refused to such a one. */
async function colleague(player) {
  const { page, dialog, width, world } = player;
  const name = `col${width}`;
  await player.to("Settings");
  await player.tab("Users");
  await page.getByRole("button", { name: "New user" }).click();
  await dialog.getByLabel("Name", { exact: true }).fill(name);
  await dialog.getByLabel("Role", { exact: true }).selectOption("viewer");
  await dialog.getByLabel("Password", { exact: true }).fill(COLLEAGUE);
  await player.look("new user");
  await dialog.getByRole("button", { name: "Create user" }).click();
  await player.told(`User ${name} is created.`);
  await page.getByRole("button", { name: `Actions for ${name}` }).waitFor();
  await player.look("users");

  const other = await open(world.browser, world.guard, { width, height: page.viewportSize().height, scheme: player.theme });
  world.pages.push(other);
  await login(other, world.url, name, COLLEAGUE);
  await player.to("Volumes", other);
  const button = other.getByRole("button", { name: /^New volume/ });
  await button.waitFor();
  assert.equal(await button.getAttribute("aria-disabled"), "true");
  assert.match(await button.getAttribute("title"), /viewer/);
  await other.getByRole("button", { name: "Actions for tank/db" }).click();
  const item = other.getByRole("menuitem", { name: "Delete" });
  assert.equal(await item.getAttribute("aria-disabled"), "true");
  await player.look("volumes of a viewer", other);
  await other.keyboard.press("Escape");
  await player.to("Settings", other);
  await player.tab("Users", other);
  await other.getByText("This needs the admin role").first().waitFor();
  await player.look("users of a viewer", other);
  await world.done(other);

  await player.choose(`Actions for ${name}`, "Rename");
  await dialog.getByLabel("New name").fill(`${name}-was`);
  await player.look("rename a user");
  await dialog.getByRole("button", { name: "Rename" }).click();
  await player.told(`${name} is now ${name}-was.`);
}

const TASKS = { create, replace, slow, restore, colleague };

export async function tasks(world) {
  await world.ensureLoad();
  const { daemon } = world;
  if (!itemsOf(await daemon.json("pool", "list")).some(({ name }) => name === "depot"))
    await daemon.command("pool", "create", "depot", "--layout", "mirror", "--no-calibrate", daemon.disk(), daemon.disk());
  if (!itemsOf(await daemon.json("host", "list")).some(({ name }) => name === "esx5")) await daemon.command("host", "create", "esx5", "--iqn", "iqn.1998-01.com.vmware:esx5");
  const page = await world.page();
  const wrong = [];
  let steps = 0;
  for (const [at, [width, height]] of SIZES.entries()) {
    await page.setViewportSize({ width, height });
    const player = new Player(world, page, width);
    for (const [index, task] of Object.values(TASKS).entries()) {
      await player.scheme((at + index) % 2 === 0 ? "light" : "dark");
      await task(player);
    }
    wrong.push(...player.wrong);
    steps += player.steps;
  }
  assert.deepEqual(wrong, []);
  await world.done(page);
  return `${steps} steps`;
}
