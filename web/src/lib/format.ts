// Numbers, sizes and times in words: the one place that says how the interface writes them.
// Sizes take powers of 1024 and the signs that the command line takes (8 KiB is written by it as 8K).

const NONE = "–";

/** Three digits that mean something: 1 234 567 -> 1.23 M; below ten thousand every digit. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size < 10 && size > 0 && !Number.isInteger(value)) return value.toFixed(size < 1 ? 2 : 1);
  if (size < 10_000) return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
  for (const [unit, sign] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (size >= unit) return `${digits(value / unit)} ${sign}`;
  }
  return String(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;

/** 1 536 -> 1.5 KiB. Trailing zeros are left out. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  let rest = Math.abs(value);
  let index = 0;
  while (rest >= 1023.95 && index < SIZES.length - 1) {
    rest /= 1024;
    index += 1;
  }
  const text = index === 0 ? String(Math.round(rest)) : rest.toFixed(rest < 9.995 ? 2 : rest < 99.95 ? 1 : 0);
  const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return `${value < 0 ? "−" : ""}${short} ${SIZES[index]}`;
}

/** Rates are decimal, as data sheets of disks and networks are: 1 500 000 -> 1.50 MB/s. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size < 1000) return `${Math.round(value)} B/s`;
  for (const [unit, sign] of [
    [1e12, "TB/s"],
    [1e9, "GB/s"],
    [1e6, "MB/s"],
    [1e3, "kB/s"],
  ] as const) {
    if (size >= unit) return `${digits(value / unit)} ${sign}`;
  }
  return NONE;
}

/** Nanoseconds -> 850 ns, 12.3 µs, 4.56 ms, 1.20 s. */
export function latency(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return NONE;
  if (ns < 1000) return `${Math.round(ns)} ns`;
  if (ns < 999_500) return `${digits(ns / 1e3)} µs`;
  if (ns < 999_500_000) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

export function percent(permille: number | null | undefined): string {
  if (permille === null || permille === undefined || !Number.isFinite(permille)) return NONE;
  const value = permille / 10;
  return `${value < 10 && value > 0 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value)} %`;
}

/** A value of a statistic by the unit that the API gives it. */
export function byUnit(unit: string, value: number | null | undefined): string {
  switch (unit) {
    case "ns":
      return latency(value);
    case "bytes":
      return bytes(value);
    case "bytes-per-second":
      return rate(value);
    case "ns-per-second":
    case "nanoseconds-per-second":
      return value === null || value === undefined ? NONE : `${latency(value)}/s`;
    case "sixty-fourths":
      return value === null || value === undefined ? NONE : `${Math.round((value * 100) / 64)} %`;
    case "permille":
    case "thousandths":
      return percent(value);
    default:
      return count(value);
  }
}

/** What the unit is called beside a chart. */
export function unitName(unit: string): string {
  const names: Record<string, string> = {
    "per-second": "per second",
    "bytes-per-second": "bytes per second",
    "ns-per-second": "time per second",
    "nanoseconds-per-second": "time per second",
    ns: "latency",
    bytes: "bytes",
    permille: "%",
    thousandths: "%",
    "sixty-fourths": "position on the volume",
  };
  return names[unit] ?? unit;
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

/** A length of time, its two greatest parts: 90 061 s -> 1 d 1 h. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < MINUTE) return `${s} s`;
  if (s < HOUR) return part(s, MINUTE, "min", 1, "s");
  if (s < DAY) return part(s, HOUR, "h", MINUTE, "min");
  return part(s, DAY, "d", HOUR, "h");
}

function part(s: number, unit: number, sign: string, below: number, belowSign: string): string {
  const whole = Math.floor(s / unit);
  const rest = Math.floor((s - whole * unit) / below);
  return rest === 0 || whole >= 10 ? `${whole} ${sign}` : `${whole} ${sign} ${rest} ${belowSign}`;
}

/** How often something happens, in words: 86 400 -> every day. */
export function every(seconds: number): string {
  if (seconds === 0) return "never";
  for (const [unit, one, many] of [
    [DAY, "day", "days"],
    [HOUR, "hour", "hours"],
    [MINUTE, "minute", "minutes"],
  ] as const) {
    if (seconds % unit === 0) return seconds === unit ? `every ${one}` : `every ${seconds / unit} ${many}`;
  }
  return `every ${duration(seconds)}`;
}

/** How the command line takes a length of time. */
export function durationArgument(seconds: number): string {
  if (seconds === 0) return "off";
  if (seconds % DAY === 0) return `${seconds / DAY}d`;
  if (seconds % HOUR === 0) return `${seconds / HOUR}h`;
  if (seconds % MINUTE === 0) return `${seconds / MINUTE}m`;
  return `${seconds}s`;
}

/** How the command line takes a size: the greatest unit that leaves it whole. */
export function sizeArgument(value: number): string {
  for (const [unit, sign] of [
    [2 ** 50, "P"],
    [2 ** 40, "T"],
    [2 ** 30, "G"],
    [2 ** 20, "M"],
    [2 ** 10, "K"],
  ] as const) {
    if (value >= unit && value % unit === 0) return `${value / unit}${sign}`;
  }
  return String(value);
}

/** What people type for a size: `100G`, `1.5 TiB`, `8K`, `4096`. Null when it is none. */
export function parseSize(text: string): number | null {
  const found = /^\s*(\d+(?:[.,]\d+)?)\s*([kmgtpe]?)(?:i?b)?\s*$/i.exec(text);
  if (!found?.[1]) return null;
  const power = " kmgtpe".indexOf((found[2] ?? "").toLowerCase() || " ");
  const value = Number(found[1].replace(",", ".")) * 1024 ** power;
  return Number.isFinite(value) && value > 0 ? Math.round(value) : null;
}

/** How the command line takes a rate: the greatest decimal unit that leaves it whole. */
export function rateArgument(value: number): string {
  for (const [unit, sign] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "K"],
  ] as const) {
    if (value >= unit && value % unit === 0) return `${value / unit}${sign}`;
  }
  return String(value);
}

/** What people type for a rate: `50M`, `1.5 GB/s`. Null when it is none. */
export function parseRate(text: string): number | null {
  const found = /^\s*(\d+(?:[.,]\d+)?)\s*([kmg]?)(?:b(?:\/s)?)?\s*$/i.exec(text);
  if (!found?.[1]) return null;
  const power = " kmg".indexOf((found[2] ?? "").toLowerCase() || " ");
  const value = Number(found[1].replace(",", ".")) * 1000 ** power;
  return value > 0 ? Math.round(value) : null;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clockShort = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dateLong = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** 21:04:09 */
export const time = (ms: number): string => clock.format(ms);

/** The time of day for today, the day as well for the days before. */
export function moment(ms: number, now = Date.now()): string {
  const sameDay = new Date(ms).toDateString() === new Date(now).toDateString();
  if (sameDay) return clock.format(ms);
  const sameYear = new Date(ms).getFullYear() === new Date(now).getFullYear();
  return `${(sameYear ? date : dateLong).format(ms)}, ${clockShort.format(ms)}`;
}

/** In words that need no clock: just now, 5 min ago, in 3 d. */
export function relative(ms: number, now = Date.now()): string {
  const seconds = Math.round((now - ms) / 1000);
  if (Math.abs(seconds) < 5) return "just now";
  return seconds > 0 ? `${oneUnit(seconds)} ago` : `in ${oneUnit(-seconds)}`;
}

function oneUnit(s: number): string {
  if (s < 90) return `${s} s`;
  if (s < 90 * MINUTE) return `${Math.round(s / MINUTE)} min`;
  if (s < 36 * HOUR) return `${Math.round(s / HOUR)} h`;
  return `${Math.round(s / DAY)} d`;
}

/** When a task will be done, from its range; empty when nobody knows. */
export function etaSentence(eta: { seconds_low: number; seconds_high: number } | null | undefined): string {
  if (!eta) return "";
  const { seconds_low: low, seconds_high: high } = eta;
  if (high < 5) return "done in a moment";
  if (high - low <= Math.max(2, high * 0.15)) return `done in ${duration(high)}`;
  return `done in ${duration(low)} to ${duration(high)}`;
}

/** `1 disk`, `3 disks`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** a, b and c */
export function list(words: readonly string[]): string {
  if (words.length < 2) return words[0] ?? "";
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
