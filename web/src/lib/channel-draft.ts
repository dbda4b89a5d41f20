// A channel as its form has it, as text, and how that becomes a request or a command. Secrets are never shown: an empty field keeps the stored one while
// the notices go to the same destination, and the appliance asks for it again otherwise (`destination` in the API's contract, which this file mirrors).

import type { Schemas } from "./api";
import { clockOf, DAYS, kindOf, minuteOf, quietArgument, type Day, type Kind, type Notice } from "./channels";
import { command } from "./commands";

export interface Draft {
  name: string;
  kind: Kind;
  host: string;
  /** Empty: the standard one. */
  port: string;
  security: Schemas["MailSecurity"];
  /** Empty: without a login. */
  user: string;
  password: string;
  from: string;
  /** Addresses with spaces, commas or lines between them. */
  to: string;
  ca: string;
  url: string;
  secret: string;
  transport: Schemas["SyslogTransport"];
  facility: number;
  trapUser: string;
  level: Schemas["SnmpLevel"];
  authentication: string;
  privacy: string;
  severity: Schemas["AlertSeverity"];
  kinds: Notice[];
  hours: string;
  isQuiet: boolean;
  days: Day[];
  quietFrom: string;
  quietTo: string;
  critical: Schemas["CriticalAlerts"];
}

/** What says where notices go and how they get there. */
const DELIVERY = [
  "kind",
  "host",
  "port",
  "security",
  "user",
  "password",
  "from",
  "to",
  "ca",
  "url",
  "secret",
  "transport",
  "facility",
  "trapUser",
  "level",
  "authentication",
  "privacy",
] as const satisfies readonly (keyof Draft)[];

const HOURS_DEFAULT = 24;
export const RECIPIENTS_MAX = 32;
export const STANDARD_PORT = { start_tls: 587, tls: 465, none: 25 } as const satisfies Record<Schemas["MailSecurity"], number>;

/** A textarea has no other line breaks than these. */
const lines = (pem: string | null | undefined): string => (pem ?? "").replaceAll("\r\n", "\n");
const addresses = (text: string): string[] => text.split(/[\s,;]+/).filter(Boolean);

/** What a form begins with. */
export function draftOf(channel?: Schemas["Channel"]): Draft {
  const draft: Draft = {
    name: "",
    kind: "mail",
    host: "",
    port: "",
    security: "start_tls",
    user: "",
    password: "",
    from: "",
    to: "",
    ca: "",
    url: "",
    secret: "",
    transport: "tls",
    facility: 16,
    trapUser: "",
    level: "auth_priv",
    authentication: "",
    privacy: "",
    severity: "warning",
    kinds: ["raised", "cleared"],
    hours: String(HOURS_DEFAULT),
    isQuiet: false,
    days: ["saturday", "sunday"],
    quietFrom: "00:00",
    quietTo: "24:00",
    critical: "deliver",
  };
  if (!channel) return draft;
  const { spec } = channel;
  draft.name = channel.name;
  draft.kind = kindOf(spec.delivery);
  draft.severity = spec.severity_min ?? draft.severity;
  draft.kinds = [...(spec.kinds ?? draft.kinds)];
  draft.hours = String(spec.heartbeat_hours ?? HOURS_DEFAULT);
  if (spec.quiet_hours) {
    draft.isQuiet = true;
    draft.days = [...spec.quiet_hours.days];
    draft.quietFrom = clockOf(spec.quiet_hours.from_minute);
    draft.quietTo = clockOf(spec.quiet_hours.to_minute);
    draft.critical = spec.quiet_hours.critical ?? "deliver";
  }
  if ("mail" in spec.delivery) {
    const { host, port, security, login, from, to, ca_pem } = spec.delivery.mail;
    return { ...draft, host, port: String(port ?? ""), security: security ?? "start_tls", user: login?.user ?? "", from, to: to.join("\n"), ca: lines(ca_pem) };
  }
  if ("webhook" in spec.delivery) {
    const { url, ca_pem } = spec.delivery.webhook;
    return { ...draft, url, ca: lines(ca_pem) };
  }
  if ("syslog" in spec.delivery) {
    const { host, port, transport, facility, ca_pem } = spec.delivery.syslog;
    return { ...draft, host, port: String(port ?? ""), transport, facility: facility ?? 16, ca: lines(ca_pem) };
  }
  const { host, port, user, level } = spec.delivery.snmp_trap;
  return { ...draft, host, port: String(port ?? ""), trapUser: user, level: level ?? "auth_priv" };
}

const isPort = (text: string): boolean => text.trim() === "" || (/^\d+$/.test(text.trim()) && Number(text) >= 1 && Number(text) <= 65_535);
const isHours = (text: string): boolean => /^\d+$/.test(text.trim()) && Number(text) >= 1 && Number(text) <= 744;

/** What cannot be sent as it is written, by field. */
export function wrongOf(draft: Draft): Partial<Record<"port" | "hours" | "quietFrom" | "quietTo" | "to", string>> {
  const from = minuteOf(draft.quietFrom);
  return {
    ...(draft.kind === "webhook" || isPort(draft.port) ? {} : { port: "Enter a number from 1 to 65535, or nothing." }),
    ...(draft.kinds.includes("heartbeat") && !isHours(draft.hours) ? { hours: "Enter a number from 1 to 744." } : {}),
    ...(draft.isQuiet && (from === null || from === 1440) ? { quietFrom: "Enter a time like 22:00." } : {}),
    ...(draft.isQuiet && minuteOf(draft.quietTo) === null ? { quietTo: "Enter a time like 06:00 or 24:00." } : {}),
    ...(draft.kind === "mail" && addresses(draft.to).length > RECIPIENTS_MAX ? { to: `At most ${RECIPIENTS_MAX} recipients. Use a distribution list for more.` } : {}),
  };
}

/** Kind, host and port, how the connection is protected, and whom it trusts: a stored secret goes nowhere else. */
function destinationOf(draft: Draft): string {
  const port = draft.port.trim() === "" ? (draft.kind === "mail" ? STANDARD_PORT[draft.security] : 0) : Number(draft.port);
  switch (draft.kind) {
    case "mail":
      return JSON.stringify([draft.kind, draft.host.trim(), port, draft.security, draft.ca]);
    case "webhook":
      return JSON.stringify([draft.kind, draft.url.trim(), draft.ca]);
    case "syslog":
      return JSON.stringify([draft.kind, draft.host.trim(), port]);
    case "snmp_trap":
      return JSON.stringify([draft.kind, draft.host.trim(), port, draft.level]);
  }
}

/** Whether the appliance has this secret and would use it there: its field may stay empty. */
export function isKept(draft: Draft, secret: "password" | "secret" | "authentication" | "privacy", before?: Schemas["Channel"]): boolean {
  if (!before) return false;
  const stored = draftOf(before);
  if (destinationOf(draft) !== destinationOf(stored)) return false;
  return secret !== "password" || stored.user !== "";
}

/** Why the form cannot be sent; empty when it can. */
export function refusalOf(draft: Draft, before?: Schemas["Channel"]): string {
  if (draft.name.trim() === "") return "Enter a name.";
  const missing = (secret: "password" | "secret" | "authentication" | "privacy"): boolean => draft[secret] === "" && !isKept(draft, secret, before);
  switch (draft.kind) {
    case "mail":
      if (draft.host.trim() === "") return "Enter the mail server.";
      if (draft.from.trim() === "") return "Enter the sender's address.";
      if (addresses(draft.to).length === 0) return "Enter a recipient.";
      if (draft.user !== "" && missing("password")) return "Enter the password.";
      break;
    case "webhook":
      if (draft.url.trim() === "") return "Enter the URL.";
      if (before && missing("secret")) return "Enter the signing secret.";
      break;
    case "syslog":
      if (draft.host.trim() === "") return "Enter the syslog server.";
      break;
    case "snmp_trap":
      if (draft.host.trim() === "") return "Enter the receiver.";
      if (draft.trapUser === "") return "Enter the user name.";
      if (missing("authentication")) return "Enter the authentication password.";
      if (draft.level === "auth_priv" && missing("privacy")) return "Enter the privacy password.";
      break;
  }
  if (noticesOf(draft).length === 0) return "Choose at least one notice.";
  if (draft.isQuiet && draft.days.length === 0) return "Choose at least one day for the quiet hours.";
  const wrong = Object.values(wrongOf(draft))[0];
  if (wrong) return wrong;
  if (!before) return "";
  const stored = draftOf(before);
  const isSame = draft.name.trim() === stored.name && JSON.stringify(specOf(draft, before)) === JSON.stringify(specOf(stored, before));
  return isSame ? "Nothing is changed yet." : "";
}

/** Audit lines go to syslog only: one that was chosen before the kind stays out. */
function noticesOf(draft: Draft): Notice[] {
  return (["raised", "cleared", "heartbeat", "audit"] as const).filter((kind) => draft.kinds.includes(kind) && (kind !== "audit" || draft.kind === "syslog"));
}

function quietOf(draft: Draft): Schemas["QuietHours"] | null {
  if (!draft.isQuiet) return null;
  return {
    days: DAYS.map(([day]) => day).filter((day) => draft.days.includes(day)),
    from_minute: minuteOf(draft.quietFrom) ?? 0,
    to_minute: minuteOf(draft.quietTo) ?? 0,
    critical: draft.critical,
  };
}

function deliveryOf(draft: Draft, ca_pem: string | null): Schemas["Delivery"] {
  const host = draft.host.trim();
  const port = draft.port.trim() === "" ? null : Number(draft.port);
  switch (draft.kind) {
    case "mail": {
      const login = draft.user === "" ? null : { user: draft.user, password: draft.password || null };
      return { mail: { host, port, security: draft.security, login, from: draft.from.trim(), to: addresses(draft.to), ca_pem: draft.security === "none" ? null : ca_pem } };
    }
    case "webhook":
      return { webhook: { url: draft.url.trim(), secret: draft.secret || null, ca_pem } };
    case "syslog":
      return { syslog: { host, port, transport: draft.transport, facility: draft.facility, ca_pem: draft.transport === "tls" ? ca_pem : null } };
    case "snmp_trap":
      return {
        snmp_trap: { host, port, user: draft.trapUser, level: draft.level, authentication_password: draft.authentication || null, privacy_password: draft.privacy || null },
      };
  }
}

/** What the API takes. */
export function specOf(draft: Draft, before?: Schemas["Channel"]): Schemas["ChannelSpec"] {
  const delivery = before?.spec.delivery;
  const stored =
    delivery && "mail" in delivery
      ? delivery.mail.ca_pem
      : delivery && "webhook" in delivery
        ? delivery.webhook.ca_pem
        : delivery && "syslog" in delivery
          ? delivery.syslog.ca_pem
          : null;
  // As it is stored when it was not changed: another line break would be another destination.
  const ca = draft.ca.trim() === "" ? null : draft.ca === lines(stored) ? (stored ?? null) : draft.ca;
  return {
    enabled: before?.spec.enabled ?? true,
    delivery: deliveryOf(draft, ca),
    severity_min: draft.severity,
    kinds: noticesOf(draft),
    heartbeat_hours: draft.kinds.includes("heartbeat") && isHours(draft.hours) ? Number(draft.hours) : (before?.spec.heartbeat_hours ?? HOURS_DEFAULT),
    quiet_hours: quietOf(draft),
  };
}

/** The command that does just the same; undefined where the command line has none. It asks for secrets itself. */
export function commandOf(draft: Draft, before?: Schemas["Channel"]): string | undefined {
  const was = draftOf(before);
  const quiet = quietOf(draft);
  const said = quiet ? quietArgument(quiet) : "none";
  const wasQuiet = quietOf(was);
  const isQuietChanged = said !== (wasQuiet ? quietArgument(wasQuiet) : "none") || quiet?.critical !== wasQuiet?.critical;
  if (isQuietChanged && quiet?.critical === "hold_back") return undefined;
  const notices = noticesOf(draft).join(",");
  const hours = draft.kinds.includes("heartbeat") && draft.hours.trim() !== was.hours ? draft.hours.trim() : undefined;
  const what = {
    severity: draft.severity === was.severity ? undefined : draft.severity,
    notices: notices === noticesOf(was).join(",") ? undefined : notices,
    "heartbeat-hours": hours,
    quiet: isQuietChanged ? said : undefined,
  };
  if (before) {
    if (DELIVERY.some((field) => draft[field] !== was[field])) return undefined;
    const options = { "new-name": draft.name.trim() === was.name ? undefined : draft.name.trim(), ...what };
    return Object.values(options).some((value) => value !== undefined) ? command(["channel", "set", was.name], options) : undefined;
  }
  const name = draft.name.trim() || "NAME";
  const host = draft.host.trim() || "HOST";
  const port = draft.port.trim() || undefined;
  const ca = draft.ca.trim() === "" ? undefined : "FILE";
  switch (draft.kind) {
    case "mail": {
      const recipients = addresses(draft.to);
      // Each recipient has an option of its own.
      const to = (recipients.length > 0 ? recipients : ["ADDRESS"]).flatMap((one) => ["--to", one]);
      return command(["channel", "mail", name, ...to], {
        host,
        port,
        security: draft.security === "start_tls" ? undefined : draft.security,
        user: draft.user || undefined,
        from: draft.from.trim() || "ADDRESS",
        ca: draft.security === "none" ? undefined : ca,
        ...what,
      });
    }
    case "webhook":
      return command(["channel", "webhook", name, draft.url.trim() || "URL"], { "secret-file": draft.secret === "" ? undefined : "FILE", ca, ...what });
    case "syslog":
      return command(["channel", "syslog", name], {
        host,
        transport: draft.transport === "tls" ? undefined : draft.transport,
        port,
        facility: draft.facility === 16 ? undefined : draft.facility,
        ca: draft.transport === "tls" ? ca : undefined,
        ...what,
      });
    case "snmp_trap":
      return command(["channel", "snmp", name], { host, port, user: draft.trapUser || "USER", "no-privacy": draft.level === "auth_no_priv", ...what });
  }
}
