import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});
const { PLACES, rank } = await import("../src/lib/find");
const { parseHash } = await import("../src/lib/router.svelte");
const { SCREENS } = await import("../src/lib/keys");

const entry = (kind: string, name: string, note?: string) => ({ kind, name, ...(note === undefined ? {} : { note }), icon: "", href: `#/${name}` });
const entries = [
  entry("volume", "tank/vm1"),
  entry("volume", "tank/vm10"),
  entry("volume", "tank/old-vm1-copy"),
  entry("volume", "tank/livm1x"),
  entry("pool", "tank"),
  entry("snapshot", "tank/vm1@night"),
  entry("disk", "tank/0", "/dev/sda Samsung S123"),
  entry("host", "vm1"),
];
const names = (typed: string, most = 20): string[] => rank(entries, typed, most).map(({ name }) => name);

describe("the search over everything", () => {
  it("puts the whole name first, then its last part, then beginnings, then the middle", () => {
    expect(names("vm1")).toEqual(["vm1", "tank/vm1", "tank/vm10", "tank/vm1@night", "tank/old-vm1-copy", "tank/livm1x"]);
    expect(names("TANK")[0]).toBe("tank");
  });

  it("needs every word, and finds notes and kinds", () => {
    expect(names("tank night")).toEqual(["tank/vm1@night"]);
    expect(names("s123")).toEqual(["tank/0"]);
    expect(names("disk")).toEqual(["tank/0"]);
    expect(names("tank nothing")).toEqual([]);
  });

  it("finds nothing for nothing, and no more than wanted", () => {
    expect(names("  ")).toEqual([]);
    expect(names("t", 2)).toHaveLength(2);
  });

  it("has an address of a screen for every place", () => {
    for (const place of PLACES) expect(SCREENS.map(({ id }) => id)).toContain(parseHash(place.href).screen);
    expect(rank(PLACES, "audit", 3)[0]?.name).toBe("Audit log");
  });
});
