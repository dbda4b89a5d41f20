// What can be done with a pool, a group and a disk: the menus of lists and pages have the same.

import { act, attempt } from "../../lib/act";
import { plan, post, remove, type Schemas } from "../../lib/api";
import { command } from "../../lib/commands";
import { poolHref } from "../../lib/links";
import { pools } from "../../lib/resources.svelte";
import { href, router } from "../../lib/router.svelte";
import { session } from "../../lib/session.svelte";
import type { DisksKind } from "../../dialogs/DisksForm.svelte";
import type { Question } from "../../ui/Confirm.svelte";
import type { Item } from "../../ui/Menu.svelte";
import { diskName, disks } from "./data";

export type PoolDialog =
  | DisksKind
  | { kind: "create"; disks?: readonly string[] }
  | { kind: "import"; pool?: Schemas["Pool"] }
  | { kind: "properties"; pool: Schemas["Pool"] }
  | { kind: "schedule"; pool: Schemas["Pool"] };

/** Where a screen shows its dialogs. */
export interface Shown {
  open: (dialog: PoolDialog) => void;
  ask: (question: Question) => void;
}

const changed = [pools, disks];

export function scrub(pool: Schemas["Pool"], action: "start" | "pause" | "stop"): void {
  const [done, begun] = {
    start: [`The scrub of ${pool.name} has ended.`, ""],
    pause: [`The scrub of ${pool.name} is paused.`, `Pausing the scrub of ${pool.name}.`],
    stop: [`The scrub of ${pool.name} is stopped.`, `Stopping the scrub of ${pool.name}.`],
  }[action] as [string, string];
  attempt(post("/api/v1/pools/{pool}/scrub", { path: { pool: pool.id }, body: { action } }), done, changed, begun);
}

function exportPool(pool: Schemas["Pool"]): Question {
  const path = { pool: pool.id };
  const query = (force: boolean) => (force ? { force: true } : {});
  return {
    title: `Export ${pool.name}`,
    text:
      pool.status.state === "unavailable"
        ? "The pool is not imported. It is removed from the list; its disks are not changed."
        : "Clients lose access to its volumes until a host imports the pool.",
    button: "Export",
    danger: true,
    force: "Even while clients are connected",
    command: (force) => command(["pool", "export", pool.name], { force }),
    plan: () => plan("post", "/api/v1/pools/{pool}/export", { path, query: query(true) }),
    act: (force) => act(post("/api/v1/pools/{pool}/export", { path, query: query(force) }), `${pool.name} is exported.`, changed),
  };
}

function destroyPool(pool: Schemas["Pool"]): Question {
  const path = { pool: pool.id };
  const query = (force: boolean) => (force ? { force: true } : {});
  return {
    title: `Destroy ${pool.name}`,
    text: "All its volumes and snapshots are lost. This cannot be undone.",
    button: "Destroy pool",
    danger: true,
    force: "Even while clients are connected",
    name: pool.name,
    command: (force) => command(["pool", "destroy", pool.name], { force }),
    plan: () => plan("delete", "/api/v1/pools/{pool}", { path, query: query(true) }),
    act: (force) => act(remove("/api/v1/pools/{pool}", { path, query: query(force) }), `${pool.name} is destroyed.`, changed),
  };
}

function measure(pool: Schemas["Pool"]): Question {
  const path = { pool: pool.id };
  return {
    title: `Measure the performance of ${pool.name}`,
    text: "The pool is busy for some seconds. Guarantees of service levels are based on the result.",
    button: "Measure",
    command: command(["pool", "calibrate", pool.name]),
    act: () => act(post("/api/v1/pools/{pool}/calibrate", { path }), `The performance of ${pool.name} is measured.`, changed),
  };
}

function trim(pool: Schemas["Pool"]): Question {
  const path = { pool: pool.id };
  return {
    title: `Trim ${pool.name}`,
    text: "The free space is reported to the disks: flash can erase it, thin disks and files can release it.",
    button: "Trim",
    command: command(["pool", "trim", pool.name]),
    act: () => act(post("/api/v1/pools/{pool}/trim", { path }), `Pool ${pool.name} is trimmed.`, changed),
  };
}

/** A group is named `POOL/NUMBER`. */
export function removeGroup(pool: Schemas["Pool"], group: Schemas["Group"]): Question {
  const path = { group: `${pool.name}/${group.number}` };
  return {
    title: `Remove group ${group.number} of ${pool.name}`,
    text: "Its data moves to the other groups first. Then its disks leave the pool.",
    button: "Remove group",
    danger: true,
    command: command(["pool", "remove", pool.name], { group: group.number }),
    plan: () => plan("delete", "/api/v1/groups/{group}", { path }),
    act: () => act(remove("/api/v1/groups/{group}", { path }), `Group ${group.number} is removed from ${pool.name}.`, changed),
  };
}

function offline(disk: Schemas["Disk"]): Question {
  const path = { disk: disk.id };
  return {
    title: `Take disk ${disk.status.number} offline`,
    text: "Its data stays on it. When the disk is online again, it receives the writes that it missed. Until then the pool has less redundancy.",
    button: "Take offline",
    danger: true,
    command: command(["disk", "offline", diskName(disk)]),
    plan: () => plan("post", "/api/v1/disks/{disk}/offline", { path }),
    act: () => act(post("/api/v1/disks/{disk}/offline", { path }), `Disk ${disk.status.number} is offline.`, changed),
  };
}

function removeDisk(disk: Schemas["Disk"]): Question {
  const path = { disk: disk.id };
  return {
    title: `Remove disk ${disk.status.number}`,
    text: "Its data moves to the other disks first. Then the disk leaves the pool.",
    button: "Remove disk",
    danger: true,
    command: command(["disk", "remove", diskName(disk)]),
    plan: () => plan("delete", "/api/v1/disks/{disk}", { path }),
    act: () => act(remove("/api/v1/disks/{disk}", { path }), `Disk ${disk.status.number} is removed from ${disk.spec.pool}.`, changed),
  };
}

export function poolItems(pool: Schemas["Pool"], { open, ask }: Shown, isPage = false): (Item | null)[] {
  const refused = session.refusal("admin");
  const isAway = pool.status.state === "unavailable";
  const running = pool.status.scrub?.state === "running";
  const ready = refused || (isAway ? "The pool is not imported." : "");
  const found: (Item | null)[] = isPage ? [] : [{ text: "Open", icon: "fit", act: () => router.go(poolHref(pool.name)) }];
  if (isAway) found.push({ text: "Import", icon: "download", refused, act: () => open({ kind: "import", pool }) });
  else {
    found.push(
      { text: "Add disks", icon: "plus", refused: ready, act: () => open({ kind: "add", pool }) },
      {
        text: running ? "Pause the scrub" : pool.status.scrub?.state === "paused" ? "Resume the scrub" : "Scrub",
        icon: "shield",
        refused: ready,
        act: () => scrub(pool, running ? "pause" : "start"),
      },
      ...(running || pool.status.scrub?.state === "paused" ? [{ text: "Stop the scrub", icon: "close", refused: ready, act: () => scrub(pool, "stop") }] : []),
      { text: "Schedule scrubs", icon: "clock", refused: ready, act: () => open({ kind: "schedule", pool }) },
      { text: "Measure performance", icon: "gauge", refused: ready, act: () => ask(measure(pool)) },
      { text: "Trim free space", icon: "fit", refused: ready, act: () => ask(trim(pool)) },
      { text: "Trash and thresholds", icon: "gear", refused: ready, act: () => open({ kind: "properties", pool }) },
      { text: "Its volumes", icon: "volume", act: () => router.go(href("volumes", [], { find: `${pool.name}/` })) },
    );
  }
  found.push(null, { text: "Export", icon: "out", danger: true, refused, act: () => ask(exportPool(pool)) });
  if (!isAway) found.push({ text: "Destroy", icon: "trash", danger: true, refused, act: () => ask(destroyPool(pool)) });
  return found;
}

const BLINKS: readonly (readonly [number, string])[] = [
  [30, "30 s"],
  [300, "5 min"],
];

export function diskItems(disk: Schemas["Disk"], pool: Schemas["Pool"], { open, ask }: Shown): (Item | null)[] {
  const refused = session.refusal("admin");
  const path = { disk: disk.id };
  const { number, state } = disk.status;
  const isFile = disk.name !== "" && !disk.name.startsWith("/dev/");
  const found: (Item | null)[] = BLINKS.map(([seconds, text]) => ({
    text: `Make its light blink for ${text}`,
    icon: "light",
    refused: refused || (isFile ? "A file has no light." : ""),
    act: () =>
      attempt(post("/api/v1/disks/{disk}/locate", { path, body: { seconds } }), `The light of disk ${number} no longer blinks.`, [], `The light of disk ${number} blinks.`),
  }));
  if (state !== "cache" && state !== "spare" && state !== "empty") found.push({ text: "Replace", icon: "disk", refused, act: () => open({ kind: "replace", disk, pool }) });
  if (state === "online" || state === "leaving") found.push({ text: "Take offline", icon: "pause", refused, act: () => ask(offline(disk)) });
  else if (state !== "cache" && state !== "spare") found.push({ text: "Bring online", icon: "play", refused, act: () => open({ kind: "online", disk }) });
  found.push({
    text: "Clear error counters",
    icon: "ok",
    refused,
    act: () =>
      ask({
        title: `Clear the error counters of disk ${number}`,
        text: "The counters begin at zero. Clear them once the cause is fixed.",
        button: "Clear",
        command: command(["disk", "clear", diskName(disk)]),
        plan: () => plan("post", "/api/v1/disks/{disk}/clear", { path }),
        act: () => act(post("/api/v1/disks/{disk}/clear", { path }), `The error counters of disk ${number} are cleared.`, changed),
      }),
  });
  found.push(null, { text: "Remove", icon: "trash", danger: true, refused, act: () => ask(removeDisk(disk)) });
  return found;
}
