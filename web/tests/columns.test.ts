import { describe, expect, it } from "vitest";
import { findIn, orderText, parseOrder, sorted, textOf, toCsv, type Column } from "../src/lib/columns";

interface Thing {
  name: string;
  size: number | null;
  on?: boolean;
}
const columns: Column<Thing>[] = [
  { id: "name", title: "Name", value: (thing) => thing.name },
  { id: "size", title: "Size", value: (thing) => thing.size, text: (thing) => `${thing.size ?? 0} GiB`, num: true },
  { id: "on", title: "On", value: (thing) => thing.on },
];
const things: Thing[] = [
  { name: "vm10", size: 5, on: true },
  { name: "vm9", size: null, on: false },
  { name: "Archive", size: 40 },
];
const names = (found: readonly Thing[]): string[] => found.map(({ name }) => name);

describe("columns", () => {
  it("shows a value as text, and none as a dash", () => {
    expect(columns.map((column) => textOf(column, things[1]!))).toEqual(["vm9", "0 GiB", "no"]);
    expect(textOf(columns[2]!, things[2]!)).toBe("–");
  });

  it("finds every word in any column, in any case", () => {
    expect(names(findIn(things, columns, " VM  gib "))).toEqual(["vm10", "vm9"]);
    expect(names(findIn(things, columns, "40 gib"))).toEqual(["Archive"]);
    expect(findIn(things, columns, "  ")).toBe(things);
    expect(findIn(things, columns, "vm nothing")).toEqual([]);
  });

  it("sorts numbers in names as numbers", () => {
    expect(names(sorted(things, columns, { id: "name", descending: false }))).toEqual(["Archive", "vm9", "vm10"]);
    expect(names(sorted(things, columns, { id: "name", descending: true }))).toEqual(["vm10", "vm9", "Archive"]);
  });

  it("puts those without a value last either way", () => {
    expect(names(sorted(things, columns, { id: "size", descending: false }))).toEqual(["vm10", "Archive", "vm9"]);
    expect(names(sorted(things, columns, { id: "size", descending: true }))).toEqual(["Archive", "vm10", "vm9"]);
    expect(names(sorted(things, columns, { id: "on", descending: true }))).toEqual(["vm10", "vm9", "Archive"]);
  });

  it("keeps equal ones in their order and changes nothing that it got", () => {
    const same = [
      { name: "b", size: 1 },
      { name: "a", size: 1 },
      { name: "c", size: 0 },
    ];
    expect(names(sorted(same, columns, { id: "size", descending: true }))).toEqual(["b", "a", "c"]);
    expect(names(same)).toEqual(["b", "a", "c"]);
    expect(sorted(same, columns, undefined)).toBe(same);
  });

  it("reads the order of the address", () => {
    expect(parseOrder("-size", columns)).toEqual({ id: "size", descending: true });
    expect(parseOrder("name", columns)).toEqual({ id: "name", descending: false });
    expect(parseOrder("-nothing", columns)).toBeUndefined();
    expect(parseOrder("", columns)).toBeUndefined();
    expect(orderText({ id: "size", descending: true })).toBe("-size");
  });

  it("exports values as the API gives them, and no formulas", () => {
    expect(
      toCsv(
        [
          { name: '=cmd("x")', size: 1_073_741_824, on: true },
          { name: "a,b", size: null },
        ],
        columns,
      ),
    ).toBe('Name,Size,On\r\n"\'=cmd(""x"")",1073741824,true\r\n"a,b",,\r\n');
  });
});
