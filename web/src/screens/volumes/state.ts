// Whether a volume is well, and what to do when it is not.

import type { Schemas } from "../../lib/api";
import { poolHref, volumeHref } from "../../lib/links";
import type { Tone } from "../../lib/words";

export interface VolumeTrouble {
  tone: Tone;
  text: string;
  message: string;
  /** Where something can be done about it. */
  way?: { text: string; href: string };
}

const WORDS: Readonly<Record<string, [Tone, string]>> = {
  DataLost: ["bad", "Data lost"],
  BestEffort: ["warn", "Best effort"],
  CannotBeMet: ["warn", "Level cannot be met"],
  Unmeasured: ["info", "Pool not measured"],
  LevelUnknown: ["warn", "Level unknown"],
};
const GRAVITY: readonly Tone[] = ["bad", "warn", "info"];

function troubleOf(volume: Schemas["Volume"], condition: Schemas["Condition"]): VolumeTrouble {
  const [tone, text] = WORDS[condition.reason] ?? ["warn", condition.reason];
  const ways: Readonly<Record<string, { text: string; href: string }>> = {
    Intact: { text: "Lost data of the pool", href: poolHref(volume.status.pool) },
    LevelMet:
      condition.reason === "BestEffort" ? { text: "Change its level", href: volumeHref(volume.name, "settings") } : { text: "Show the pool", href: poolHref(volume.status.pool) },
    LevelKnown: { text: "Set another level", href: volumeHref(volume.name, "settings") },
  };
  const way = ways[condition.type];
  return { tone, text, message: condition.message, ...(way ? { way } : {}) };
}

/** All that is wrong with it, the gravest first. */
export function troublesOfVolume(volume: Schemas["Volume"]): VolumeTrouble[] {
  return volume.conditions
    .filter((condition) => !condition.status && condition.message !== "")
    .map((condition) => troubleOf(volume, condition))
    .sort((a, b) => GRAVITY.indexOf(a.tone) - GRAVITY.indexOf(b.tone));
}

export const troubleOfVolume = (volume: Schemas["Volume"]): VolumeTrouble | undefined => troublesOfVolume(volume)[0];
