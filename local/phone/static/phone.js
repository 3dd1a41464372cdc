// The page: what the server tells, who holds the phone, and what they type.

import { drawConversation, followTheEnd, hideTyping, showMessage, showTyping } from "./chat.js";
import { byId, element, post } from "./dom.js";
import { drawSwitches, forgetJobs, showFaults, showJobs } from "./drawer.js";
import { closePanels, listenToPanels } from "./panels.js";
import { drawTabs, listenToPeople } from "./people.js";
import { clock, currentLanguage, setLanguage, suggestions, words } from "./words.js";

const IS_ON_THE_PHONE = new Set(["sent", "delivered", "read"]); // what is only queued, or failed, never came

const state = {
  people: [],
  messages: new Map(), // phone → messages, oldest first
  unread: new Map(), // phone → how many
  typingUntil: new Map(), // phone → time
  phone: null,
  number: "",
  switches: [],
  on: [],
  canKill: false,
  jobs: [],
};

const personOf = (phone) => state.people.find((person) => person.phone === phone) ?? { name: phone, phone, language: "nl" };
const nameOf = (phone) => personOf(phone).name;
const messagesOf = (phone) => state.messages.get(phone) ?? [];
const isTyping = (phone) => (state.typingUntil.get(phone) ?? 0) > Date.now();

// ---- what the server tells

const HEARS = {
  everything(event) {
    state.people = event.people;
    state.messages.clear();
    for (const message of event.messages) keep(message);
    state.typingUntil = new Map(Object.entries(event.typing).map(([phone, left]) => [phone, Date.now() + left * 1000]));
    state.number = event.number;
    state.switches = event.switches;
    state.on = event.on;
    state.canKill = event.can_kill;
    byId("jobs-part").hidden = !event.has_jobs;
    state.phone ??= remembered() ?? state.people[0]?.phone ?? null;
    drawAll();
  },
  people(event) {
    state.people = event.people;
    drawPeople();
  },
  message({ message }) {
    const before = messagesOf(message.phone).at(-1) ?? null;
    const known = messagesOf(message.phone).some((other) => other.sid === message.sid);
    if (!keep(message)) return;
    if (!message.mine) state.typingUntil.delete(message.phone);
    if (!state.people.some((person) => person.phone === message.phone)) {
      state.people.push(personOf(message.phone));
      drawPeople();
    }
    if (message.phone === state.phone) showMessage(message, before);
    if (!message.mine && !known) announce(message);
    drawPresence();
  },
  typing({ phone, seconds }) {
    state.typingUntil.set(phone, Date.now() + seconds * 1000);
    if (phone === state.phone) showTyping();
    drawPresence();
  },
  faults({ on }) {
    state.on = on;
    showFaults(on);
  },
  jobs({ jobs }) {
    state.jobs = jobs;
    showJobs(jobs, nameOf);
  },
};

function keep(message) {
  if (!message.mine && !IS_ON_THE_PHONE.has(message.status)) return false;
  const list = messagesOf(message.phone);
  const index = list.findIndex((other) => other.sid === message.sid);
  if (index >= 0) list[index] = message;
  else list.push(message);
  state.messages.set(message.phone, list);
  return true;
}

function announce(message) {
  byId("live").textContent = words("newAnswer", { name: nameOf(message.phone), text: message.body });
  if (message.phone !== state.phone) {
    state.unread.set(message.phone, (state.unread.get(message.phone) ?? 0) + 1);
    drawPeople();
  }
}

function listen() {
  const stream = new EventSource("/phone/events");
  stream.addEventListener("open", () => (byId("offline").hidden = true));
  stream.addEventListener("error", () => {
    byId("offline").textContent = words("offline");
    byId("offline").hidden = false;
  });
  stream.addEventListener("message", ({ data }) => {
    const event = JSON.parse(data);
    HEARS[event.type]?.(event);
  });
}

// ---- drawing

function drawAll() {
  document.documentElement.lang = currentLanguage();
  document.title = words("title");
  for (const place of document.querySelectorAll("[data-word]")) place.textContent = words(place.dataset.word);
  for (const button of document.querySelectorAll("[data-close]")) label(button, "close");
  label(byId("show-people"), "showPeople");
  label(byId("show-drawer"), "showDrawer");
  label(byId("attach"), "attach");
  label(byId("send"), "send");
  label(byId("add").querySelector("button"), "add");
  byId("languages").setAttribute("aria-label", words("language"));
  byId("chips").setAttribute("aria-label", words("suggestions"));
  byId("composer").setAttribute("aria-label", words("compose"));
  byId("composer").placeholder = words("compose");
  for (const button of byId("languages").children) {
    button.setAttribute("aria-pressed", String(button.dataset.language === currentLanguage()));
  }
  drawPeople();
  drawPhone();
  drawSwitches(state.switches, state.on, state.canKill);
  forgetJobs();
  showJobs(state.jobs, nameOf);
}

function label(button, key) {
  button.setAttribute("aria-label", words(key));
  button.title = words(key);
}

function drawPhone() {
  const person = personOf(state.phone);
  byId("log").setAttribute("aria-labelledby", `tab-${person.phone}`);
  byId("chips").replaceChildren(
    ...suggestions(person.language).map(({ text, language }) => {
      const chip = element("button", { type: "button", class: "chip", lang: language, "data-testid": "chip" }, text);
      chip.addEventListener("click", () => send({ body: text }));
      return chip;
    }),
  );
  byId("chips").scrollLeft = 0;
  drawConversation(messagesOf(state.phone), isTyping(state.phone));
  drawPresence();
}

function drawPresence() {
  const typing = isTyping(state.phone);
  if (!typing) hideTyping();
  const text = typing ? words("typing") : words("as", { name: nameOf(state.phone) });
  const place = byId("presence");
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("is-typing", typing);
}

const drawPeople = () => drawTabs(state.people, state.phone, state.unread, choose);

function choose(phone) {
  state.phone = phone;
  state.unread.delete(phone);
  try {
    sessionStorage.setItem("antwoord-phone", phone);
  } catch {
    // storage may be forbidden; then a reload shows the first phone
  }
  drawPeople();
  drawPhone();
  closePanels();
}

function remembered() {
  try {
    return sessionStorage.getItem("antwoord-phone");
  } catch {
    return null;
  }
}

// ---- what people do

async function send(message) {
  const person = personOf(state.phone);
  const named = person.name === person.phone ? {} : { profile_name: person.name };
  byId("problem").textContent = "";
  try {
    await post("/phone/messages", { from: person.phone, ...named, ...message });
    return true;
  } catch {
    byId("problem").textContent = words("notSent");
    return false;
  }
}

async function sendTyped() {
  const field = byId("composer");
  const body = field.value.trim();
  if (!body) return;
  field.value = "";
  fit();
  if (!(await send({ body }))) {
    field.value = body;
    fit();
  }
}

function fit() {
  const field = byId("composer");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, 120)}px`;
  byId("compose").classList.toggle("is-empty", !field.value.trim());
}

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  sendTyped();
});
byId("composer").addEventListener("input", fit);
byId("composer").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  sendTyped();
});
byId("attach").addEventListener("click", () => {
  send({ body: "", media_url: `${location.origin}/phone/static/photo.jpg`, media_type: "image/jpeg" });
});
byId("languages").addEventListener("click", ({ target }) => {
  if (!target.dataset.language) return;
  setLanguage(target.dataset.language);
  drawAll();
});
byId("chips").addEventListener("focusin", ({ target }) => { // browsers leave one that is half in sight as it is
  target.scrollIntoView({ block: "nearest", inline: "nearest" });
});
byId("chips").addEventListener("wheel", (event) => {
  if (event.deltaX === 0) byId("chips").scrollLeft += event.deltaY;
}, { passive: true });

function tick() {
  byId("clock").textContent = clock(new Date());
  drawPresence();
}

setInterval(tick, 1000);
tick();
fit();
followTheEnd();
listenToPanels();
listenToPeople(choose);
listen();
