// What screens of pools show beyond the pools themselves.

import { all, type Schemas } from "../../lib/api";
import { Resource } from "../../lib/resources.svelte";

/** The disks of all pools. */
export const disks = new Resource<Schemas["Disk"][]>((signal) => all<Schemas["Disk"]>("/api/v1/disks", {}, signal), ["disks", "pools"], 10);

/** All disks of the machine. Each answer reads what is on them, so it is asked for seldom. */
export const machineDisks = new Resource<Schemas["MachineDisk"][]>((signal) => all<Schemas["MachineDisk"]>("/api/v1/machine/disks", {}, signal), ["pools", "disks"], 60);

/** As the command line names a disk. */
export const diskName = (disk: Schemas["Disk"]): string => `${disk.spec.pool}/${disk.status.number}`;

export const diskErrors = ({ status }: Schemas["Disk"]): number => status.errors_read + status.errors_write + status.errors_checksum;

/** What the machine says of a pool's disk. */
export const machineDiskOf = (all: readonly Schemas["MachineDisk"][], disk: Schemas["Disk"]): Schemas["MachineDisk"] | undefined =>
  all.find((one) => one.pool === disk.spec.pool && one.number === disk.status.number);

/** `KEY=VALUE`, one on a line. Null when a line is something else. */
export function pairsOf(text: string): Record<string, string> | null {
  const found: Record<string, string> = {};
  for (const line of text
    .split(/\n+/)
    .map((one) => one.trim())
    .filter(Boolean)) {
    const at = line.lastIndexOf("=");
    if (at <= 0 || at === line.length - 1) return null;
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
