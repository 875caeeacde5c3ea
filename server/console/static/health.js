// Health: a day of measurements as plots, and the operators.
import { card, empty, every, figure, get, h, how, note, number, plot, renew, t, table, tag } from "./dom.js";

const bytes = (value) => { const units = ["B", "KB", "MB", "GB", "TB"]; let place = 0; while (value >= 1024 && place < 4) { value /= 1024; place++; } return `${number(value, value < 10 ? 1 : 0)} ${units[place]}`; };
const seconds = (value) => (value === 0 ? "0 s" : value < 0.001 ? `${number(value * 1e6)} µs` : value < 1 ? `${number(value * 1000, 1)} ms` : `${number(value, 2)} s`);
const share = (value) => number(value * 100, 1) + " %";
const count = (value) => number(value, value < 10 ? 2 : 0);
const NAMES = () => ({
  events_per_second: [t("Events a second"), count], matches_per_second: [t("Matches a second"), count], deliveries_per_second: [t("Deliveries a second"), count], failures_per_second: [t("Failed attempts a second"), count],
  match_seconds: [t("Matching an event, mean"), seconds], match_p99_seconds: [t("Matching an event, 99 of 100"), seconds], commit_seconds: [t("A commit, mean"), seconds],
  matches_pending: [t("Matches not yet delivered"), count], webhook_lag_seconds: [t("Oldest event that waits for a webhook or broker"), seconds], dead_letters: [t("Dead letters"), count], queue_waiting: [t("Commands that wait"), count], subscriptions: [t("Active subscriptions"), count],
  index_bytes: [t("Index and caches"), bytes], index_segments: [t("Segments of the index"), count], index_clusters: [t("Clusters of the index"), count], index_segment_rows: [t("Clauses in segments"), count], index_memtable_rows: [t("Newest clauses, not yet in a segment"), count], memory_bytes: [t("Memory of the process, at most"), bytes], database_bytes: [t("Database"), bytes],
});

const circuit = (value) => ({ closed: t("closed: calls go through"), open: t("open: no calls"), half_open: t("half open: one call is tried") }[value] ?? "–");

export async function page() {
  const figures = h("div", {}), plots = h("div", { class: "plots" }), operators = h("div", {});
  async function draw() {
    const [told, known] = await Promise.all([get("series?points=480"), get("operators")]);
    const ready = await get("../readyz").catch((error) => { if (error.document?.status) return error.document; throw error; });  // 503 says why
    const names = NAMES(), last = (name) => told.series[name]?.values.at(-1);
    const shown = (name) => (last(name) == null ? "–" : names[name][1](last(name)));
    renew(figures, ready.warning && note("warn", ready.warning), h("div", { class: "figures" }, figure(t("state"), ready.status === "ready" ? t("ready") : ready.detail ?? t("not ready"), "readyz", "kindcast status"),
      ["events_per_second", "match_p99_seconds", "matches_pending", "webhook_lag_seconds", "dead_letters", "queue_waiting", "index_bytes", "database_bytes"].map((name) => figure(names[name][0], shown(name), "v1/series"))));
    renew(plots, told.times.length > 1 ? Object.entries(names).filter(([name]) => told.series[name].values.some((each) => each != null)).map(([name, [text, unit]]) => plot(text, told.times, told.series[name].values, unit)).concat(Object.entries(told.operators).flatMap(([name, learned]) => [plot(t("{0}: learned seconds of a call", name), told.times, learned.cost, seconds), plot(t("{0}: share of calls answered with yes", name), told.times, learned.selectivity, share)])) : empty(t("The first measurements come within a minute.")));
    const used = known.operators.filter((each) => each.subscriptions > 0 || each.learned.calls > 0);
    renew(operators, card(h("h2", {}, t("Operators")), used.length ? table([t("Operator"), { text: t("subscriptions"), number: true }, { text: t("calls"), number: true }, { text: t("learned cost"), number: true }, { text: t("learned selectivity"), number: true }, t("circuit")], used.map((each) => [each.name, number(each.subscriptions), number(each.learned.calls), seconds(each.learned.cost), number(each.learned.selectivity, 3), tag(circuit(each.circuit?.state), each.circuit?.state === "closed" ? "good" : "bad")]))
      : empty(t("No subscription calls an operator. {0} are known.", number(known.operators.length))), how("v1/operators", "kindcast operators list")));
  }
  await draw();
  every(15000, draw);
  return [h("h1", {}, t("Health")), figures, h("h2", {}, t("The last day")), plots, how("v1/series"), operators];
}
