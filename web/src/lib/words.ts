// What states and layouts mean, in words for people.

import type { Schemas } from "./api";
import { list, percent, plural } from "./format";

export type Tone = "ok" | "warn" | "bad" | "info" | "none";

export const POOL_STATE: Record<Schemas["PoolState"], [Tone, string]> = {
  online: ["ok", "Online"],
  degraded: ["warn", "Degraded"],
  suspended: ["bad", "Suspended"],
  unavailable: ["bad", "Unavailable"],
  damaged: ["bad", "Damaged"],
};

export const DISK_STATE: Record<Schemas["DiskState"], [Tone, string]> = {
  online: ["ok", "Online"],
  failed: ["bad", "Failed"],
  missing: ["bad", "Missing"],
  offline: ["warn", "Offline"],
  rebuilt: ["bad", "Failed, rebuilt"],
  empty: ["bad", "Failed, held no data"],
  leaving: ["info", "Leaving"],
  spare: ["none", "Spare"],
  cache: ["ok", "Cache"],
};

export const DISK_HEALTH: Record<Schemas["DiskHealthState"], [Tone, string]> = {
  good: ["ok", "Good"],
  unknown: ["none", "Health unknown"],
  warning: ["warn", "Worth watching"],
  failing: ["bad", "About to fail"],
};

/** The paths in a text that somebody wrote: with spaces, commas or lines between them, each once. */
export const pathsOf = (text: string): string[] => [...new Set(text.split(/[\s,]+/).filter(Boolean))];

/** The text with a path more, or without it; one on a line. */
export const withPath = (text: string, path: string, isIn: boolean): string => {
  const others = pathsOf(text).filter((one) => one !== path);
  return [...others, ...(isIn ? [path] : [])].join("\n");
};

export const TASK_STATE: Record<Schemas["TaskState"], [Tone, string]> = {
  queued: ["none", "Waiting"],
  running: ["info", "Running"],
  succeeded: ["ok", "Done"],
  failed: ["bad", "Failed"],
  cancelled: ["none", "Cancelled"],
};

export const SEVERITY: Record<Schemas["Severity"], [Tone, string]> = {
  error: ["bad", "Error"],
  warning: ["warn", "Warning"],
  info: ["info", "Note"],
};

export const LEDGER_STATE: Record<Schemas["LedgerState"], [Tone, string]> = {
  met: ["ok", "Met"],
  "low-demand": ["none", "Low demand"],
  limited: ["info", "At its limit"],
  missed: ["bad", "Missed"],
  "best-effort": ["none", "Best effort"],
  "cannot-be-met": ["warn", "Cannot be met"],
};

export const CLASS: Record<Schemas["LevelClass"], string> = {
  "mission-critical": "Mission critical",
  "business-critical": "Business critical",
  "non-critical": "Non-critical",
};

export const SYNC: Record<Schemas["Sync"], string> = {
  always: "Every write is durable when it is acknowledged",
  standard: "A write is durable after a flush or a forced write (FUA)",
  disabled: "A power failure loses the newest writes. For scratch data only",
};

export const FORMAT: Record<Schemas["VolumeFormat"], string> = {
  thin: "Thin: takes space only for written data",
  zeroedthick: "Thick: space is reserved for the whole size",
  eagerzeroedthick: "Thick: the whole size counts as used",
};

export interface LayoutFacts {
  data: number;
  parity: number;
  copies: number;
  disksMin: number;
  survives: number;
}

export function layoutFacts(layout: string): LayoutFacts | null {
  if (layout === "single") return { data: 1, parity: 0, copies: 1, disksMin: 1, survives: 0 };
  if (layout === "mirror") return { data: 1, parity: 0, copies: 2, disksMin: 2, survives: 1 };
  if (layout === "mirror3") return { data: 1, parity: 0, copies: 3, disksMin: 3, survives: 2 };
  const found = /^(\d+)\+(\d)$/.exec(layout);
  if (!found) return null;
  const data = Number(found[1]);
  const parity = Number(found[2]);
  return { data, parity, copies: 1, disksMin: data + parity, survives: parity };
}

/** The part of raw space that is left for data. */
export function layoutShare(layout: string): number {
  const facts = layoutFacts(layout);
  if (!facts) return 0;
  return facts.parity > 0 ? facts.data / (facts.data + facts.parity) : 1 / facts.copies;
}

/** What a pool of this layout survives, in a sentence. */
export function layoutSurvives(layout: string): string {
  const facts = layoutFacts(layout);
  if (!facts) return "";
  if (facts.survives === 0) return "Survives the loss of no disk: when one fails, all data is lost.";
  if (facts.survives === 1) return "Survives the loss of any one disk.";
  return `Survives the loss of any ${facts.survives === 2 ? "two" : "three"} disks at once.`;
}

const GONE: Schemas["DiskState"][] = ["failed", "missing", "offline"];

/** What a pool survives with the disks that it has now, in a sentence. */
export function poolSurvives(pool: Schemas["Pool"]): string {
  const left = pool.status.groups.map((group) => {
    const gone = group.disks.filter((disk) => GONE.includes(disk.status.state)).length;
    return { survives: (layoutFacts(group.layout)?.survives ?? 0) - gone, gone };
  });
  const gone = left.reduce((sum, group) => sum + group.gone, 0);
  if (gone === 0) return pool.spec.layout ? layoutSurvives(pool.spec.layout) : "";
  const survives = Math.min(...left.map((group) => group.survives));
  const out = `${plural(gone, "disk is", "disks are")} out of service:`;
  if (survives < 0) return `${out} data that no other disk has cannot be read.`;
  if (survives === 0) return `${out} the pool survives the loss of no further disk.`;
  return survives === 1 ? `${out} the pool survives the loss of one more disk.` : `${out} the pool survives the loss of ${survives} more disks.`;
}

export function layoutTitle(layout: string): string {
  const facts = layoutFacts(layout);
  if (!facts) return layout;
  if (layout === "single") return "No redundancy";
  if (layout === "mirror") return "Mirror, two copies";
  if (layout === "mirror3") return "Mirror, three copies";
  return `Parity ${layout}`;
}

/** Layouts that so many disks allow, the recommended one first. */
export function layoutsFor(disks: number): string[] {
  if (disks <= 0) return [];
  if (disks === 1) return ["single"];
  const found: string[] = [];
  if (disks >= 6) found.push(disks >= 8 ? "6+2" : "4+2");
  found.push("mirror");
  if (disks >= 3) found.push("mirror3", disks >= 5 ? "4+1" : disks >= 4 ? "3+1" : "2+1");
  if (disks >= 11) found.push("8+3");
  found.push("single");
  return found;
}

/** What a level guarantees and limits, in a line. */
export function levelWords(spec: Schemas["LevelSpec"], number: (n: number) => string, rate: (n: number) => string): string {
  const least = [spec.min_iops ? `${number(spec.min_iops)} IOPS` : "", spec.min_bytes_per_second ? rate(spec.min_bytes_per_second) : ""].filter(Boolean);
  const most = [spec.max_iops ? `${number(spec.max_iops)} IOPS` : "", spec.max_bytes_per_second ? rate(spec.max_bytes_per_second) : ""].filter(Boolean);
  const parts: string[] = [];
  if (least.length > 0) parts.push(`minimum ${least.join(" or ")}`);
  if (spec.latency_us) parts.push(`p99 ≤ ${spec.latency_us / 1000} ms`);
  if (most.length > 0) parts.push(`limit ${list(most)}`);
  if (parts.length === 0) return "No guarantee and no limit";
  const text = parts.join("; ");
  return text.startsWith("p99") ? text : text.charAt(0).toUpperCase() + text.slice(1);
}

const OWN_WORK: Record<string, string> = {
  checkpoint: "a checkpoint",
  destage: "writing data from the log to the disks",
  rebuild: "rebuilding or moving data",
  scrub: "a scrub",
  deletion: "freeing the space of deleted data",
  trim: "a trim",
  reclaim: "reclaiming blocks of zeros",
  copy: "copying data of a volume",
  calibrate: "a performance measurement",
};

/** Why a service level was missed. */
export function causeWords(cause: Schemas["LedgerCause"] | null | undefined): string {
  if (!cause) return "";
  const object = cause.object ?? "";
  switch (cause.kind) {
    case "neighbour":
      return object ? `${object} kept the disks busy` : "other volumes kept the disks busy";
    case "background-work":
      return `the pool was busy with ${OWN_WORK[object] ?? object}`;
    case "disk":
      return object ? `disk ${object} was slow` : "a disk was slow";
    case "disks":
      return "the disks were slower than measured";
    case "cache-miss":
      return "its reads were not in the cache";
    case "own-demand":
      return "it asked for more than the pool can deliver";
  }
}

/** A task's name for people, and what is said when it starts, with the object for the percent sign. */
const TASK: Record<string, [string, string]> = {
  "pool.create": ["Create pool", "Creating pool %"],
  "pool.import": ["Import pool", "Importing pool %"],
  "pool.export": ["Export pool", "Exporting pool %"],
  "pool.destroy": ["Destroy pool", "Destroying pool %"],
  "pool.add": ["Add disks", "Adding disks to pool %"],
  "pool.scrub": ["Scrub pool", "Scrubbing pool %"],
  "pool.trim": ["Trim pool", "Trimming pool %"],
  "pool.calibrate": ["Measure pool", "Measuring the performance of pool %"],
  "pool.damage_accept": ["Accept data loss", "Accepting the data loss of pool %"],
  "group.remove": ["Drain group", "Draining group %"],
  "disk.replace": ["Replace disk", "Replacing disk %"],
  "disk.remove": ["Remove disk", "Removing disk %"],
  "disk.offline": ["Take disk offline", "Taking disk % offline"],
  "disk.online": ["Bring disk online", "Bringing disk % online"],
  "disk.clear": ["Clear error counters", "Clearing the error counters of disk %"],
  "disk.locate": ["Locate disk", "Locating disk %"],
  "volume.move": ["Move volume", "Moving volume %"],
  "volume.reclaim": ["Reclaim zeros", "Reclaiming blocks of zeros of volume %"],
};

/** Replace disk */
export const taskTitle = (name: string): string => TASK[name]?.[0] ?? name;

/** Replacing disk tank/0. */
export function taskBegun(task: Pick<Schemas["Task"], "name" | "object">): string {
  const words = TASK[task.name];
  return words ? `${words[1].replace("%", () => task.object)}.` : `Started: ${task.name} of ${task.object}.`;
}

/** How many disks of a pool are not well. */
export function disksUnwell(pool: Schemas["Pool"]): string {
  const unwell = pool.status.groups.flatMap((group) => group.disks).filter((disk) => DISK_STATE[disk.status.state][0] === "bad");
  return unwell.length === 0 ? "" : plural(unwell.length, "disk is", "disks are");
}

/** How much of a pool's time its service levels guarantee. */
export function guaranteeWords(pool: Schemas["Pool"] | undefined): string {
  if (!pool) return "";
  const { guaranteed_permille: now, guarantee_max_permille: max } = pool.status;
  return max ? `${percent(now ?? 0)} of the pool's time is guaranteed; the maximum is ${percent(max)}` : "the pool is not measured yet, so any level is accepted";
}
