// Deliveries: every subscription's state, its attempts, dead letters, and what can be done about it.
import { brief, button, call, card, dataOf, empty, every, field, figure, fill, get, h, how, link, list, may, nameOf, note, number, outcome, query, renew, say, select, state, status, t, table, tag, testButton, tickets, when, withTicket } from "./dom.js";

export const page = (rest, parameters) => (rest[0] ? one(rest[0]) : all(parameters));
// Nobody from whom a subscription's matches are hidden sees its attempts. Its state and its buttons are for them too.
const unhidden = (error) => { if (error.code !== "hidden-attribute") throw error; return { attempts: [], hidden: error.message }; };
const short = (canonical) => (canonical ?? "").replace(/<[^>]*[#/]([^>#/]+)>/g, "$1");

async function all(parameters) {
  const states = { "": t("every state"), active: t("active"), paused: t("paused"), failing: t("failing"), disabled_by_failures: t("disabled by failures"), expired: t("expired") };
  const asked = parameters.get("status"), wanted = Object.hasOwn(states, asked) ? asked : "", cursor = parameters.get("cursor") ?? "", q = parameters.get("q") ?? "";
  const listed = { status: wanted, q, newest_first: true };
  const found = await get("subscriptions?" + query({ limit: 100, ...listed, cursor }));
  const go = (change) => (location.hash = "#/deliveries?" + query({ status: wanted, q, ...change }));
  const filter = select(states, wanted, (event) => go({ status: event.target.value }));
  const search = h("input", { type: "search", value: q, maxlength: 200, placeholder: t("Press Enter to search"), onchange: (event) => go({ q: event.target.value.trim() }) });
  return [h("h1", {}, t("Deliveries")), card(h("div", { class: "row top" }, field(t("Search in names, ids and expressions"), search), field(t("State"), filter)),
    found.subscriptions.length ? table([t("Subscription"), t("State"), t("What it asks"), { text: t("sent"), number: true }, { text: t("failed"), number: true }, t("last success"), t("last error")], found.subscriptions.map((each) => [
      link(nameOf(each), "#/deliveries/" + each.id), status(each.status), h("code", {}, brief(each.expression ?? short(each.canonical))), each.sink ? number(each.times_sent) : "–", each.sink ? number(each.times_failed) : "–", each.sink ? when(each.last_success) : t("by pull or stream"), brief(each.last_error ?? "")]))
      : empty(wanted || q ? t("No subscription fits the filter.") : t("Nobody has subscribed yet."), !wanted && !q && may("subscribe") && link(t("Write a subscription"), "#/subscribe", "button")),
    found.cursor && link(t("More"), "#/deliveries?" + query({ status: wanted, q, cursor: found.cursor }), "button"), how("v1/subscriptions?" + query(listed), "kindcast subscriptions"))];
}

async function one(id) {
  const frame = h("div", {});
  const ticket = h("input", { type: "text", autocomplete: "off", value: tickets.of(id) ?? "", onchange: () => {
    ticket.value = ticket.value.replace(/[^\w-]/g, "");  // what was copied with it: spaces, quotes, characters that are not seen
    if (ticket.value) tickets.put(id, ticket.value); else tickets.drop(id);
  } });
  const writing = () => document.activeElement === since || (document.activeElement === ticket && ticket.value !== (tickets.of(id) ?? ""));
  const since = h("input", { type: "datetime-local", step: "1", max: "9999-12-31T23:59:59" });
  let before = "";
  async function draw() {
    const [it, attempts, dead] = await Promise.all([get("subscriptions/" + id), get(`subscriptions/${id}/attempts?limit=50`).catch(unhidden), get("dead-letters?" + query({ subscription: id, limit: 50 }))]);
    const told = JSON.stringify([it, attempts, dead, tickets.of(id)]);
    const age = frame.querySelector("[data-age]");
    if (age && it.pending_since) age.textContent = lasting((Date.now() - new Date(it.pending_since)) / 1000);
    if (told === before) return;  // nothing moves under the hand of whoever reads
    before = told;
    const ofIt = (name, value) => figure(name, value, "v1/subscriptions/" + id, "kindcast subscriptions show " + id);
    const act = (path, said, body) => async () => { await call("POST", `subscriptions/${id}/${path}`, body ?? {}, withTicket(id)); say(said); await draw(); };
    const turn = it.status === "paused" || it.status === "disabled_by_failures" ? button(t("Resume"), act("resume", t("It matches again.")), "first") : button(t("Pause"), act("pause", t("It is paused: events that come now are not for it.")));
    turn.id = "turn";
    renew(frame,
      h("p", {}, link("← " + t("All deliveries"), "#/deliveries")),
      h("h1", {}, nameOf(it), " ", status(it.status)),
      diagnosis(it),
      h("div", { class: "figures" }, ofIt(t("wait for delivery"), number(it.pending)), it.pending > 0 && ofIt(t("the oldest waits for"), h("span", { "data-age": true }, lasting((Date.now() - new Date(it.pending_since)) / 1000))), it.sink && ofIt(t("attempts"), number(it.times_sent)), it.sink && ofIt(t("of them failed"), number(it.times_failed)),
        figure(t("dead letters"), number(dead.dead_letters.length) + (dead.dead_letters.length === 50 ? "+" : ""), "v1/dead-letters?subscription=" + id, "kindcast dead-letters " + id), it.discarded > 0 && ofIt(t("deleted before delivery"), number(it.discarded)), it.waiting_for_operators > 0 && ofIt(t("wait for operators"), number(it.waiting_for_operators))),
      h("div", { class: "columns" },
        card(h("h2", {}, t("Subscription")), h("pre", {}, it.expression ?? short(it.canonical)), list([[t("Id"), h("code", {}, it.id)], [t("delivered"), it.sink ? h("code", {}, it.sink) : t("by pull or stream")], [t("made"), when(it.created_at)], [t("ends"), when(it.expires_at)], [t("last success"), it.sink && when(it.last_success)], [t("last failure"), it.last_failure && when(it.last_failure)], [t("next attempt"), it.next_attempt_at && when(it.next_attempt_at)], [t("cursor"), it.cursor]]), it.notes.map((each) => note("warn", each.detail)),
          how("v1/subscriptions/" + id, "kindcast subscriptions show " + id)),
        may("subscribe") && card(h("h2", {}, t("What you can do")), state.session.needs_key ? h("p", { class: "quiet" }, t("A subscription is changed by the key that made it, by an administrator, or with its ticket."))
          : !tickets.of(id) && note("warn", t("A subscription is changed with its ticket only. This browser does not have it: paste it here.")), field(t("Ticket"), ticket),
          h("div", { class: "row" }, turn, button(t("Renew for 30 days"), act("renew", t("It is renewed."), { ttl_seconds: 30 * 86400 })),
            it.sink && testButton(id),
            dead.dead_letters.length > 0 && button(t("Send dead letters again"), async () => { const told = await call("POST", "dead-letters/redrive", { subscription: id }, withTicket(id)); say(t("Messages that are sent again: {0}", told.redriven)); await draw(); }),
            button(t("Delete"), async () => { if (confirm(t("Delete this subscription with its waiting messages?"))) { await call("DELETE", "subscriptions/" + id, undefined, withTicket(id)); tickets.drop(id); location.hash = "#/deliveries"; } }, "danger")),
          h("div", { class: "row end" }, field(t("Deliver again what came since"), since), button(t("Replay"), async () => {
            const body = since.value ? { since: new Date(since.value).toISOString() } : {};
            const told = await call("POST", `subscriptions/${id}/replay`, body, withTicket(id));
            say(t("It is read again from cursor {0} on.", told.cursor));
            await draw();
          })), h("p", { class: "small quiet" }, t("Without a time: everything that is still kept.")),
          how(`v1/subscriptions/${id}/replay`, `kindcast subscriptions replay ${id} --since 2026-01-31T08:00:00Z`, "POST", '{"since": "2026-01-31T08:00:00Z"}', state.session.needs_key ? [] : ["Kindcast-Ticket: $KINDCAST_TICKET"]),
          may("receive") && h("p", {}, link(t("Watch its events"), "#/live?subscription=" + id)))),
      it.sink && card(h("h2", {}, t("Attempts")), attempts.attempts.length ? table([t("Event"), { text: t("Attempt"), number: true }, t("when"), t("outcome"), t("answer")], attempts.attempts.map((each) => [link("#" + each.sequence, `#/live?event=${each.sequence}&subscription=${id}`), String(each.attempt), when(each.at), tag(outcome(each.outcome), each.outcome === "delivered" ? "good" : "bad"), `${each.status_code ?? ""} ${each.detail}`])) : empty(attempts.hidden ?? t("Nothing was sent yet.")), how(`v1/subscriptions/${id}/attempts`)),
      dead.dead_letters.length > 0 && card(h("h2", {}, t("Dead letters")), table([t("Event"), t("reason")], dead.dead_letters.map((each) => [h("code", {}, brief(dataOf(each.event))), each.reason])), how("v1/dead-letters?subscription=" + id, "kindcast dead-letters " + id)));
  }
  await draw();
  every(5000, async () => { if (!writing()) await draw(); });
  return frame;
}
const lasting = (seconds) => {
  const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]].find(([size]) => seconds >= size) ?? [1, "second"];
  return new Intl.NumberFormat(state.language, { style: "unit", unit, unitDisplay: "long", maximumFractionDigits: 0 }).format(Math.max(0, seconds) / size);
};

// Why a delivery is late, in one sentence.
function diagnosis(it) {
  if (it.status === "expired") return note("bad", t("It has ended and matches nothing. Renew it within a week."));
  if (it.status === "paused") return note("warn", t("It is paused: events that come now are not for it."), it.status_reason && ` (${it.status_reason})`);
  if (it.status === "disabled_by_failures") return note("bad", t("Delivery was given up: {0}. Messages that wait: {1}", it.status_reason ?? it.last_error ?? "", number(it.pending)));
  if (it.status === "active" && it.status_reason) return note("warn", it.status_reason);  // its matches are hidden, so its counters say nothing
  if (it.flagged) return note("warn", t("It uses something that was removed, or that is declared differently now."));
  if (it.consecutive_errors > 0) return note("warn", t("Delivery is late: attempts that failed in a row: {0}; the last one: {1}. The next attempt is at {2}.", number(it.consecutive_errors), it.last_error ?? "", when(it.next_attempt_at)));
  if (it.waiting_for_operators > 0) return note("warn", t("Events that wait for an operator to decide: {0}", number(it.waiting_for_operators)));
  if (it.sink && it.pending > 0) return note("", t("Messages on their way: {0}", number(it.pending)));
  if (!it.sink && it.pending > 0) return note("", t("Messages that wait for a reader: {0}. Pull or stream them, then acknowledge.", number(it.pending)));
  return note("good", t("Nothing waits."));
}
