// The search over everything: which names are meant by what is typed, the best first.

import { SCREENS } from "./keys";
import { href } from "./router.svelte";

export interface Entry {
  /** What it is: volume, pool, screen. */
  kind: string;
  name: string;
  /** What else it is known by, shown beside the name. */
  note?: string;
  icon: string;
  href: string;
}

/** Parts of screens that have an address of their own. */
const PARTS: readonly [string, string, string[], Record<string, string>?][] = [
  ["Disks of pools", "pools", [], { show: "disks" }],
  ["Disks of the machine", "pools", [], { show: "machine" }],
  ["Projects", "volumes", ["projects"]],
  ["Snapshots", "volumes", ["snapshots"]],
  ["Guide: a pool, a volume, a client", "volumes", ["start"]],
  ["Host groups", "hosts", ["groups"]],
  ["Mappings", "hosts", ["mappings"]],
  ["iSCSI sessions", "hosts", ["sessions"]],
  ["Levels", "levels", ["all"]],
  ["Worksheets", "analytics", ["worksheets"]],
  ["Alerts", "activity", []],
  ["Tasks", "activity", ["tasks"]],
  ["Events", "activity", ["events"]],
  ["Audit log", "activity", ["audit"]],
  ["Thresholds", "activity", ["thresholds"]],
  ["Reports of validation", "activity", ["reports"]],
  ["Channels for alerts", "settings", []],
  ["Users", "settings", ["users"]],
  ["API tokens", "settings", ["tokens"]],
  ["Settings of the appliance", "settings", ["appliance"]],
  ["About this appliance", "settings", ["about"]],
];

export const PLACES: readonly Entry[] = [
  ...SCREENS.map((screen) => ({ kind: "screen", name: screen.title, icon: screen.icon, href: href(screen.id) })),
  ...PARTS.map(([name, id, parts, query]) => {
    const screen = SCREENS.find((one) => one.id === id);
    return { kind: "screen", name, ...(screen ? { note: screen.title } : {}), icon: screen?.icon ?? "right", href: href(id, parts, query) };
  }),
];

/** How well a word fits: 0 is not at all. The whole name is best, then its beginning, then the beginning of a part of it. */
function fit(word: string, entry: Entry): number {
  const name = entry.name.toLowerCase();
  if (name === word) return 6;
  const at = name.indexOf(word);
  if (at === 0) return 4;
  if (at > 0) {
    for (let place = at; place > 0; place = name.indexOf(word, place + 1)) if (/[^a-z0-9]/.test(name[place - 1] ?? "")) return name.length === place + word.length ? 5 : 3;
    return 2;
  }
  return entry.note?.toLowerCase().includes(word) || entry.kind === word ? 1 : 0;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Those that every word fits, the best first; equal ones by length, then by name. */
export function rank(entries: readonly Entry[], typed: string, most: number): Entry[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found: { entry: Entry; score: number }[] = [];
  for (const entry of entries) {
    const fits = words.map((word) => fit(word, entry));
    if (!fits.includes(0)) found.push({ entry, score: fits.reduce((sum, one) => sum + one, 0) });
  }
  return found
    .sort((a, b) => b.score - a.score || a.entry.name.length - b.entry.name.length || collator.compare(a.entry.name, b.entry.name))
    .slice(0, most)
    .map(({ entry }) => entry);
}
