// A pool's scrub in words.

import type { Schemas } from "../../lib/api";
import { moment, percent } from "../../lib/format";

/** Thousandths of the data that the scrub in progress has verified. */
export const scrubDone = ({ done_bytes: done, used_bytes: used }: Schemas["Scrub"]): number => (used > 0 ? Math.min(1000, (done * 1000) / used) : 0);

export function scrubText({ status }: Schemas["Pool"]): string {
  if (status.scrub?.state === "running") return `running, ${percent(scrubDone(status.scrub))}`;
  if (status.scrub?.state === "paused") return `paused at ${percent(scrubDone(status.scrub))}`;
  const last = status.scrub_schedule?.last_unix_ms;
  return last ? moment(last) : "not completed yet";
}
