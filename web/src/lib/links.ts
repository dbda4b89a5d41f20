// The pages of objects: where a name leads.

import { href } from "./router.svelte";

export const volumeHref = (name: string, part?: "performance" | "snapshots" | "hosts" | "settings"): string => href("volumes", ["show", name, ...(part ? [part] : [])]);
export const snapshotsHref = (volume: string): string => href("volumes", ["snapshots"], { volume });
export const projectHref = (name: string): string => href("volumes", ["projects"], { find: name });
export const hostHref = (name: string): string => href("hosts", ["show", name]);
export const hostGroupHref = (name: string): string => href("hosts", ["groups", name]);
export const poolHref = (name: string, part?: "disks" | "settings"): string => href("pools", [name, ...(part ? [part] : [])]);
export const levelHref = (name: string): string => href("levels", ["all"], { find: name });
