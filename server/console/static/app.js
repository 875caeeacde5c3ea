// The frame: header, languages, colours, and which page is shown.
import { button, fill, h, keep, kept, LANGUAGES, select, state, t } from "./dom.js";

const PAGES = {
  start: ["Start", () => import("./start.js")],
  vocabulary: ["Vocabulary", () => import("./vocabulary.js")],
  subscribe: ["Subscribe", () => import("./subscribe.js")],
  live: ["Live", () => import("./live.js")],
  deliveries: ["Deliveries", () => import("./deliveries.js")],
  health: ["Health", () => import("./health.js")],
};
const NAMES = () => ({ start: t("Start"), vocabulary: t("Vocabulary"), subscribe: t("Subscribe"), live: t("Live"), deliveries: t("Deliveries"), health: t("Health") });
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
  fill(document.getElementById("header"), h("div", { class: "bar" },
    h("a", { class: "brand", href: "#/start" }, h("img", { src: "console/icon.svg", alt: "" }), "kindcast"),
    h("nav", { "aria-label": t("Pages") }, h("ul", {}, Object.entries(NAMES()).map(([name, text]) => h("li", {}, h("a", { href: "#/" + name, "aria-current": name === current && "page" }, text))))),
    h("div", { class: "tools" }, language, theme)));
}

let showing = 0;
export async function show() {
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = (path || "start").split("/");
  const page = PAGES[name] ? name : "start";
  const mine = ++showing;
  state.cleanups.splice(0).forEach((cleanup) => cleanup());
  document.documentElement.lang = state.language;
  document.title = `${NAMES()[page]} – kindcast`;
  document.getElementById("skip").textContent = t("Skip to the content");
  header(page);
  const main = document.getElementById("main");
  try {
    const module = await PAGES[page][1]();
    if (mine !== showing) return;
    const content = await module.page(rest, new URLSearchParams(parameters));
    if (mine === showing) fill(main, content);
  } catch (error) {
    if (mine !== showing) return;
    fill(main, h("h1", {}, t("This did not work")), h("p", {}, error.message), button(t("Try again"), show));
    if (error.status === undefined) console.error(error);
  }
  document.body.dataset.page = page;
}

dark.addEventListener("change", paint);
addEventListener("hashchange", async () => { await show(); document.getElementById("main").focus({ preventScroll: true }); scrollTo(0, 0); });
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("main").focus(); });
paint();
show();
