// What channels are, in words: where notices go, how that goes, and which ones go.

import type { Schemas } from "./api";
import { list, plural } from "./format";
import type { Tone } from "./words";

export type Kind = "mail" | "webhook" | "syslog" | "snmp_trap";
export type Notice = Schemas["NoticeKind"];
export type Day = Schemas["Day"];

export const KIND: Record<Kind, string> = { mail: "Mail", webhook: "Webhook", syslog: "Syslog", snmp_trap: "SNMP traps" };

export const KIND_HELP: Record<Kind, string> = {
  mail: "A message to each recipient, over your mail server (SMTP).",
  webhook: "A signed POST of JSON to a URL: chat, paging, automation.",
  syslog: "Lines to a syslog server (RFC 5424), on request with the audit log.",
  snmp_trap: "SNMPv3 traps to a network management system.",
};

/** The greatest first, as the severity of a channel is a minimum. */
export const LEAST: Record<Schemas["AlertSeverity"], string> = { critical: "Critical alerts only", warning: "Warnings and critical alerts", info: "All alerts, including notes" };

export const NOTICE: Record<Notice, string> = {
  raised: "An alert begins or becomes more severe",
  cleared: "An alert ends",
  heartbeat: "Heartbeat: the appliance is alive, at a fixed interval",
  audit: "Each line of the audit log",
};

const NOTICE_SHORT: Record<Notice, string> = { raised: "begins", cleared: "ends", heartbeat: "heartbeat", audit: "audit log" };

/** In the order of a week. */
export const DAYS: readonly [Day, string][] = [
  ["monday", "Mon"],
  ["tuesday", "Tue"],
  ["wednesday", "Wed"],
  ["thursday", "Thu"],
  ["friday", "Fri"],
  ["saturday", "Sat"],
  ["sunday", "Sun"],
];

/** By number (RFC 5424, table 1), under the names that syslog servers use. */
export const FACILITIES = [
  "kern",
  "user",
  "mail",
  "daemon",
  "auth",
  "syslog",
  "lpr",
  "news",
  "uucp",
  "cron",
  "authpriv",
  "ftp",
  "ntp",
  "audit",
  "alert",
  "clock",
  "local0",
  "local1",
  "local2",
  "local3",
  "local4",
  "local5",
  "local6",
  "local7",
] as const;

export function kindOf(delivery: Schemas["Delivery"]): Kind {
  if ("mail" in delivery) return "mail";
  if ("webhook" in delivery) return "webhook";
  return "syslog" in delivery ? "syslog" : "snmp_trap";
}

/** Where notices go, in a line. */
export function destination(delivery: Schemas["Delivery"]): string {
  if ("mail" in delivery) return `${list(delivery.mail.to)} over ${delivery.mail.host}`;
  if ("webhook" in delivery) return delivery.webhook.url;
  if ("syslog" in delivery) return `${delivery.syslog.host} over ${delivery.syslog.transport.toUpperCase()}`;
  return `${delivery.snmp_trap.host} as ${delivery.snmp_trap.user}`;
}

/** Over these, an appliance cannot know whether a message arrived: it knows that it was sent. */
export const isUnconfirmed = (delivery: Schemas["Delivery"]): boolean => "snmp_trap" in delivery || ("syslog" in delivery && delivery.syslog.transport === "udp");

export const isEnabled = (channel: Schemas["Channel"]): boolean => channel.spec.enabled ?? true;

/** The same order as the command line has: a channel that is disabled is neither failing nor quiet. */
export function channelState(channel: Schemas["Channel"]): [Tone, string] {
  if (!isEnabled(channel)) return ["none", "Disabled"];
  if (channel.status.failure) return ["bad", "Failing"];
  return channel.status.quiet ? ["info", "Quiet"] : ["ok", "Working"];
}

/** 1320 -> 22:00; the end of a day is 24:00. */
export function clockOf(minute: number): string {
  return `${String(Math.trunc(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;
}

/** 22:00 -> 1320. Null when it is no time of day; 24:00 is the end of one. */
export function minuteOf(text: string): number | null {
  const found = /^\s*(\d{1,2}):(\d\d)\s*$/.exec(text);
  if (!found) return null;
  const [hours, minutes] = [Number(found[1]), Number(found[2])];
  const minute = hours * 60 + minutes;
  return minutes < 60 && minute <= 1440 ? minute : null;
}

/** As the command line takes and shows them: `saturday,sunday 00:00-24:00`. */
export function quietArgument(quiet: Pick<Schemas["QuietHours"], "days" | "from_minute" | "to_minute">): string {
  const days = DAYS.map(([day]) => day).filter((day) => quiet.days.includes(day));
  return `${days.length === DAYS.length ? "daily" : days.join(",")} ${clockOf(quiet.from_minute)}-${clockOf(quiet.to_minute)}`;
}

/** Sat and Sun, 00:00 to 24:00 UTC. */
export function quietWords(quiet: Schemas["QuietHours"]): string {
  const days = DAYS.filter(([day]) => quiet.days.includes(day)).map(([, short]) => short);
  const which = days.length === DAYS.length ? "every day" : list(days);
  const held = quiet.critical === "hold_back" ? ", critical alerts too" : "";
  return `${which}, ${clockOf(quiet.from_minute)} to ${clockOf(quiet.to_minute)} UTC${held}`;
}

/** Which notices go, in a line. */
export function noticeWords(spec: Schemas["ChannelSpec"]): string {
  const kinds = spec.kinds ?? ["raised", "cleared"];
  return (["raised", "cleared", "heartbeat", "audit"] as const)
    .filter((kind) => kinds.includes(kind))
    .map((kind) => (kind === "heartbeat" ? `heartbeat every ${spec.heartbeat_hours ?? 24} h` : NOTICE_SHORT[kind]))
    .join(", ");
}

/** Why alerts reach only people who look at this interface; empty when a channel delivers, or when that is not known yet. */
export function unheardWords(channels: readonly Schemas["Channel"][] | undefined): string {
  if (!channels || channels.some(isEnabled)) return "";
  if (channels.length === 0) return "Alerts are shown only here; nothing sends them.";
  return channels.length === 1
    ? "Alerts are shown only here: the only channel is disabled."
    : `Alerts are shown only here: all ${plural(channels.length, "channel")} are disabled.`;
}

/** How a test message went. */
export function testedWords(delivery: Schemas["Delivery"], tested: Schemas["ChannelTested"]): [Tone, string] {
  if (!tested.delivered) return ["bad", tested.failure?.message ?? "The message was not delivered."];
  if (isUnconfirmed(delivery)) return ["info", "The message was sent. UDP gives no confirmation: check the receiver."];
  return ["ok", "The receiver accepted the message."];
}
