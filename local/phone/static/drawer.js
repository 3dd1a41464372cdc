// The drawer: switches for faults, and the jobs with their attempts as they happen.

import { byId, element, icon, post, present } from "./dom.js";
import { faultSwitch } from "./switches.js";
import { clock, seconds, wordIn, words, wordsOf } from "./words.js";

const ATTEMPTS_SHOWN = 6;
const TONES = { done: "good", continued: "good", snoozed: "wait", returned: "wait", retry: "bad", failed: "bad", crashed: "bad" };
const IN_THE_STORY = 8;

/** Draw the switches that there are, a group for each thing that they disturb; one is open at a time, above the jobs. */
export function drawSwitches(groups, on, canKill) {
  const place = byId("switches");
  const opened = new Map([...place.querySelectorAll("details")].map((group) => [group.dataset.group, group.open]));
  place.replaceChildren(
    ...groups.map(({ name, switches }) =>
      element(
        "details",
        { class: "group", name: "faults", "data-group": name, open: opened.get(name) ?? false },
        element("summary", {}, element("b", {}, wordIn("group", name)), element("span", { class: "on-count" })),
        ...switches.map((fault) => faultSwitch(fault, wordIn("fault", fault), "/phone/faults", showFaults)),
      ),
    ),
  );
  if (canKill) place.append(element("div", { class: "group" }, killRow()));
  showFaults(on);
}

/** Set the switches to what is in force. */
export function showFaults(on) {
  for (const row of document.querySelectorAll("[role=switch]")) {
    row.setAttribute("aria-checked", String(on.includes(row.dataset.fault)));
  }
  for (const group of byId("switches").querySelectorAll("details")) {
    const count = group.querySelectorAll("[aria-checked=true]").length;
    group.querySelector(".on-count").textContent = count ? words("groupOn", { count }) : "";
  }
  byId("all-off").hidden = on.length === 0;
  byId("drawer-dot").hidden = on.length === 0;
}

function killRow() {
  const [title, effect] = wordsOf("kill");
  const button = element("button", { type: "button", class: "danger", "data-fault": "kill_host" }, words("killButton"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    await post("/phone/kill", {}).catch(() => null);
    button.textContent = words("killed");
    setTimeout(() => {
      button.textContent = words("killButton");
      button.disabled = false;
    }, 2500);
  });
  return element(
    "div",
    { class: "switch" },
    element("span", { class: "switch-text" }, element("b", {}, title), element("small", {}, effect)),
    button,
  );
}

const cards = new Map(); // id → { card, shape, nextAt, wait }

/** Draw the jobs again in this language. */
export function forgetJobs() {
  cards.clear();
  byId("jobs").replaceChildren();
}

/** Show the jobs, newest first; a card is rebuilt only when something in it changed. */
export function showJobs(jobs, nameOf) {
  const note = byId("jobs-note");
  if (jobs === null) {
    note.textContent = words("jobsAway");
    note.hidden = false;
    return;
  }
  note.textContent = words("noJobs");
  note.hidden = jobs.length > 0;
  const list = byId("jobs");
  const now = Date.now();
  const seen = new Set();
  jobs.forEach((job, place) => {
    seen.add(job.id);
    const { next_run_in_seconds: wait, ...shape } = job;
    const key = JSON.stringify(shape);
    let entry = cards.get(job.id);
    if (!entry) {
      entry = { card: element("li", { class: "job", "data-testid": "job" }), key: "" };
      cards.set(job.id, entry);
    }
    if (entry.key !== key) {
      entry.key = key;
      fillCard(entry, job, nameOf);
    }
    entry.nextAt = job.status === "pending" && wait !== null ? now + wait * 1000 : null;
    if (list.children[place] !== entry.card) list.insertBefore(entry.card, list.children[place] ?? null);
  });
  for (const [id, entry] of cards) {
    if (seen.has(id)) continue;
    entry.card.remove();
    cards.delete(id);
  }
  countDown();
}

function stateOf(job) {
  if (job.status === "failed" && job.error_class === "held") return "held";
  if (job.status === "pending" && job.attempts_list.length > 0) return "waiting";
  return job.status;
}

function fillCard(entry, job, nameOf) {
  const { card } = entry;
  const state = stateOf(job);
  card.dataset.jobStatus = job.status;
  card.dataset.jobType = job.type;
  card.dataset.state = state;
  const about = [];
  if (job.conversation_address) about.push(nameOf(job.conversation_address.replace("whatsapp:", "")));
  if (job.attempts > 0) about.push(words("attempts", { number: job.attempts, max: job.max_attempts }));
  entry.countdown = element("p", { class: "countdown", hidden: true });
  const tries = job.attempts_list.slice(-ATTEMPTS_SHOWN);
  const left = job.attempts_list.length - tries.length;
  const parts = [
    element(
      "div",
      { class: "job-head" },
      element("b", {}, wordIn("type", job.type)),
      element("span", { class: "state" }, wordIn("state", state)),
    ),
    element("p", { class: "about" }, about.join(" · ")),
    left > 0 && element("p", { class: "about" }, words("earlier", { count: left })),
    element("ol", { class: "tries" }, ...present([...tries.map(attemptLine), lastLine(job, state)])),
    element("ul", { class: "sent-parts" }, ...(job.messages ?? []).map((message) => messageLine(message, job))),
    entry.countdown,
    reason(job, state),
  ];
  card.replaceChildren(...present(parts));
}

/** Why a job is over, in the error's own words; an attempt's own error is not said twice. */
function reason(job, state) {
  if (!job.last_error || state === "done" || job.attempts_list.some((attempt) => attempt.error === job.last_error)) return null;
  return element("p", { class: "error-text" }, job.last_error);
}

/** What is true now and is no attempt: it runs, or a callback proved after the last attempt that the message arrived. */
function lastLine(job, state) {
  const settled = state === "done" && isHeld(job.attempts_list.at(-1));
  if (state !== "processing" && !settled) return null;
  const attributes = settled ? { "data-tone": "good", "data-outcome": "settled" } : { "data-tone": "running" };
  return element("li", attributes, element("span", { class: "result" }, words(settled ? "settled" : "running")));
}

const isHeld = (attempt) => attempt?.outcome === "failed" && attempt.error_class === "held";

function attemptLine(attempt, place, all) {
  const started = new Date(attempt.started);
  const ended = new Date(attempt.ended);
  const result = isHeld(attempt) ? wordIn("state", "held") : wordIn("outcome", attempt.outcome);
  const saidBefore = attempt.error === all[place - 1]?.error;
  const why = attempt.error_class && attempt.error_class !== attempt.outcome ? wordIn("error", attempt.error_class) : "";
  const status = attempt.http_status ? ` (${attempt.http_status})` : "";
  return element(
    "li",
    { "data-tone": isHeld(attempt) ? "wait" : (TONES[attempt.outcome] ?? "wait"), "data-outcome": attempt.outcome },
    element("time", { datetime: started.toISOString() }, clock(started, true)),
    element(
      "span",
      { class: "result" },
      result + (why ? `: ${why}${status}` : ""),
      element("span", { class: "took" }, ` · ${seconds((ended - started) / 1000)}`),
      attempt.error !== null && !saidBefore && element("small", { class: "error-text", title: attempt.error }, attempt.error),
    ),
  );
}

/** One message of the job: its part, its ticks, what proved it, and its story where that was not a straight one. */
function messageLine(message, job) {
  const inDoubt = message.status === "sending" && message.story.includes("ambiguous");
  const undelivered = message.status === "failed" && message.evidence !== null;
  const status = inDoubt ? "doubt" : undelivered ? "undelivered" : message.status;
  const name = { sent: "tick", delivered: "ticks", read: "ticks", failed: "alert", undelivered: "alert", held: "alert", doubt: "alert" }[status];
  const saidBefore = job.attempts_list.some((attempt) => attempt.error === message.held_reason);
  const code = message.error_code ? ` (${message.error_code})` : "";
  const told = message.story.map((what) => wordsOf("story")[what]).filter(Boolean).slice(-IN_THE_STORY);
  const proof = message.evidence && (told.length || message.evidence !== "answer") ? ` · ${wordIn("evidence", message.evidence)}` : "";
  return element(
    "li",
    { "data-testid": "sent", "data-status": status },
    name ? icon(name) : element("span", { class: "no-tick", "aria-hidden": "true" }),
    element(
      "span",
      {},
      message.parts > 1 && element("span", { class: "part" }, words("part", message), " "),
      element("b", {}, wordIn("sendStatus", status) + code),
      proof,
      told.length > 0 && element("small", { class: "story" }, told.join(" → ")),
      status === "held" && message.held_reason && !saidBefore && element("small", { class: "error-text" }, message.held_reason),
    ),
  );
}

function countDown() {
  const now = Date.now();
  for (const { nextAt, countdown, card } of cards.values()) {
    const waits = nextAt !== null && card.dataset.state === "waiting";
    countdown.hidden = !waits;
    if (!waits) continue;
    const left = Math.ceil((nextAt - now) / 1000);
    const text = left > 0 ? words("next", { time: left >= 90 ? `${Math.round(left / 60)} min` : `${left} s` }) : words("soon");
    if (countdown.textContent !== text) countdown.textContent = text;
  }
}

byId("all-off").addEventListener("click", async () => showFaults((await post("/phone/faults", {}, "DELETE")).on));
setInterval(countDown, 250);
