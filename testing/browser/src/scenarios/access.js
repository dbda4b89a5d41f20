// Who gets in, what they may do, and that hands on a keyboard suffice.

import { login, open } from "../browser.js";
import { ADMIN, VIEWER, assert, until } from "../world.js";

export async function setup(world) {
  const link = /http:\/\/\S+#\/setup\?secret=[0-9a-f]+/.exec(world.daemon.log())?.[0];
  assert.ok(link, "the daemon prints a link at its first start");
  const page = await open(world.browser, world.guard);
  world.pages.push(page);

  await page.goto(world.url);
  await page.getByText("There is no user yet").waitFor();
  await page.goto(link);
  await page.getByRole("heading", { name: "Create the first administrator" }).waitFor();
  await page.getByLabel("Name", { exact: true }).fill(ADMIN.name);
  await page.getByLabel("Password", { exact: true }).fill("short");
  await page.getByText("12 characters or more; 7 to go.").waitFor();
  await page.getByLabel("Password", { exact: true }).fill(ADMIN.password);
  await page.getByLabel("Password again").fill("something else");
  await page.getByText("The passwords differ.").waitFor();
  await page.getByLabel("Password again").fill(ADMIN.password);
  await page.getByRole("button", { name: "Create and continue" }).click();
  await page.getByRole("heading", { name: "Volumes", level: 1 }).waitFor();

  // What a screen still asks for when one logs out is not refused: nothing says that the login ended by itself.
  let goOn;
  const out = new Promise((done) => (goOn = done));
  await page.route("**/api/v1/machine/disks*", async (route) => {
    await out;
    await route.continue().catch(() => {});
  });
  await page.reload();
  await page.getByRole("navigation", { name: "Screens" }).waitFor();
  await page.getByRole("button", { name: `${ADMIN.name} admin: account` }).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in" }).waitFor();
  goOn();
  await page.waitForTimeout(500);
  assert.equal(await page.getByText("Your login has ended").count(), 0);
  await page.unroute("**/api/v1/machine/disks*");

  // A wrong password: the browser itself puts the 401 on the console.
  await world.guard.during(async () => {
    await page.getByLabel("Name", { exact: true }).fill(ADMIN.name);
    await page.getByLabel("Password", { exact: true }).fill("not the right one");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").waitFor();
  });

  await login(page, world.url, ADMIN.name, ADMIN.password);
  const answer = await page.evaluate(async (secret) => (await fetch("/api/v1/setup").then((response) => response.json())).needed || secret, "");
  assert.equal(answer, "", "set-up is over");
  const cookie = (await page.context().cookies()).find(({ name }) => name === "forebay_session");
  assert.ok(cookie?.httpOnly && cookie.sameSite === "Strict", "the cookie is for the browser alone");
  await world.done(page);
}

export async function roles(world) {
  await world.ensureVolume("tank/db");
  if (!(await world.users()).includes(VIEWER.name)) {
    const admin = await world.page();
    await admin.goto(`${world.url}/#/settings/users`);
    await admin.getByRole("button", { name: "New user" }).click();
    await admin.getByLabel("Name", { exact: true }).fill(VIEWER.name);
    await admin.getByLabel("Password", { exact: true }).fill(VIEWER.password);
    await admin.getByRole("button", { name: "Create user" }).click();
    await admin.getByRole("cell", { name: VIEWER.name, exact: true }).waitFor();
    await world.done(admin);
  }
  const page = await world.page({}, VIEWER);
  await page.goto(`${world.url}/#/volumes`);
  const button = page.getByRole("button", { name: /^New volume/ });
  await button.waitFor();
  assert.equal(await button.getAttribute("aria-disabled"), "true");
  const why = await button.getAttribute("title");
  assert.match(why, /viewer/);
  assert.match(why, /operator/);
  await button.click({ force: true });
  assert.equal(await page.getByRole("dialog").count(), 0, "a refused button opens nothing");
  await page.getByRole("button", { name: "Actions for tank/db" }).click();
  assert.equal(await page.getByRole("menuitem", { name: "Delete" }).getAttribute("aria-disabled"), "true");
  await page.keyboard.press("Escape");
  await page.goto(`${world.url}/#/settings/users`);
  await page.getByText("This needs the admin role").first().waitFor();
  await page.goto(`${world.url}/#/pools/tank`);
  const scrub = page.getByRole("button", { name: /^Scrub now/ });
  await scrub.waitFor();
  assert.equal(await scrub.getAttribute("aria-disabled"), "true");

  // And not by the page alone.
  const refused = await world.guard.during(() =>
    page.evaluate(async () => {
      const { csrf } = await fetch("/api/v1/login").then((response) => response.json());
      const body = JSON.stringify({ name: "tank/forbidden", size_bytes: 1 << 20 });
      const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
      return await fetch("/api/v1/volumes", { method: "POST", headers, body }).then(async (response) => [response.status, (await response.json()).code]);
    }),
  );
  assert.deepEqual(refused, [403, "forbidden"]);

  // One's own password one may change.
  await page.goto(`${world.url}/#/settings/users`);
  await page.getByRole("button", { name: "Change your password" }).click();
  await page.getByLabel("Current password").fill(VIEWER.password);
  await page.getByLabel("New password").fill("another staple to look at");
  // That ends the login, which something that is asked for meanwhile may find out first.
  await world.guard.during(async () => {
    await page.getByRole("button", { name: "Change password" }).click();
    await page.getByRole("heading", { name: "Log in" }).waitFor();
  });
  await login(page, world.url, VIEWER.name, "another staple to look at");
  await world.done(page);
  return why;
}

export async function keyboard(world) {
  await world.ensureVolume("tank/db");
  const page = await world.page();
  await page.getByRole("heading", { name: "Dashboard" }).waitFor();
  const screens = { p: "Pools", v: "Volumes", h: "Hosts", l: "Service levels", a: "Analytics", c: "Capacity", r: "Protection", t: "Activity", s: "Settings", d: "Dashboard" };
  for (const [key, title] of Object.entries(screens)) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.getByRole("heading", { name: title, level: 1 }).waitFor();
  }
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  await until("help is closed", async () => (await page.getByRole("dialog").count()) === 0);

  // Into a dialog, round in it, and out of it with the focus where it was.
  await page.keyboard.press("g");
  await page.keyboard.press("v");
  const opener = page.getByRole("button", { name: "New volume" });
  await opener.focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "New volume" });
  await dialog.waitFor();
  for (let step = 0; step < 30; step += 1) {
    await page.keyboard.press("Tab");
    const where = await page.evaluate(() => (document.activeElement === document.body ? "body" : document.activeElement?.closest("dialog") ? "dialog" : (document.activeElement?.outerHTML ?? "").slice(0, 120)));
    assert.ok(where === "dialog" || where === "body", `the focus left the dialog for ${where}`);
  }
  await page.keyboard.press("Escape");
  await until("the dialog is closed", async () => (await dialog.count()) === 0);
  assert.match(await page.evaluate(() => document.activeElement?.textContent ?? ""), /New volume/, "the focus is back where it was");

  // A menu by arrows.
  await page.getByRole("button", { name: "Actions for tank/db" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("menu").waitFor();
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("role")), "menuitem");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: /Snapshot of tank\/db/ }).waitFor();
  await page.keyboard.press("Escape");

  // The focus can be seen wherever it goes.
  await page.keyboard.press("Tab");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none", "focus is visible");
  await world.done(page);
}
