import { describe, expect, it } from "vitest";
import { command, quote } from "../src/lib/commands";
import { verdict } from "../src/lib/verdict";
import { causeWords, layoutsFor, layoutShare, layoutSurvives, levelWords, pathsOf, taskBegun, taskTitle, withPath } from "../src/lib/words";

describe("layouts", () => {
  it("recommends what survives, and never what the disks do not suffice for", () => {
    expect(layoutsFor(0)).toEqual([]);
    expect(layoutsFor(1)).toEqual(["single"]);
    expect(layoutsFor(2)[0]).toBe("mirror");
    expect(layoutsFor(8)[0]).toBe("6+2");
    for (let disks = 1; disks < 20; disks += 1) {
      for (const layout of layoutsFor(disks)) {
        const parts = layout.split("+").map(Number);
        const needed = layout === "single" ? 1 : layout === "mirror" ? 2 : layout === "mirror3" ? 3 : (parts[0] ?? 0) + (parts[1] ?? 0);
        expect(needed).toBeLessThanOrEqual(disks);
      }
    }
  });
  it("says what is survived", () => {
    expect(layoutSurvives("single")).toContain("no disk");
    expect(layoutSurvives("mirror")).toContain("any one disk");
    expect(layoutSurvives("6+2")).toContain("any two disks");
    expect(layoutSurvives("8+3")).toContain("any three disks");
    expect([layoutShare("mirror"), layoutShare("4+1"), layoutShare("single")]).toEqual([0.5, 0.8, 1]);
  });
});

describe("commands", () => {
  it("quotes what the shell would take apart", () => {
    expect(quote("tank/vm1")).toBe("tank/vm1");
    expect(quote("it's")).toBe("'it'\\''s'");
    expect(command(["volume", "create", "tank/vm 1"], { size: "100G", level: undefined, host: ["a", "b"], "dry-run": true, force: false })).toBe(
      "forebay volume create 'tank/vm 1' --size 100G --host a b --dry-run",
    );
  });
});

describe("the sentence of the dashboard", () => {
  const nothing = { alerts: [], pools: [], volumes: [], broken: [] };
  it("leads an empty machine to its first pool", () => expect(verdict(nothing)).toMatchObject({ tone: "info", action: { href: "#/volumes/start" } }));
  it("says the gravest alert first and counts the others", () => {
    const alert = {
      id: "1",
      severity: "critical" as const,
      since_unix_ms: 0,
      object: { resource: "disks", name: "tank/3" },
      cause: "Disk 3 of tank has failed.",
      impact: "One more would lose data.",
      action: "Replace it.",
      command: "forebay disk replace tank/3 DISK",
    };
    expect(verdict({ ...nothing, alerts: [alert, { ...alert, id: "2", severity: "warning" }, { ...alert, id: "3", severity: "info" }] })).toMatchObject({
      tone: "bad",
      sentence: "Disk 3 of tank has failed.",
      command: alert.command,
      more: 1,
      action: { href: "#/pools/tank/disks" },
    });
  });
  it("says which service level is missed, and by whom", () => {
    const pools = [{ name: "tank", status: { state: "online", free_bytes: 1 }, conditions: [] }] as never;
    expect(verdict({ ...nothing, pools, volumes: [{}] as never, broken: [{ volume: "tank/db", level: "gold", cause: { kind: "neighbour", object: "tank/bulk" } }] }).sentence).toBe(
      "tank/db misses its service level gold: tank/bulk kept the disks busy.",
    );
  });
  it("names a cause for each kind", () => {
    for (const kind of ["neighbour", "background-work", "disk", "disks", "cache-miss", "own-demand"] as const) expect(causeWords({ kind, object: "x" })).not.toBe("");
    expect(causeWords(null)).toBe("");
  });
});

describe("levels", () => {
  it("says what is guaranteed and what is limited", () => {
    expect(levelWords({ class: "non-critical" }, String, String)).toBe("No guarantee and no limit");
    expect(levelWords({ class: "mission-critical", min_iops: 500, latency_us: 10_000, max_iops: 1000 }, String, String)).toBe("Minimum 500 IOPS; p99 ≤ 10 ms; limit 1000 IOPS");
  });
});

describe("tasks", () => {
  it("says what they do, and the code of those that it does not know", () => {
    expect(["disk.replace", "pool.other"].map(taskTitle)).toEqual(["Replace disk", "pool.other"]);
    expect(taskBegun({ name: "disk.replace", object: "tank/0" })).toBe("Replacing disk tank/0.");
    expect(taskBegun({ name: "disk.offline", object: "tank/$1" })).toBe("Taking disk tank/$1 offline.");
    expect(taskBegun({ name: "pool.other", object: "tank" })).toBe("Started: pool.other of tank.");
  });
});

describe("paths of disks", () => {
  it("are each once, and come and go without touching what else is written", () => {
    expect(pathsOf(" /dev/sda,/dev/sdb\n/dev/sda ")).toEqual(["/dev/sda", "/dev/sdb"]);
    expect(withPath("/srv/file", "/dev/sda", true)).toBe("/srv/file\n/dev/sda");
    expect(withPath("/dev/sda /srv/file", "/dev/sda", true)).toBe("/srv/file\n/dev/sda");
    expect(withPath("/dev/sda\n/srv/file", "/dev/sda", false)).toBe("/srv/file");
    expect(withPath("/dev/sda", "/dev/sda", false)).toBe("");
  });
});
