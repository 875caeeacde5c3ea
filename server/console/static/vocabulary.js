// Vocabulary: search, tree, picture, versions, unknown terms, upload.
import { button, call, card, conceptLink, empty, failed, field, fill, get, h, how, job, later, link, list, may, note, number, query, quoted, refocus, s, say, select, state, t, table, tag, when } from "./dom.js";

export async function page(rest, parameters) {
  const changes = may("change-vocabulary");
  const parts = { browse: [t("Browse"), browse], ...(changes && { upload: [t("Upload"), upload] }), versions: [t("Versions"), versions], ...(changes && { unknown: [t("Unknown terms"), unknown] }) };
  const part = Object.hasOwn(parts, rest[0] ?? "") ? rest[0] : "browse";
  const tabs = h("ul", { class: "tabs" }, Object.entries(parts).map(([name, [text]]) => h("li", {}, h("a", { href: name === "browse" ? "#/vocabulary" : "#/vocabulary/" + name, "aria-current": name === part && "page" }, text))));
  return [h("h1", {}, t("Vocabulary")), h("nav", { "aria-label": t("Vocabulary") }, tabs), await parts[part][1](parameters)];
}
const language = () => "lang=" + state.language;

// ── browse ───────────────────────────────────────────────────────────────────────────────────────────────────────────

async function browse(parameters) {
  const roots = await get(`concepts/roots?limit=200&${language()}`);
  if (!roots.count) return empty(t("There is no vocabulary yet. Load one, or upload your own."), ...(may("change-vocabulary") ? [link(t("Load a vocabulary"), "#/start?load", "button"), " ", link(t("Upload your own"), "#/vocabulary/upload", "button")] : []));
  const shown = h("div", { "aria-live": "polite" }), results = h("div", { class: "results" });
  const search = h("input", { type: "search", autocomplete: "off", oninput: () => look(search.value.trim()) });
  let wanted = null;
  const open = async (iri, push = true) => {
    if (push && iri !== wanted) history.pushState(null, "", "#/vocabulary?" + query({ term: iri }));
    wanted = iri;
    try {
      const [content, way] = await concept(iri);
      if (wanted !== iri) return;  // another concept was chosen meanwhile
      fill(shown, content);
      await hierarchy.reveal(way);
    } catch (error) { if (wanted === iri) fill(shown, note("bad", error.message)); }
  };
  let asked = 0;
  const look = later(120, async (text) => {
    const mine = ++asked;
    if (!text) { fill(results); return; }
    let answer;
    try { answer = await get("concepts?" + query({ q: text, limit: 20, labels: state.language })); } catch (error) { if (mine === asked) fill(results, note("bad", error.message)); return; }
    if (mine !== asked) return;
    fill(results, answer.concepts.length ? answer.concepts.map((each) => h("button", { type: "button", onclick: () => open(each.iri) },
      h("span", {}, each.label), each.matched && each.matched !== each.label && h("span", { class: "quiet small" }, each.matched, each.lang ? ` (${each.lang})` : ""))) : h("p", { class: "quiet" }, t("Nothing is called so.")));
  });
  const hierarchy = tree(roots, open);
  const term = parameters.get("term");
  if (term) open(term, false); else fill(shown, card(h("p", { class: "quiet" }, t("Choose a concept in the tree, or search for a word in any language."))));
  return h("div", { class: "columns side" },
    h("div", {}, card(field(t("Search in any language"), search), results),
      card(h("h2", {}, t("Hierarchy")), hierarchy.element, roots.count > roots.concepts.length && h("p", { class: "small quiet" }, t("{0} of {1} are shown: search for the others.", roots.concepts.length, roots.count)),
        how("v1/concepts/roots", "kindcast concept find WORD"))),
    shown);
}

// The tree of the W3C's authoring practices: arrows move, Enter chooses, branches come when they are opened.
function tree(roots, open) {
  const element = h("ul", { role: "tree", "aria-label": t("Hierarchy") });
  const visible = () => [...element.querySelectorAll('[role="treeitem"]')].filter((each) => !each.parentElement.closest('[aria-expanded="false"]'));
  const reach = (item) => { element.querySelectorAll('[tabindex="0"]').forEach((each) => (each.tabIndex = -1)); item.tabIndex = 0; };  // by Tab
  const focus = (item) => { if (!item) return; reach(item); item.focus(); };
  function node(each, level) {
    const leaf = each.children_count === 0;
    const group = leaf ? null : h("ul", { role: "group" });
    const twist = h("span", { class: "twist", "aria-hidden": "true" }, leaf ? "·" : "▸");
    const item = h("li", { role: "treeitem", tabindex: "-1", "aria-expanded": leaf ? null : "false", "aria-selected": "false", "aria-level": level, "data-iri": each.iri },
      h("div", { class: "node", onclick: (event) => { event.stopPropagation(); focus(item); if (event.target === twist && !leaf) unfold(); else { open(each.iri); if (!leaf && item.ariaExpanded !== "true") unfold(true); } } },
        twist, h("span", {}, each.label), !leaf && h("span", { class: "quiet small" }, number(each.children_count))), group);
    if (group) group.hidden = true;
    async function unfold(wanted = item.getAttribute("aria-expanded") !== "true") {
      if (leaf) return;
      item.setAttribute("aria-expanded", String(wanted));
      twist.textContent = wanted ? "▾" : "▸";
      group.hidden = !wanted;
      if (wanted && !group.childElementCount) {
        let answer;
        try { answer = await get("concepts/children?" + query({ term: each.iri, limit: 500, lang: state.language })); } catch (error) { unfold(false); failed(error); return; }
        const hidden = answer.count > answer.concepts.length && h("li", { role: "none", class: "small quiet" }, t("{0} of {1} are shown: search for the others.", number(answer.concepts.length), number(answer.count)));
        if (!group.childElementCount) group.append(...answer.concepts.map((child) => node(child, level + 1)), hidden || "");
      }
    }
    item.unfold = unfold;
    item.choose = () => open(each.iri);
    return item;
  }
  element.addEventListener("keydown", (event) => {
    const items = visible(), place = items.indexOf(document.activeElement), item = items[place];
    if (!item) return;
    const expanded = item.getAttribute("aria-expanded");
    const moves = {
      ArrowDown: () => focus(items[place + 1]), ArrowUp: () => focus(items[place - 1]), Home: () => focus(items[0]), End: () => focus(items.at(-1)),
      ArrowRight: () => (expanded === "false" ? item.unfold(true) : expanded === "true" && focus(items[place + 1])),
      ArrowLeft: () => (expanded === "true" ? item.unfold(false) : focus(item.parentElement.closest('[role="treeitem"]'))),
      Enter: () => item.choose(), " ": () => item.choose(),
    };
    if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
  });
  element.append(...roots.concepts.map((each) => node(each, 1)));
  if (element.firstElementChild) element.firstElementChild.tabIndex = 0;
  // Opens what is on the way from a root to a concept, and marks the concept there. What is beyond the first page of roots
  // or of children is added.
  async function reveal(way) {
    let place = element, item = null;
    for (const [level, each] of way.entries()) {
      item = [...place.children].find((other) => other.dataset.iri === each.iri);
      if (!item) { item = node(each, level + 1); place.insertBefore(item, place.querySelector(':scope > [role="none"]')); }
      if (each !== way.at(-1)) { await item.unfold(true); place = item.querySelector('[role="group"]'); }
    }
    element.querySelectorAll('[aria-selected="true"]').forEach((each) => each.setAttribute("aria-selected", "false"));
    item.setAttribute("aria-selected", "true");
    if (!element.contains(document.activeElement)) reach(item);
    const box = item.firstElementChild.getBoundingClientRect(), frame = element.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) element.scrollTop += box.top - frame.top - frame.height / 3;
  }
  return { element, reveal };
}

async function concept(iri) {
  const [around, usage] = await Promise.all([get("concepts/around?" + query({ term: iri, lang: state.language })), get("concepts/usage?" + query({ term: iri, lang: state.language }))]);
  const it = around.concept;
  const way = [around.nodes[0]];
  for (let node = 0, up; (up = around.edges.find(([low, high]) => low === node && high !== 0)) && way.length < 60; node = up[1]) way.unshift(around.nodes[up[1]]);
  const names = (all) => h("ul", { class: "plain" }, all.map((each) => h("li", {}, h("bdi", {}, each.value), " ", each.lang && h("span", { class: "quiet small", lang: "en" }, each.lang))));
  return [[
    card(h("h2", {}, h("bdi", {}, it.label), " ", it.deprecated && tag(t("deprecated"), "warn")), h("p", { class: "small" }, h("code", {}, it.iri)), it.definition && h("p", {}, it.definition), picture(around),
      around.children_count > 24 && h("p", { class: "small quiet" }, t("The picture shows 24 of {0} children.", number(around.children_count))),
      may("subscribe") && link(t("Subscribe to this kind"), "#/subscribe?" + query({ concept: it.iri }), "button"), how("v1/concepts/resolve?" + query({ term: it.iri }), `kindcast concept show ${quoted(it.iri)}`)),
    h("div", { class: "columns" },
      card(h("h2", {}, t("Names")), names(it.labels), it.synonyms.length > 0 && [h("h3", {}, t("Synonyms")), names(it.synonyms)], list([[t("Vocabulary"), it.ontology]])),
      card(h("h2", {}, t("Who asks for it")), h("p", {}, t("Subscriptions that name it or one of the {1} concepts beneath it: {0}", number(usage.subscriptions.count), number(usage.descendants_count))),
        h("ul", { class: "plain" }, usage.subscriptions.listed.slice(0, 10).map((each) => h("li", { class: "row" }, link(each.id, "#/deliveries/" + each.id), h("code", {}, shortened(each.canonical))))),
        h("h3", {}, t("Recent events")), usage.events.count ? h("ul", { class: "plain" }, usage.events.listed.slice(0, 10).map((each) => h("li", { class: "row" }, link("#" + each.sequence, "#/live?event=" + each.sequence), h("span", { class: "quiet small" }, each.type), each.matched ? tag(t("{0} got it", each.matched), "good") : tag(t("nobody got it")))))
          : h("p", { class: "quiet" }, t("No recent event was about it. Events looked at: {0}.", number(usage.examined.events))),
        how("v1/concepts/usage?" + query({ term: it.iri })))),
  ], way];
}
const shortened = (canonical) => canonical.replace(/<[^>]*[#/]([^>#/]+)>/g, "$1");

// All above a concept in rows by their distance, itself, and what is directly beneath it.
function picture(around) {
  const beneath = around.edges.filter(([, high]) => high === 0).map(([low]) => low);
  const depth = new Map([[0, 0]]);
  for (let changed = true; changed; ) {
    changed = false;
    for (const [low, high] of around.edges) if (depth.has(low) && !beneath.includes(low) && (depth.get(high) ?? -1) < depth.get(low) + 1 && depth.get(low) < 40) { depth.set(high, depth.get(low) + 1); changed = true; }
  }
  const most = document.documentElement.clientWidth > 700 ? 5 : 2;  // in a row: the text must be legible
  const rows = [];
  for (const [node, level] of depth) (rows[level] ??= []).push(node);
  const lines = [];
  const cut = (nodes) => { for (let start = 0; start < nodes.length; start += most) lines.push(nodes.slice(start, start + most)); };
  rows.filter(Boolean).reverse().forEach(cut);
  cut(beneath);
  const width = most * 180, step = 78, place = new Map();
  lines.forEach((nodes, row) => nodes.forEach((node, column) => place.set(node, [((column + 0.5) * width) / nodes.length, row * step + 24])));
  const box = Math.min(168, width / Math.max(...lines.map((nodes) => nodes.length)) - 12);
  // In one line or two; what does not fit is in the title.
  const pen = document.createElement("canvas").getContext("2d"), room = box - 12;
  pen.font = "600 13px " + getComputedStyle(document.body).fontFamily;
  const wide = (text) => pen.measureText(text).width;
  const clipped = (text) => { if (wide(text) <= room) return text; let kept = ""; for (const c of text) { if (wide(kept + c + "…") > room) break; kept += c; } return kept + "…"; };
  function inLines(text) {
    if (wide(text) <= room) return [text];
    const words = text.split(" ");
    let first = words.shift();
    while (words.length && wide(`${first} ${words[0]}`) <= room) first += " " + words.shift();
    return words.length ? [clipped(first), clipped(words.join(" "))] : [clipped(first)];
  }
  const label = (text, x, y) => { const parts = inLines(text); return s("text", { x, y: y - (parts.length - 1) * 8 }, parts.map((part, number) => s("tspan", { x, dy: number ? 16 : 0 }, number ? part : part + " "))); };
  const edges = around.edges.filter(([low, high]) => place.has(low) && place.has(high)).map(([low, high]) => {
    const [x1, y1] = place.get(low), [x2, y2] = place.get(high);
    return s("path", { class: "edge", d: `M${x1} ${y1 - 20}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2 + 20}` });
  });
  const nodes = [...place].map(([node, [x, y]]) => {
    const each = around.nodes[node];
    const shape = [s("title", {}, each.label), s("rect", { x: x - box / 2, y: y - 20, width: box, height: 40, rx: 6 }), label(each.label, x, y)];
    return node === 0 ? s("g", { class: "here" }, ...shape) : s("a", { href: "#/vocabulary?" + query({ term: each.iri }), "aria-label": each.label }, ...shape);
  });
  return s("svg", { class: "picture", viewBox: `0 0 ${width} ${lines.length * step - 30}`, role: "group", "aria-label": t("{0}: what it is a kind of, and its kinds", around.concept.label) }, edges, nodes);
}

// ── upload ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const TYPES = { ttl: "text/turtle", owl: "application/rdf+xml", rdf: "application/rdf+xml", xml: "application/rdf+xml", nt: "application/n-triples", jsonld: "application/ld+json", json: "application/ld+json", obo: "text/obo", ofn: "text/owl-functional", owx: "application/owl+xml", nq: "application/n-quads", trig: "application/trig", tsv: "text/tab-separated-values" };

const STAGES = () => ({ unpack: t("Unpacking"), parse: t("Reading statements"), extract: t("Finding concepts"), relations: t("Following relations"), reason: t("Reasoning"), encode: t("Storing"), decode: t("Storing"), wait: t("Waiting"), build: t("Building the hierarchy"), compile: t("Compiling subscriptions") });

async function upload() {
  const picker = h("input", { type: "file", accept: [...Object.keys(TYPES), "gz"].map((each) => `.${each}`).join(","), onchange: () => picker.files[0] && take(picker.files[0]) });
  const name = h("input", { type: "text", required: true, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,99}", title: t("English letters, digits, dots, underscores and hyphens; first a letter or a digit."), maxlength: 100 });
  const now = h("input", { type: "checkbox" });
  const found = h("div", { "aria-live": "polite" });
  const send = h("button", { type: "submit", class: "first", disabled: true }, t("Upload"));
  const chosen = h("p", {}, t("Drop a file here: Turtle, RDF/XML, OBO, OWL functional syntax, OWL/XML, JSON-LD, N-Triples, N-Quads, TriG, SSSOM."));
  const drop = h("div", { class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); } }, chosen, field(t("or choose a file"), picker));
  let file = null, offered = "";
  function take(one) {
    file = one;
    chosen.textContent = `${one.name}, ${number(one.size)} B`;
    if (!name.value || name.value === offered) name.value = offered = one.name.replace(/\.(gz)$/, "").replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 100);
    send.disabled = false;
  }
  async function start() {
    send.disabled = true;
    const bar = h("progress", { "aria-label": t("Progress") }), stage = h("p", {}, t("Sending …"));
    fill(found, bar, stage);
    const extension = file.name.replace(/\.gz$/, "").split(".").pop().toLowerCase();
    try {
      const begun = await call("PUT", `ontologies/${encodeURIComponent(name.value)}?` + query({ activate: now.checked, format: Object.hasOwn(TYPES, extension) ? null : extension }), file, { "Content-Type": TYPES[extension] ?? "application/octet-stream", Prefer: "respond-async" });
      const report = begun.status === "running" || begun.status === "done" ? await job(begun, (progress) => {
        stage.textContent = `${STAGES()[progress.stage] ?? progress.stage} ${progress.total ? `${number(progress.done)} / ${number(progress.total)}` : ""}`;
        if (progress.total) { bar.max = progress.total; bar.value = progress.done; }
      }) : begun;
      fill(found, note("good", now.checked ? t("Version {0} of {1} is in force.", report.version, report.name) : t("Version {0} of {1} is stored, and not in force yet.", report.version, report.name), " ", link(t("See what it would change"), "#/vocabulary/versions?" + query({ name: report.name, to: report.version }))),
        list([[t("concepts"), number(report.concepts)], [t("roots"), number(report.roots)], [t("depth"), number(report.max_depth)], [t("with several parents"), number(report.multi_parent)], [t("synonyms"), number(report.synonyms)], [t("deprecated"), number(report.deprecated)],
          [t("languages"), Object.entries(report.languages ?? {}).map(([tongue, count]) => `${tongue} ${number(count)}`).join(", ")], [t("imports that are missing"), (report.unresolved_imports ?? []).join(", ")]]),
        (report.warnings ?? []).slice(0, 20).map((each) => note("warn", typeof each === "string" ? each : each.detail ?? JSON.stringify(each))));
    } catch (error) { fill(found, note("bad", error.message)); }
    send.disabled = false;
    refocus(send);
  }
  return card(h("form", { onsubmit: (event) => { event.preventDefault(); start(); } }, drop, h("div", { class: "row top" }, field(t("Name"), name, t("The same name makes another version."))), h("div", { class: "row" }, h("label", { class: "inline" }, now, t("Put it in force at once")), send)), found,
    how("v1/ontologies/NAME?activate=false", "kindcast ontology load FILE", "PUT"));
}

// ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────────

let did = null;  // what putting a version in force did, for the page that is drawn then
async function versions(parameters) {
  const all = await get("ontologies");
  if (!all.ontologies.length) return empty(t("There is no vocabulary yet. Load one, or upload your own."), ...(may("change-vocabulary") ? [link(t("Load a vocabulary"), "#/start?load", "button"), " ", link(t("Upload your own"), "#/vocabulary/upload", "button")] : []));
  const name = parameters.get("name") ?? all.ontologies[0].name;
  const { versions: listed } = await get(`ontologies/${encodeURIComponent(name)}/versions`);
  const active = listed.find((each) => each.active);
  const found = h("div", { "aria-live": "polite" });
  const labels = Object.fromEntries(listed.map((each) => [each.version, t("version {0}", each.version) + (each.active ? ` (${t("in force")})` : "")]));
  const from = select(labels, String(active?.version ?? listed.at(-1).version)), asked = parameters.get("to"), isThere = Object.hasOwn(labels, asked), to = select(labels, isThere ? asked : String(listed[0].version));
  const base = "ontologies/" + encodeURIComponent(name);
  const act = (path, dry) => async () => {
    const answer = await call("POST", `${base}/${path}${path.includes("?") ? "&" : "?"}dry_run=${dry}`);
    const told = card(h("h2", {}, dry ? t("What it would do") : t("Done: what it did")), impact(answer));
    if (dry) fill(found, told); else { did = told; say(t("Version {0} is in force.", answer.version ?? "")); location.hash = "#/vocabulary/versions?" + query({ name, at: Date.now() }); }
  };
  const compare = async () => fill(found, card(h("h2", {}, t("From version {0} to version {1}", from.value, to.value)), difference(await get(`${base}/diff?from=${from.value}&to=${to.value}`)),
    how(`v1/${base}/diff?from=${from.value}&to=${to.value}`, `kindcast ontology diff ${name} --from ${from.value} --to ${to.value}`)));
  if (did) { fill(found, did); did = null; } else if (isThere) await compare();
  return [
    card(h("div", { class: "row" }, field(t("Vocabulary"), select(Object.fromEntries(all.ontologies.map((each) => [each.name, each.name])), name, (event) => (location.hash = "#/vocabulary/versions?" + query({ name: event.target.value })))), field(t("From"), from), field(t("To"), to)),
      h("div", { class: "row" }, button(t("Compare"), compare), ...(listed[0].shared ? [tag(t("shared by all tenants"))] : !may("change-vocabulary") ? [] : [button(t("Dry run: whose subscriptions change"), () => act(`activate?version=${to.value}`, true)(), "first"), button(t("Put version in force"), () => act(`activate?version=${to.value}`, false)()), button(t("Roll back"), act("rollback", false), "danger")]))),
    found,
    card(h("h2", {}, t("Versions")), table([t("Version"), "", { text: t("concepts"), number: true }, t("uploaded"), t("in force since")], listed.map((each) => [String(each.version), each.active ? tag(t("in force"), "good") : "", number(each.concepts), when(each.created_at), when(each.activated_at)])),
      how(`v1/${base}/versions`, `kindcast ontology versions ${name}`)),
  ];
}

function difference(found) {
  const kinds = { added: t("added"), removed: t("removed"), moved: t("moved"), deprecated: t("deprecated"), restored: t("restored"), merged: t("merged"), split: t("split"), relabelled: t("with other labels") };
  const changed = Object.keys(kinds).filter((kind) => found[kind].count);
  if (!changed.length) return h("p", {}, t("The two versions do not differ."));
  const end = (iri) => iri.split(/[#/]/).pop();
  return changed.map((kind) => h("details", { open: true }, h("summary", {}, `${kinds[kind]}: ${number(found[kind].count)}`), h("ul", {}, found[kind].concepts.map((each) => h("li", {}, conceptLink(each.iri, each.label ?? end(each.iri)),
    kind === "moved" && h("span", { class: "quiet" }, " ", t("from {0} to {1}", each.parents_before.map(end).join(", "), each.parents.map(end).join(", "))),
    kind === "relabelled" && h("span", { class: "quiet" }, " ", (each.labels_gone ?? []).map((label) => label.value).join(", "), " → ", (each.labels ?? []).map((label) => label.value).join(", ")))))));
}

function impact(answer) {
  const told = answer.impact.subscriptions;
  return [h("p", {}, t("{0} of {1} live subscriptions would mean something else.", number(told.changed), number(told.live))),
    answer.subscriptions?.flagged?.count > 0 && note("warn", t("Subscriptions that use a concept which would be gone: {0}", number(answer.subscriptions.flagged.count))),
    told.listed.length > 0 && table([t("Subscription"), t("What changes")], told.listed.map((each) => [link(each.id, "#/deliveries/" + each.id), each.changes.join("; ")])),
    answer.impact.terms.listed.map((each) => h("details", { open: true }, h("summary", {}, `${each.test} ${each.label}: ${t("subscriptions: {0}", number(each.subscriptions))}`),
      list([[t("gains"), (each.gains?.concepts ?? []).map((one) => one.label).join(", ")], [t("loses"), (each.loses?.concepts ?? []).map((one) => one.label).join(", ")], [t("words"), (each.words?.listed ?? []).join(", ")]])))];
}

// ── unknown terms ────────────────────────────────────────────────────────────────────────────────────────────────────

async function unknown() {
  const told = await get("terms/unknown?" + query({ lang: state.language }));
  const head = h("p", {}, t("Words that publishers sent where a concept was expected, but that name no concept. Events looked at: {0}.", number(told.examined.events)));
  const strange = told.properties?.length > 0 && card(h("h2", {}, t("Unknown properties")), h("p", {}, t("Properties of linked data that no ontology, declaration or subscription knows.")),
    table([t("Property"), t("Attribute"), { text: t("How often"), number: true }, t("Make it known"), t("Source"), t("Last event")], told.properties.map((each) => [
      h("code", {}, each.iri), h("code", {}, each.attribute), number(each.count), known(each), each.source, link("#" + each.last_sequence, "#/live?event=" + each.last_sequence)])), how("v1/terms/unknown", "kindcast declare attribute NAME '{\"kind\": \"number\"}'"));
  if (!told.count) return [card(head, empty(told.examined.events ? t("Every word was understood.") : t("No events have come yet. Send some first."), !told.examined.events && link(t("Send an event"), "#/start", "button")), how("v1/terms/unknown")), strange];
  const synonym = async (term, label) => {
    let words = {};
    try { words = (await get("synonyms/console")).declaration; } catch (error) { if (error.status !== 404) throw error; }
    await call("PUT", "synonyms/console", { ...words, [term]: label });
    say(t("{0} now means {1}.", term, label));
    location.hash = "#/vocabulary/unknown?at=" + Date.now();
  };
  return [card(head, table([t("Word"), t("Attribute"), { text: t("How often"), number: true }, t("Make it a synonym of"), t("Last event")], told.terms.map((each) => [
    h("strong", {}, each.term), h("code", {}, each.attribute), number(each.count), h("div", { class: "row" }, each.suggestions.map((one) => button("= " + one.shown, () => synonym(each.term, one.label))), other(each.term, synonym)), link("#" + each.last_sequence, "#/live?event=" + each.last_sequence)])),
    how("v1/terms/unknown")), strange];
}
// A property is known when its attribute is declared, or when it is an alias of one that is known.
function known(each) {
  const again = (text) => { say(text); location.hash = "#/vocabulary/unknown?at=" + Date.now(); };
  const name = each.attribute.split(".").pop();
  const declare = (kind) => async () => { await call("PUT", "attributes/" + encodeURIComponent(name), { kind }); again(t("{0} is declared.", name)); };
  const iri = h("input", { type: "url", "aria-label": t("The property that {0} means", each.iri), required: true, placeholder: t("IRI of the same property"), size: 18 });
  return h("div", { class: "row" }, button(t("it is a number"), declare("number")), button(t("it is a text"), declare("text")), button(t("it is a time"), declare("instant")),
    h("form", { class: "row", onsubmit: async (event) => {
      event.preventDefault();
      try {
        let table = {};
        try { table = (await get("aliases/console")).declaration; } catch (error) { if (error.status !== 404) throw error; }
        await call("PUT", "aliases/console", { ...table, iris: { ...table.iris, [each.iri]: iri.value } });
        again(t("{0} now means {1}.", each.iri, iri.value));
      } catch (error) { say(error.message, "bad"); }
    } }, iri));
}

function other(term, synonym) {
  const input = h("input", { type: "text", "aria-label": t("Another word that {0} means", term), required: true, placeholder: t("another word"), size: 14 });
  return h("form", { class: "row", onsubmit: async (event) => { event.preventDefault(); try { await get("concepts/resolve?" + query({ term: input.value })); await synonym(term, input.value); } catch (error) { say(error.message, "bad"); } } }, input);
}
