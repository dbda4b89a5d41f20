// What is given for disks that do not report it, or report it wrongly: their enclosures and physical sectors.

import { parseSize, sizeArgument } from "../../lib/format";
import { pairsOf } from "./data";

export interface Facts {
  body: { enclosures?: Record<string, string>; sectors?: Record<string, number> };
  /** For the command. */
  options: { enclosure?: string[]; sector?: string[] };
  /** Why it cannot be read; empty when it can. */
  wrong: string;
}

/** Sectors: `DISK=SIZE`, one on a line, or one size for all disks. */
export function factsOf(disks: readonly string[], enclosures: string, sectors: string): Facts {
  const facts: Facts = { body: {}, options: {}, wrong: "" };
  const names = pairsOf(enclosures);
  if (names === null) facts.wrong = "Write DISK=NAME for each enclosure.";
  else if (Object.keys(names).length > 0) {
    facts.body.enclosures = names;
    facts.options.enclosure = Object.entries(names).map(([disk, name]) => `${disk}=${name}`);
  }
  const text = sectors.trim();
  const whole = text === "" || text.includes("=") ? null : parseSize(text);
  const pairs = whole === null ? pairsOf(text) : Object.fromEntries(disks.map((disk) => [disk, text]));
  const sizes = Object.entries(pairs ?? {}).map(([disk, size]) => [disk, parseSize(size) ?? 0] as const);
  if (pairs === null || sizes.some(([, size]) => size < 512 || size > 65_536 || !Number.isInteger(Math.log2(size)))) {
    facts.wrong ||= "A sector size is a power of two from 512 to 64K. Write one for all disks, or DISK=SIZE for each.";
  } else if (sizes.length > 0) {
    facts.body.sectors = Object.fromEntries(sizes);
    facts.options.sector = whole !== null ? [sizeArgument(whole)] : sizes.map(([disk, size]) => `${disk}=${sizeArgument(size)}`);
  }
  const [stranger] = [...Object.keys(facts.body.enclosures ?? {}), ...Object.keys(facts.body.sectors ?? {})].filter((disk) => !disks.includes(disk));
  if (stranger) facts.wrong ||= `${stranger} is not one of the disks.`;
  return facts;
}
