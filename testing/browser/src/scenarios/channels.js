// Where alerts go when the page is closed: a channel is created, refused, tested, disabled and deleted, with a receiver of the test's own.

import { createServer } from "node:http";
import { assert, until } from "../world.js";

const itemsOf = (answer) => answer.items ?? answer;

/** Answers every request, and keeps what came. */
async function receiver() {
  const requests = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      requests.push({ headers: request.headers, body });
      response.writeHead(204, { Connection: "close" }).end();
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = () =>
    new Promise((done) => {
      server.close(done);
      server.closeAllConnections();
    });
  return { requests, close, url: `http://127.0.0.1:${server.address().port}/forebay` };
}

export async function channels(world) {
  await world.ensureAdmin();
  for (const { name } of itemsOf(await world.daemon.json("channel", "list"))) await world.daemon.command("channel", "delete", name);
  const stored = async (name) => itemsOf(await world.daemon.json("channel", "list")).find((one) => one.name === name);
  const hook = await receiver();
  try {
    const page = await world.page();
    // Who looks at alerts is led to where they can be sent.
    await page.goto(`${world.url}/#/activity`);
    await page.getByRole("link", { name: "Set up a channel" }).click();
    await page.getByRole("button", { name: "New channel" }).first().click();
    const form = page.getByRole("dialog", { name: "New channel" });
    await form.getByLabel("Name", { exact: true }).fill("hook");
    await form.getByLabel("Kind", { exact: true }).selectOption("webhook");

    // What the appliance refuses stands at its field.
    const url = form.getByLabel("URL", { exact: true });
    await url.fill("ftp://example.com");
    await world.guard.during(async () => {
      await form.getByRole("button", { name: "Create channel" }).click();
      await form.getByRole("alert").waitFor();
    });
    assert.equal(await url.getAttribute("aria-invalid"), "true");
    await url.fill(hook.url);
    await form.getByLabel("Severity", { exact: true }).selectOption("critical");
    await form.getByLabel("Quiet hours").check();
    await form.getByLabel("From (UTC)").fill("22:00");
    await form.getByLabel("To (UTC)").fill("06:00");
    await form.getByText(`forebay channel webhook hook ${hook.url} --severity critical --quiet 'saturday,sunday 22:00-06:00'`).waitFor();
    await form.getByRole("button", { name: "Create channel" }).click();

    // The secret is shown once, and a test message is signed.
    const made = page.getByRole("dialog", { name: "Channel hook is created" });
    await made.getByText(/^whsec_/).waitFor();
    await made.getByRole("button", { name: "Send a test message" }).click();
    const test = page.getByRole("dialog", { name: "Test channel hook" });
    await test.getByText("The receiver accepted the message.").waitFor();
    assert.match(hook.requests[0]?.headers["webhook-signature"] ?? "", /^v1,/);
    await test.getByRole("button", { name: "Close", exact: true }).last().click();
    const { spec } = await stored("hook");
    assert.equal(spec.severity_min, "critical");
    assert.deepEqual([spec.quiet_hours.from_minute, spec.quiet_hours.to_minute], [1320, 360]);
    const row = page.getByRole("row").filter({ hasText: hook.url.replace(/[^/]*$/, "…") });
    await row.waitFor();
    assert.doesNotMatch(await page.content(), /whsec_/, "the secret is gone from the page");

    // A change keeps the secret; without a receiver, the test says what to do.
    const choose = async (item) => {
      await page.getByRole("button", { name: "Actions for hook" }).click();
      await page.getByRole("menuitem", { name: item }).click();
    };
    await choose("Change");
    const change = page.getByRole("dialog", { name: "Change channel hook" });
    await change.getByLabel("Severity", { exact: true }).selectOption("warning");
    await change.getByText("forebay channel set hook --severity warning").waitFor();
    await change.getByRole("button", { name: "Save" }).click();
    await until("it is changed", async () => (await stored("hook")).spec.severity_min === "warning");
    await hook.close();
    await choose("Send a test message");
    await test.getByRole("alert").waitFor();
    const said = (await test.getByRole("alert").innerText()).replace(/\s+/g, " ");
    assert.match(said, /127\.0\.0\.1/);
    await page.keyboard.press("Escape");

    await choose("Disable");
    await page.getByRole("dialog").getByRole("button", { name: "Disable" }).click();
    await row.getByText("Disabled", { exact: true }).waitFor();
    assert.equal((await stored("hook")).spec.enabled, false);
    // A change from elsewhere is seen without a reload.
    await world.daemon.command("channel", "set", "hook", "--enabled", "true");
    await until("the page follows", async () => (await row.getByText("Disabled", { exact: true }).count()) === 0);
    await choose("Delete");
    const dialog = page.getByRole("dialog", { name: "Delete channel hook" });
    await dialog.getByRole("list", { name: "Planned changes" }).waitFor();
    await dialog.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("There is no channel yet.").waitFor();
    assert.equal(await stored("hook"), undefined);
    await world.done(page);
    return `“${said}”`;
  } finally {
    await hook.close().catch(() => {});
  }
}
