// Which scheduled snapshots a schedule keeps: as a form has it, in a sentence, and as the command line writes it.

import type { Schemas } from "./api";
import { count, list, plural } from "./format";

type Keep = Schemas["SnapshotKeep"];
export type Tier = keyof Keep;
export type KeepDraft = Record<Tier, string>;

/** The tiers in the order of the command line, with the label of their field and the most that they take. */
export const TIERS: readonly { id: Tier; label: string; most: number }[] = [
  { id: "last", label: "Newest", most: 1000 },
  { id: "hourly", label: "Hourly", most: 255 },
  { id: "daily", label: "Daily", most: 255 },
  { id: "weekly", label: "Weekly", most: 255 },
  { id: "monthly", label: "Monthly", most: 255 },
];
const NONE: Readonly<Required<Keep>> = { last: 0, hourly: 0, daily: 0, weekly: 0, monthly: 0 };
const USUAL = 24;

/** An empty field is none of them. What has no schedule yet is offered the usual number. */
export function keepDraft(keep: Keep | null | undefined): KeepDraft {
  const kept = { ...NONE, ...keep };
  const now = TIERS.some(({ id }) => kept[id] > 0) ? kept : { ...NONE, last: USUAL };
  const text = (value: number): string => (value > 0 ? String(value) : "");
  return { last: text(now.last), hourly: text(now.hourly), daily: text(now.daily), weekly: text(now.weekly), monthly: text(now.monthly) };
}

/** What a field holds; null where that is no number that it takes. */
function read(draft: KeepDraft, id: Tier, most: number): number | null {
  const text = draft[id].trim();
  if (text === "") return 0;
  return /^\d+$/.test(text) && Number(text) <= most ? Number(text) : null;
}

/** All counts, because a change replaces all of them. */
export function keepOf(draft: KeepDraft): Required<Keep> {
  const keep = { ...NONE };
  for (const { id, most } of TIERS) keep[id] = read(draft, id, most) ?? 0;
  return keep;
}

export function keepMistake(draft: KeepDraft): string {
  for (const { id, label, most } of TIERS) if (read(draft, id, most) === null) return `${label}: enter a number up to ${most}, or leave it empty.`;
  return TIERS.some(({ id, most }) => read(draft, id, most)) ? "" : "Enter at least one number.";
}

/** `24`, or `hourly=24,daily=7`. */
export function keepArgument(keep: Keep | null | undefined): string {
  const counts = TIERS.filter(({ id }) => (keep?.[id] ?? 0) > 0);
  if (counts.every(({ id }) => id === "last")) return String(keep?.last ?? 0);
  return counts.map(({ id }) => `${id}=${keep?.[id] ?? 0}`).join(",");
}

const isOnlyLast = (keep: Keep | null | undefined): boolean => /^\d+$/.test(keepArgument(keep));

/** After how often they are taken: `24 kept`, `kept hourly=24,daily=7`. */
export const keptText = (keep: Keep | null | undefined): string => (isOnlyLast(keep) ? `${count(keep?.last ?? 0)} kept` : `kept ${keepArgument(keep)}`);

/** In a sentence: what is kept of the schedule's snapshots. */
export function keepSentence(keep: Keep): string {
  const periods = [
    [keep.hourly, "hour"],
    [keep.daily, "day"],
    [keep.weekly, "week"],
    [keep.monthly, "month"],
  ] as const;
  const spans = periods.flatMap(([number, unit]) => (number ? [plural(number, unit)] : []));
  const kept = [
    ...(keep.last ? [keep.last === 1 ? "the newest" : `the newest ${count(keep.last)}`] : []),
    ...(spans.length > 0 ? [`the newest of each of the last ${list(spans)} (UTC)`] : []),
  ];
  return kept.length === 0 ? "" : `Kept: ${kept.join(", and ")}. The schedule deletes its other snapshots.`;
}
