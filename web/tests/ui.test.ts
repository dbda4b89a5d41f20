// @vitest-environment happy-dom
// What the parts of the interface promise to every screen that uses them.

import { createRawSnippet, flushSync, mount, unmount, type Component } from "svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Problem, Schemas } from "../src/lib/api";
import type { Bulk, Column } from "../src/lib/columns";
import { parseHash, router } from "../src/lib/router.svelte";
import { session } from "../src/lib/session.svelte";
import Button from "../src/ui/Button.svelte";
import Confirm, { type Question } from "../src/ui/Confirm.svelte";
import Field from "../src/ui/Field.svelte";
import Form from "../src/ui/Form.svelte";
import List from "../src/ui/List.svelte";
import Menu from "../src/ui/Menu.svelte";

const mounted: Record<string, unknown>[] = [];

function show<Props extends Record<string, unknown>>(component: Component<Props>, props: Props): void {
  mounted.push(mount(component, { target: document.body, props }));
  flushSync();
}

function one<T extends Element = HTMLElement>(selector: string): T {
  const found = document.querySelector<T>(selector);
  if (!found) throw new Error(`nothing is ${selector} in ${document.body.innerHTML}`);
  return found;
}

const buttonOf = (text: string): HTMLButtonElement => {
  const found = [...document.querySelectorAll("button")].find((button) => button.textContent.replace(/\(.*\)/, "").trim() === text);
  if (!found) throw new Error(`no button ${text}`);
  return found;
};

function press(element: HTMLElement): void {
  element.click();
  flushSync();
}

function type(input: HTMLInputElement, text: string): void {
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

/** Lets what was started end: promises that follow each other. */
async function settle(): Promise<void> {
  await new Promise((done) => setTimeout(done, 5));
  flushSync();
}

const text = (content: string) => createRawSnippet(() => ({ render: () => `<span>${content}</span>` }));
const problem = (detail: string, field?: string): Problem => ({ type: "about:blank", title: detail, status: 400, code: "invalid", detail, ...(field ? { field } : {}) }) as Problem;

beforeEach(() => {
  location.hash = "";
  router.route = parseHash("#/volumes");
});

afterEach(async () => {
  for (const instance of mounted.splice(0)) await unmount(instance);
  document.body.innerHTML = "";
});

describe("a button", () => {
  it("that is refused says why, and does nothing", () => {
    const onclick = vi.fn();
    show(Button, { refused: "Enter a name.", onclick, children: text("Create") });
    const button = one("button");
    expect(button.getAttribute("aria-disabled")).toBe("true");
    expect(button.title).toBe("Enter a name.");
    expect(button.textContent).toContain("(Enter a name.)");
    press(button);
    expect(onclick).not.toHaveBeenCalled();
  });
  it("that the role forbids stays reachable", () => {
    session.role = "viewer";
    const onclick = vi.fn();
    show(Button, { needs: "operator", onclick, children: text("Delete") });
    const button = one<HTMLButtonElement>("button");
    expect(button.disabled).toBe(false);
    expect(button.title).not.toBe("");
    press(button);
    expect(onclick).not.toHaveBeenCalled();
    session.role = "admin";
    flushSync();
    press(button);
    expect(onclick).toHaveBeenCalledOnce();
  });
});

describe("a field", () => {
  const control = createRawSnippet<[{ id: string; "aria-describedby": string; "aria-invalid": boolean | undefined }]>((attributes) => ({
    render: () => `<input id="${attributes().id}" aria-describedby="${attributes()["aria-describedby"]}" data-invalid="${attributes()["aria-invalid"]}">`,
  }));
  it("has the error that names it in place of its hint", () => {
    show(Field, { label: "Name", hint: "Letters.", field: "name", problem: problem("There is one.", "name"), control });
    expect(one(".hint").textContent).toBe("There is one.");
    expect(one("input").dataset.invalid).toBe("true");
    expect(one("label").getAttribute("for")).toBe(one("input").id);
    expect(one("input").getAttribute("aria-describedby")).toBe(one(".hint").id);
  });
  it("keeps its hint when the error names another", () => {
    show(Field, { label: "Name", hint: "Letters.", field: "name", problem: problem("Too large.", "size_bytes"), control });
    expect(one(".hint").textContent).toBe("Letters.");
    expect(one("input").dataset.invalid).toBe("undefined");
  });
});

describe("a form", () => {
  it("stays open with the error, and closes when it is done", async () => {
    const close = vi.fn();
    const act = vi.fn<() => Promise<void>>().mockRejectedValueOnce(new Error("no route")).mockResolvedValueOnce();
    show(Form, { title: "New", button: "Create", close, act, children: createRawSnippet(() => ({ render: () => "<input>" })) });
    const submit = (): boolean => one("form").dispatchEvent(new Event("submit", { cancelable: true }));
    submit();
    await settle();
    expect(close).not.toHaveBeenCalled();
    expect(one('[role="alert"]').textContent).not.toBe("");
    submit();
    await settle();
    expect(act).toHaveBeenCalledTimes(2);
    expect(close).toHaveBeenCalledOnce();
  });
});

describe("a question", () => {
  const plan: Schemas["Plan"] = { action: "pool.destroy", object: "tank", changes: ["All volumes are lost."] };
  const question = (more: Partial<Question>): Question => ({ title: "Destroy tank", text: "This cannot be undone.", button: "Destroy", act: () => Promise.resolve(), ...more });
  it("is answered only with the name of what is lost", async () => {
    const [act, close] = [vi.fn(() => Promise.resolve()), vi.fn()];
    show(Confirm, { question: question({ name: "tank", act, force: "Even under clients", plan: () => Promise.resolve(plan) }), close });
    await settle();
    expect(one('[aria-label="Planned changes"]').textContent).toContain("All volumes are lost.");
    press(buttonOf("Destroy"));
    type(one('input[type="text"]'), "tan");
    press(buttonOf("Destroy"));
    await settle();
    expect(act).not.toHaveBeenCalled();
    type(one('input[type="text"]'), "tank");
    press(one('input[type="checkbox"]'));
    press(buttonOf("Destroy"));
    await settle();
    expect(act).toHaveBeenCalledExactlyOnceWith(true);
    expect(close).toHaveBeenCalledOnce();
  });
  it("begins with the answer that changes nothing", () => {
    show(Confirm, { question: question({}), close: vi.fn() });
    expect(document.activeElement?.textContent.trim()).toBe("Cancel");
  });
});

describe("a list", () => {
  interface Item {
    name: string;
    size: number | undefined;
  }
  const items: Item[] = [
    { name: "web", size: 20 },
    { name: "db", size: 100 },
    { name: "mail", size: undefined },
  ];
  const columns: Column<Item>[] = [
    { id: "name", title: "Name", value: (item) => item.name },
    { id: "size", title: "Size", value: (item) => item.size, num: true },
  ];
  const shown = (): string[] => [...document.querySelectorAll("tbody tr")].map((row) => row.querySelector("td:not(.box)")?.textContent.trim() ?? "");
  const list = (more: { bulk?: readonly Bulk<Item>[]; data?: Item[] | undefined } = {}): void =>
    show(List as unknown as Component<Record<string, unknown>>, {
      name: "things",
      label: "Things",
      resource: { data: "data" in more ? more.data : items, problem: undefined },
      columns,
      key: (item: Item) => item.name,
      ...(more.bulk ? { bulk: more.bulk } : {}),
    });

  it("sorts by its first column, and by the one that is pressed, nothing last", () => {
    list();
    expect(shown()).toEqual(["db", "mail", "web"]);
    press(buttonOf("Size"));
    expect(shown()).toEqual(["web", "db", "mail"]);
    press(buttonOf("Size"));
    expect(shown()).toEqual(["db", "web", "mail"]);
    expect(router.route.query).toEqual({ sort: "-size" });
    expect(one('th[aria-sort="descending"]').textContent).toContain("Size");
  });
  it("finds what the address asks for", () => {
    router.route = parseHash("#/volumes?find=a");
    list();
    expect(shown()).toEqual(["mail"]);
    expect(one('.bar [role="status"]').textContent).toBe("1 of 3");
    type(one('input[type="search"]'), "nothing of this name");
    expect(document.body.textContent).toContain("Nothing matches.");
  });
  it("does nothing to what is selected and not found", () => {
    const act = vi.fn();
    list({ bulk: [{ text: "Delete", act }] });
    press(one('[aria-label="Select all Things shown"]'));
    expect(one(".bulk").textContent).toContain("3 selected");
    type(one('input[type="search"]'), "db");
    press(buttonOf("Delete"));
    expect(act).toHaveBeenCalledExactlyOnceWith([items[1]]);
  });
  it("shows a hundred, and more when asked", () => {
    list({ data: Array.from({ length: 150 }, (_, nth) => ({ name: `v${String(nth).padStart(3, "0")}`, size: nth })) });
    expect(shown()).toHaveLength(100);
    press(buttonOf("Show 50 more of 50"));
    expect(shown()).toHaveLength(150);
  });
  it("says that it loads, and that there is nothing", () => {
    list({ data: undefined });
    expect(one('[role="status"]').textContent).toBe("Loading…");
    list({ data: [] });
    expect(document.body.textContent).toContain("Nothing here yet.");
  });
});

describe("a menu", () => {
  beforeEach(() => {
    // What the browser does with a popover is its own.
    HTMLElement.prototype.showPopover = () => undefined;
  });
  it("moves with the arrows, and gives the focus back", async () => {
    const act = vi.fn();
    show(Menu, { label: "Actions", items: [{ text: "Open", act: vi.fn() }, null, { text: "Delete", act, refused: "Viewers only view." }] });
    press(one(".trigger"));
    await settle();
    const menu = one('[role="menu"]');
    const key = (name: string): void => {
      menu.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
      flushSync();
    };
    expect(document.activeElement?.textContent.trim()).toBe("Open");
    key("ArrowUp");
    expect(document.activeElement?.textContent.trim()).toBe("Delete");
    key("ArrowDown");
    expect(document.activeElement?.textContent.trim()).toBe("Open");
    press(buttonOf("Delete"));
    expect(act).not.toHaveBeenCalled();
    key("Escape");
    expect(document.querySelector('[role="menu"]')).toBeNull();
    expect(document.activeElement).toBe(one(".trigger"));
  });
});
