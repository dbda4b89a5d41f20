// What is asked before a host, a group, a mapping or a session goes, and what each list of them has in its menus.

import { act } from "../../lib/act";
import { plan, remove, type Schemas } from "../../lib/api";
import { command } from "../../lib/commands";
import { count, list, plural, rate } from "../../lib/format";
import { forEach, planAll } from "../../lib/many";
import { hostGroups, hosts, mappings, sessions, volumes } from "../../lib/resources.svelte";
import type { Question } from "../../ui/Confirm.svelte";

export function removeHost(host: Schemas["Host"], done: () => void = () => {}): Question {
  const options = { path: { host: host.id }, query: { unmap: true } };
  return {
    title: `Remove host ${host.name}`,
    text: host.status.volumes > 0 ? `The host loses access to ${plural(host.status.volumes, "volume")}.` : "No volume is mapped to the host.",
    button: "Remove host",
    danger: true,
    command: command(["host", "delete", host.name], { unmap: host.status.volumes > 0 }),
    plan: () => plan("delete", "/api/v1/hosts/{host}", options),
    act: () => act(remove("/api/v1/hosts/{host}", options), `Host ${host.name} is removed.`, [hosts, mappings]).then(done),
  };
}

export function removeGroup(group: Schemas["HostGroup"], done: () => void = () => {}): Question {
  const options = { path: { group: group.id }, query: { unmap: true } };
  return {
    title: `Delete group ${group.name}`,
    text: "Its hosts stay, but lose access to volumes that are mapped to the group.",
    button: "Delete",
    danger: true,
    command: command(["host", "group", "delete", group.name], { unmap: group.status.volumes > 0 }),
    plan: () => plan("delete", "/api/v1/host-groups/{group}", options),
    act: () => act(remove("/api/v1/host-groups/{group}", options), `Group ${group.name} is deleted.`, [hostGroups, hosts, mappings]).then(done),
  };
}

export function unmap(chosen: readonly Schemas["Mapping"][]): Question {
  const one = chosen.length === 1 ? chosen[0] : undefined;
  const path = (mapping: Schemas["Mapping"]) => ({ path: { mapping: mapping.id } });
  return {
    title: one ? `Unmap ${one.spec.volume} from ${one.spec.host}` : `Remove ${plural(chosen.length, "mapping")}`,
    text: one ? "Requests of the host to this volume fail from now on." : "Requests of the hosts to these volumes fail from now on.",
    button: "Unmap",
    danger: true,
    command: chosen.map((mapping) => command(["volume", "unmap", mapping.spec.volume], { host: mapping.spec.host })).join("\n"),
    plan: () => planAll(chosen, (mapping) => plan("delete", "/api/v1/mappings/{mapping}", path(mapping))),
    act: forEach(
      chosen,
      (mapping) => remove("/api/v1/mappings/{mapping}", path(mapping)),
      (done) => (one ? `${one.spec.volume} is unmapped from ${one.spec.host}.` : `${plural(done, "mapping is", "mappings are")} removed.`),
      [mappings, hosts, hostGroups, volumes],
    ),
  };
}

export function endSession(one: Schemas["Session"]): Question {
  const path = { session: one.id };
  return {
    title: `End the session of ${one.host ?? one.initiator}`,
    text: "The initiator is notified and may log in again at once, unless the host is changed.",
    button: "End session",
    danger: true,
    command: command(["session", "drop", one.id]),
    plan: () => plan("delete", "/api/v1/sessions/{session}", { path }),
    act: () => act(remove("/api/v1/sessions/{session}", { path }), "The session is ended.", [sessions]),
  };
}

export const authentication = ({ spec }: Schemas["Host"]): string =>
  spec.mutual_user ? `Mutual CHAP, ${spec.chap_user ?? ""} and ${spec.mutual_user}` : spec.chap_user ? `CHAP, ${spec.chap_user}` : "Initiator name only";

export function limits({ spec }: Schemas["Host"]): string {
  return list([spec.max_iops ? `${count(spec.max_iops)} IOPS` : "", spec.max_bytes_per_second ? rate(spec.max_bytes_per_second) : ""].filter(Boolean));
}

/** Mappings of a host or a group; for a host, those of its groups as well. */
export const mappingsOf = (all: readonly Schemas["Mapping"][], names: readonly string[]): Schemas["Mapping"][] => all.filter((mapping) => names.includes(mapping.spec.host));
