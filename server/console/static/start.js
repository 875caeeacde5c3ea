// The first visit: a vocabulary, a subscription and events in three clicks. Later: what there is.
import { brief, button, call, card, conceptLink, figure, fill, get, h, how, keep, kept, link, may, nameOf, note, number, query, quoted, refocus, state, status, t, tag, tickets } from "./dom.js";

const SAMPLES = {
  shop: {
    text: () => t("A small shop: computers, printers, phones, in English, German and Chinese."),
    expression: "target isa Computer and price <= 400 USD",
    events: [{ target: "台式机", price: "310 USD" }, { target: "Notebook", price: "349.50 USD" }, { target: "Desktop PC", price: "450 USD" }],
  },
  building: {
    text: () => t("A building: sensors, rooms and machines, in English, German and French."),
    expression: 'room isa "Wet room" and value > 30 degC',
    events: [{ room: "Badezimmer", value: "88 degF" }, { room: "Bathroom", value: "21 degC" }, { room: "Office", value: "31 degC" }],
  },
};

export async function page(rest, parameters) {
  if (!may("see-vocabulary")) return [h("h1", {}, t("What there is")), h("p", {}, t("Your key has the role {0}.", state.session.role)), may("publish") && card(h("h2", {}, t("Send an event")), publish())];
  const vocabularies = await get("ontologies"), progress = kept("first", {});
  const tries = may("change-vocabulary") && may("subscribe") && may("publish");
  const { subscriptions } = await get("subscriptions?limit=2");
  const begun = progress.name && !progress.done && subscriptions.every((each) => each.id === progress.subscription);
  if (!subscriptions.length) delete progress.subscription;  // of another server at this address, or deleted
  const isFirst = !vocabularies.ontologies.length && (!subscriptions.length || parameters.has("load"));  // a server may be used without one
  if (tries && (isFirst || begun)) return first(vocabularies, progress);
  return overview(vocabularies, tries);
}

function first(vocabularies, progress) {
  const loaded = vocabularies.ontologies.filter((each) => each.active).map((each) => each.name);
  const frame = h("div", {}), found = h("div", { "aria-live": "polite" });
  let chosen = loaded.find((name) => Object.hasOwn(SAMPLES, name)) ?? null;
  let subscription = chosen && progress.name === chosen ? progress.subscription : null;
  const step = (title, done, ...content) => h("li", { class: "card" }, h("h2", {}, title), ...content, done && h("p", {}, note("good", done)));

  function draw() {
    const sample = chosen && SAMPLES[chosen];
    fill(frame,
      h("h1", {}, t("Welcome to kindcast")),
      h("p", {}, t("kindcast sends events to those who asked for their kind. Three clicks show how: choose a vocabulary, subscribe to a kind of thing, send some events.")),
      h("ol", { class: "steps" },
        step(t("Load a vocabulary"), chosen && t("{0} is loaded.", chosen),
          h("p", {}, t("A vocabulary says what is a kind of what, and which words mean it.")),
          Object.entries(SAMPLES).map(([name, each]) => h("div", {}, h("p", { class: "small quiet" }, each.text()),
            h("div", { class: "row" }, button(t("Load {0}", name), () => load(name), chosen ? "" : "first"))))),
        step(t("Subscribe to a kind"), subscription && t("The subscription is made; this browser keeps its ticket."),
          h("p", {}, t("This asks for every kind of a thing, whatever word a publisher uses:")),
          h("pre", {}, (sample ?? SAMPLES.shop).expression),
          h("div", { class: "row" }, h("button", { type: "button", class: sample && !subscription ? "first" : "", disabled: !sample || !!subscription, onclick: guarded(subscribe) }, t("Subscribe")))),
        step(t("Send events"), null,
          h("p", {}, t("Three events, in the words of different publishers:")),
          h("pre", {}, (sample ?? SAMPLES.shop).events.map((event) => JSON.stringify(event)).join("\n")),
          h("div", { class: "row" }, h("button", { type: "button", class: subscription ? "first" : "", disabled: !subscription, onclick: guarded(send) }, t("Send three events"))))),
      found);
  }
  const guarded = (work) => async (event) => {
    const pressed = event.currentTarget;
    pressed.disabled = true;
    try { await work(); } catch (error) { fill(found, note("bad", error.message)); } finally { pressed.disabled = false; refocus(pressed); }
  };

  async function load(name) {
    const document = await get("shipped/" + name);
    await call("PUT", "ontologies/" + name, document, { "Content-Type": "text/turtle" });
    chosen = name;
    keep("first", { name });
    draw();
    frame.querySelectorAll("button.first")[0]?.focus();
  }
  async function subscribe() {
    const made = await call("POST", "subscriptions", { expression: SAMPLES[chosen].expression, metadata: { name: t("My first subscription") } });
    tickets.put(made.id, made.ticket);
    subscription = made.id;
    keep("first", { name: chosen, subscription });
    draw();
    frame.querySelectorAll("button.first")[0]?.focus();
  }
  async function send() {
    const answer = await call("POST", "events", SAMPLES[chosen].events.map((event) => JSON.stringify(event)).join("\n"), { "Content-Type": "application/x-ndjson" });
    for (const event of answer.events) event.matched ??= await matches(event.sequence);
    keep("first", { name: chosen, subscription, done: true });
    fill(found, h("section", { class: "card" }, h("h2", { tabindex: "-1" }, t("{0} of {1} events matched", answer.events.filter((event) => event.matched).length, answer.accepted)),
      answer.events.map((event, place) => h("div", { class: "row" },
        h("span", { class: "tag " + (event.matched ? "good" : "") }, event.matched ? t("matched") : t("did not match")),
        h("code", {}, JSON.stringify(SAMPLES[chosen].events[place])),
        link(event.matched ? t("Why?") : t("Why not?"), `#/live?event=${event.sequence}&subscription=${subscription}`))),
      h("p", {}, t("Next: "), link(t("look at the vocabulary"), "#/vocabulary"), ", ", link(t("write a subscription of your own"), "#/subscribe"), ", ", link(t("watch events as they come"), "#/live"), "."),
      how("v1/events", `kindcast publish ${quoted(JSON.stringify(SAMPLES[chosen].events[0]))}`, "POST", JSON.stringify(SAMPLES[chosen].events[0]))));
    found.querySelector("h2").focus();
  }
  // Shards match after the answer. What they will find is what the explanation says.
  const matches = async (sequence) => (await get(`events/${sequence}/trace?` + query({ subscription }))).explanation.matches;
  draw();
  return frame;
}

async function overview(vocabularies, tries) {
  const [series, now] = may("see-operations") ? await Promise.all([get("series?points=2"), get("status")]) : [];
  const newest = await get("subscriptions?limit=10&newest_first=true");
  return [
    h("h1", {}, t("What there is")),
    h("div", { class: "figures" },
      figure(t("vocabularies"), number(vocabularies.ontologies.length), "v1/ontologies", "kindcast ontology list"),
      figure(t("concepts"), number(vocabularies.concepts), "v1/ontologies", "kindcast ontology list --json"),
      series && figure(t("active subscriptions"), number(now.subscriptions.active ?? 0), "v1/status", "kindcast status"),
      series && figure(t("events a second"), number(series.series.events_per_second.values.at(-1), 1), "v1/series"),
      series && figure(t("matches not yet delivered"), number(now.ledger.pending), "v1/status", "kindcast status")),
    h("div", { class: "columns" },
      card(h("h2", {}, t("Vocabularies")), vocabularies.ontologies.length ? h("ul", { class: "plain" }, vocabularies.ontologies.map((each) => h("li", { class: "row" }, link(each.name, "#/vocabulary/versions?name=" + encodeURIComponent(each.name)), h("span", { class: "quiet" }, t("version {0}, {1} concepts", each.version, number(each.concepts))), !each.active && tag(t("not in force"), "warn")))) : h("p", {}, t("There is no vocabulary yet."), " ", tries && link(t("Load a vocabulary"), "#/start?load"))),
      card(h("h2", {}, t("Newest subscriptions")), newest.subscriptions.length
        ? h("ul", { class: "plain" }, newest.subscriptions.map((each) => h("li", { class: "row" }, status(each.status), link(nameOf(each), "#/deliveries/" + each.id), h("code", {}, brief(each.expression ?? each.canonical ?? "")))))
        : h("p", {}, t("Nobody has subscribed yet."), " ", may("subscribe") && link(t("Write a subscription"), "#/subscribe")))),
    may("publish") && card(h("h2", {}, t("Send an event")), publish()),
  ];
}

function publish() {
  const text = h("textarea", { rows: "3", class: "code", "aria-label": t("Event as JSON"), value: '{"target": "Notebook", "price": "349.50 USD"}' });
  const found = h("div", { "aria-live": "polite" });
  return h("div", {}, text, h("div", { class: "row" }, button(t("Send"), async () => {
    fill(found);
    const answer = await call("POST", "events", text.value);
    fill(found, answer.events.map((event) => note("good", event.matched == null ? t("Accepted as number {0}; it is matched after this answer.", event.sequence) : t("Accepted as number {0}; subscriptions that got it: {1}", event.sequence, event.matched), " ", may("see-events", "explain") && link(t("Follow it"), "#/live?event=" + event.sequence))),
      answer.events.flatMap((event) => event.notes ?? []).map((each) => note("warn", each.detail)));
  }, "first")), found);
}
