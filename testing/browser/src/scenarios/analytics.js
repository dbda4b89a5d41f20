// Who uses the storage, and why it is slow.

import { assert, until } from "../world.js";

const GUILTY = "127.0.0.2";

export async function drill(world) {
  await world.ensureLoad();
  await new Promise((done) => setTimeout(done, 6000));
  const page = await world.page();
  const graph = (name) => page.getByRole("region", { name, exact: true });
  let clicks = 0;
  const click = async (what) => {
    await what.click();
    clicks += 1;
  };
  await until("the dashboard shows a latency", async () => /\d (ns|µs|ms|s)\b/.test(await page.getByRole("region", { name: "Latency" }).innerText()));

  await click(page.locator("#why-slow"));
  const slow = graph("qos.p99[volume]");
  await slow.getByText("tank/bulk").waitFor();
  await click(slow.getByRole("button", { name: "Explore tank/bulk" }));
  await click(page.getByRole("menuitem", { name: "Clients of tank/bulk over NBD" }));
  const who = graph("nbd.ops[volume=tank/bulk][client]");
  const first = who.locator(".legend tbody tr").first();
  await until("the guilty client is the first of the list", async () => (await first.innerText()).includes(GUILTY));
  assert.ok(!(await who.locator(".legend").innerText()).includes("127.0.0.1\n"), "and the innocent one is not in it");
  assert.ok(clicks <= 4, `${clicks} clicks`);
  const sentence = (await who.locator("header").innerText()).replace(/\s+/g, " ");
  assert.match(sentence, /only volume tank\/bulk/);

  // One further: what that client asks for, and the address says all of it.
  await who.getByRole("button", { name: `Explore ${GUILTY}` }).click();
  await page.getByRole("menuitem", { name: `${GUILTY}, by operation` }).click();
  await graph(`nbd.ops[volume=tank/bulk][client=${GUILTY}][op]`).getByText("write").waitFor();
  assert.match(page.url(), /graphs=/);
  await page.reload();
  await graph(`nbd.ops[volume=tank/bulk][client=${GUILTY}][op]`).getByText("write").waitFor();

  // Every chart also as a table, and a filter that is dropped.
  await who.getByRole("button", { name: "Table" }).click();
  await until("the table has numbers", async () => (await who.locator(".scroll tbody tr").count()) > 5);
  await who.getByRole("button", { name: "Remove filter: only tank/bulk" }).click();
  await graph("nbd.ops[client]").first().waitFor();
  await world.done(page);
  return `${clicks} clicks; “${sentence.replace(/ IOPS.*/, "")}”`;
}

export async function heat(world) {
  await world.ensureLoad();
  const page = await world.page();
  await page.goto(`${world.url}/#/analytics?graphs=${encodeURIComponent("nbd.ops[latency]~nbd.ops[op]")}&seconds=60`);
  const graph = page.getByRole("region", { name: "nbd.ops[latency]", exact: true });
  await graph.locator("canvas").waitFor();
  const coloured = () =>
    graph.locator("canvas").evaluate((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const found = new Set();
      for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 0) found.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
      return found.size;
    });
  await until("the heat map has shades", async () => (await coloured()) > 12);
  await graph.getByRole("button", { name: "Table" }).click();
  await until("its table has rows", async () => (await graph.locator("tbody tr").count()) > 2);
  await graph.getByRole("button", { name: "Chart" }).click();

  // A brush zooms all graphs; there is a way back.
  const box = await graph.locator("canvas").boundingBox();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.85, box.y + 60, { steps: 5 });
  await page.mouse.up();
  await page.getByRole("button", { name: "Go live" }).waitFor();
  const { from, to } = await page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1])));
  assert.ok(to - from >= 10 && to - from < 30, `a quarter of a minute: ${from} to ${to}`);
  await page.getByRole("button", { name: "Previous range" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator("main").focus();
  await page.keyboard.press(" ");
  await page.getByRole("button", { name: "Go live" }).waitFor();
  await page.keyboard.press(" ");
  await page.getByText("Live", { exact: true }).waitFor();

  // The catalogue in words.
  await page.getByRole("button", { name: "Add a statistic" }).click();
  await page.getByLabel("Find a statistic").fill("busy");
  await page.getByRole("dialog").getByRole("button", { name: "by device" }).first().click();
  await page.getByRole("region", { name: "disk.busy[device]", exact: true }).waitFor();
  await world.done(page);
}

export async function worksheet(world) {
  await world.ensureLoad();
  await new Promise((done) => setTimeout(done, 3000));
  const page = await world.page();
  await page.goto(`${world.url}/#/analytics?graphs=${encodeURIComponent("nbd.ops[client]~nbd.bytes[volume]~nbd.latency")}&seconds=60`);
  await page.getByRole("region", { name: "nbd.ops[client]", exact: true }).getByText("127.0.0.2").waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByLabel("Name", { exact: true }).fill("The evening it was slow");
  await page.getByLabel("Keep its per-second data forever").check();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "The evening it was slow" }).waitFor();

  await page.goto(`${world.url}/#/dashboard`);
  await page.reload();
  await page.getByRole("heading", { name: "Dashboard" }).waitFor();
  await page.goto(`${world.url}/#/analytics`);
  await page.getByRole("button", { name: "Worksheets" }).click();
  await page.getByRole("menuitem", { name: "The evening it was slow" }).click();
  await page.getByRole("heading", { name: "The evening it was slow" }).waitFor();
  assert.equal(await page.locator("section.graph").count(), 3);
  const legend = page.locator("section.graph").first().locator(".legend");
  await legend.getByText("127.0.0.2").waitFor();
  const whole = await legend.innerText();

  await page.getByRole("button", { name: "Replay" }).click();
  await page.getByText(/Replay: \d\d:\d\d:\d\d/).waitFor();
  const first = await page.getByText(/Replay: /).innerText();
  await until("the replay goes on", async () => (await page.getByText(/Replay: /).innerText()) !== first);
  await page.getByRole("button", { name: "Stop" }).click();
  await until("afterwards all of it is there again", async () => (await legend.innerText()) === whole);

  const [download] = await Promise.all([
    page.waitForEvent("download"),
    (async () => {
      await page.getByRole("button", { name: "Export" }).click();
      await page.getByRole("menuitem", { name: "Graphs shown, as CSV" }).click();
    })(),
  ]);
  const text = await (await download.createReadStream()).toArray().then((chunks) => Buffer.concat(chunks).toString());
  assert.match(text, /^time,expression,line,value,unit\n/);
  assert.ok(text.split("\n").length > 100 && text.includes("127.0.0.2"), "the file has the seconds");
  const answer = await page.evaluate(async () => {
    const { items } = await fetch("/api/v1/worksheets").then((response) => response.json());
    const one = items.find(({ name }) => name === "The evening it was slow");
    return [one.spec.pinned, one.spec.graphs.length, one.spec.to_unix_s - one.spec.from_unix_s];
  });
  assert.deepEqual(answer.slice(0, 2), [true, 3]);
  assert.ok(answer[2] >= 59 && answer[2] <= 62, `a minute: ${answer[2]} s`);
  await page.getByRole("button", { name: "Worksheets" }).click();
  await page.getByRole("menuitem", { name: "Delete The evening it was slow" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("heading", { name: "Analytics" }).waitFor();
  await world.done(page);
}
