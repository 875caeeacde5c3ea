// Subscribe: an editor with completion and marks, plain words, the past, a live test, and the subscription itself.
import { AGAIN, button, call, card, dataOf, events, explanation, field, fill, get, h, how, job, later, link, list, may, note, number, query, quoted, refocus, say, select, state, t, table, tag, testButton, tickets, when } from "./dom.js";

export async function page(rest, parameters) {
  const vocabularies = await get("ontologies");
  let start = state.draft;
  if (parameters.get("concept")) start = `target isa <${parameters.get("concept")}>`;
  const text = h("textarea", { rows: 4, spellcheck: "false", autocapitalize: "off", autocomplete: "off", role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "completions", value: start });
  const marks = h("pre", { "aria-hidden": "true" }), offers = h("ul", { class: "completions", id: "completions", role: "listbox", "aria-label": t("Completions") });
  const said = h("div", { "aria-live": "polite" }), past = h("div", {}), live = h("div", {});
  const create = h("button", { type: "submit", class: "first", disabled: true }, t("Create the subscription"));
  let listed = [], chosen = -1, asked = 0, valid = false, closed = null;  // Escape closed the list for this text, also one that is on its way

  function offer(found) {
    listed = found; chosen = found.length ? 0 : -1;
    fill(offers, found.map((each, place) => h("li", { role: "option", id: "completion-" + place, "aria-selected": String(place === 0), onmousedown: (event) => { event.preventDefault(); take(place); } },
      h("span", {}, each.label, each.matched && each.matched !== each.label && h("span", { class: "quiet" }, "  ", each.matched, each.lang ? ` (${each.lang})` : "")), h("span", { class: "quiet small" }, t(each.kind)))));
    text.setAttribute("aria-expanded", String(found.length > 0));
    choose(chosen);
  }
  function choose(place) {
    chosen = place;
    [...offers.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === place)));
    if (place >= 0) { text.setAttribute("aria-activedescendant", "completion-" + place); offers.children[place]?.scrollIntoView({ block: "nearest" }); } else text.removeAttribute("aria-activedescendant");
  }
  // The server counts characters, and JavaScript counts some of them (emoji, rare Chinese ones) twice.
  const characters = () => [...text.value.slice(0, text.selectionStart)];
  function take(place) {
    const one = listed[place], written = characters(), before = written.slice(0, written.length - one.replace).join(""), after = text.value.slice(text.selectionStart);
    const inserted = one.insert + (one.insert.endsWith("(") ? "" : " ");
    text.value = before + inserted + after.trimStart();
    text.selectionStart = text.selectionEnd = before.length + inserted.length;
    offer([]);
    changed();
  }
  const offset = (error) => { const lines = text.value.split("\n"); return lines.slice(0, (error.line ?? 1) - 1).reduce((sum, line) => sum + line.length + 1, 0) + [...lines[(error.line ?? 1) - 1]].slice(0, (error.column ?? 1) - 1).join("").length; };
  function mark(errors) {
    const parts = [];
    let done = 0;
    for (const place of errors.filter((each) => each.line).map(offset).sort((a, b) => a - b)) {
      if (place < done) continue;
      const word = text.value.slice(place).match(/^(?:"[^"]*"?|<[^>]*>?|[^\s()]+|.)/u)?.[0] ?? "";
      parts.push(text.value.slice(done, place), h("mark", {}, word || " "));
      done = place + word.length;
    }
    marks.replaceChildren(...parts, text.value.slice(done), "\n");  // as it is: it lies under the text, mark by mark
  }
  const grow = () => { text.style.height = "auto"; text.style.height = Math.max(112, text.scrollHeight + 2) + "px"; };

  const check = later(140, async () => {
    const mine = ++asked, value = text.value;
    let told;
    try { told = await call("POST", "check?lang=" + state.language, { expression: value, position: characters().length }); } catch (error) {
      if (mine !== asked) return;
      fill(said, note("bad", error.message));
      if (error.status === 0) setTimeout(() => { if (mine === asked && said.isConnected) check(); }, AGAIN);  // the server may be back
      return;
    }
    if (mine !== asked) return;
    valid = told.valid && value.trim() !== "";
    create.disabled = !valid;
    mark(value.trim() ? told.errors : []);
    text.setAttribute("aria-invalid", String(!told.valid && value.trim() !== ""));
    offer(document.activeElement === text && value !== closed ? told.completions ?? [] : []);
    if (!value.trim()) fill(said, h("p", { class: "quiet" }, t("Write what you want to hear of, such as: target isa Computer and price <= 400 USD")));
    else if (told.valid) fill(said, note("good", h("p", {}, h("strong", {}, t("In plain words: ")), told.words, ".")), list([[t("Alternatives"), number(told.clauses)], [t("cost"), number(told.cost, 2)]]), told.notes.map((each) => note("warn", each.detail)),
      how("v1/check", null, "POST", JSON.stringify({ expression: value })));
    else fill(said, told.errors.map((each) => note("bad", h("p", {}, each.line ? t("Line {0}, column {1}: ", each.line, each.column) : "", each.detail),
      each.suggestions?.length > 0 && h("div", { class: "row" }, t("Did you mean"), each.suggestions.slice(0, 5).map((one) => { const way = correction(each, one); return way ? h("button", { type: "button", onclick: () => replace(...way) }, named(one)) : h("code", {}, named(one)); })))));
    if (valid) look(value); else fill(past);
  });
  const named = (one) => one.curie ?? (one.curie === null ? `<${one.iri}>` : one.label);  // null: no CURIE means it alone, and no label either
  // Where a suggestion goes, and what is written there; null where only the reader knows.
  function correction(error, one) {
    const name = named(one);
    const put = (place, written, insert) => (written ? [place, place + written[0].length, insert] : null);
    const place = offset(error), rest = text.value.slice(place);
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
  function replace(place, end, insert) {
    const before = text.value.slice(0, place), after = text.value.slice(end);
    text.value = (/\s$|^$/.test(before) ? before + insert.trimStart() : before + insert).replace(/ $/, /^\s/.test(after) ? "" : " ") + after;
    text.focus();
    changed();
  }
  // How often it would have matched the events that are stored.
  const look = later(700, async (value) => {
    const mine = asked;
    const since = (days) => new Date(Date.now() - days * 864e5).toISOString();
    try {
      const begin = since(7), [day, week] = [await ask(value, since(1)), await ask(value, begin)];
      if (mine !== asked) return;
      const cuts = week.clauses.flatMap((clause) => clause.predicates).sort((a, b) => b.cuts - a.cuts);
      fill(past, card(h("h2", {}, t("It would have matched")), h("div", { class: "figures" }, h("div", { class: "figure" }, h("b", {}, `${number(day.matched)} / ${number(day.events)}`), t("events of the last day")), h("div", { class: "figure" }, h("b", {}, `${number(week.matched)} / ${number(week.events)}`), t("events of the last week"))),
        week.events === 0 ? h("p", { class: "quiet" }, t("No events are stored yet.")) : cuts[0]?.cuts > 0 && h("p", {}, t("This excludes the most events ({0}):", number(cuts[0].cuts)), " ", h("code", {}, cuts[0].text.replace(/<[^>]*[#/]([^>#/]+)>/g, "$1"))),
        how("v1/backtests", `kindcast backtest ${quoted(value)} --since ${begin}`, "POST", JSON.stringify({ expression: value, since: begin }))));
    } catch (error) { if (mine === asked) fill(past, note("warn", error.message)); }
  });
  const ask = async (expression, since) => job(await call("POST", "backtests", { expression, since }), undefined, "backtests/");
  const changed = () => {
    state.draft = text.value;
    if (text.value !== start && location.hash !== "#/subscribe") history.replaceState(null, "", "#/subscribe");  // now the draft counts, not the concept in the address
    grow();
    mark([]);
    check();
  };

  text.addEventListener("input", changed);
  text.addEventListener("click", () => { closed = null; check(); });
  text.addEventListener("blur", () => offer([]));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closed = text.value;
    if (!listed.length) { if (event.key === " " && event.ctrlKey) { event.preventDefault(); closed = null; check(); } return; }
    const moves = { ArrowDown: () => choose((chosen + 1) % listed.length), ArrowUp: () => choose((chosen + listed.length - 1) % listed.length), Escape: () => offer([]), Enter: () => take(chosen) };
    if (moves[event.key] && !(event.key === "Enter" && event.shiftKey)) { event.preventDefault(); moves[event.key](); }
  });

  // The next events, asked one by one: of those that come meanwhile the newest three wait.
  let source = null;
  const test = button(t("Try it on the next events"), () => {
    if (source) { source.close(); source = null; test.textContent = t("Try it on the next events"); return; }
    const rows = h("ul", { class: "plain" }), hint = h("p", { class: "quiet", role: "status" }, t("Waiting for events …"));
    fill(live, hint, rows);
    test.textContent = t("Stop");
    let waiting = [], asks = false;
    const following = source = events("events/stream", "events", async (told) => {
      waiting = [...waiting, ...told.events].slice(-3);
      if (asks) return;
      asks = true;
      while (source === following && waiting.length) {
        const each = waiting.shift();
        try {
          const event = each.event ?? (await get(`events/${each.sequence}/trace`)).event;  // the stream has no large ones
          const answer = await call("POST", "explain?index=false&lang=" + state.language, { event, subscription: text.value });
          if (live.firstElementChild !== rows) fill(live, rows);  // no hint and no mistake is left
          rows.prepend(h("li", {}, h("details", {}, h("summary", {}, answer.matches ? "✓ " + t("matches") : answer.matches === null ? "? " + t("not yet decided") : "✗ " + t("does not match"), " #" + each.sequence, " ", h("code", {}, dataOf(event).slice(0, 120))), explanation(answer))));
          while (rows.childElementCount > 10) rows.lastElementChild.remove();
        } catch (error) { fill(live, note("bad", error.message), rows); }
        await new Promise((resolve) => setTimeout(resolve, 250));
      }
      asks = false;
    });
  });

  const name = h("input", { type: "text", maxlength: 200 }), sink = h("input", { type: "url", placeholder: "https://example.org/hook" }), days = select({ 1: t("one day"), 7: t("a week"), 30: t("thirty days"), 365: t("a year") }, "30");
  const made = h("div", { "aria-live": "polite" });
  const form = h("form", { onsubmit: async (event) => {
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
  } }, h("div", { class: "row top" }, field(t("Name (yours)"), name), field(t("Webhook address"), sink, t("Leave it empty to read by stream or pull.")), field(t("It lasts"), days)), h("div", { class: "row" }, create, may("see-events") && test));

  changed();
  return [h("h1", {}, t("Subscribe")),
    vocabularies.ontologies.length === 0 && note("warn", t("There is no vocabulary yet, so no kinds are known."), " ", may("change-vocabulary") && link(t("Load a vocabulary"), "#/start")),
    h("div", { class: "columns" }, h("div", {}, card(editor(text, marks), offers, h("p", { class: "small quiet" }, t("Arrows and Enter choose a completion, Escape closes the list."))), card(form), made), h("div", {}, card(h("h2", {}, t("What it means")), said), past, live))];
}

function editor(text, marks) {
  text.id = "expression";
  return h("div", {}, h("label", { for: "expression" }, t("What do you want to hear of?")), h("div", { class: "editor" }, marks, text));
}
