// Access: keys, tenants, what was used, and the audit log.
import { button, call, card, empty, field, fill, get, h, how, may, note, number, query, quoted, refocus, say, select, state, t, table, tag, when } from "./dom.js";

export async function page(rest, parameters) {
  const parts = {
    keys: [t("Keys"), keys, ["administer"]], tenants: [t("Tenants"), tenants, ["administer"]],
    usage: [t("Usage"), usage, ["see-operations"]], audit: [t("Audit log"), audit, ["audit"]],
  };
  const open = Object.entries(parts).filter(([, [, , needs]]) => may(...needs));
  const part = open.find(([name]) => name === rest[0]) ?? open[0];
  const tabs = h("ul", { class: "tabs" }, open.map(([name, [text]]) => h("li", {}, h("a", { href: "#/access/" + name, "aria-current": name === part[0] && "page" }, text))));
  return [h("h1", {}, t("Access")), h("nav", { "aria-label": t("Access") }, tabs), await part[1][1](parameters)];
}

const ROLES = () => ({
  publisher: t("publishes events"), subscriber: t("subscribes and receives"), ontologist: t("subscribes, and changes vocabularies"), auditor: t("reads everything but payloads"), admin: t("may do everything"),
});
const LIMITS = () => ({
  requests_per_second: t("requests a second"), events_per_second: t("events a second"), bytes_per_second: t("bytes a second"), connections: t("connections at one time"), subscriptions: t("subscriptions"), matches_per_event: t("matches of an event"),
});
const limitsOf = (limits, used = {}) => Object.entries(limits).map(([name, value]) => `${LIMITS()[name] ?? name}: ${name in used ? number(used[name], 3) + " / " : ""}${number(value, 3)}`).join(", ");

// ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

async function keys() {
  const found = h("div", {}), made = h("div", { "aria-live": "polite" });
  async function draw() {
    const { keys: listed } = await get("keys");
    fill(found, listed.length ? table([t("Key"), t("Role"), t("Tenant"), t("ends"), t("Limits"), ""], listed.map((each) => [
      h("span", {}, each.name || "–", h("br"), h("code", {}, each.id), "key " + each.id === state.session.who && [" ", tag(t("yours"), "good")]), each.role, each.tenant ?? t("all"), each.expires_at ? when(each.expires_at) : t("never"), limitsOf(each.limits, each.used) || "–",
      h("div", { class: "row" }, button(t("Rotate"), async () => { shown(await call("POST", `keys/${each.id}/rotate`)); await draw(); }), button(t("Revoke"), async () => {
        if (!confirm(t("Revoke the key {0}? Requests with it are refused at once.", each.name || each.id))) return;
        await call("DELETE", "keys/" + each.id);
        say(t("The key is revoked."));
        await draw();
      }, "danger"))]))
      : empty(t("There is no key: whoever reaches this server may do everything, so it listens on this machine only. The first key is that of an administrator of all tenants; from then on every request needs one.")));
    role.querySelectorAll("option").forEach((each) => (each.disabled = !listed.length && each.value !== "admin"));
    if (!listed.length) role.value = "admin";
    explain();
  }
  function shown(told) {
    fill(made, card(h("h2", { tabindex: "-1" }, t("The key is made")), note("warn", t("It is shown only now. Keep it.")), h("pre", { class: "secret" }, told.key),
      h("div", { class: "row" }, navigator.clipboard && button(t("Copy"), async () => { await navigator.clipboard.writeText(told.key); say(t("Copied.")); }),
        !state.session.needs_key && button(t("Sign in with it"), async () => { await call("POST", "session", { key: told.key }); location.reload(); }, "first")),
      told.replaces && h("p", {}, t("The old key {0} works until {1}.", told.replaces, when(told.replaced_until))),
      h("p", { class: "small quiet" }, t("Programs send it as the header Authorization: Bearer …; commands read it from the variable KINDCAST_KEY."))));
    made.querySelector("h2").focus();
  }
  const said = h("span", {}), explain = () => fill(said, ROLES()[role.value]);
  const role = select(Object.fromEntries(Object.keys(ROLES()).map((each) => [each, each])), "subscriber", explain), name = h("input", { type: "text", maxlength: 200 }), days = select({ "": t("never"), 1: t("in one day"), 30: t("in thirty days"), 90: t("in ninety days"), 365: t("in a year") }, "90");
  const tenant = h("input", { type: "text", maxlength: 40, pattern: "[a-z0-9]([a-z0-9\\-]{0,38}[a-z0-9])?", title: t("Letters a to z, digits and hyphens, but no hyphen at the ends."), placeholder: state.session.tenant });
  const limits = Object.entries(LIMITS()).map(([key, text]) => [key, h("input", { type: "number", min: "0", step: key.endsWith("_second") ? "any" : "1", oninvalid: (event) => (event.target.closest("details").open = true) }), text]);
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    event.submitter.disabled = true;
    const body = { role: role.value, name: name.value, limits: Object.fromEntries(limits.filter(([, input]) => input.value).map(([key, input]) => [key, Number(input.value)])),
      ...(tenant.value && { tenant: tenant.value }), ...(days.value && { expires_at: new Date(Date.now() + days.value * 864e5).toISOString() }) };
    try { shown(await call("POST", "keys", body)); if (state.session.needs_key) await draw(); } catch (error) { say(error.message, "bad"); }
    event.submitter.disabled = false;
    refocus(event.submitter);
  } }, h("h2", {}, t("Make a key")), h("div", { class: "row top" }, field(t("Role"), role, said), field(t("Name (yours)"), name), state.session.all_tenants && field(t("Tenant"), tenant, t("A new name makes a new tenant. An administrator without a tenant administers all tenants.")), field(t("It ends"), days)),
    h("details", {}, h("summary", {}, t("Limits of this key")), h("div", { class: "row top" }, limits.map(([, input, text]) => field(text, input)))),
    h("div", { class: "row" }, h("button", { type: "submit", class: "first" }, t("Make a key"))));
  await draw();
  const first = state.session.needs_key ? "subscriber" : "admin";
  return [card(found, how("v1/keys", "kindcast key list")), card(form, how("v1/keys", `kindcast key create --role ${first}`, "POST", JSON.stringify({ role: first }))), made];
}

// ── tenants ──────────────────────────────────────────────────────────────────────────────────────────────────────────

async function tenants() {
  const { tenants: listed } = await get("tenants");
  const act = async (name) => { state.session = await call("PATCH", "session", { tenant: name }); location.hash = "#/start"; };
  return card(h("p", {}, t("Tenants share a server and nothing else: subscriptions, events and vocabularies of one are not seen by another.")),
    table([t("Tenant"), { text: t("Keys"), number: true }, t("State"), t("made"), t("Limits"), ""], listed.map((each) => [
      h("strong", {}, each.name), number(each.keys), each.open ? tag(t("open"), "good") : tag(t("not in use")), when(each.created_at), limitsOf(each.limits, each.used) || "–",
      each.name === state.session.tenant ? tag(t("you act here"), "good") : state.session.all_tenants && state.session.needs_key && button(t("Act here"), () => act(each.name))])),
    how("v1/tenants", "kindcast tenant list"));
}

// ── usage ────────────────────────────────────────────────────────────────────────────────────────────────────────────

async function usage() {
  const [told, known] = await Promise.all([get("usage?days=30"), may("administer") ? get("keys") : { keys: [] }]);
  const names = Object.fromEntries(known.keys.map((each) => ["key " + each.id, each]));
  const rows = told.usage.slice().reverse();
  return card(h("p", {}, t("What each key used by day (UTC), newest first, over the last 30 days.")),
    rows.length ? table([t("Day"), t("Who"), t("Tenant"), { text: t("requests"), number: true }, { text: t("refused"), number: true }, { text: t("events"), number: true }, { text: t("bytes"), number: true }, t("Limits")], rows.map((each) => [
      each.day, h("span", {}, names[each.who]?.name || each.who), each.tenant, number(each.requests), number(each.refused), number(each.events), number(each.bytes), names[each.who] ? limitsOf(names[each.who].limits) || "–" : "–"]))
      : empty(state.session.needs_key ? t("Nothing was used yet.") : t("Usage is counted by key, and this server has no keys yet. Make the first one on the page Keys.")),
    how("v1/usage?days=30"));
}

// ── the audit log ────────────────────────────────────────────────────────────────────────────────────────────────────

async function audit(parameters) {
  const who = parameters.get("who") ?? "", asked = parameters.get("hours");
  const spans = { 1: t("the last hour"), 24: t("the last day"), 168: t("the last week"), 8784: t("everything") }, hours = Object.hasOwn(spans, asked) ? asked : "24";
  const go = (change) => (location.hash = "#/access/audit?" + query({ who, hours, ...change }));
  const filter = h("input", { type: "search", value: who, placeholder: "key 0123456789abcdef", onchange: (event) => go({ who: event.target.value.trim() }) });
  const span = select(spans, hours, (event) => go({ hours: event.target.value }));
  const since = new Date(Date.now() - hours * 36e5).toISOString();
  const found = h("div", {});
  let entries = [], after = null, full = true;
  async function more() {
    const told = await get("audit?" + query({ limit: 1000, newest_first: true, since, who, after }));
    entries = [...entries, ...told.entries];
    after = told.cursor;
    full = told.entries.length === 1000;
    fill(found, entries.length ? table([t("when"), t("Who"), t("Tenant"), t("Request"), { text: t("status"), number: true }, t("Address"), t("detail")], entries.map((each) => [
      when(each.at), h("code", {}, each.who), each.tenant, h("code", {}, each.action), tag(String(each.outcome), each.outcome < 400 ? "good" : "bad"), each.address, each.detail]))
      : empty(state.session.needs_key ? t("Nothing was changed or refused in this time.") : t("Changes are logged by key, and this server has no keys yet. Make the first one on the page Keys.")),
    full && button(t("More"), more));
  }
  await more();
  return card(h("p", {}, t("Who changed what, and who was refused. Publishing is counted instead: see Usage.")), h("div", { class: "row top" }, field(t("Who"), filter), field(t("Time"), span)), found,
    h("p", {}, h("a", { href: "v1/audit/export", download: "audit.ndjson" }, t("Download everything as NDJSON"))), how("v1/audit?" + query({ newest_first: true, since, who }), "kindcast audit list --newest-first" + (who && " --who " + quoted(who))));
}
