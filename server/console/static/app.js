// The frame: header, languages, colours, and which page is shown.
import { button, call, card, fill, get, h, keep, kept, LANGUAGES, may, note, renew, say, select, state, t } from "./dom.js";

const PAGES = {
  start: ["Start", () => import("./start.js")],
  vocabulary: ["Vocabulary", () => import("./vocabulary.js")],
  subscribe: ["Subscribe", () => import("./subscribe.js")],
  live: ["Live", () => import("./live.js")],
  deliveries: ["Deliveries", () => import("./deliveries.js")],
  health: ["Health", () => import("./health.js")],
  access: ["Access", () => import("./access.js")],
};
const NAMES = () => ({ start: t("Start"), vocabulary: t("Vocabulary"), subscribe: t("Subscribe"), live: t("Live"), deliveries: t("Deliveries"), health: t("Health"), access: t("Access") });
// One of these permissions opens a page; the API refuses whatever else a key may not do.
const NEEDS = { vocabulary: ["see-vocabulary"], subscribe: ["subscribe"], live: ["see-events", "receive"], deliveries: ["see-subscriptions"], health: ["see-operations"], access: ["administer", "audit", "see-operations"] };
const opens = (page) => !NEEDS[page] || may(...NEEDS[page]);
const THEMES = () => ({ system: t("system colours"), light: t("light"), dark: t("dark") });
const dark = matchMedia("(prefers-color-scheme: dark)");

function paint() {
  const chosen = kept("theme", "system");
  document.documentElement.dataset.theme = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
}

function header(current) {
  const language = select(LANGUAGES, state.language, (event) => { state.language = event.target.value; keep("language", state.language); show(); });
  const theme = select(THEMES(), kept("theme", "system"), (event) => { keep("theme", event.target.value); paint(); });
  language.setAttribute("aria-label", t("Language"));
  theme.setAttribute("aria-label", t("Colours"));
  renew(document.getElementById("header"), h("div", { class: "bar" },
    h("a", { class: "brand", href: "#/start" }, h("img", { src: "console/icon.svg", alt: "" }), "kindcast"),
    h("nav", { "aria-label": t("Pages") }, h("ul", {}, Object.entries(NAMES()).filter(([name]) => state.session?.who && opens(name)).map(([name, text]) => h("li", {}, h("a", { href: "#/" + name, "aria-current": name === current && "page" }, text))))),
    h("div", { class: "tools" }, state.session?.needs_key && state.session.who && account(), language, theme)));
}

function account() {
  const { name, role, who, tenant } = state.session;
  return [h("span", { class: "small", title: who }, name ? `${name} (${role})` : role ?? who, tenant !== "default" && " · " + tenant),
    button(t("Sign out"), async () => { state.session = await call("DELETE", "session"); state.draft = ""; history.replaceState(null, "", "#/start"); await show(); })];
}

// Where the server has keys and this browser has no session.
function signIn() {
  const key = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true, "aria-describedby": "key-help" });
  const found = h("div", { "aria-live": "assertive" });
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try { state.session = await call("POST", "session", { key: key.value }); await show(); document.getElementById("main").focus(); } catch (error) { fill(found, note("bad", error.message)); key.focus(); }
  } }, h("label", { for: "key" }, t("Key")), key, h("p", { class: "small quiet", id: "key-help" }, t("It begins with kindcast_. The browser does not keep it: the server remembers the session until you sign out, the key ends, the server stops, or some hours have passed.")),
    h("button", { type: "submit", class: "first" }, t("Sign in")), found);
  return [h("h1", {}, t("Sign in")), h("div", { class: "narrow" }, card(form), h("p", { class: "quiet" }, t("You have no key? An administrator makes one on the page Access, or with this command in the data folder:")), h("pre", {}, "kindcast key create --role subscriber --data DIR"))];
}

const ENDED = () => t("The session has ended: sign in again.");
let showing = 0, writer = null;  // `writer` has begun the draft
export async function show() {
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = (path || "start").split("/");
  const page = Object.hasOwn(PAGES, name) ? name : "start";
  const mine = ++showing;
  state.cleanups.splice(0).forEach((cleanup) => cleanup());
  document.querySelectorAll("#said .note").forEach((each) => { if (Date.now() - each.dataset.at > 1000) each.remove(); });
  document.documentElement.lang = state.language;
  document.title = `${NAMES()[page]} – kindcast`;
  document.getElementById("skip").textContent = t("Skip to the content");
  header(page);
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", "true");  // what it shows is still the page before
  try {
    const before = state.session;
    state.session = await get("session");
    if (mine !== showing) return;
    if (before?.who && before.who === state.session.who && before.tenant !== state.session.tenant) say(t("You act in the tenant {0} now.", state.session.tenant), "warn");
    header(page);
    if (!state.session.who) {
      if (before?.who) say(ENDED(), "bad");
      document.title = `${t("Sign in")} – kindcast`;
      fill(main, signIn());
      main.querySelector("input").focus();
      document.body.dataset.page = "sign-in";
      return;
    }
    if (writer !== null && writer !== state.session.who) state.draft = "";  // somebody else has signed in here
    writer = state.session.who;
    if (!opens(page)) { fill(main, h("h1", {}, NAMES()[page]), note("warn", t("Your key has the role {0}, which may not see this page.", state.session.role))); return; }
    const module = await PAGES[page][1]();
    if (mine !== showing) return;
    const content = await module.page(rest, new URLSearchParams(parameters));
    if (mine === showing) fill(main, content);
  } catch (error) {
    if (mine !== showing) return;
    fill(main, h("h1", {}, t("This did not work")), h("p", {}, error.message), button(t("Try again"), show));
    if (error.status === undefined) console.error(error);
  } finally {
    if (mine === showing) main.removeAttribute("aria-busy");
  }
  document.body.dataset.page = page;
}

state.signedOut = () => { if (state.session?.who) { state.session = { ...state.session, who: null }; say(ENDED(), "bad"); show(); } };
// Another tab or window may have signed in as somebody else, or chosen another tenant: this one shows whom it acts for.
const compare = async () => {
  if (document.hidden || !state.session) return;
  const now = await get("session").catch(() => state.session);
  if (now.who !== state.session.who || now.tenant !== state.session.tenant) await show();
};
state.compare = compare;
document.addEventListener("visibilitychange", compare);
addEventListener("focus", compare);  // two windows may be seen at the same time
dark.addEventListener("change", paint);
// The second click of a double click does nothing: what the first one did is not to be done twice.
addEventListener("click", (event) => { if (event.detail > 1 && event.target.closest("button")) { event.preventDefault(); event.stopPropagation(); } }, true);
addEventListener("hashchange", async () => {
  const main = document.getElementById("main"), label = (each) => each?.labels?.[0]?.textContent, filter = label(document.activeElement);
  const drawn = show(), mine = showing;
  await drawn;
  scrollTo(0, 0);
  const same = filter && [...main.querySelectorAll("input, select")].find((each) => label(each) === filter);  // it changed the address
  if (mine === showing && state.session?.who !== null) (same || main).focus({ preventScroll: true });  // null: the form to sign in has the focus; else the language was changed meanwhile, and its menu keeps the focus
});
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("main").focus(); });
paint();
show();
