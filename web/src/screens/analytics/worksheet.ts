// What can be done with a saved worksheet, wherever it is shown.

import { plan, remove, type Schemas } from "../../lib/api";
import { command } from "../../lib/commands";
import { plural } from "../../lib/format";
import { forEach, planAll } from "../../lib/many";
import { worksheets } from "../../lib/resources.svelte";
import type { Question } from "../../ui/Confirm.svelte";

type Worksheet = Schemas["Worksheet"];

export const exportHref = (sheet: Worksheet, format: "csv" | "json"): string => `/api/v1/worksheets/${encodeURIComponent(sheet.id)}/export?format=${format}`;

export function deletion(sheets: readonly Worksheet[], deleted: () => void = () => {}): Question {
  const what = sheets.length === 1 ? `worksheet ${sheets[0]?.name ?? ""}` : plural(sheets.length, "worksheet");
  const drop = (one: Worksheet): Promise<unknown> => remove("/api/v1/worksheets/{worksheet}", { path: { worksheet: one.id } });
  const dropAll = forEach(sheets, drop, (done) => `${plural(done, "worksheet is", "worksheets are")} deleted.`, [worksheets]);
  return {
    title: `Delete ${what}`,
    text: sheets.some((one) => one.spec.pinned) ? "Per-second data that was kept then expires like any other." : "The statistics are kept.",
    button: "Delete",
    danger: true,
    command: sheets.map((one) => command(["worksheet", "delete", one.name])).join("\n"),
    plan: () => planAll(sheets, (one) => plan("delete", "/api/v1/worksheets/{worksheet}", { path: { worksheet: one.id } })),
    act: async () => {
      await dropAll();
      deleted();
    },
  };
}
