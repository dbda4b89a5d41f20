import { describe, expect, it } from "vitest";
import type { Schemas } from "../src/lib/api";
import { channelState, clockOf, destination, minuteOf, noticeWords, quietArgument, quietWords, testedWords, unheardWords } from "../src/lib/channels";
import { commandOf, draftOf, isKept, refusalOf, specOf, wrongOf, type Draft } from "../src/lib/channel-draft";

const status = { created_unix_ms: 1, changed_unix_ms: 1, delivered: 0, waiting: 0, lost: 0, quiet: false };
const channel = (spec: Schemas["ChannelSpec"], more: Partial<Schemas["ChannelStatus"]> = {}): Schemas["Channel"] => ({
  id: "1",
  name: "ops",
  spec,
  status: { ...status, ...more },
});
const PEM = "-----BEGIN CERTIFICATE-----\r\nAA==\r\n-----END CERTIFICATE-----\r\n";
const night: Schemas["QuietHours"] = { days: ["sunday", "saturday"], from_minute: 1320, to_minute: 360, critical: "hold_back" };
const mail = channel({
  enabled: false,
  delivery: {
    mail: {
      host: "mail.example.com",
      port: null,
      security: "start_tls",
      login: { user: "nas", password: null },
      from: "nas@example.com",
      to: ["a@example.com", "b@example.com"],
      ca_pem: PEM,
    },
  },
  severity_min: "info",
  kinds: ["raised", "heartbeat"],
  heartbeat_hours: 12,
  quiet_hours: night,
});
const hook = channel({ delivery: { webhook: { url: "https://hooks.example.com/x", secret: null, ca_pem: null } } });
const syslog = channel({ delivery: { syslog: { host: "192.0.2.7", port: 1514, transport: "udp", facility: 10, ca_pem: null } }, kinds: ["audit"] });
const trap = channel({ delivery: { snmp_trap: { host: "nms", port: null, user: "ops", level: "auth_priv", authentication_password: null, privacy_password: null } } });
const changed = (of: Schemas["Channel"], change: Partial<Draft>): Draft => ({ ...draftOf(of), ...change });
const fresh = (change: Partial<Draft>): Draft => ({ ...draftOf(), name: "ops", ...change });

describe("channels in words", () => {
  it("says where notices go", () => {
    expect([mail, hook, syslog, trap].map((one) => destination(one.spec.delivery))).toEqual([
      "a@example.com and b@example.com over mail.example.com",
      "https://hooks.example.com/x",
      "192.0.2.7 over UDP",
      "nms as ops",
    ]);
  });
  it("says the state as the command line does", () => {
    const failure = { at_unix_ms: 1, message: "refused", remedy: "look" };
    expect(channelState(hook)).toEqual(["ok", "Working"]);
    expect(channelState(channel(hook.spec, { quiet: true }))).toEqual(["info", "Quiet"]);
    expect(channelState(channel(hook.spec, { quiet: true, failure }))).toEqual(["bad", "Failing"]);
    expect(channelState(channel({ ...hook.spec, enabled: false }, { failure }))).toEqual(["none", "Disabled"]);
  });
  it("says which notices go, and when it is quiet", () => {
    expect(noticeWords(hook.spec)).toBe("begins, ends");
    expect(noticeWords(mail.spec)).toBe("begins, heartbeat every 12 h");
    expect(quietWords(night)).toBe("Sat and Sun, 22:00 to 06:00 UTC, critical alerts too");
    expect(quietArgument(night)).toBe("saturday,sunday 22:00-06:00");
    expect(quietArgument({ ...night, days: ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"], to_minute: 1440 })).toBe("daily 22:00-24:00");
  });
  it("reads times of day as it writes them", () => {
    for (const minute of [0, 59, 60, 1320, 1439, 1440]) expect(minuteOf(clockOf(minute))).toBe(minute);
    for (const text of ["", "24:01", "25:00", "12:60", "7", "7:5", "noon"]) expect(minuteOf(text)).toBeNull();
  });
  it("hints only while alerts are sent nowhere", () => {
    expect(unheardWords(undefined)).toBe("");
    expect(unheardWords([mail, hook])).toBe("");
    expect(unheardWords([])).not.toBe("");
    expect(unheardWords([mail])).toContain("only channel is disabled");
  });
  it("does not call a datagram delivered", () => {
    expect(testedWords(hook.spec.delivery, { delivered: true })[0]).toBe("ok");
    expect(testedWords(syslog.spec.delivery, { delivered: true })).toMatchObject(["info", expect.stringContaining("check the receiver")]);
    expect(testedWords(hook.spec.delivery, { delivered: false, failure: { at_unix_ms: 1, message: "refused", remedy: "look" } })).toEqual(["bad", "refused"]);
  });
});

describe("the form of a channel", () => {
  it("sends back what it was given", () => {
    for (const one of [mail, syslog, trap, hook]) {
      expect(specOf(draftOf(one), one).delivery).toEqual(one.spec.delivery);
      expect(refusalOf(draftOf(one), one)).toBe("Nothing is changed yet.");
      expect(commandOf(draftOf(one), one)).toBeUndefined();
    }
    expect(specOf(draftOf(mail), mail)).toEqual({ ...mail.spec, quiet_hours: { ...night, days: ["saturday", "sunday"] } });
  });
  it("keeps a stored secret at the same destination only", () => {
    const sets: [Schemas["Channel"], "password" | "secret" | "authentication", Partial<Draft>[], Partial<Draft>[]][] = [
      [mail, "password", [{ port: "587" }, { from: "x@example.com" }, { user: "other" }], [{ host: "evil.example.com" }, { port: "25" }, { security: "none" }, { ca: "" }]],
      [hook, "secret", [{ severity: "critical" }], [{ url: "https://evil.example.com" }, { ca: "X" }]],
      [trap, "authentication", [{ trapUser: "other" }], [{ host: "evil" }, { port: "163" }, { level: "auth_no_priv" }]],
    ];
    for (const [one, secret, same, elsewhere] of sets) {
      for (const change of same) {
        expect(isKept(changed(one, change), secret, one), JSON.stringify(change)).toBe(true);
        expect(refusalOf(changed(one, change), one)).toMatch(/^$|^Nothing/);
      }
      for (const change of elsewhere) {
        expect(isKept(changed(one, change), secret, one), JSON.stringify(change)).toBe(false);
        expect(refusalOf(changed(one, change), one)).toMatch(/^Enter the /);
        expect(refusalOf(changed(one, { ...change, [secret]: "secret one", privacy: "secret two" }), one)).toBe("");
      }
    }
    expect(isKept(fresh({}), "password")).toBe(false);
  });
  it("says what is missing or wrong before it is sent", () => {
    expect(refusalOf(draftOf())).toBe("Enter a name.");
    expect(refusalOf(fresh({ host: "mail" }))).toBe("Enter the sender's address.");
    const good = fresh({ host: "mail", from: "a@b", to: "c@d, e@f\ng@h" });
    expect(refusalOf(good)).toBe("");
    expect(specOf(good).delivery).toMatchObject({ mail: { to: ["c@d", "e@f", "g@h"], port: null, login: null, ca_pem: null } });
    expect(refusalOf({ ...good, user: "nas" })).toBe("Enter the password.");
    expect(refusalOf({ ...good, kinds: ["audit"] }), "audit lines go to syslog only").toBe("Choose at least one notice.");
    expect(refusalOf({ ...good, isQuiet: true, days: [] })).toBe("Choose at least one day for the quiet hours.");
    expect(wrongOf({ ...good, port: "0", isQuiet: true, quietFrom: "24:00", quietTo: "late", kinds: ["heartbeat"], hours: "745" })).toMatchObject({
      port: expect.any(String),
      quietFrom: expect.any(String),
      quietTo: expect.any(String),
      hours: expect.any(String),
    });
    expect(wrongOf({ ...good, port: "x", kind: "webhook", hours: "x", quietTo: "x" }), "what is not shown is not wrong").toEqual({});
  });
  it("shows the command that creates the same", () => {
    expect(commandOf(fresh({ name: "on call", host: "mail", port: "25", security: "none", from: "Storage <a@b>", to: "c@d e@f", severity: "critical" }))).toBe(
      "forebay channel mail 'on call' --to c@d --to e@f --host mail --port 25 --security none --from 'Storage <a@b>' --severity critical",
    );
    expect(commandOf(fresh({ kind: "webhook", url: "https://x/y?z", ca: PEM }))).toBe("forebay channel webhook ops 'https://x/y?z' --ca FILE");
    expect(commandOf(fresh({ kind: "syslog", host: "log", transport: "udp", kinds: ["audit", "raised"] }))).toBe(
      "forebay channel syslog ops --host log --transport udp --notices raised,audit",
    );
    expect(commandOf(fresh({ kind: "snmp_trap", host: "nms", trapUser: "ops", level: "auth_no_priv", kinds: ["raised", "cleared", "heartbeat"], hours: "1", isQuiet: true }))).toBe(
      "forebay channel snmp ops --host nms --user ops --no-privacy --notices raised,cleared,heartbeat --heartbeat-hours 1 --quiet 'saturday,sunday 00:00-24:00'",
    );
  });
  it("shows the command of a change, and none where the command line has none", () => {
    expect(commandOf(changed(mail, { name: "night", severity: "critical" }), mail)).toBe("forebay channel set ops --new-name night --severity critical");
    expect(commandOf(changed(mail, { isQuiet: false }), mail)).toBe("forebay channel set ops --quiet none");
    expect(commandOf(changed(mail, { critical: "deliver" }), mail)).toBe("forebay channel set ops --quiet 'saturday,sunday 22:00-06:00'");
    expect(commandOf(changed(mail, { quietTo: "07:00" }), mail), "critical alerts would not wait any more").toBeUndefined();
    expect(commandOf(changed(mail, { host: "other", severity: "critical" }), mail)).toBeUndefined();
    expect(commandOf(changed(hook, { secret: "whsec_x" }), hook)).toBeUndefined();
  });
});
