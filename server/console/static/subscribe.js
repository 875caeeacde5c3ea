// Subscribe: an editor with completion and marks, plain words, the past, a live test, and the subscription itself.
import { AGAIN, button, call, card, dataOf, events, explanation, field, fill, get, h, how, job, later, link, list, may, note, number, quoted, refocus, say, select, state, t, testButton, tickets, when } from "./dom.js";

export async function page(rest, parameters) {
  const vocabularies = await get("ontologies");
  const concept = parameters.get("concept"), start = concept ? `target isa <${concept}>` : state.draft;
  const text = h("textarea", { id: "expression", rows: 4, spellcheck: "false", autocapitalize: "off", autocomplete: "off", role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "completions", value: start });
  const marks = h("pre", { "aria-hidden": "true" }), said = h("div", { "aria-live": "polite" }), past = h("div", {});
  const offers = completions(text, () => changed()), live = liveTest(text), subscription = creation(text);
  let wanted = null, seen = null, looks = false;  // the expression whose past is wanted, the one whose past is shown, and whether one is looked for
  let asked = 0, closed = null;  // Escape closed the list for this text, also one that is on its way

  const check = later(140, async () => {
    const mine = ++asked, value = text.value, at = caret(text), isEmpty = !value.trim();
    let told;
    try { told = await call("POST", "check?lang=" + state.language, { expression: value, position: characters(text).length }); } catch (error) {
      if (mine !== asked) return;
      fill(said, note("bad", error.message));
      if (error.status === 0) setTimeout(() => { if (mine === asked && said.isConnected) check(); }, AGAIN);  // the server may be back
      return;
    }
    if (mine !== asked) return;
    subscription.allow(told.valid && !isEmpty);
    marks.replaceChildren(...marked(value, isEmpty ? [] : told.errors));
    text.setAttribute("aria-invalid", String(!told.valid && !isEmpty));
    offers.show(document.activeElement === text && value !== closed ? told.completions ?? [] : [], at);
    if (isEmpty) fill(said, h("p", { class: "quiet" }, t("Write what you want to hear of, such as: target isa Computer and price <= 400 USD")));
    else fill(said, told.valid ? meaning(told, value) : told.errors.map((each) => mistake(each, text, changed)));
    wanted = told.valid && !isEmpty ? value : null;
    if (wanted !== null) look(); else { fill(past); seen = null; }
  });
  // The past of one expression at a time: with many events each takes long, and the server lets few wait.
  const look = later(700, async () => {
    if (looks) return;
    looks = true;
    while (wanted !== seen && past.isConnected) {
      const value = wanted;
      let found;
      seen = null;
      try { found = await pastMatches(value, past, () => value === wanted && past.isConnected); } catch (error) { found = note("warn", error.message); }
      if (found && value === wanted) { fill(past, found); seen = value; }
    }
    looks = false;
  });
  const changed = () => {
    state.draft = text.value;
    if (text.value !== start && location.hash !== "#/subscribe") history.replaceState(null, "", "#/subscribe");  // now the draft counts, not the concept in the address
    text.style.height = "auto";
    text.style.height = Math.max(112, text.scrollHeight + 2) + "px";
    marks.replaceChildren(...marked(text.value, []));
    check();
  };
  text.addEventListener("input", changed);
  text.addEventListener("click", () => { closed = null; check(); });
  text.addEventListener("blur", () => offers.show([]));
  text.addEventListener("keydown", (event) => {
    if (event.isComposing) return;  // the key is for an input method, which writes Chinese
    if (event.key === "Escape") closed = text.value;
    if (offers.take(event)) event.preventDefault();
    else if (event.key === " " && event.ctrlKey) { event.preventDefault(); closed = null; check(); }
  });

  changed();
  const editor = h("div", {}, h("label", { for: "expression" }, t("What do you want to hear of?")), h("div", { class: "editor" }, marks, text));
  return [h("h1", {}, t("Subscribe")),
    vocabularies.ontologies.length === 0 && note("warn", t("There is no vocabulary yet, so no kinds are known."), " ", may("change-vocabulary") && link(t("Load a vocabulary"), "#/start?load")),
    h("div", { class: "columns" },
      h("div", {}, card(editor, offers.element, h("p", { class: "small quiet" }, t("Arrows and Enter choose a completion, Escape closes the list."))), card(subscription.form(may("see-events") && live.button)), subscription.made),
      h("div", {}, card(h("h2", {}, t("What it means")), said), past, live.element))];
}

// ── the editor ───────────────────────────────────────────────────────────────────────────────────────────────────────

// The server counts characters, and JavaScript counts some of them (emoji, rare Chinese ones) twice.
const characters = (text) => [...text.value.slice(0, text.selectionStart)];
// A text with the place in it where completions are inserted: those of another one would replace other characters.
const caret = (text) => text.selectionStart + " " + text.value;

// Where a mistake begins in an expression.
function offset(expression, error) {
  const lines = expression.split("\n"), line = (error.line ?? 1) - 1;
  return lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, 0) + [...lines[line]].slice(0, (error.column ?? 1) - 1).join("").length;
}

// The list of completions below the text.
function completions(text, changed) {
  const element = h("ul", { class: "completions", id: "completions", role: "listbox", "aria-label": t("Completions") });
  let listed = [], chosen = -1, of = "";
  function show(found, at = "") {
    listed = found;
    of = at;
    fill(element, found.map((each, place) => h("li", { role: "option", id: "completion-" + place, onmousedown: (event) => { event.preventDefault(); if (of === caret(text)) insert(place); } },
      h("span", {}, each.label, each.matched && each.matched !== each.label && h("span", { class: "quiet" }, "  ", each.matched, each.lang ? ` (${each.lang})` : "")), h("span", { class: "quiet small" }, t(each.kind)))));
    text.setAttribute("aria-expanded", String(found.length > 0));
    choose(found.length ? 0 : -1);
  }
  function choose(place) {
    chosen = place;
    [...element.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === place)));
    if (place >= 0) { text.setAttribute("aria-activedescendant", "completion-" + place); element.children[place].scrollIntoView({ block: "nearest" }); } else text.removeAttribute("aria-activedescendant");
  }
  function insert(place) {
    const one = listed[place], written = characters(text), before = written.slice(0, written.length - one.replace).join(""), after = text.value.slice(text.selectionStart);
    const inserted = one.insert + (one.insert.endsWith("(") ? "" : " ");
    text.value = before + inserted + after.trimStart();
    text.selectionStart = text.selectionEnd = before.length + inserted.length;
    show([]);
    changed();
  }
  // Whether a key was for this list.
  function take(event) {
    const moves = { ArrowDown: () => choose((chosen + 1) % listed.length), ArrowUp: () => choose((chosen + listed.length - 1) % listed.length), Escape: () => show([]), Enter: () => insert(chosen) };
    if (!listed.length || !moves[event.key] || (of !== caret(text) && event.key !== "Escape") || (event.key === "Enter" && event.shiftKey)) return false;
    moves[event.key]();
    return true;
  }
  return { element, show, take };
}

// The expression with its mistakes marked. It lies under the text, so it has the same characters.
function marked(expression, errors) {
  const parts = [];
  let done = 0;
  for (const place of errors.filter((each) => each.line).map((each) => offset(expression, each)).sort((a, b) => a - b)) {
    if (place < done) continue;
    const word = expression.slice(place).match(/^(?:"[^"]*"?|<[^>]*>?|[^\s()]+|.)/u)?.[0] ?? "";
    parts.push(expression.slice(done, place), h("mark", {}, word || " "));
    done = place + word.length;
  }
  return [...parts, expression.slice(done), "\n"];
}

// ── what the server says of it ───────────────────────────────────────────────────────────────────────────────────────

const meaning = (told, expression) => [
  note("good", h("p", {}, h("strong", {}, t("In plain words: ")), told.words, ".")), list([[t("Alternatives"), number(told.clauses)], [t("cost"), number(told.cost, 2)]]), told.notes.map((each) => note("warn", each.detail)),
  how("v1/check", null, "POST", JSON.stringify({ expression })),
];

function mistake(error, text, changed) {
  function replace(place, end, insert) {
    const before = text.value.slice(0, place), after = text.value.slice(end);
    text.value = (/\s$|^$/.test(before) ? before + insert.trimStart() : before + insert).replace(/ $/, /^\s/.test(after) ? "" : " ") + after;
    text.focus();
    changed();
  }
  const suggestions = error.suggestions?.slice(0, 5).map((one) => {
    const way = correction(text.value, error, one);
    return way ? h("button", { type: "button", onclick: () => replace(...way) }, named(one)) : h("code", {}, named(one));
  });
  return note("bad", h("p", {}, error.line ? t("Line {0}, column {1}: ", error.line, error.column) : "", error.detail), suggestions?.length > 0 && h("div", { class: "row" }, t("Did you mean"), suggestions));
}

const named = (one) => one.curie ?? (one.curie === null ? `<${one.iri}>` : one.label);  // null: no CURIE means it alone, and no label either

// Where a suggestion goes, and what is written there; null where only the reader knows.
function correction(expression, error, one) {
  const name = named(one), place = offset(expression, error), rest = expression.slice(place);
  const put = (place, written, insert) => (written ? [place, place + written[0].length, insert] : null);
  if (one.iri) {
    const insert = one.curie !== undefined || /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) ? name : JSON.stringify(name);
    return put(place, rest.match(/^(?:"[^"]*"?|'[^']*'?|<[^>]*>?|[^\s(),]+)/), insert);
  }
  if (error.code === "unknown-unit") {
    const amount = rest.match(/^[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*/)?.[0];
    const unit = /^(?:"[^"]*"?|<[^>]*>?|(?:[^\s,[\]()]|\[[^\]\s]*\]|\([^)\s]*\))+)/;  // also mm[Hgg]; the ] of between is left
    return amount ? put(place + amount.length, rest.slice(amount.length).match(unit), /^[\p{L}°%]+$/u.test(name) ? name : JSON.stringify(name)) : null;
  }
  if (error.code === "unknown-attribute") {
    const written = rest.match(/^[\p{L}_@][\p{L}\p{N}_.-]*/u);
    return written && error.detail.includes(written[0]) && /^[\p{L}_@][\p{L}\p{N}_.-]*$/u.test(name) ? put(place, written, name) : null;
  }
  if (error.code !== "syntax") return null;
  if (/^\d[\d.]* /.test(name)) return put(place, rest.match(/^[$£¥]\s*[\d.]+/), name);
  const sign = rest.match(/^(?:[=<>!]=|<>|=[<>]|&&?|\|\|?|[≤≥≠!~])/);
  return put(place, sign, /^[a-z]/.test(name) ? ` ${name} ` : name);
}

// How often it would have matched the events that are stored.
// Says in `past` how far it is, and gives up when nobody wants it any more.
async function pastMatches(expression, past, isWanted) {
  const since = (days) => new Date(Date.now() - days * 864e5).toISOString(), begin = since(7), told = h("p", { class: "quiet", role: "status" });
  const tell = ({ done, total }) => { told.textContent = t("Looking through the stored events …") + (total ? ` ${number(done)} / ${number(total)}` : ""); if (isWanted()) fill(past, told); };
  const matches = async (since) => job(await call("POST", "backtests", { expression, since }), tell, "backtests/");
  const day = await matches(since(1));
  if (!isWanted()) return null;
  const week = await matches(begin);
  const figure = (found, text) => h("div", { class: "figure" }, h("b", {}, `${number(found.matched)} / ${number(found.events)}`), text);
  const [cut] = week.clauses.flatMap((clause) => clause.predicates).sort((a, b) => b.cuts - a.cuts);
  return card(h("h2", {}, t("It would have matched")), h("div", { class: "figures" }, figure(day, t("events of the last day")), figure(week, t("events of the last week"))),
    week.events === 0 ? h("p", { class: "quiet" }, t("No events are stored yet.")) : cut?.cuts > 0 && h("p", {}, t("This excludes the most events ({0}):", number(cut.cuts)), " ", h("code", {}, cut.text.replace(/<[^>]*[#/]([^>#/]+)>/g, "$1"))),
    how("v1/backtests", `kindcast backtest ${quoted(expression)} --since ${begin}`, "POST", JSON.stringify({ expression, since: begin })));
}

// ── the next events, and the subscription ────────────────────────────────────────────────────────────────────────────

// The next events, asked one by one: of those that come meanwhile the newest three wait.
function liveTest(text) {
  const element = h("div", {});
  let source = null;
  const test = button(t("Try it on the next events"), () => {
    if (source) { source.close(); source = null; test.textContent = t("Try it on the next events"); return; }
    const rows = h("ul", { class: "plain" }), hint = h("p", { class: "quiet", role: "status" }, t("Waiting for events …"));
    fill(element, hint, rows);
    test.textContent = t("Stop");
    let waiting = [], asks = false;
    const following = source = events("events/stream", "events", async (told) => {
      waiting = [...waiting, ...told.events].slice(-3);
      if (asks) return;
      asks = true;
      while (source === following && waiting.length) {
        try {
          const row = await verdict(waiting.shift(), text.value);
          if (element.firstElementChild !== rows) fill(element, rows);  // no hint and no mistake is left
          rows.prepend(row);
          while (rows.childElementCount > 10) rows.lastElementChild.remove();
        } catch (error) { fill(element, note("bad", error.message), rows); }
        await new Promise((resolve) => setTimeout(resolve, 250));
      }
      asks = false;
    });
  });
  return { button: test, element };
}

async function verdict(each, subscription) {
  const event = each.event ?? (await get(`events/${each.sequence}/trace`)).event;  // the stream has no large ones
  const answer = await call("POST", "explain?index=false&lang=" + state.language, { event, subscription });
  const told = answer.matches ? "✓ " + t("matches") : answer.matches === null ? "? " + t("not yet decided") : "✗ " + t("does not match");
  return h("li", {}, h("details", {}, h("summary", {}, told, " #" + each.sequence, " ", h("code", {}, dataOf(event).slice(0, 120))), explanation(answer)));
}

// The form that makes the subscription, and what it made.
function creation(text) {
  const create = h("button", { type: "submit", class: "first", disabled: true }, t("Create the subscription"));
  const name = h("input", { type: "text", maxlength: 200 }), sink = h("input", { type: "url", placeholder: "https://example.org/hook" }), days = select({ 1: t("one day"), 7: t("a week"), 30: t("thirty days"), 365: t("a year") }, "30");
  const made = h("div", { "aria-live": "polite" });
  let valid = false;
  const allow = (isValid) => { valid = isValid; create.disabled = !valid; };
  async function submit(event) {
    event.preventDefault();
    if (!valid) return;
    create.disabled = true;
    try {
      const body = { expression: text.value, ttl_seconds: Number(days.value) * 86400, ...(sink.value && { sink: sink.value }), ...(name.value && { metadata: { name: name.value } }) };
      const answer = await call("POST", "subscriptions", body);
      tickets.put(answer.id, answer.ticket);
      state.draft = "";
      fill(made, card(h("h2", { tabindex: -1 }, t("The subscription is made")), list([[t("Id"), h("code", {}, answer.id)], [t("Ticket"), h("code", {}, answer.ticket)], [t("Webhook secret"), answer.secret && h("code", {}, answer.secret)], [t("ends"), when(answer.expires_at)]]),
        note("warn", t("Ticket and secret are shown only now. This browser keeps the ticket; keep the secret yourself.")), answer.notes.map((each) => note("warn", each.detail)),
        sink.value && [testButton(answer.id), " "], link(t("Follow its deliveries"), "#/deliveries/" + answer.id, "button"), " ", link(t("Watch events"), "#/live?subscription=" + answer.id, "button"),
        how("v1/subscriptions", `kindcast subscribe ${quoted(text.value)} --ttl ${days.value}d${name.value && " --name " + quoted(name.value)}${sink.value && " --sink " + quoted(sink.value)}`, "POST", JSON.stringify(body))));
      made.querySelector("h2").focus();
    } catch (error) { say(error.message, "bad"); }
    create.disabled = !valid;
    refocus(create);
  }
  const form = (test) => h("form", { onsubmit: submit }, h("div", { class: "row top" }, field(t("Name (yours)"), name), field(t("Webhook address"), sink, t("Leave it empty to read by stream or pull.")), field(t("It lasts"), days)), h("div", { class: "row" }, create, test));
  return { form, made, allow };
}
