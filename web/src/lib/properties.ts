// The properties of volumes and projects as forms show them: the value, or that it is inherited; what was changed; and the command that does the same.

import type { Schemas } from "./api";
import { command } from "./commands";
import { bytes, count, durationArgument, parseRate, parseSize, rate, rateArgument, sizeArgument } from "./format";
import { keepArgument, keepDraft, keepMistake, keepOf, keptText, type KeepDraft } from "./keep";

type Property = Schemas["Property"];
type Source = Schemas["Source"];

/** Instead of a value: the project's, or the default. */
export const INHERIT = "@inherit";

export const COMPRESSIONS: readonly string[] = ["off", "lz4", "lzjb", "zstd-1", "zstd-3", "zstd-9", "zstd-19", "gzip-1", "gzip-6", "gzip-9"];
export const INTERVALS: readonly number[] = [0, 900, 3600, 14_400, 86_400, 604_800];
export const BLOCKS: readonly number[] = [4096, 8192, 16_384, 32_768, 65_536, 131_072];
export const SYNCS: readonly [Schemas["Sync"], string][] = [
  ["always", "when they are durable"],
  ["standard", "at once, durable after a flush"],
  ["disabled", "at once, without waiting for disks"],
];
export const FORMATS: readonly [Schemas["VolumeFormat"], string][] = [
  ["thin", "Thin"],
  ["zeroedthick", "Thick: space is reserved"],
  ["eagerzeroedthick", "Thick: the whole size counts as used"],
];

/** That a new volume, or what it grows by, is larger than what is free in its pool: empty when it is not. */
export function overcommitted(added: number, pool: Schemas["Pool"] | undefined): string {
  if (!pool || added <= pool.status.available_bytes) return "";
  return `${bytes(pool.status.available_bytes)} are free in pool ${pool.name}. When they are used up, writes fail.`;
}

/** The choices, and what is set now where it is none of them. */
export const choices = <T>(usual: readonly T[], now: T): readonly T[] => (usual.includes(now) ? usual : [...usual, now]);

export interface VolumeDraft {
  level: string;
  sync: string;
  compression: string;
  every: string;
  keep: KeepDraft;
  format: string;
}

const own = (source: Source | undefined, value: string): string => (source === undefined || source === "own" ? value : INHERIT);

export function volumeDraft({ spec }: Schemas["Volume"]): VolumeDraft {
  const { sources } = spec;
  return {
    level: own(sources?.level ?? "default", spec.level ?? "none"),
    sync: own(sources?.sync, spec.sync),
    compression: own(sources?.compression, spec.compression ?? "lz4"),
    every: own(sources?.snapshot_schedule, String(spec.snapshot_every_seconds ?? 0)),
    keep: keepDraft(spec.snapshot_keep),
    format: spec.format ?? "thin",
  };
}

/** One property that is inherited or has a value of its own: what the request says of a change. */
function changed(before: string, after: string, property: Property, inherit: Property[], set: (value: string) => void): void {
  if (before === after) return;
  if (after === INHERIT) inherit.push(property);
  else set(after);
}

interface Shared {
  level: string;
  sync: string;
  compression: string;
  every: string;
  keep: KeepDraft;
}

type SharedBody = Pick<Schemas["VolumeSet"], "level" | "sync" | "compression" | "snapshot_every_seconds" | "snapshot_keep">;

function sharedChange(before: Shared, after: Shared, inherit: Property[]): SharedBody {
  const body: SharedBody = {};
  changed(before.level, after.level, "level", inherit, (value) => (body.level = value));
  changed(before.sync, after.sync, "sync", inherit, (value) => (body.sync = value as Schemas["Sync"]));
  changed(before.compression, after.compression, "compression", inherit, (value) => (body.compression = value));
  const schedule = (draft: Shared): string => (draft.every === INHERIT || draft.every === "0" ? draft.every : `${draft.every} ${keepArgument(keepOf(draft.keep))}`);
  changed(schedule(before), schedule(after), "snapshot_schedule", inherit, () => {
    body.snapshot_every_seconds = Number(after.every);
    if (after.every !== "0") body.snapshot_keep = keepOf(after.keep);
  });
  return body;
}

export function volumeChange(before: VolumeDraft, after: VolumeDraft): Schemas["VolumeSet"] {
  const inherit: Property[] = [];
  const body: Schemas["VolumeSet"] = sharedChange(before, after, inherit);
  if (before.format !== after.format) body.format = after.format as Schemas["VolumeFormat"];
  if (inherit.length > 0) body.inherit = inherit;
  return body;
}

const sharedOptions = (body: SharedBody & { inherit?: Property[] }): Record<string, string | number | undefined> => ({
  level: body.level ?? undefined,
  sync: body.sync ?? undefined,
  compression: body.compression ?? undefined,
  "snapshot-every": typeof body.snapshot_every_seconds === "number" ? durationArgument(body.snapshot_every_seconds) : undefined,
  "snapshot-keep": body.snapshot_keep ? keepArgument(body.snapshot_keep) : undefined,
});
const inheritOption = (body: { inherit?: Property[] }): string | undefined => body.inherit?.map((one) => one.replace("_", "-")).join(",");

/** The commands that do what the request does: the command line converts with a command of its own. */
export function volumeCommands(name: string, body: Schemas["VolumeSet"], bestEffort: boolean): string[] {
  const { format, ...rest } = body;
  const found: string[] = [];
  if (format) found.push(command(["volume", "convert", name], { format }));
  if (Object.keys(rest).length > 0) found.push(command(["volume", "set", name], { ...sharedOptions(rest), "best-effort": bestEffort, inherit: inheritOption(rest) }));
  return found;
}

export interface ProjectDraft extends VolumeDraft {
  block: string;
  quota: string;
  iops: string;
  bandwidth: string;
  hosts: string[];
}

export const NEW_PROJECT: ProjectDraft = {
  level: INHERIT,
  sync: INHERIT,
  compression: INHERIT,
  every: INHERIT,
  keep: keepDraft(undefined),
  format: INHERIT,
  block: INHERIT,
  quota: "",
  iops: "",
  bandwidth: "",
  hosts: [],
};

export function projectDraft({ spec }: Schemas["Project"]): ProjectDraft {
  const { sources } = spec;
  return {
    level: own(sources.level ?? "default", spec.level ?? "none"),
    sync: own(sources.sync, spec.sync),
    compression: own(sources.compression, spec.compression),
    every: own(sources.snapshot_schedule, String(spec.snapshot_every_seconds)),
    keep: keepDraft(spec.snapshot_keep),
    format: own(sources.format, spec.format),
    block: own(sources.block_size, String(spec.block_size_bytes)),
    quota: spec.quota_bytes ? sizeArgument(spec.quota_bytes) : "",
    iops: spec.max_iops ? String(spec.max_iops) : "",
    bandwidth: spec.max_bytes_per_second ? rateArgument(spec.max_bytes_per_second) : "",
    hosts: [...(spec.hosts ?? [])],
  };
}

const sameHosts = (a: readonly string[], b: readonly string[]): boolean => a.length === b.length && a.every((one) => b.includes(one));

/** An empty field is no limit, which the API writes as 0. What cannot be read is null: `projectMistakes` names it. */
const limit = (text: string, read: (text: string) => number | null): number | null => (text.trim() === "" ? 0 : read(text));
const whole = (text: string): number | null => (/^\d+$/.test(text.trim()) ? Number(text) : null);

export function projectChange(before: ProjectDraft, after: ProjectDraft): Omit<Schemas["ProjectSet"], "name"> {
  const inherit: Property[] = [];
  const body: Schemas["ProjectSet"] = sharedChange(before, after, inherit);
  changed(before.format, after.format, "format", inherit, (value) => (body.format = value as Schemas["VolumeFormat"]));
  changed(before.block, after.block, "block_size", inherit, (value) => (body.block_size_bytes = Number(value)));
  if (before.quota !== after.quota) body.quota_bytes = limit(after.quota, parseSize);
  if (before.iops !== after.iops) body.max_iops = limit(after.iops, whole);
  if (before.bandwidth !== after.bandwidth) body.max_bytes_per_second = limit(after.bandwidth, parseRate);
  if (!sameHosts(before.hosts, after.hosts)) {
    if (after.hosts.length === 0) inherit.push("hosts");
    else body.hosts = after.hosts;
  }
  if (inherit.length > 0) body.inherit = inherit;
  return body;
}

/** What is wrong with the numbers of a form, by the API's name of the field. */
export function projectMistakes(draft: ProjectDraft): { quota_bytes?: string; max_iops?: string; max_bytes_per_second?: string; snapshot_keep?: string } {
  return {
    ...(limit(draft.quota, parseSize) === null ? { quota_bytes: "Enter a size, like 1T." } : {}),
    ...(limit(draft.iops, whole) === null ? { max_iops: "Enter a whole number." } : {}),
    ...(limit(draft.bandwidth, parseRate) === null ? { max_bytes_per_second: "Enter a rate, like 50M." } : {}),
    ...(scheduleMistake(draft) ? { snapshot_keep: scheduleMistake(draft) } : {}),
  };
}

/** Whether there is a schedule of its own, of which snapshots are kept. */
export const hasSchedule = ({ every: interval }: Pick<Shared, "every">): boolean => interval !== INHERIT && interval !== "0";
export const scheduleMistake = (draft: Pick<Shared, "every" | "keep">): string => (hasSchedule(draft) ? keepMistake(draft.keep) : "");

const none = (value: number | null | undefined, text: (value: number) => string): string | undefined =>
  value === null || value === undefined ? undefined : value === 0 ? "none" : text(value);

export function projectCommand(verb: "create" | "set", name: string, body: Omit<Schemas["ProjectSet"], "name">, bestEffort: boolean): string {
  return command(["project", verb, name], {
    ...sharedOptions(body),
    "block-size": none(body.block_size_bytes, sizeArgument),
    format: body.format ?? undefined,
    quota: none(body.quota_bytes, sizeArgument),
    "max-iops": none(body.max_iops, String),
    "max-bandwidth": none(body.max_bytes_per_second, rateArgument),
    host: body.hosts ?? undefined,
    inherit: inheritOption(body),
    "best-effort": bestEffort,
  });
}

/** Where a value comes from, in words. */
export function sourceText(source: Source | undefined): string {
  return source === "project" ? "from the project" : source === "own" ? "set here" : "default";
}

/** As the command line writes it: `every 1h, 24 kept`. */
export function scheduleText(seconds: number | null | undefined, keep: Schemas["SnapshotKeep"] | null | undefined): string {
  return seconds ? `every ${durationArgument(seconds)}, ${keptText(keep)}` : "never";
}

export function limitText(iops: number | null | undefined, bandwidth: number | null | undefined): string {
  return [iops ? `${count(iops)} IOPS` : "", bandwidth ? rate(bandwidth) : ""].filter(Boolean).join(", ");
}

/** Whether a refusal is about a level that the pool cannot guarantee: then best effort is a way out. */
export function offersBestEffort(problem: { field?: string | null; remedy?: string | null } | undefined): boolean {
  return problem !== undefined && (problem.field === "level" || /--best-effort|best_effort/.test(problem.remedy ?? ""));
}

/** How many times more data is written than the pool stores for it; null when nothing is stored. */
export function reduction(mapped: number, stored: number | null | undefined): number | null {
  return stored ? mapped / stored : null;
}

export const ratioText = (ratio: number | null): string => (ratio === null ? "–" : `${ratio.toFixed(ratio < 9.95 ? 1 : 0)} : 1`);
