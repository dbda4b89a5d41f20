// What has to be true of the interface, in the order in which a person would find it out.

import * as access from "./scenarios/access.js";
import * as analytics from "./scenarios/analytics.js";
import * as channels from "./scenarios/channels.js";
import * as everywhere from "./scenarios/everywhere.js";
import * as storage from "./scenarios/storage.js";
import { tasks } from "./scenarios/tasks.js";

export const scenarios = [
  { name: "setup", shows: "the link of the first start makes an administrator, who is let in again", run: access.setup },
  { name: "provision", shows: "from an empty machine to a volume that a host and an NBD client see", run: storage.provision },
  { name: "keyboard", shows: "screens, help and dialogs by keyboard alone", run: access.keyboard },
  { name: "roles", shows: "what a viewer may not do is refused with the reason, by the page and by the API", run: access.roles },
  { name: "drill", shows: "from the dashboard's latency to the guilty client in four clicks at most", run: analytics.drill },
  { name: "heat", shows: "a heat map, its table, a zoom by brush and back", run: analytics.heat },
  { name: "worksheet", shows: "a worksheet is saved, found again after a reload, and replayed", run: analytics.worksheet },
  { name: "violation", shows: "a missed service level says which volume, and why", run: storage.violation },
  { name: "replace", shows: "a disk fails, is seen, replaced, and the pool is whole again", run: storage.replace },
  { name: "trash", shows: "a snapshot, a clone, a deleted volume and its return", run: storage.trash },
  { name: "schedule", shows: "a schedule by hours and days, and new names for a volume and a snapshot", run: storage.schedule },
  { name: "import", shows: "an exported pool is found on its disks and imported under a new name", run: storage.imports },
  { name: "channels", shows: "a channel is created, refused at its field, tested, changed, disabled and deleted", run: channels.channels },
  { name: "tasks", shows: "five tasks on a phone, a tablet, a laptop and a wide screen, light and dark", run: tasks },
  { name: "stale", shows: "a silent appliance is shown as stale, and what follows automatically", run: everywhere.stale },
  { name: "axe", shows: "no serious finding of axe on any screen, light and dark", run: everywhere.axe },
  { name: "small", shows: "no screen is wider than a phone, or than 1280 pixels", run: everywhere.small },
  { name: "cost", shows: "ten graphs for a minute take little of a core and no more memory", run: everywhere.cost, minutes: Number(process.env.COST_SECONDS ?? 60) / 60 + 10 },
  { name: "clean", shows: "no error on the console, and no request left the origin", run: everywhere.clean },
];
