// What a list shows of its objects, and how it finds, sorts and exports them.

import { text as csvText } from "./exporting";

export type Value = string | number | boolean | null | undefined;

export interface Column<T> {
  id: string;
  title: string;
  /** What is sorted by, found and exported. */
  value: (item: T) => Value;
  /** How the value is shown and found; the value as text without. */
  text?: (item: T) => string;
  /** Right-aligned. */
  num?: boolean;
  /** Not shown on narrow screens. */
  minor?: boolean;
}

/** What is done with all selected objects at once. */
export interface Bulk<T> {
  text: string;
  icon?: string;
  danger?: boolean;
  /** Why it cannot be done now; empty when it can. */
  refused?: string;
  act: (items: T[]) => void;
}

export interface Order {
  id: string;
  descending: boolean;
}

const NONE = "–";

export function textOf<T>(column: Column<T>, item: T): string {
  if (column.text) return column.text(item);
  const value = column.value(item);
  if (value === null || value === undefined || value === "") return NONE;
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

/** `-size` is by size, descending. A column that does not exist is none. */
export function parseOrder<T>(text: string, columns: readonly Column<T>[]): Order | undefined {
  const descending = text.startsWith("-");
  const id = descending ? text.slice(1) : text;
  return columns.some((column) => column.id === id) ? { id, descending } : undefined;
}

export const orderText = ({ id, descending }: Order): string => (descending ? `-${id}` : id);

/** Those in which every word occurs, in any column, in any case. */
export function findIn<T>(items: readonly T[], columns: readonly Column<T>[], wanted: string): readonly T[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return items;
  return items.filter((item) => {
    const whole = columns
      .map((column) => textOf(column, item))
      .join("\n")
      .toLowerCase();
    return words.every((word) => whole.includes(word));
  });
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const isNone = (value: Value): boolean => value === null || value === undefined || value === "" || (typeof value === "number" && Number.isNaN(value));

function compare(a: Value, b: Value): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "boolean" && typeof b === "boolean") return Number(a) - Number(b);
  return collator.compare(String(a), String(b));
}

/** Sorted by one column; equal ones keep their order, and those without a value are last either way. */
export function sorted<T>(items: readonly T[], columns: readonly Column<T>[], order: Order | undefined): readonly T[] {
  const column = columns.find(({ id }) => id === order?.id);
  if (!column || !order) return items;
  const sign = order.descending ? -1 : 1;
  return items
    .map((item) => ({ item, value: column.value(item) }))
    .sort((a, b) => {
      if (isNone(a.value) || isNone(b.value)) return Number(isNone(a.value)) - Number(isNone(b.value));
      return sign * compare(a.value, b.value);
    })
    .map(({ item }) => item);
}

/** A table for spreadsheets: all columns, values as the API gives them. */
export function toCsv<T>(items: readonly T[], columns: readonly Column<T>[]): string {
  const rows = [columns.map(({ title }) => csvText(title)).join(",")];
  for (const item of items) {
    rows.push(
      columns
        .map((column) => {
          const value = column.value(item);
          if (value === null || value === undefined) return "";
          return typeof value === "string" ? csvText(value) : String(value);
        })
        .join(","),
    );
  }
  return `${rows.join("\r\n")}\r\n`;
}
