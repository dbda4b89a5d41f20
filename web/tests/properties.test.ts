import { describe, expect, it } from "vitest";
import type { Schemas } from "../src/lib/api";
import {
  INHERIT,
  NEW_PROJECT,
  offersBestEffort,
  projectChange,
  projectCommand,
  projectDraft,
  projectMistakes,
  ratioText,
  reduction,
  scheduleMistake,
  scheduleText,
  volumeChange,
  volumeCommands,
  volumeDraft,
} from "../src/lib/properties";

const volume = (spec: Partial<Schemas["VolumeSpec"]>): Schemas["Volume"] =>
  ({
    name: "tank/db/a",
    spec: {
      size_bytes: 1,
      block_size_bytes: 8192,
      sync: "always",
      compression: "lz4",
      level: "gold",
      snapshot_every_seconds: 3600,
      snapshot_keep: { last: 24 },
      format: "thin",
      ...spec,
    },
  }) as Schemas["Volume"];
const sources = (own: Partial<Schemas["VolumeSources"]>): Schemas["VolumeSources"] => ({
  sync: "default",
  compression: "default",
  snapshot_schedule: "default",
  level: "default",
  ...own,
});

describe("the properties of a volume", () => {
  it("are inherited unless they are set on the volume", () => {
    const draft = volumeDraft(volume({ sources: sources({ sync: "own", level: "project" }) }));
    expect(draft).toMatchObject({ sync: "always", level: INHERIT, compression: INHERIT, every: INHERIT, keep: { last: "24", daily: "" }, format: "thin" });
  });
  it("are sent only where they changed", () => {
    const before = volumeDraft(volume({ sources: sources({ sync: "own", level: "project", snapshot_schedule: "own" }) }));
    expect(volumeChange(before, before)).toEqual({});
    expect(volumeChange(before, { ...before, sync: INHERIT, compression: "off", level: "none" })).toEqual({ inherit: ["sync"], compression: "off", level: "none" });
    expect(volumeChange(before, { ...before, keep: { ...before.keep, last: "", daily: "7" } })).toEqual({
      snapshot_every_seconds: 3600,
      snapshot_keep: { last: 0, hourly: 0, daily: 7, weekly: 0, monthly: 0 },
    });
    expect(volumeChange(before, { ...before, every: "0" })).toEqual({ snapshot_every_seconds: 0 });
    expect(volumeChange(before, { ...before, every: INHERIT, format: "zeroedthick" })).toEqual({ inherit: ["snapshot_schedule"], format: "zeroedthick" });
  });
  it("are said as commands, with one of its own for a conversion", () => {
    expect(volumeCommands("tank/a", { format: "thin", sync: "disabled", inherit: ["level", "snapshot_schedule"] }, false)).toEqual([
      "forebay volume convert tank/a --format thin",
      "forebay volume set tank/a --sync disabled --inherit level,snapshot-schedule",
    ]);
    expect(volumeCommands("tank/a", { level: "gold", snapshot_every_seconds: 3600, snapshot_keep: { hourly: 24, daily: 7 } }, true)).toEqual([
      "forebay volume set tank/a --level gold --snapshot-every 1h --snapshot-keep hourly=24,daily=7 --best-effort",
    ]);
    expect(volumeCommands("tank/a", {}, false)).toEqual([]);
  });
  it("say what is wrong with a schedule only where there is one", () => {
    const draft = volumeDraft(volume({ sources: sources({ snapshot_schedule: "own" }) }));
    const none = { ...draft, keep: { ...draft.keep, last: "" } };
    expect(scheduleMistake(draft)).toBe("");
    expect(scheduleMistake(none)).toBe("Enter at least one number.");
    expect(scheduleMistake({ ...none, every: "0" })).toBe("");
  });
  it("show a schedule as the command line does", () => {
    expect(scheduleText(3600, { last: 24 })).toBe("every 1h, 24 kept");
    expect(scheduleText(3600, { hourly: 24, daily: 7 })).toBe("every 1h, kept hourly=24,daily=7");
    expect(scheduleText(0, { last: 24 })).toBe("never");
  });
});

describe("the properties of a project", () => {
  const project = {
    name: "tank/db",
    spec: {
      sync: "always",
      compression: "zstd-3",
      snapshot_every_seconds: 0,
      snapshot_keep: { last: 24 },
      block_size_bytes: 8192,
      format: "thin",
      quota_bytes: 2 ** 40,
      max_iops: 500,
      hosts: ["esx1"],
      sources: { sync: "default", compression: "own", snapshot_schedule: "default", block_size: "default", format: "default", hosts: "own", level: "default" },
    },
  } as Schemas["Project"];
  it("are read and sent only where they changed", () => {
    const before = projectDraft(project);
    expect(before).toMatchObject({ compression: "zstd-3", sync: INHERIT, quota: "1T", iops: "500", bandwidth: "", hosts: ["esx1"] });
    expect(projectChange(before, before)).toEqual({});
    expect(projectChange(before, { ...before, quota: "", iops: "1000", bandwidth: "50M", hosts: [], block: "16384", compression: INHERIT })).toEqual({
      quota_bytes: 0,
      max_iops: 1000,
      max_bytes_per_second: 50_000_000,
      block_size_bytes: 16384,
      inherit: ["compression", "hosts"],
    });
  });
  it("are said as a command", () => {
    const body = projectChange(NEW_PROJECT, { ...NEW_PROJECT, level: "gold", quota: "1T", hosts: ["esx1", "esx2"], block: "16384" });
    expect(projectCommand("create", "tank/db", body, false)).toBe("forebay project create tank/db --level gold --block-size 16K --quota 1T --host esx1 esx2");
    expect(projectCommand("set", "tank/db", { quota_bytes: 0, inherit: ["block_size"] }, false)).toBe("forebay project set tank/db --quota none --inherit block-size");
  });
  it("name each number that cannot be read", () => {
    expect(projectMistakes(NEW_PROJECT)).toEqual({});
    expect(Object.keys(projectMistakes({ ...NEW_PROJECT, quota: "much", iops: "1.5", bandwidth: "fast" }))).toEqual(["quota_bytes", "max_iops", "max_bytes_per_second"]);
  });
});

describe("numbers and refusals", () => {
  it("say how well data is reduced", () => {
    expect(ratioText(reduction(300, 100))).toBe("3.0 : 1");
    expect(ratioText(reduction(0, 0))).toBe("–");
    expect(ratioText(reduction(2000, 100))).toBe("20 : 1");
  });
  it("offer best effort only for a level", () => {
    expect(offersBestEffort(undefined)).toBe(false);
    expect(offersBestEffort({ field: "level" })).toBe(true);
    expect(offersBestEffort({ remedy: "Accept best effort with --best-effort." })).toBe(true);
    expect(offersBestEffort({ field: "name", remedy: null })).toBe(false);
  });
});
