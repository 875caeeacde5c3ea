// Elements, texts in three languages, calls of the HTTP API, and what the browser keeps.
import { TRANSLATIONS } from "./words.js";

export const LANGUAGES = { en: "English", de: "Deutsch", zh: "中文" };

export function kept(name, other = null) {
  try { return JSON.parse(localStorage.getItem("kindcast." + name)) ?? other; } catch { return other; }
}
export function keep(name, value) {
  try { localStorage.setItem("kindcast." + name, JSON.stringify(value)); } catch { /* a private window keeps nothing */ }
}

const wanted = (navigator.language || "en").slice(0, 2);
// `draft` is the expression that is being written: a change of language or a new session must not lose it.
export const state = { language: kept("language", wanted in LANGUAGES ? wanted : "en"), cleanups: [], session: null, draft: "", signedOut: () => {}, compare: () => {} };

// Whether the key of this session may do one of these; without keys everybody may everything.
export const may = (...permissions) => permissions.some((each) => state.session.permissions.includes(each));

// The text in the language of the interface; {0}, {1} are replaced.
export function t(text, ...values) {
  const found = TRANSLATIONS[text]?.[state.language] ?? text;
  return found.replace(/\{(\d)\}/g, (_, place) => visible(String(values[place] ?? "")));
}
// Characters that turn the direction of text would move what stands beside a name. They are shown as JSON and expressions write them.
const visible = (each) => (typeof each === "string" ? each.replace(/[\u202a-\u202e\u2066-\u2069]/g, (one) => "\\u" + one.charCodeAt(0).toString(16)) : each);
export const number = (value, digits = 0) => value == null ? "–" : new Intl.NumberFormat(state.language, { maximumFractionDigits: digits }).format(value);
export function when(value) {
  if (value == null) return "–";
  return new Date(typeof value === "number" ? value * 1000 : value).toLocaleString(state.language, { dateStyle: "short", timeStyle: "medium" });
}

// An element: attributes beginning with "on" are listeners, null ones are left out, the rest are its children.
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}
export function s(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}
function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...shown(children));
  return element;
}
const shown = (children) => children.flat(Infinity).filter((each) => each != null && each !== false).map(visible);
export function fill(element, ...children) {
  element.replaceChildren(...shown(children));
  return element;
}

// The same for what is drawn again by itself: what was unfolded stays unfolded, and the focus stays where it was.
const FOCUSABLE = "a, button, input, select, summary, textarea, [tabindex]";
export function renew(element, ...children) {
  const before = named(element, "details", "summary"), held = document.activeElement;
  const focused = [...named(element, FOCUSABLE)].find(([, each]) => each === held)?.[0];
  fill(element, ...children);
  named(element, "details", "summary").forEach((each, name) => { if (before.has(name)) each.open = before.get(name).open; });
  if (focused) (held.isConnected ? held : named(element, FOCUSABLE).get(focused))?.focus({ preventScroll: true });
  return element;
}
// Elements by the text of each, or of a part of it. Those with the same text have numbers: what is drawn again may have others between them.
function named(element, selector, part) {
  const found = new Map();
  for (const each of element.querySelectorAll(selector)) {
    const text = each.tagName + (part ? each.querySelector(part) : each).textContent;
    let name = text;
    for (let number = 2; found.has(name); number++) name = `${text} ${number}`;
    found.set(name, each);
  }
  return found;
}

let counter = 0;
const fresh = (name) => `${name}-${++counter}`;

// ── the HTTP API ─────────────────────────────────────────────────────────────────────────────────────────────────────

class Problem extends Error {
  constructor(status, document) { super(document.detail || document.title || `HTTP ${status}`); this.status = status; this.document = document; }
  get code() { return (this.document.type || "").split("/").pop(); }
}

// A page acts in the tenant that it shows, though the session may act in another one now. A key without a tenant is of all tenants, and the header would name one.
const acting = (path) => (state.session?.needs_key && state.session.all_tenants && !["session", "keys"].includes(path) ? { "Kindcast-Tenant": state.session.tenant } : {});

export async function call(method, path, body, headers = {}) {
  const options = { method, headers: { Accept: "application/json", ...acting(path), ...headers } };
  if (body !== undefined) {
    options.body = typeof body === "string" || body instanceof Blob ? body : JSON.stringify(body);
    options.headers["Content-Type"] ??= "application/json";
  }
  let answer;
  try { answer = await fetch("v1/" + path, options); } catch { throw new Problem(0, { detail: t("The server does not answer.") }); }
  const text = await answer.text();
  let found = text;
  if ((answer.headers.get("content-type") || "").includes("json")) { try { found = JSON.parse(text); } catch { /* no JSON after all */ } }
  if (answer.ok) return found;
  // The server refuses with a document. Anything else comes from a proxy: pages for readers that are no text for a note.
  const problem = new Problem(answer.status, typeof found === "object" ? found : { detail: t("A proxy answered in place of the server: {0}", `HTTP ${answer.status} ${answer.statusText}`.trim()) });
  if (problem.code === "key-missing") { state.signedOut(); problem.message = t("The session has ended: sign in again."); }
  if (problem.code === "unknown-tenant") state.compare();
  throw problem;
}
export const get = (path) => call("GET", path);
export const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value != null && value !== "")).toString();

// Waits for a job, and tells how far it is.
export async function job(started, tell = () => {}, where = "jobs/") {
  let told = started, pause = 100;
  while (told.status === "running") {
    tell(told.progress);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(1000, pause * 1.5);
    told = await get(where + told.id);
  }
  if (told.status === "failed") throw new Problem(told.problem.status, told.problem);
  return told.result;
}

// A stream of server-sent events. A page that is not seen holds none: a browser allows a server six connections only. It
// goes on after the last message. If the server refuses it, it is tried again, from where `after` says. `opened` is called each time it begins.
export const AGAIN = 3000;
export function events(path, name, listener, after = (last) => last, opened = () => {}) {
  let source = null, last = "", over = false;  // only streams of subscriptions have ids, and their paths no query
  const lost = note("bad"), away = (why = t("The server does not answer.")) => document.getElementById("said").append(fill(lost, why));
  const close = () => { source?.close(); source = null; lost.remove(); };
  const open = () => {
    if (source || over || document.hidden) return;
    const mine = source = new EventSource("v1/" + path + (last && "?" + query({ after: last })));
    mine.addEventListener(name, (event) => { last = event.lastEventId || last; listener(JSON.parse(event.data)); });
    mine.addEventListener("open", () => { lost.remove(); state.compare(); opened(); });  // it is of the session's tenant
    mine.addEventListener("error", async () => {
      if (source !== mine) return;
      if (mine.readyState !== EventSource.CLOSED) { away(); return; }  // the browser tries again
      close();
      try {
        const session = await get("session");
        if (!session.who) { state.signedOut(); return; }
        const from = await after(last);
        if (from !== last) { last = from; open(); return; }
      } catch (error) { if (!over) away(error.message); }
      setTimeout(open, AGAIN);
    });
  };
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  const stream = { close: () => { over = true; close(); document.removeEventListener("visibilitychange", seen); } };
  atEnd(stream.close);
  return stream;
}

// Called when the page is left.
const atEnd = (cleanup) => state.cleanups.push(cleanup);
// Draws a page again and again. While this fails, the page says so: what it shows is no longer true.
export function every(milliseconds, work) {
  const lost = note("bad");
  let over = false, works = false;
  const timer = setInterval(async () => {
    if (document.hidden || works) return;  // while an answer is slow, no further questions wait behind it
    works = true;
    try { await work(); lost.remove(); } catch (error) { if (!over) document.getElementById("said").append(fill(lost, error.message)); }
    works = false;
  }, milliseconds);
  atEnd(() => { over = true; clearInterval(timer); lost.remove(); });
}

// ── tickets ──────────────────────────────────────────────────────────────────────────────────────────────────────────

export const tickets = {
  all: () => kept("tickets", {}),
  of: (id) => kept("tickets", {})[id],
  put(id, ticket) { keep("tickets", { ...kept("tickets", {}), [id]: ticket }); },
  drop(id) { const all = kept("tickets", {}); delete all[id]; keep("tickets", all); },
};
export const withTicket = (id) => (tickets.of(id) ? { "Kindcast-Ticket": tickets.of(id) } : {});

// Sends a test message to the sink of a subscription, and says what became of it.
export const testButton = (id) => button(t("Send a test message"), async () => {
  const told = await call("POST", `subscriptions/${id}/test`, undefined, withTicket(id));
  say(`${t("Test message")}: ${outcome(told.outcome)} (${[told.status_code ?? "–", told.detail].filter(Boolean).join(" ")}, ${number(told.seconds * 1000)} ms)`, told.outcome === "delivered" ? "good" : "bad");
});

// ── parts of pages ───────────────────────────────────────────────────────────────────────────────────────────────────

// Says something, seen and read aloud. The same again takes the place of what was said before. Of a long text it says beginning and end: it cannot be scrolled.
export function say(text, tone = "good") {
  const all = [...text], fits = all.length > 600 ? [...all.slice(0, 250), " … ", ...all.slice(-250)].join("") : text;
  const note = h("div", { class: "note " + tone, "data-at": Date.now() }, fits), said = document.getElementById("said");
  said.querySelectorAll("[data-at]").forEach((each) => { if (each.textContent === note.textContent) each.remove(); });
  said.append(note);
  setTimeout(() => note.remove(), tone === "bad" ? 12000 : 6000);
}
export const failed = (error) => { if (!(error instanceof Problem)) console.error(error); say(error.message, "bad"); };
export const button = (text, onclick, kind) => h("button", { type: "button", class: kind, onclick: async (event) => {
  const pressed = event.currentTarget;
  pressed.disabled = true;
  try { await onclick(event); } catch (error) { failed(error); } finally { pressed.disabled = false; refocus(pressed); }
} }, text);
// A button that works cannot hold the focus. Afterwards it goes back to it, or to what was drawn in its place, or else to the content.
export function refocus(pressed) {
  if (document.activeElement !== document.body) return;
  const main = document.getElementById("main");
  const same = [...main.querySelectorAll("button")].filter((each) => (pressed.id ? each.id === pressed.id : each.textContent === pressed.textContent));
  (pressed.isConnected ? pressed : same.length === 1 ? same[0] : main).focus({ preventScroll: true });
}
export const link = (text, href, kind) => h("a", { href, class: kind }, text);
export const tag = (text, tone = "") => h("span", { class: "tag " + tone }, text);
export const card = (...children) => h("section", { class: "card" }, ...children);
export const note = (tone, ...children) => h("div", { class: "note " + tone }, ...children);
export const empty = (text, ...what) => h("div", { class: "empty" }, h("p", {}, text), ...what);

// A text as one word of a shell.
export function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
// How to get the same elsewhere: over HTTP and on the command line, from this server and in the tenant of the page. A proxy may serve the console under a path of its own.
const LOCAL = "127.0.0.1:8080";  // where commands look for a server by themselves
export function how(path, command, method = "GET", body, headers = []) {
  const tenant = acting(path.replace("v1/", ""))["Kindcast-Tenant"], base = new URL(".", document.baseURI);
  const sent = [state.session.needs_key && "Authorization: Bearer $KINDCAST_KEY", tenant && "Kindcast-Tenant: " + tenant, ...headers].filter(Boolean);
  const what = method === "GET" ? "" : body ? ` -X ${method}` : " -T FILE";
  const line = `curl${sent.map((each) => ` -H "${each}"`).join("")}${what} ${quoted(new URL(path, base).href)}` + (body ? ` \\\n  -H 'Content-Type: application/json' -d ${quoted(body)}` : "");
  const where = (base.host === LOCAL && base.pathname === "/" ? "" : " --server " + base.href.slice(0, -1)) + (tenant ? " --tenant " + tenant : "");
  return h("details", { class: "how" }, h("summary", {}, command ? t("The same over HTTP and on the command line") : t("The same over HTTP")), h("pre", {}, line + (command ? "\n" + command + where : "")));
}
export function figure(name, value, path, command) {
  const told = path && how(path, command);
  if (told) { const line = told.querySelector("summary"); fill(line, command ? "HTTP, CLI" : "HTTP", h("span", { class: "unseen" }, ` ${name}`)); }
  return h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name), told);
}
// On a narrow screen each row becomes a block, and each cell says its column's name: the roles keep it a table.
export function table(head, rows) {
  const names = head.map((each) => each.text ?? each);
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": names.filter(Boolean).join(", ") },
    h("table", { role: "table" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head.map((each, place) => h("th", { role: "columnheader", scope: "col", class: each.number && "number" }, names[place])))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map((cell, place) => h("td", { role: "cell", "data-name": names[place], class: [head[place].number && "number", (cell === "" || cell == null || cell === false) && "nothing"].filter(Boolean).join(" ") || null }, typeof cell === "string" && cell ? h("span", {}, cell) : cell)))))));
}
export function list(pairs) {
  return h("dl", {}, pairs.filter(([, value]) => value != null && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
export function field(name, input, help) {
  const id = fresh("field");
  input.id = id;
  return h("div", { class: "grow" }, h("label", { for: id }, name), input, help && h("div", { class: "small quiet" }, help));
}
export const select = (options, chosen, onchange) => h("select", { onchange }, Object.entries(options).map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
const STATUS_TONES = { active: "good", paused: "warn", failing: "warn", disabled_by_failures: "bad", expired: "" };
export const status = (value) => tag({ active: t("active"), paused: t("paused"), failing: t("failing"), disabled_by_failures: t("disabled by failures"), expired: t("expired") }[value] ?? value, STATUS_TONES[value]);
export const outcome = (value) => ({ delivered: t("delivered"), failed: t("failed"), gone: t("the sink wants no more") }[value] ?? value);
// The beginning of a text that may be very long, where others stand beside it. Whole characters: an emoji is not cut in two.
export function brief(text) {
  const begun = [...text.slice(0, 400)].slice(0, 200).join("");
  return begun.length < text.length ? begun + "…" : text;
}
export const nameOf = (subscription) => (typeof subscription.metadata?.name === "string" && brief(subscription.metadata.name)) || subscription.id;  // metadata may be anything
export const dataOf = (event) => JSON.stringify(event.data ?? event);  // an event may have none
export const conceptLink = (iri, label) => link(label, "#/vocabulary?" + query({ term: iri }));
export function later(milliseconds, work) {
  let timer;
  return (...values) => { clearTimeout(timer); timer = setTimeout(() => work(...values), milliseconds); };
}

// A line over time. Values that are not known leave a gap, and one between two gaps is a dot.
export function plot(name, times, values, shown) {
  const known = values.filter((value) => value != null);
  const top = Math.max(...known, 0) || 1, width = 480, height = 130, left = 4, right = 476, low = 106, high = 8;
  const first = times[0], span = Math.max(1, times.at(-1) - first);
  const x = (time) => left + ((time - first) / span) * (right - left), y = (value) => low - (value / top) * (low - high);
  let line = "", open = false;
  times.forEach((time, place) => {
    const value = values[place];
    if (value == null) { open = false; return; }
    line += `${open ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}${open ? "" : "h0"}`;
    open = true;
  });
  const clock = (time) => new Date(time * 1000).toLocaleTimeString(state.language, { hour: "2-digit", minute: "2-digit" });
  const now = values.at(-1) == null ? "–" : shown(values.at(-1));
  return h("figure", { class: "card plot" }, h("h2", {}, name), h("p", { class: "small quiet" }, t("now {0}, most {1}", now, known.length ? shown(Math.max(...known)) : "–")),
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("{0} over the last day: now {1}, most {2}", name, now, known.length ? shown(Math.max(...known)) : "–") },
      s("line", { class: "axis", x1: left, x2: right, y1: low, y2: low }), s("line", { class: "axis", x1: left, x2: right, y1: high, y2: high }),
      s("path", { class: "line", d: line }),
      s("text", { x: left, y: 124 }, clock(first)), s("text", { x: right, y: 124, "text-anchor": "end" }, clock(times.at(-1)))));
}

// Why an event matched or did not: the answer of explain.
export function explanation(said) {
  const clauses = said.clauses.map((clause, place) => h("div", {},
    said.clauses.length > 1 && h("h3", {}, t("Alternative {0}", place + 1), " ", verdict(clause.matches)),
    clause.predicates.map(predicate)));
  return h("div", {}, note(said.matches ? "good" : said.matches === null ? "warn" : "bad", h("p", {}, plain(said.summary))),
    (said.circumstances ?? []).map((text) => note("warn", text)), clauses,
    (said.notes ?? []).map((each) => h("p", { class: "small quiet" }, each.detail ?? String(each))));
}
const verdict = (yes) => (yes == null ? tag(t("not yet decided"), "warn") : tag(yes ? t("yes") : t("no"), yes ? "good" : "bad"));
// Without the IRIs of properties, which are shown by themselves.
const plain = (text) => text.replace(/ \[[^\[\]]*<[^<>]*>\)\]/g, "");
function predicate(one) {
  const values = (one.values ?? []).map((value) => h("div", {},
    h("div", { class: "small" }, t("published"), " ", h("code", {}, JSON.stringify(value.published)), reading(value.canonical, value.converted)),
    value.path?.length > 0 && h("div", { class: "path", role: "img", "aria-label": value.path.join(" → ") }, value.path.map((step, place) => [place > 0 && h("i", {}, "→"), h("span", {}, step)]))));
  const property = one.property && h("details", { class: "small" }, h("summary", {}, t("Property"), ": ", one.property.path?.join(" → ") ?? one.property.label), one.property.iris.map((iri) => h("div", {}, h("code", {}, iri))));
  return h("div", { class: "predicate" }, h("div", { class: "row" }, verdict(one.verdict), h("code", {}, one.text)), h("p", { class: "small" }, plain(one.reason)), values, property,
    one.seconds != null && h("p", { class: "small quiet" }, t("The operator took {0} ms.", number(one.seconds * 1000, 3))));
}
// Six decimals, but of a small amount six digits: 3 µg are not 0 kg.
const amount = (value) => (value && Math.abs(value) < 0.001 ? new Intl.NumberFormat(state.language, { maximumSignificantDigits: 6, notation: "scientific" }).format(value) : number(value, 6));
function reading(canonical, converted) {
  if (!canonical) return null;
  const said = [];
  if (converted) said.push(`${amount(converted.amount)} ${converted.unit}`);
  else if (canonical.quantity) said.push(`${amount(canonical.quantity.amount)} ${(canonical.quantity.unit ?? canonical.quantity.dimension).replace("currency:", "")}`);
  if (canonical.concepts) said.push(...canonical.concepts.map((iri) => iri.split(/[#/]/).pop()));
  if (canonical.instant) said.push(canonical.instant);
  if (canonical.number != null) said.push(String(canonical.number));
  return said.length ? [" ", t("read as"), " ", h("code", {}, said.join(", "))] : null;
}
