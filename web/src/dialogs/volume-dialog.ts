// The dialogs about volumes, snapshots and projects: which one is open, and about what.

import type { Schemas } from "../lib/api";
import type { Question } from "../ui/Confirm.svelte";

type Volume = Schemas["Volume"];
type Snapshot = Schemas["Snapshot"];

export type VolumeDialog =
  | { kind: "question"; question: Question }
  | { kind: "create"; from?: string; project?: string }
  | { kind: "clone"; volume: Volume }
  | { kind: "delete"; volumes: Volume[] }
  | { kind: "map"; volume: Volume }
  | { kind: "rename"; volume: Volume }
  | { kind: "rename-snapshot"; snapshot: Snapshot }
  | { kind: "grow"; volume: Volume }
  | { kind: "convert"; volume: Volume }
  | { kind: "move"; volume: Volume }
  | { kind: "trace"; volume: Volume }
  | { kind: "level"; volumes: Volume[] }
  | { kind: "snapshot"; of: string[]; choose?: boolean }
  | { kind: "retain"; snapshots: Snapshot[] }
  | { kind: "bookmark"; snapshot: Snapshot }
  | { kind: "send"; snapshot: Snapshot }
  | { kind: "restore"; volume: Schemas["TrashedVolume"] }
  | { kind: "keep"; move: Schemas["MoveLeft"] }
  | { kind: "project"; project?: Schemas["Project"] };

export type Open = (dialog: VolumeDialog) => void;
