// What can be done with a volume or a snapshot: the same in lists and on the volume's page.

import type { Open } from "../../dialogs/volume-dialog";
import { act, attempt } from "../../lib/act";
import { patch, plan, post, remove, type Schemas } from "../../lib/api";
import { command } from "../../lib/commands";
import { bytes, moment, plural } from "../../lib/format";
import { volumeHref } from "../../lib/links";
import { forEach, planAll } from "../../lib/many";
import { bookmarks, snapshots, volumes } from "../../lib/resources.svelte";
import { router } from "../../lib/router.svelte";
import { session } from "../../lib/session.svelte";
import { toasts } from "../../lib/toasts.svelte";
import type { Question } from "../../ui/Confirm.svelte";
import type { Item } from "../../ui/Menu.svelte";

type Volume = Schemas["Volume"];
type Snapshot = Schemas["Snapshot"];

function promote(volume: Volume): Question {
  return {
    title: `Promote ${volume.name}`,
    text: `The clone becomes the owner of ${volume.status.origin ?? "its snapshot"} and of older snapshots. Its origin becomes a clone and can be deleted.`,
    button: "Promote",
    command: command(["clone", "promote", volume.name]),
    plan: () => plan("post", "/api/v1/volumes/{volume}/promote", { path: { volume: volume.id } }),
    act: () => act(post("/api/v1/volumes/{volume}/promote", { path: { volume: volume.id } }), `${volume.name} is promoted.`, [volumes, snapshots, bookmarks]),
  };
}

function reclaim(volume: Volume): Question {
  return {
    title: `Reclaim zeros of ${volume.name}`,
    text: "The data of the volume is read. Blocks of zeros become holes, and their space is freed. Clients keep working; blocks of snapshots stay.",
    button: "Reclaim",
    command: command(["volume", "reclaim", volume.name]),
    plan: () => plan("post", "/api/v1/volumes/{volume}/reclaim", { path: { volume: volume.id } }),
    act: () => act(post("/api/v1/volumes/{volume}/reclaim", { path: { volume: volume.id } }), `The zeros of ${volume.name} are reclaimed.`, [volumes]),
  };
}

/** `listed`: in a list, from which the volume's page is opened. */
export function volumeMenu(volume: Volume, open: Open, listed: boolean): (Item | null)[] {
  const refused = session.refusal("operator");
  return [
    ...(listed ? [{ text: "Open", icon: "fit", act: () => router.go(volumeHref(volume.name)) }] : []),
    { text: "Take a snapshot", icon: "snapshot", refused, act: () => open({ kind: "snapshot", of: [volume.name] }) },
    { text: "Clone", icon: "copy", refused, act: () => open({ kind: "clone", volume }) },
    { text: "Map to a host", icon: "host", refused, act: () => open({ kind: "map", volume }) },
    { text: "Set the service level", icon: "level", refused, act: () => open({ kind: "level", volumes: [volume] }) },
    null,
    { text: "Rename", icon: "edit", refused, act: () => open({ kind: "rename", volume }) },
    { text: "Grow", icon: "plus", refused, act: () => open({ kind: "grow", volume }) },
    { text: "Convert thin or thick", icon: "volume", refused, act: () => open({ kind: "convert", volume }) },
    { text: "Reclaim zeros", icon: "capacity", refused, act: () => open({ kind: "question", question: reclaim(volume) }) },
    {
      text: "Move to another pool",
      icon: "right",
      refused: refused || ((volume.status.snapshots ?? 0) > 0 ? "A volume with snapshots cannot be moved. Send a snapshot to the other pool instead." : ""),
      act: () => open({ kind: "move", volume }),
    },
    {
      text: "Promote",
      icon: "level",
      refused: refused || (volume.status.origin ? "" : "The volume is not a clone."),
      act: () => open({ kind: "question", question: promote(volume) }),
    },
    { text: "Record a trace", icon: "download", refused, act: () => open({ kind: "trace", volume }) },
    ...(listed
      ? [
          { text: "Show its snapshots", icon: "snapshot", act: () => router.go(volumeHref(volume.name, "snapshots")) },
          { text: "Settings", icon: "gear", act: () => router.go(volumeHref(volume.name, "settings")) },
        ]
      : []),
    null,
    { text: "Delete", icon: "trash", danger: true, refused, act: () => open({ kind: "delete", volumes: [volume] }) },
  ];
}

function rollback(snapshot: Snapshot): Question {
  const path = { snapshot: snapshot.id };
  return {
    title: `Roll ${snapshot.spec.volume} back`,
    text: `The volume returns to its state of ${moment(snapshot.status.created_unix_ms)}. Data that was written since and is in no other snapshot is lost.`,
    button: "Roll back",
    danger: true,
    force: "Even while clients are connected",
    command: (force) => command(["snapshot", "rollback", snapshot.name], { force }),
    plan: () => plan("post", "/api/v1/snapshots/{snapshot}/rollback", { path, body: { force: true } }),
    act: (force) =>
      act(post("/api/v1/snapshots/{snapshot}/rollback", { path, body: { force } }), `${snapshot.spec.volume} is rolled back to ${snapshot.name}.`, [volumes, snapshots]),
  };
}

export function deleteSnapshots(list: readonly Snapshot[]): Question {
  const [first] = list;
  const one = list.length === 1 && first ? first : undefined;
  const commands = list.map(({ name }) => command(["snapshot", "delete", name]));
  return {
    title: one ? `Delete ${one.name}` : `Delete ${plural(list.length, "snapshot")}`,
    text: one ? `This frees ${bytes(one.status.unique_bytes)}.` : "This frees the blocks that no volume and no other snapshot has.",
    button: "Delete",
    danger: true,
    command: commands.slice(0, 5).join("\n") + (commands.length > 5 ? "\n…" : ""),
    plan: () => planAll(list, ({ id }) => plan("delete", "/api/v1/snapshots/{snapshot}", { path: { snapshot: id } })),
    act: forEach(
      list,
      ({ id }) => remove("/api/v1/snapshots/{snapshot}", { path: { snapshot: id } }),
      (done) => (one ? `${one.name} is deleted.` : `${plural(done, "snapshot is", "snapshots are")} deleted.`),
      [snapshots, volumes],
    ),
  };
}

/** A hold changes nothing that cannot be changed back: it is done at once. */
export function hold(list: readonly Snapshot[], held: boolean): void {
  const [first] = list;
  const go = forEach(
    list.filter((one) => one.spec.held !== held),
    ({ id }) => patch("/api/v1/snapshots/{snapshot}", { path: { snapshot: id }, body: { held } }),
    (done) => `${done === 1 && list.length === 1 ? (first?.name ?? "") : plural(done, "snapshot")} ${done === 1 ? "is" : "are"} ${held ? "held" : "released"}.`,
    [snapshots],
  );
  go().catch((error: unknown) => toasts.fail(error));
}

function template(snapshot: Snapshot): void {
  const made = !snapshot.spec.template;
  attempt(
    patch("/api/v1/snapshots/{snapshot}", { path: { snapshot: snapshot.id }, body: { template: made } }),
    made ? `${snapshot.name} is a template.` : `${snapshot.name} is no template any more.`,
    [snapshots],
  );
}

export function snapshotMenu(snapshot: Snapshot, open: Open): (Item | null)[] {
  const refused = session.refusal("operator");
  return [
    { text: "Clone into a volume", icon: "copy", refused, act: () => open({ kind: "create", from: snapshot.name }) },
    { text: "Rename", icon: "edit", refused, act: () => open({ kind: "rename-snapshot", snapshot }) },
    { text: snapshot.spec.held ? "Release" : "Hold", icon: "pause", refused, act: () => hold([snapshot], !snapshot.spec.held) },
    { text: snapshot.spec.template ? "No template any more" : "Make it a template", icon: "volume", refused, act: () => template(snapshot) },
    { text: "Set the retention", icon: "clock", refused, act: () => open({ kind: "retain", snapshots: [snapshot] }) },
    { text: "Create a bookmark", icon: "book", refused, act: () => open({ kind: "bookmark", snapshot }) },
    { text: "Send", icon: "right", act: () => open({ kind: "send", snapshot }) },
    null,
    { text: "Roll the volume back", icon: "left", danger: true, refused, act: () => open({ kind: "question", question: rollback(snapshot) }) },
    { text: "Delete", icon: "trash", danger: true, refused, act: () => open({ kind: "question", question: deleteSnapshots([snapshot]) }) },
  ];
}
