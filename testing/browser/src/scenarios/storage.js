// Disks, pools, volumes, service levels: what is done with the page is looked up with the command line.

import { assert, until } from "../world.js";

const itemsOf = (answer) => answer.items ?? answer;

export async function provision(world) {
  await world.ensureAdmin();
  const pools = itemsOf(await world.daemon.json("pool", "list"));
  const page = await world.page();
  if (pools.length === 0) {
    await page.getByText("There is no pool yet.").waitFor();
    await page.getByRole("button", { name: "Get started" }).first().click();
    const disks = [0, 1, 2].map(() => world.daemon.disk());
    const area = page.getByLabel("Paths of block devices or files, one per line");
    await area.fill("sda");
    await page.getByText("These are not absolute paths: sda.").waitFor();
    await area.fill(disks.join("\n"));
    await page.getByRole("button", { name: "Check 3 disks" }).click();
    await page.getByText("Survives the loss of any one disk.").first().waitFor();
    await page.getByLabel("Name of the pool").fill("tank");
    await page.getByText("forebay pool create tank --layout mirror").waitFor();
    const make = page.getByRole("button", { name: /^Create pool/ });
    await until("the appliance agrees to the plan", async () => (await make.getAttribute("aria-disabled")) === null);
    await page.getByRole("list", { name: "Planned changes" }).waitFor();
    await make.click();
  } else {
    await page.goto(`${world.url}/#/volumes/start`);
  }
  await page.getByRole("heading", { name: "Create a volume" }).waitFor();
  await page.getByLabel("Name of the volume").fill("vm1");
  await page.getByLabel("Size", { exact: true }).fill("none at all");
  await page.getByText("Enter a number with K, M, G or T.").waitFor();
  await page.getByLabel("Size", { exact: true }).fill("64M");
  await page.getByLabel("New host").fill("esx1");
  await page.getByLabel("Initiator name").fill("iqn.1998-01.com.vmware:esx1");
  await page.getByText("forebay volume create tank/vm1 --size 64M --host esx1").waitFor();
  await page.getByRole("button", { name: "Create volume" }).click();
  await page.getByRole("heading", { name: "tank/vm1 is ready" }).waitFor();
  await page.getByText("Mapped to esx1 as LUN 0.").waitFor();
  await page.getByText(`iscsiadm -m node -T iqn.2026-11.io.forebay:tank -p ${world.daemon.addresses.iscsi[0]}`).waitFor();
  await page.getByText(`nbdinfo nbd://${world.daemon.addresses.nbd}/tank/vm1`).waitFor();

  const volume = itemsOf(await world.daemon.json("volume", "list")).find(({ name }) => name === "tank/vm1");
  assert.equal(volume.spec.size_bytes, 64 << 20);
  assert.deepEqual(volume.spec.hosts, ["esx1"]);
  const client = await world.client("tank/vm1");
  assert.equal(client.size, 64 << 20, "an NBD client sees it");
  client.stop();
  await page.getByRole("button", { name: "To the dashboard" }).click();
  await page.getByRole("heading", { name: "Dashboard" }).waitFor();
  await world.done(page);
}

export async function violation(world) {
  // A goal that disks cannot keep while a neighbour has most of their time.
  await world.ensureLoad();
  const levels = itemsOf(await world.daemon.json("level", "list"));
  if (!levels.some(({ name }) => name === "strict")) await world.daemon.command("level", "create", "strict", "--latency", "100us");
  await world.daemon.command("volume", "set", "tank/db", "--level", "strict");
  const page = await world.page();
  const sentence = page.locator("section[aria-label='Status']");
  await until("the dashboard says it", async () => (await sentence.innerText()).includes("tank/db"));
  const said = (await sentence.innerText()).replace(/\s+/g, " ");
  await page.goto(`${world.url}/#/levels`);
  const story = page.getByRole("list", { name: "Missed service levels" });
  await story.waitFor();
  const text = (await story.innerText()).replace(/\s+/g, " ");
  assert.match(text, /tank\/db: /);
  assert.match(text, /took longer than|kept the disks busy|was slow|slower than|asked for more|not in the cache|busy with/, "and why");
  await page.getByRole("link", { name: "tank/db", exact: true }).click();
  await page.getByRole("heading", { name: "Request time by stage" }).waitFor();
  await page.getByText(/Pool time of tank/).waitFor();
  const shares = page.getByRole("region", { name: /Pool time of tank/ });
  await until("the neighbour is named", async () => (await shares.innerText()).includes("tank/bulk"));

  // And it is changed here.
  await page.getByLabel("Level of tank/db").selectOption("none");
  await until("the level is gone", async () => itemsOf(await world.daemon.json("volume", "list")).find(({ name }) => name === "tank/db").spec.level === "none");
  await world.done(page);
  return `“${text.replace(/ Explore.*/, "")}”; the dashboard: “${said}”`;
}

export async function replace(world) {
  await world.ensureLoad();
  const page = await world.page();
  await page.goto(`${world.url}/#/pools/tank/disks`);
  const row = page.getByRole("row").filter({ has: page.getByRole("button", { name: "Actions for tank/1", exact: true }) });
  await row.waitFor();
  await page.getByRole("button", { name: "Actions for tank/1", exact: true }).click();
  // What is refused says why when it is pressed.
  await page.getByRole("menuitem", { name: "Make its light blink for 30 s" }).click({ force: true });
  await page.getByText("A file has no light.").first().waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Actions for tank/1", exact: true }).click();
  await page.getByRole("menuitem", { name: "Take offline" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("list", { name: "Planned changes" }).waitFor();
  await dialog.getByRole("button", { name: "Take offline" }).click();
  await row.getByText("Offline").waitFor();
  await page.goto(`${world.url}/#/dashboard`);
  const sentence = page.locator("section[aria-label='Status']");
  await until("the dashboard says it", async () => !(await sentence.innerText()).includes("All is well"));
  const said = (await sentence.innerText()).split("\n")[0];

  await page.goto(`${world.url}/#/pools/tank/disks`);
  await page.getByRole("button", { name: "Actions for tank/1", exact: true }).click();
  await page.getByRole("menuitem", { name: "Replace" }).click();
  await page.getByLabel("Path", { exact: true }).fill(world.daemon.disk());
  await page.getByRole("button", { name: /^Replace disk/ }).click();
  await until("the pool is whole", async () => {
    const pool = itemsOf(await world.daemon.json("pool", "list")).find(({ name }) => name === "tank");
    const disks = pool.status.groups.flatMap((group) => group.disks);
    return pool.status.state === "online" && !pool.status.rebuild && disks.length === 3 && disks.every((disk) => disk.status.state === "online") && disks.some((disk) => disk.status.number === 3);
  });
  await page.getByRole("button", { name: "Actions for tank/3", exact: true }).waitFor();
  await until("disk 1 has left the page", async () => (await page.getByRole("button", { name: "Actions for tank/1", exact: true }).count()) === 0);
  await page.goto(`${world.url}/#/activity/tasks`);
  await page.getByRole("row").filter({ hasText: "Replace disk" }).getByText("Done").first().waitFor();
  await world.done(page);
  return `“${said}”`;
}

export async function trash(world) {
  await world.ensureVolume("tank/paper");
  const page = await world.page();
  await page.goto(`${world.url}/#/volumes`);
  await page.getByRole("button", { name: "Actions for tank/paper" }).click();
  await page.getByRole("menuitem", { name: "Take a snapshot" }).click();
  await page.getByLabel("Name", { exact: true }).fill("before");
  await page.getByRole("button", { name: "Take snapshot" }).click();
  await page.getByText("Snapshot tank/paper@before is taken.").waitFor();
  await page.goto(`${world.url}/#/volumes/snapshots`);
  await page.getByRole("button", { name: "Actions for tank/paper@before" }).click();
  await page.getByRole("menuitem", { name: "Clone into a volume" }).click();
  await page.getByLabel("Name", { exact: true }).fill("copy");
  await page.getByRole("button", { name: "Create clone" }).click();
  await page.getByText("Volume tank/copy is created.").waitFor();

  // What the API refuses stands beside the field.
  await world.guard.during(async () => {
    await page.goto(`${world.url}/#/volumes`);
    await page.getByRole("button", { name: "New volume" }).click();
    await page.getByLabel("Name", { exact: true }).fill("copy");
    await page.getByLabel("Size", { exact: true }).fill("1G");
    await page.getByRole("button", { name: "Create volume" }).click();
    await page.getByRole("alert").waitFor();
    await page.keyboard.press("Escape");
  });

  await page.getByRole("button", { name: "Actions for tank/copy" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Move to the trash" }).click();
  await page.getByText("tank/copy is in the trash.").waitFor();
  await page.goto(`${world.url}/#/protection`);
  const row = page.getByRole("row").filter({ hasText: "tank/copy" });
  await row.getByRole("button", { name: "Restore" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  await page.getByText("tank/copy is restored.").waitFor();
  assert.ok(itemsOf(await world.daemon.json("volume", "list")).some(({ name }) => name === "tank/copy"));
  await world.done(page);
}

export async function schedule(world) {
  await world.ensureVolume("tank/old");
  const page = await world.page();
  await page.goto(`${world.url}/#/volumes/show/tank%2Fold/settings`);
  await page.getByLabel("Interval", { exact: true }).selectOption("3600");
  const keep = page.getByRole("group", { name: "Snapshots to keep" });
  await keep.getByLabel("Newest").fill("1001");
  await keep.getByText("Newest: enter a number up to 1000, or leave it empty.").waitFor();
  await keep.getByLabel("Newest").fill("");
  await keep.getByText("Enter at least one number.").waitFor();
  await keep.getByLabel("Hourly").fill("24");
  await keep.getByLabel("Daily").fill("7");
  await keep.getByText("Kept: the newest of each of the last 24 hours and 7 days (UTC).").waitFor();
  await page.getByText("forebay volume set tank/old --snapshot-every 1h --snapshot-keep hourly=24,daily=7").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("tank/old is changed.").waitFor();
  const spec = itemsOf(await world.daemon.json("volume", "list")).find(({ name }) => name === "tank/old").spec;
  assert.equal(spec.snapshot_every_seconds, 3600);
  assert.deepEqual(spec.snapshot_keep, { last: 0, hourly: 24, daily: 7, weekly: 0, monthly: 0 });

  const rename = async (menu, command, to) => {
    await page.getByRole("button", { name: menu }).click();
    await page.getByRole("menuitem", { name: "Rename" }).click();
    await page.getByLabel("New name").fill(to);
    await page.getByText(command).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  };
  // The page of the volume follows to its new address.
  await rename("Actions for tank/old", "forebay volume rename tank/old tank/new", "tank/new");
  await page.getByRole("heading", { name: "tank/new", level: 1 }).waitFor();
  await page.goto(`${world.url}/#/volumes/show/tank%2Fnew`);
  await page.getByText("every 1h, kept hourly=24,daily=7").waitFor();
  const snapshots = async () => itemsOf(await world.daemon.json("snapshot", "list"));
  await until("the first one is taken", async () => (await snapshots()).some(({ name }) => name.startsWith("tank/new@auto-")));
  await page.goto(`${world.url}/#/volumes/show/tank%2Fnew/snapshots`);
  await page.reload();
  await rename(/^Actions for tank\/new@auto-/, /^forebay snapshot rename tank\/new@auto-\S+ first$/, "first");
  await page.getByText(/ is now tank\/new@first\.$/).waitFor();
  assert.ok((await snapshots()).some(({ name }) => name === "tank/new@first"));
  await world.done(page);
}

export async function imports(world) {
  await world.ensureAdmin();
  const disks = [world.daemon.disk(), world.daemon.disk()];
  await world.daemon.command("pool", "create", "vault", "--layout", "mirror", "--no-calibrate", ...disks);
  await world.daemon.command("volume", "create", "vault/old", "--size", "64M");
  await world.daemon.command("pool", "export", "vault");
  const page = await world.page();
  await page.goto(`${world.url}/#/pools`);
  await page.getByRole("button", { name: "Import", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Disks to search, one path per line").fill(disks.join("\n"));
  await dialog.getByRole("button", { name: "Search disks" }).click();
  await dialog.getByLabel("Import as").fill("cellar");
  await dialog.getByText(/^forebay pool import vault .* --as cellar$/).waitFor();
  await dialog.getByRole("list", { name: "Planned changes" }).waitFor();
  await dialog.getByRole("button", { name: "Import", exact: true }).click();
  await page.getByText("Pool vault is imported as cellar.").waitFor();
  await page.getByRole("link", { name: "cellar", exact: true }).waitFor();
  assert.ok(itemsOf(await world.daemon.json("volume", "list")).some(({ name }) => name === "cellar/old"));
  await world.done(page);
  await world.daemon.command("pool", "destroy", "cellar", "--yes");
}
