// The conversation on the phone: bubbles, ticks, sources, the typing bubble.

import { byId, element, icon } from "./dom.js";
import { clock, currentLanguage, wordIn, words } from "./words.js";

const NEAR_THE_END = 80; // pixels from the bottom: who reads there wants to see what is new

let follows = true; // whether the log stays at its end; scrolling up ends that
let lastTop = 0;

/** Draw a whole conversation. */
export function drawConversation(messages, isTyping) {
  const log = byId("log");
  log.replaceChildren();
  if (!messages.length) log.append(element("div", { class: "begin" }, words("begin")));
  let before = null;
  for (const message of messages) {
    appendBubble(log, message, before);
    before = message;
  }
  if (isTyping) log.append(typingBubble());
  follows = true;
  log.scrollTop = log.scrollHeight;
}

/** Add a message to the conversation on the screen, or change the bubble that is there. */
export function showMessage(message, before) {
  const log = byId("log");
  const present = log.querySelector(`[data-sid="${CSS.escape(message.sid)}"]`);
  if (present) {
    setStatus(present, message);
    return;
  }
  log.querySelector(".begin")?.remove();
  if (!message.mine) hideTyping();
  const typing = log.querySelector(".typing");
  appendBubble(log, message, before);
  if (typing) log.append(typing);
  if (follows || message.mine) scrollDown();
}

export function showTyping() {
  const log = byId("log");
  if (log.querySelector(".typing")) return;
  log.append(typingBubble());
  if (follows) scrollDown();
}

export function hideTyping() {
  byId("log").querySelector(".typing")?.remove();
}

/** Keep the end in sight while the log changes its size (a keyboard, a window). */
export function followTheEnd() {
  const log = byId("log");
  log.addEventListener("scroll", () => {
    if (log.scrollTop < lastTop - 2) follows = false;
    if (log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_THE_END) follows = true;
    lastTop = log.scrollTop;
  });
  new ResizeObserver(() => {
    if (follows) log.scrollTop = log.scrollHeight;
  }).observe(log);
}

function scrollDown() {
  const log = byId("log");
  follows = true;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  log.scrollTo({ top: log.scrollHeight, behavior: calm ? "auto" : "smooth" });
}

function appendBubble(log, message, before) {
  const day = dayOf(message);
  if (!before || dayOf(before) !== day) log.append(element("div", { class: "day" }, element("span", {}, day)));
  const first = !before || before.mine !== message.mine || dayOf(before) !== day;
  log.append(bubble(message, first));
}

function bubble(message, first) {
  const made = element("div", {
    class: `message ${message.mine ? "mine" : "theirs"}${first ? " first" : ""}${message.photo ? " photo" : ""}`,
    "data-testid": "message",
    "data-sid": message.sid,
    "data-direction": message.mine ? "mine" : "theirs",
  });
  const inside = element("div", { class: "bubble" });
  if (message.photo) {
    inside.append(element("img", { src: "/phone/static/photo.jpg", alt: words("photo"), width: "240", height: "180" }));
  }
  if (message.body) inside.append(...textOf(message));
  const moment = new Date(message.at * 1000);
  inside.append(
    element(
      "span",
      { class: "meta" },
      element("time", { datetime: moment.toISOString() }, clock(moment)),
      message.mine && element("span", { class: "ticks" }),
    ),
  );
  made.append(inside);
  setStatus(made, message);
  return made;
}

function setStatus(made, message) {
  if (made.dataset.status === message.status) return;
  made.dataset.status = message.status;
  const ticks = made.querySelector(".ticks");
  if (!ticks) return;
  const name = { sent: "tick", delivered: "ticks", read: "ticks", failed: "alert" }[message.status];
  const label = wordIn("status", message.status);
  const seen = message.status === "failed" ? "failed-word" : "unseen";
  ticks.replaceChildren(icon(name), element("span", { class: seen }, label));
  ticks.title = label;
}

/** An answer's text with its citations as small marks, and its source line set apart. */
function textOf(message) {
  if (message.mine) return [element("p", { class: "text" }, message.body)];
  const [, text, sources] = /^([\s\S]*?)(?:\n\n((?:Bron|Bronnen|Source|Sources): [\s\S]*))?$/.exec(message.body);
  const paragraph = element("p", { class: "text" });
  for (const part of text.replace(/ (?=\[\d+\])/g, "\u00a0").split(/(\[\d+\])/)) { // no citation alone on a line
    const number = /^\[(\d+)\]$/.exec(part);
    paragraph.append(number ? element("sup", { class: "cite" }, part) : part);
  }
  if (!sources) return [paragraph];
  return [paragraph, element("p", { class: "source", "data-testid": "source" }, icon("page"), element("span", {}, sources))];
}

function typingBubble() {
  return element(
    "div",
    { class: "message theirs first typing", "data-testid": "typing" },
    element("div", { class: "bubble" }, element("i"), element("i"), element("i"), element("span", { class: "unseen" }, words("typing"))),
  );
}

function dayOf(message) {
  const moment = new Date(message.at * 1000);
  const today = new Date();
  if (moment.toDateString() === today.toDateString()) return words("today");
  today.setDate(today.getDate() - 1);
  if (moment.toDateString() === today.toDateString()) return words("yesterday");
  return moment.toLocaleDateString(currentLanguage(), { weekday: "long", day: "numeric", month: "long" });
}
