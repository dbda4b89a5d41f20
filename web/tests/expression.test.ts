import { describe, expect, it } from "vitest";
import { by, isHeatmap, only, parse, sentence, unfiltered, without, write, type Expression } from "../src/lib/expression";
import { paths } from "../src/lib/drill";

const read = (text: string): Expression => {
  const found = parse(text);
  if (!found) throw new Error(`cannot be read: ${text}`);
  return found;
};

describe("expressions", () => {
  it.each(["nbd.ops", "nbd.ops[client]", "iscsi.bytes[client=esx1][volume]", "disk.ops[device][op]", "nbd.ops[volume!=demo/db][latency]", 'nbd.ops[client="a \\"b\\" \\\\ c"]'])(
    "%s comes back as it was",
    (text) => expect(write(read(text))).toBe(text),
  );
  it.each(["", "nbd", "nbd.", "nbd.ops[", "nbd.ops[client", "nbd.ops[client=]", "nbd.ops]", "NBD.ops", "nbd.ops[client=a b]", "nbd.ops[a]x"])("%j is none", (text) =>
    expect(parse(text)).toBeNull(),
  );
  it("quotes what the contract wants quoted", () => {
    expect(write(only(read("nbd.ops"), "client", "[::1]"))).toBe('nbd.ops[client="[::1]"]');
    expect(write(only(read("nbd.ops"), "client", "10.0.0.7"))).toBe("nbd.ops[client=10.0.0.7]");
  });
  it("a filter replaces the breakdown by the same dimension", () => {
    expect(write(only(read("nbd.ops[client]"), "client", "a"))).toBe("nbd.ops[client=a]");
    expect(write(by(only(read("nbd.ops[client]"), "client", "a"), ["volume"]))).toBe("nbd.ops[client=a][volume]");
    expect(write(without(read("nbd.ops[client]"), "client", "a"))).toBe("nbd.ops[client!=a][client]");
    expect(write(unfiltered(read("nbd.ops[client=a][op=read][volume]"), 0))).toBe("nbd.ops[op=read][volume]");
  });
  it("knows heat maps, and says what is meant", () => {
    expect(isHeatmap(read("nbd.ops[latency]"))).toBe(true);
    expect(isHeatmap(read("nbd.latency"))).toBe(false);
    expect(sentence(read("nbd.ops[client=10.0.0.7][volume]"))).toBe("Requests over NBD, only client 10.0.0.7, by volume");
  });
});

describe("further down", () => {
  const dimensions = (layer: string, noun: string): string[] =>
    layer === "nbd" && noun === "ops" ? ["op", "client", "volume", "project", "level"] : layer === "qos" ? ["volume", "project", "level"] : [];
  it("leads from a slow volume to its clients", () => {
    const found = paths(read("qos.p99[volume]"), { volume: "demo/db" }, dimensions);
    expect(found.map((path) => path.expression)).toContain("nbd.ops[volume=demo/db][client]");
    expect(found.map((path) => path.expression)).toContain("volume.time[volume=demo/db][stage]");
  });
  it("keeps the filters on the way", () => {
    const found = paths(read("nbd.ops[volume=demo/db][client]"), { client: "10.0.0.7" }, dimensions);
    expect(found.map((path) => path.expression)).toContain("nbd.ops[volume=demo/db][client=10.0.0.7][op]");
    expect(found.every((path) => parse(path.expression) !== null)).toBe(true);
    expect(new Set(found.map((path) => path.expression)).size).toBe(found.length);
  });
  it("goes nowhere from a percentile of everything", () => expect(paths(read("nbd.latency"), { quantile: "p99" }, dimensions)).toEqual([]));
});
