// The page: asks for the state twice a second, and draws what has changed.

import { byId, element, post, present } from "./dom.js";
import { faultSwitch } from "./switches.js";
import { clock, currentLanguage, lasting, setLanguage, wordIn, words } from "./words.js";

const EVERY = 500; // ms between two looks
const TONES = { delivered: "good", failed: "bad", interrupted: "bad" };
const STATE_TONES = { delivered: "good", waiting: "wait", held: "wait", dead: "bad", rejected: "bad" };
const VERDICT_TONES = { acted: "good", seen: "wait", refused: "bad" };
const ANSWERS_SHOWN = 24;

let state = null;
let heardAt = 0; // when the state came, for counting down between two looks
let drawn = new Map(); // place → what it shows, so that only what changed is drawn

// ---- the lists

/** Fill a list, if what it shows is something else than before; `make` makes one item's element. */
function fill(id, items, make) {
  const key = JSON.stringify([currentLanguage(), items]);
  if (drawn.get(id) === key) return;
  drawn.set(id, key);
  const focused = document.activeElement?.dataset?.key;
  byId(id).replaceChildren(...items.map(make));
  if (focused) byId(id).querySelector(`[data-key="${focused}"]`)?.focus();
}

function sentItem(sent) {
  const shown = sent.tries.slice(-ANSWERS_SHOWN);
  return element(
    "li",
    { class: "event", "data-testid": "sent", "data-how": sent.how },
    element("div", { class: "event-head" }, element("b", {}, sent.type), element("time", { class: "about" }, clock(sent.time))),
    sent.how !== "as usual" && element("p", { class: "about" }, wordIn("hows", sent.how)[0]),
    element("p", { class: "answers" }, ...counted(shown)),
  );
}

/** The answers, each kind once with how often it came: twenty copies are two or three words. */
function counted(tries) {
  const found = new Map();
  for (const { status, error } of tries) {
    const text = status === null ? error : String(status);
    found.set(text, { count: (found.get(text)?.count ?? 0) + 1, status });
  }
  return [...found].map(([text, { count, status }]) =>
    element("span", { class: "answer", "data-tone": answerTone(status), "data-testid": "answer" }, count > 1 ? `${count} × ${text}` : text),
  );
}

function answerTone(status) {
  if (status === null || status >= 500) return "bad";
  return status < 300 ? "good" : "wait";
}

function eventItem(event) {
  return element(
    "li",
    { class: "event", "data-testid": "event", "data-type": event.type },
    element(
      "div",
      { class: "event-head" },
      element("b", {}, event.type),
      element("time", { class: "about" }, clock(event.received)),
    ),
    element("p", { class: "about" }, event.source ?? words("own"), " · ", consoleLink(event)),
    event.deliveries.length === 0 && element("p", { class: "about" }, wordIn("state", "nobody")),
    ...event.deliveries.map((delivery) => deliveryPart(delivery)),
  );
}

function consoleLink(event) {
  return element("a", { class: "link", href: `${state.console}/webhooks/events/${event.id}`, target: "_blank", rel: "noopener" }, words("more"));
}

function deliveryPart(delivery) {
  const shown = stateOf(delivery);
  const tone = shown === "running" ? null : (STATE_TONES[shown] ?? null);
  const about = [delivery.endpoint];
  if (delivery.is_replay) about.push(words("replayed"));
  if (delivery.run > 1) about.push(words("round", { run: delivery.run }));
  if (shown === "waiting" && delivery.used) about.push(words("tries", { used: delivery.used, most: delivery.most }));
  return element(
    "div",
    { class: "delivery", "data-testid": "delivery", "data-state": shown },
    element(
      "div",
      { class: "event-head" },
      element("span", { class: "about" }, about.join(" · ")),
      element("span", { class: "state", "data-tone": tone }, wordIn("state", shown)),
    ),
    element("ol", { class: "tries" }, ...delivery.tries.map(tryLine)),
    shown === "dead" && isElsewhere(delivery) && element("p", { class: "about" }, wordIn("error", delivery.error_class)),
    delivery.closed && element("p", { class: "about" }, delivery.closed),
    element("p", { class: "countdown", "data-next": nextOf(delivery), hidden: true }),
    element("div", { class: "row" }, ...present(buttonsOf(delivery, shown))),
  );
}

/** Whether it died of something else than its last try: its endpoint was disabled, or its time was over. */
const isElsewhere = (delivery) => delivery.error_class !== null && delivery.tries.at(-1)?.error_class !== delivery.error_class;

function stateOf(delivery) {
  if (delivery.job_status === "processing") return "running";
  if (delivery.job_status === "pending") return "waiting"; // one that died and goes again is dead until it is tried
  return delivery.state;
}

/** When the next try is due, as a moment of this page's own clock; the same for every look, so that nothing is drawn anew. */
function nextOf(delivery) {
  return delivery.next === undefined ? null : String(delivery.next);
}

function tryLine(attempt) {
  const running = attempt.outcome === null;
  const why = attempt.http_status ?? (attempt.error_class ? wordIn("error", attempt.error_class) : "");
  const result = running ? words("running") : `${wordIn("outcome", attempt.outcome)}${why === "" ? "" : ` (${why})`}`;
  return element(
    "li",
    { "data-tone": running ? "running" : (TONES[attempt.outcome] ?? "wait"), "data-testid": "try" },
    element("time", {}, clock(attempt.started)),
    element(
      "span",
      { class: "result" },
      result,
      attempt.duration_ms !== null && element("span", { class: "took" }, ` · ${lasting(attempt.duration_ms / 1000)}`),
    ),
  );
}

function buttonsOf(delivery, shown) {
  const canHurry = shown === "waiting" && delivery.tries.length > 0;
  const canRepeat = !delivery.is_blocked && ["dead", "delivered", "replayed", "closed"].includes(shown);
  return [
    canHurry && button("hurry", { what: "hurry", job: delivery.job_id }, delivery.id),
    canRepeat && button("again", { what: "again", delivery: delivery.id }, delivery.id),
  ];
}

function button(word, what, id) {
  const made = element("button", { type: "button", class: "quiet", "data-testid": word, "data-key": `${word}-${id}` }, words(word));
  made.addEventListener("click", () => act(made, what));
  return made;
}

async function act(pressed, what) {
  pressed.disabled = true;
  try {
    await post("/gateway/act", what);
    byId("problem").textContent = "";
  } catch {
    byId("problem").textContent = words("notDone");
  }
  pressed.disabled = false;
  await look();
}

function arrivalItem(arrival) {
  return element(
    "li",
    { "data-testid": "arrival", "data-verdict": arrival.verdict },
    element("span", {}, arrival.type, element("small", {}, clock(arrival.time), arrival.is_replay && ` · ${words("replayed")}`)),
    element("span", { class: "answer", "data-tone": VERDICT_TONES[arrival.verdict] }, wordIn("verdict", arrival.verdict)),
  );
}

// ---- the receiver

function drawSwitches(names) {
  const key = JSON.stringify([currentLanguage(), names]);
  if (drawn.get("switches") === key) return;
  drawn.set("switches", key);
  byId("switches").replaceChildren(
    ...names.map((name) => faultSwitch(name, wordIn("fault", name), "/gateway/faults", showFaults)),
  );
}

function showFaults(on) {
  for (const row of byId("switches").children) row.setAttribute("aria-checked", String(on.includes(row.dataset.fault)));
  byId("all-off").hidden = on.length === 0;
}

function drawEndpoint(endpoint) {
  const place = byId("health");
  if (!endpoint) {
    place.textContent = "";
    return;
  }
  const [tone, text] = healthOf(endpoint);
  const more = present([
    endpoint.waiting > 0 && words("waiting", { count: endpoint.waiting }),
    endpoint.dead > 0 && words("dead", { count: endpoint.dead }),
  ]);
  place.dataset.tone = tone;
  setText(place, [text, ...more].join(" · "));
  byId("enable").hidden = endpoint.disabled === null && endpoint.open_for === null;
  setText(byId("enable"), words(endpoint.disabled === null ? "reset" : "enable"));
  const dead = deadOf(state.events ?? [], endpoint);
  byId("replay").hidden = dead === 0 || endpoint.disabled !== null;
  setText(byId("replay"), dead === 1 ? words("replayOne") : words("replay", { count: dead }));
}

/** Dead letters that nobody has closed, among the events that are shown. */
function deadOf(events, endpoint) {
  const all = events.flatMap((event) => event.deliveries);
  return all.filter((delivery) => delivery.endpoint === endpoint.name && stateOf(delivery) === "dead").length;
}

function healthOf(endpoint) {
  if (endpoint.disabled !== null) return ["bad", words("disabled", { why: wordIn("why", endpoint.disabled) })];
  if (endpoint.open_for !== null) {
    return ["bad", endpoint.open_for > 0 ? words("open", { time: lasting(Math.ceil(endpoint.open_for)) }) : words("openNow")];
  }
  return endpoint.failures_in_row > 0 ? ["wait", words("failing", { count: endpoint.failures_in_row })] : ["good", words("healthy")];
}

// ---- drawing

const setText = (place, text) => {
  if (place.textContent !== text) place.textContent = text;
};

function draw() {
  const events = state.events ?? [];
  for (const delivery of events.flatMap((event) => event.deliveries)) {
    if (delivery.next_try_in !== null) delivery.next = Math.round((heardAt / 1000 + delivery.next_try_in) * 2) / 2;
    delete delivery.next_try_in;
    delivery.is_blocked = state.endpoint?.name === delivery.endpoint && state.endpoint.disabled !== null;
  }
  fill("sent", state.sent, sentItem);
  byId("no-sent").hidden = state.sent.length > 0;
  fill("events", events, eventItem);
  byId("no-events").hidden = events.length > 0;
  setText(byId("no-events"), words(state.events === null ? "eventsAway" : "noEvents"));
  fill("arrivals", state.received.arrivals, arrivalItem);
  byId("no-arrivals").hidden = state.received.arrivals.length > 0;
  for (const name of ["acted", "seen", "refused"]) setText(document.querySelector(`[data-testid=${name}]`), String(state.received[name]));
  drawSwitches(state.switches);
  showFaults(state.on);
  drawEndpoint(state.endpoint);
  drawChoices();
  byId("console").href = state.console;
  announce(events[0]);
  countDown();
}

function drawChoices() {
  const key = JSON.stringify([currentLanguage(), state.types, state.hows]);
  if (drawn.get("choices") === key) return;
  drawn.set("choices", key);
  const chosen = { type: byId("type").value, how: byId("how").value };
  byId("type").replaceChildren(...state.types.map((name) => element("option", { value: name }, name)));
  byId("how").replaceChildren(...state.hows.map((name) => element("option", { value: name }, wordIn("hows", name)[0])));
  for (const name of ["type", "how"]) if (chosen[name]) byId(name).value = chosen[name];
  explain();
}

const explain = () => setText(byId("how-what"), wordIn("hows", byId("how").value)[1] ?? "");

let announced = "";

/** Say what became of the newest event, for who cannot see it. */
function announce(event) {
  const last = event?.deliveries.at(-1);
  if (!last) return;
  const text = words("told", { type: event.type, state: wordIn("state", stateOf(last)) });
  if (text !== announced) byId("live").textContent = announced = text;
}

function countDown() {
  for (const place of document.querySelectorAll(".countdown[data-next]")) {
    const left = Math.ceil(Number(place.dataset.next) - Date.now() / 1000);
    place.hidden = false;
    setText(place, left > 0 ? words("next", { time: lasting(left) }) : words("soon"));
  }
}

function drawWords() {
  document.documentElement.lang = currentLanguage();
  document.title = words("title");
  for (const place of document.querySelectorAll("[data-word]")) place.textContent = words(place.dataset.word);
  byId("languages").setAttribute("aria-label", words("language"));
  for (const choice of byId("languages").children) {
    choice.setAttribute("aria-pressed", String(choice.dataset.language === currentLanguage()));
  }
  if (state) draw();
}

// ---- looking

async function look() {
  try {
    const answer = await fetch("/gateway/state");
    if (!answer.ok) throw new Error(String(answer.status));
    state = await answer.json();
    heardAt = Date.now();
    byId("offline").hidden = true;
    draw();
  } catch (wrong) {
    if (wrong instanceof TypeError || state === null) byId("offline").hidden = false;
    else throw wrong;
  }
}

async function lookOn() {
  try {
    if (!document.hidden) await look();
  } finally {
    setTimeout(lookOn, EVERY);
  }
}

byId("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("problem").textContent = "";
  try {
    await post("/gateway/send", { type: byId("type").value, how: byId("how").value });
  } catch {
    byId("problem").textContent = words("notDone");
  }
  await look();
});
byId("how").addEventListener("change", explain);
byId("all-off").addEventListener("click", async () => showFaults((await post("/gateway/faults", {}, "DELETE")).on));
byId("enable").addEventListener("click", () => act(byId("enable"), { what: "enable" }));
byId("replay").addEventListener("click", () => act(byId("replay"), { what: "replay" }));
byId("languages").addEventListener("click", ({ target }) => {
  if (!target.dataset.language) return;
  setLanguage(target.dataset.language);
  drawWords();
});

drawWords();
setInterval(countDown, 250);
lookOn();
