// What the screen shows, as a file. (All that a saved worksheet has, exactly, comes from the appliance itself.)

import type { Graph } from "./graph.svelte";

const ROWS_MAX = 100_000;

/** A field of RFC 4180. */
function cell(value: string): string {
  return /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

/** A text that a spreadsheet would take for a formula begins with an apostrophe, as in the appliance's own tables. */
export function text(value: string): string {
  return cell(/^[=+\-@\t\r]/.test(value) ? `'${value}` : value);
}

/** One table: a line for each value, so that graphs with different lines fit together. */
export function exportCsv(graphs: readonly Graph[]): string {
  const rows = ["time,expression,line,value,unit"];
  for (const record of records(graphs)) {
    const value = record.value === null ? "" : String(record.value);
    rows.push([new Date(record.unix_s * 1000).toISOString(), text(record.expression), text(record.line), value, text(record.unit)].join(","));
  }
  return `${rows.join("\n")}\n`;
}

export function exportJson(graphs: readonly Graph[]): string {
  return JSON.stringify(records(graphs), null, 1);
}

interface Record {
  unix_s: number;
  expression: string;
  line: string;
  value: number | null;
  unit: string;
}

function records(graphs: readonly Graph[]): Record[] {
  const found: Record[] = [];
  for (const graph of graphs) {
    if (graph.heat) {
      const grid = graph.heatGrid();
      const { from, step } = graph.heatSpan();
      for (let column = 0; column < grid.columns; column += 1) {
        for (let row = 0; row < grid.rows && found.length < ROWS_MAX; row += 1) {
          const value = grid.counts[row * grid.columns + column] ?? 0;
          if (value > 0)
            found.push({
              unix_s: from + column * step,
              expression: graph.expression,
              line: `${grid.bounds[row]} to ${grid.bounds[row + 1]} ${graph.boundsUnit}`,
              value,
              unit: graph.unit,
            });
        }
      }
      continue;
    }
    for (const { at, values } of graph.table(ROWS_MAX).reverse()) {
      values.forEach((value, index) => {
        if (found.length < ROWS_MAX) found.push({ unix_s: at, expression: graph.expression, line: graph.lines[index]?.label ?? "", value, unit: graph.unit });
      });
    }
  }
  return found;
}

export function offer(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
