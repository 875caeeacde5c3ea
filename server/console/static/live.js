// Live: events with their matches; a click tells why, or why not, and what became of the delivery.
import { button, card, dataOf, empty, events, explanation, failed, field, fill, get, h, how, link, list, may, nameOf, note, number, outcome, query, state, t, table, tag, when } from "./dom.js";

const ROWS = 200;

export async function page(rest, parameters) {
  const { subscriptions } = await get("subscriptions?limit=200&newest_first=true");
  const asked = parameters.get("follow") ?? (parameters.get("event") ? null : parameters.get("subscription"));
  if (asked && may("receive") && !subscriptions.some((each) => each.id === asked)) await get("subscriptions/" + encodeURIComponent(asked)).then((it) => subscriptions.push(it), failed);
  const rows = h("div", { class: "stream" }), side = h("div", { "aria-live": "polite" }), told = h("p", { class: "small quiet", role: "status" }), same = h("div", {});
  const filter = h("input", { type: "search", oninput: () => draw() }), only = h("input", { type: "checkbox", onchange: () => draw() });
  const source = h("input", { type: "text", value: parameters.get("source") ?? "", placeholder: t("Press Enter to search"), onchange: () => { connect(); address(); } });
  const followed = h("select", { onchange: () => { connect(); address(); } }, may("see-events") && h("option", { value: "" }, t("all events")), may("receive") && subscriptions.map((each) => h("option", { value: each.id, selected: each.id === asked }, nameOf(each) === each.id ? each.id : `${nameOf(each)} (${each.id})`)));
  let seen = [], paused = false, held = [], skipped = 0, stream = null, chosen = Number(parameters.get("event")) || 0, drawing = false;

  // What is shown is in the address, for a reload, another language, or somebody else.
  const address = () => history.replaceState(null, "", "#/live?" + query({ follow: followed.value, source: source.value, event: chosen || null }));
  const data = (each) => (each.event ? dataOf(each.event) : may("see-payloads") ? t("(a large event)") : `${each.source} ${each.type}`);
  // Messages of a subscription do not say when their events were accepted, and may be old.
  const clock = ({ accepted_at: at, sequence }) => (at == null ? "#" + sequence : Date.now() / 1000 - at > 43200 ? when(at) : new Date(at * 1000).toLocaleTimeString(state.language));
  const ofSource = (each) => !source.value || each.source === source.value;  // a stream of a subscription has every source
  const fits = (each) => ofSource(each) && (!only.checked || each.matched !== 0)  /* null: not told to this role */ && (!filter.value || (each.source + each.type + data(each)).toLowerCase().includes(filter.value.toLowerCase()));
  function row(each) {
    return h("button", { type: "button", class: "event", "aria-current": each.sequence === chosen && "true", "data-sequence": each.sequence, onclick: () => { open(each.sequence); address(); } },
      h("span", { class: "when small quiet" }, clock(each)), h("span", { class: "code" }, data(each).slice(0, 300)), each.retracts ? tag(t("withdraws event {0}", each.retracts), "warn") : each.matched == null ? null : each.matched ? tag(t("matched: {0}", number(each.matched)), "good") : tag(t("no match")));
  }
  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      const shown = seen.filter(fits), focused = rows.contains(document.activeElement) && document.activeElement.dataset.sequence;
      fill(rows, shown.length ? shown.map(row) : empty(seen.length ? t("No event fits the filter.") : !may("see-events") && !followed.value ? t("Your role follows subscriptions only, and there is none yet.") : t("No events yet. What is published from now on appears here."), !seen.length && may("publish") && link(t("Send an event"), "#/start", "button")));
      if (focused) (rows.querySelector(`[data-sequence="${focused}"]`) ?? rows.lastElementChild).focus({ preventScroll: true });
      told.textContent = (paused ? t("Paused; events that wait: {0}", number(held.length)) : "") + (skipped ? " " + t("More than 50 events a second come: this is a sample, {0} are not shown.", number(skipped)) : "");
    });
  }
  function take(some, missing = 0) {
    skipped += missing;
    if (paused) { held = [...some.slice().reverse(), ...held].slice(0, ROWS); } else seen = [...some.slice().reverse(), ...seen].slice(0, ROWS);
    draw();
  }
  const fresh = (some) => { const there = new Set([...seen, ...held].map((each) => each.sequence)); return some.filter((each) => !there.has(each.sequence)); };
  // What was accepted before the stream began, or while the page was hidden or the server away.
  function add(some) {
    const missed = fresh(some);
    const together = (all) => [...all, ...missed].sort((one, other) => other.sequence - one.sequence).slice(0, ROWS);
    if (paused && seen.length) held = together(held); else seen = together(seen);
    draw();
  }
  function connect() {
    stream?.close();
    seen = []; held = []; skipped = 0;
    fill(same, followed.value ? how(`v1/subscriptions/${followed.value}/stream`, `kindcast listen ${followed.value}`) : how("v1/events/stream" + (source.value && "?" + query({ source: source.value })), "kindcast events"));
    if (followed.value) {
      stream = events(`subscriptions/${followed.value}/stream`, "match", (message) => take([{ sequence: Number(message.sequence ?? message.cursor), source: message.event.source, type: message.event.type, matched: 1, retracts: message.retracted?.sequence, event: message.event }]), (last) => stored(followed.value, last));
    } else if (may("see-events")) {
      const connected = stream = events("events/stream?" + query({ source: source.value }), "events", (message) => take(fresh(message.events), message.skipped), undefined, () => recent(source.value).then((some) => { if (stream === connected) add(some); }));
    }
    draw();
  }
  const hold = button(t("Pause"), () => {
    paused = !paused;
    hold.textContent = paused ? t("Go on") : t("Pause");
    hold.setAttribute("aria-pressed", String(paused));
    if (!paused) { seen = [...held, ...seen].slice(0, ROWS); held = []; }
    draw();
  });
  async function open(sequence, subscription = followed.value) {
    chosen = sequence;
    rows.querySelectorAll(".event").forEach((each) => (Number(each.dataset.sequence) === sequence ? each.setAttribute("aria-current", "true") : each.removeAttribute("aria-current")));
    let content;
    try { content = await trace(sequence, subscription, subscriptions); } catch (error) { content = note("bad", error.message); }
    if (chosen !== sequence) return;  // another event was chosen meanwhile
    fill(side, content);
    side.querySelector("h2")?.focus({ preventScroll: false });
  }
  connect();
  if (chosen) await open(chosen, parameters.get("subscription") ?? asked ?? "");
  else fill(side, card(h("p", { class: "quiet" }, t("Choose an event to see why it matched, or why not."))));
  return [h("h1", {}, t("Live")),
    card(h("div", { class: "row top" }, field(t("Follow"), followed), field(t("Only this source"), source), field(t("Filter"), filter)), h("div", { class: "row" }, h("label", { class: "inline" }, only, t("only events that matched")), hold), told, same),
    h("div", { class: "columns" }, card(h("h2", {}, t("Events")), rows), side)];
}

// The cursor to go on from: `last`, or the oldest that is still stored. Throws if the subscription is gone.
const stored = (id, last) => get(`subscriptions/${id}/events?` + query({ limit: 1, after: last })).then(() => last, (error) => { if (error.document?.oldest == null) throw error; return error.document.oldest; });

async function recent(source) {
  const series = await get("events/recent?" + query({ limit: ROWS, source })).catch(() => ({ events: [] }));
  return series.events;
}

async function trace(sequence, subscription, subscriptions) {
  const told = await get(`events/${sequence}/trace`);
  const chosen = subscription || told.deliveries[0]?.subscription || "";
  const why = h("div", {});
  const ask = async (id) => {
    if (!id) return;
    try { const answer = await get(`events/${sequence}/trace?` + query({ subscription: id, lang: state.language })); fill(why, explanation(answer.explanation)); } catch (error) { fill(why, note("bad", error.message)); }
  };
  const other = h("input", { type: "text", list: "subscriptions", value: chosen, autocomplete: "off" });
  if (chosen && may("explain")) await ask(chosen);
  return [
    card(h("h2", { tabindex: "-1" }, t("Event {0}", sequence)), list([[t("source"), told.event.source], [t("type"), told.event.type], [t("accepted"), when(told.accepted_at)], [t("subscriptions that got it"), told.matched == null ? "–" : number(told.matched)]]), h("pre", {}, JSON.stringify(told.event.data ?? told.event, null, 2)), told.notes.map((each) => note("warn", each.detail)), how(`v1/events/${sequence}/trace`, `kindcast trace ${sequence}`)),
    may("explain") && card(h("h2", {}, t("Why, or why not")), h("form", { class: "row top", onsubmit: (event) => { event.preventDefault(); ask(other.value.trim()); } }, field(t("Subscription"), other), h("button", { type: "submit" }, t("Explain"))),
      h("datalist", { id: "subscriptions" }, subscriptions.map((each) => h("option", { value: each.id }, nameOf(each) === each.id ? each.expression ?? each.canonical : nameOf(each)))), chosen ? null : h("p", { class: "quiet" }, t("Nobody got it. Name a subscription to see why it did not.")), why),
    told.undecided.length > 0 && card(h("h2", {}, t("Not yet decided")), table([t("Subscription"), t("state"), t("reason")], told.undecided.map((each) => [each.subscription, each.state === "given_up" ? t("given up") : t("waiting"), each.reason]))),
    told.deliveries.length > 0 && card(h("h2", {}, t("Deliveries")), told.deliveries.map((each) => h("div", {}, h("div", { class: "row" }, link(each.subscription, "#/deliveries/" + each.subscription), tag({ delivered: t("delivered"), "dead letter": t("dead letter") }[each.state] ?? t("pending"), { delivered: "good", "dead letter": "bad" }[each.state] ?? "warn"), h("span", { class: "quiet" }, { webhook: t("by webhook"), broker: t("by a message broker") }[each.by] ?? t("by pull or stream")), each.late && tag(t("late"), "warn")),
      each.attempts.length > 0 && table([{ text: t("Attempt"), number: true }, t("when"), t("outcome"), t("answer")], each.attempts.map((one) => [String(one.attempt), when(one.at), outcome(one.outcome), `${one.status_code ?? ""} ${one.detail}`]))))),
  ];
}
