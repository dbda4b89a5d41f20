// Which volume's requests take longest now, and where they spend the time.

import type { Schemas } from "./api";

/** The parts of a request's time, as the ledger has them, in words. */
export const STAGES = [
  ["held_us", "held at its limit"],
  ["room_us", "waiting for log space"],
  ["turn_us", "queued for the disks"],
  ["disks_us", "at the disks"],
  ["paused_us", "paused by a snapshot or a move"],
] as const;

export interface Slowest {
  volume: string;
  stage: string;
  /** The stage's part of the time, in thousandths. */
  part: number;
}

/** The stages of a second's requests that take 0.5 % of their time or more. */
export function stagesOf(line: Schemas["LedgerLine"]): { text: string; part: number }[] {
  const all = STAGES.reduce((sum, [key]) => sum + line[key], 0);
  return all === 0 ? [] : STAGES.map(([key, text]) => ({ text, part: (line[key] * 1000) / all })).filter((one) => one.part >= 5);
}

export function slowest(lines: readonly Schemas["LedgerLine"][]): Slowest | undefined {
  const perRequest = (line: Schemas["LedgerLine"]): number => STAGES.reduce((sum, [key]) => sum + line[key], 0) / Math.max(1, line.done);
  const [first] = lines.filter((line) => perRequest(line) > 0).sort((a, b) => perRequest(b) - perRequest(a));
  const [stage] = first ? stagesOf(first).sort((a, b) => b.part - a.part) : [];
  return first && stage ? { volume: first.volume, stage: stage.text, part: stage.part } : undefined;
}
