// What has to be true of every screen.

import { findings, shoot, tooWide } from "../look.js";
import { ADMIN, assert, until } from "../world.js";

const ANALYTICS = `analytics?graphs=${encodeURIComponent("nbd.ops[client]~nbd.latency~nbd.ops[latency]~volume.ops[volume]")}`;
const VOLUME = ["", "/performance", "/snapshots", "/hosts", "/settings"].map((part) => `volumes/show/tank%2Fdb${part}`);
const SCREENS = ["dashboard", "volumes", "volumes/projects", "volumes/snapshots", "volumes/start", ...VOLUME, "hosts", "hosts/show/esx9", "hosts/groups", "hosts/groups/all9", "hosts/mappings", "hosts/sessions", ANALYTICS, "analytics/worksheets", "levels", "levels/volumes/tank%2Fdb", "levels/all", "pools", "pools?show=disks", "pools?show=machine", "pools/tank", "pools/tank/disks", "pools/tank/settings", "capacity", "capacity/tank", "protection", "activity", "activity/tasks", "activity/events", "activity/audit", "activity/thresholds", "activity/reports", "settings", "settings/users", "settings/tokens", "settings/appliance", "settings/about"];

/** What the screens show besides volumes and a pool. */
async function furnish(world) {
  await world.ensureLoad();
  const hosts = await world.daemon.json("host", "list");
  if ((hosts.items ?? hosts).some(({ name }) => name === "esx9")) return;
  await world.daemon.command("host", "create", "esx9", "--iqn", "iqn.1998-01.com.vmware:esx9");
  await world.daemon.command("host", "group", "create", "all9", "--host", "esx9");
  await world.daemon.command("volume", "map", "tank/db", "--host", "esx9");
}

async function visit(page, world, screen) {
  await page.goto(`${world.url}/#/${screen}`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await until(`${screen} is loaded`, async () => (await page.getByText("Loading…", { exact: true }).count()) === 0);
  await page.waitForTimeout(200);
}

export async function axe(world) {
  await furnish(world);
  const found = [];
  let screens = 0;
  for (const scheme of ["light", "dark"]) {
    const page = await world.page({ scheme });
    for (const screen of SCREENS) {
      await visit(page, world, screen);
      for (const one of await findings(page, undefined, ["serious", "critical"])) found.push(`${scheme} ${screen}: ${one}`);
      screens += 1;
    }
    await world.done(page);
  }
  assert.deepEqual(found, []);
  return `${screens} views`;
}

export async function small(world) {
  await furnish(world);
  const page = await world.page();
  const wrong = [];
  for (const [width, height] of [
    [390, 844],
    [1280, 720],
  ]) {
    await page.setViewportSize({ width, height });
    for (const screen of SCREENS) {
      await visit(page, world, screen);
      const wide = await tooWide(page);
      if (wide > 0) wrong.push(`${screen} at ${width} pixels: ${wide} too wide`);
      await shoot(page, `${width}-all-${screen}`);
    }
  }
  assert.deepEqual(wrong, []);
  await world.done(page);
}

export async function stale(world) {
  await world.ensureLoad();
  const page = await world.page();
  const notice = page.getByText(/Stale since \d\d:\d\d:\d\d/);
  const value = page.getByRole("region", { name: "IOPS", exact: true }).locator(".value");
  await until("numbers move", async () => /\d/.test(await value.innerText()));
  assert.equal(await notice.count(), 0);
  const [took, said] = await world.guard.during(async () => {
    // Silent: it is there and says nothing.
    world.daemon.signal("SIGSTOP");
    const began = Date.now();
    await notice.waitFor();
    const took = (Date.now() - began) / 1000;
    const said = await notice.innerText();
    world.daemon.signal("SIGCONT");
    await until("it flows again", async () => (await notice.count()) === 0);

    // Gone: killed, and started again.
    world.stopLoad();
    await world.daemon.stop("SIGKILL");
    await notice.waitFor();
    await world.daemon.start();
    // Logins end with the daemon; the page finds that out by itself, and one comes back to where one was.
    await page.getByText("Your login has ended").waitFor();
    await page.getByLabel("Name", { exact: true }).fill(ADMIN.name);
    await page.getByLabel("Password", { exact: true }).fill(ADMIN.password);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { name: "Dashboard" }).waitFor();
    await until("it flows again after a restart", async () => (await notice.count()) === 0);
    await world.ensureLoad();
    await until("and numbers move again", async () => /[1-9]/.test(await value.innerText()));
    return [took, said];
  });
  await world.done(page);
  return `after ${took.toFixed(1)} s: “${said}”`;
}

const GRAPHS = ["nbd.ops[client]", "nbd.ops[op]", "nbd.bytes[volume]", "nbd.latency", "volume.ops[volume]", "volume.time[stage]", "qos.p99[volume]", "disk.ops[device]", "nbd.ops[latency]", "nbd.ops[size]"];
const SECONDS = Number(process.env.COST_SECONDS ?? 60);

export async function cost(world) {
  await world.ensureLoad();
  const page = await world.page();
  await page.goto(`${world.url}/#/analytics?graphs=${encodeURIComponent(GRAPHS.join("~"))}&seconds=300`);
  await page.locator("section.graph").nth(9).waitFor();
  const cdp = await page.context().newCDPSession(page);
  // Of the processor, not of the clock: other tests may have it meanwhile.
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  const metrics = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    const { metrics: list } = await cdp.send("Performance.getMetrics");
    return Object.fromEntries(list.map(({ name, value }) => [name, value]));
  };
  await page.waitForTimeout(15_000);
  const before = await metrics();
  await page.waitForTimeout(SECONDS * 1000);
  const after = await metrics();
  const wall = after.Timestamp - before.Timestamp;
  const script = (after.ScriptDuration - before.ScriptDuration) / wall;
  const task = (after.TaskDuration - before.TaskDuration) / wall;
  const heap = (after.JSHeapUsedSize - before.JSHeapUsedSize) / 2 ** 20;
  const nodes = after.Nodes - before.Nodes;
  const said = `script ${(script * 100).toFixed(1)} % of a core, all of the page's thread ${(task * 100).toFixed(1)} %, heap ${(before.JSHeapUsedSize / 2 ** 20).toFixed(1)} MiB ${heap >= 0 ? "+" : "−"}${Math.abs(heap).toFixed(2)}, ${nodes} more nodes in ${wall.toFixed(0)} s`;
  assert.ok(script < 0.1, said);
  assert.ok(heap < 1.5 && nodes < 300, said);
  await world.done(page);
  return said;
}

export async function clean(world) {
  assert.deepEqual(world.guard.errors, []);
  assert.deepEqual(world.guard.outside, []);
  assert.ok(world.guard.requests > 0, "something was looked at");
  return `${world.guard.requests} requests`;
}
