// Limits of statistics as people write them: the same forms that the command line takes.

import type { Schemas } from "./api";
import { command } from "./commands";
import { byUnit, durationArgument } from "./format";
import type { Tone } from "./words";

type Suffixes = readonly (readonly [string, number])[];

const TIMES: Suffixes = [
  ["s", 1e9],
  ["ms", 1e6],
  ["us", 1e3],
  ["µs", 1e3],
  ["ns", 1],
];
const RATES: Suffixes = [
  ["G", 1e9],
  ["M", 1e6],
  ["K", 1e3],
  ["GB/s", 1e9],
  ["MB/s", 1e6],
  ["kB/s", 1e3],
  ["B/s", 1],
];
const SIZES: Suffixes = [
  ["P", 2 ** 50],
  ["T", 2 ** 40],
  ["G", 2 ** 30],
  ["M", 2 ** 20],
  ["K", 2 ** 10],
  ["B", 1],
];

/** What may stand behind the number, the greatest first, and an example. */
function suffixes(unit: string): { all: Suffixes; example: string } {
  switch (unit) {
    case "ns":
      return { all: TIMES, example: "10ms" };
    case "bytes":
      return { all: SIZES, example: "100G" };
    case "bytes-per-second":
      return { all: RATES, example: "50M" };
    case "thousandths":
      return { all: [["%", 10]], example: "90%" };
    case "ns-per-second":
      return { all: [["%", 1e7]], example: "90%" };
    default:
      return { all: [["", 1]], example: "500" };
  }
}

/** The limit in the statistic's own unit; null when it is none. */
export function parseLimit(text: string, unit: string): number | null {
  const found = /^(\d+(?:\.\d+)?)\s*(\S*)$/.exec(text.trim());
  if (!found) return null;
  const suffix = (found[2] ?? "").replace(/iB$/, "");
  const factor = suffixes(unit).all.find(([name]) => name === suffix)?.[1];
  return factor === undefined ? null : Number(found[1]) * factor;
}

/** How the command line takes a limit: with the greatest suffix that leaves a short number. */
export function limitText(value: number, unit: string): string {
  const { all } = suffixes(unit);
  const [name, factor] = all.find(([, factor]) => value >= factor && Number.isInteger((value / factor) * 100)) ?? all.at(-1) ?? ["", 1];
  return `${plain(value / factor)}${name}`;
}

/** Without an exponent, which the command line does not take. */
const plain = (value: number): string => (/e/.test(String(value)) ? value.toFixed(9).replace(/\.?0+$/, "") : String(value));

export const limitExample = (unit: string): string => suffixes(unit).example;

/** Why the text is no limit of this unit; empty when it is one. */
export function limitWrong(text: string, unit: string): string {
  if (text.trim() === "" || parseLimit(text, unit) !== null) return "";
  return `Enter a limit like ${limitExample(unit)}.`;
}

/** The unit of the statistic that an expression begins with; empty when there is none. */
export function unitOf(expression: string, statistics: readonly Schemas["Statistic"][]): string | undefined {
  const name = expression.trim().split("[")[0];
  return statistics.find((one) => one.name === name)?.unit;
}

/** A value of a statistic as the alert writes it: time within each second is a percentage. */
export const valueText = (unit: string, value: number | null | undefined): string =>
  unit === "ns-per-second" && value !== null && value !== undefined ? `${(value / 1e7).toFixed(1)} %` : byUnit(unit, value);

export const limitOf = ({ above, below }: Schemas["ThresholdSpec"]): number => above ?? below ?? 0;

/** `above 10 ms over 5m` */
export const whenText = ({ spec, status }: Schemas["Threshold"]): string =>
  `${typeof spec.above === "number" ? "above" : "below"} ${valueText(status.unit, limitOf(spec))} over ${durationArgument(spec.over_seconds ?? OVER_USUAL)}`;

export const OVER_USUAL = 60;
export const OVER: readonly (readonly [number, string])[] = [
  [10, "10 seconds"],
  [60, "1 minute"],
  [300, "5 minutes"],
  [900, "15 minutes"],
  [3600, "1 hour"],
];

/** What makes the threshold, or makes it so; none where the command line cannot change its expression. */
export function thresholdCommand(name: string, spec: Schemas["ThresholdSpec"], unit: string, before?: Schemas["Threshold"]): string {
  if (before && before.spec.expression !== spec.expression) return "";
  const limit = limitText(limitOf(spec), unit);
  const options = { [typeof spec.above === "number" ? "above" : "below"]: limit, over: durationArgument(spec.over_seconds ?? OVER_USUAL), severity: spec.severity };
  if (!before) return command(["threshold", "create", name, spec.expression], options);
  const renamed = name === before.name ? [] : [command(["threshold", "rename", before.name, name])];
  return [...renamed, command(["threshold", "set", name], options)].join(" && ");
}

export const ALERT: Record<Schemas["AlertSeverity"], [Tone, string]> = { critical: ["bad", "Critical"], warning: ["warn", "Warning"], info: ["info", "Note"] };

/** Whether its alert stands, in words. */
export function thresholdState({ spec, status }: Schemas["Threshold"]): [Tone, string] {
  if (status.unit === "") return ["warn", "Unknown statistic"];
  if (status.crossed) return [ALERT[spec.severity ?? "warning"][0], "Alert"];
  return status.value === null || status.value === undefined ? ["none", "No values"] : ["ok", "OK"];
}
