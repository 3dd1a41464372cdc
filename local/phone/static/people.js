// The phones to choose from, as tabs; and adding an unknown number.

import { byId, element, post } from "./dom.js";
import { words } from "./words.js";

/** Draw a tab for each person. */
export function drawTabs(people, chosenPhone, unread, choose) {
  const focused = document.activeElement?.id;
  byId("tabs").replaceChildren(
    ...people.map((person) => {
      const made = tab(person, person.phone === chosenPhone, unread.get(person.phone) ?? 0);
      made.addEventListener("click", () => choose(person.phone));
      return made;
    }),
  );
  if (focused?.startsWith("tab-")) byId(focused)?.focus();
  byId("people-dot").hidden = ![...unread.values()].some((count) => count > 0);
}

function tab(person, chosen, count) {
  const unknown = person.name === person.phone;
  const attributes = {
    type: "button",
    role: "tab",
    class: "tab",
    id: `tab-${person.phone}`,
    "aria-selected": String(chosen),
    "aria-controls": "log",
    tabindex: chosen ? "0" : "-1",
    "data-testid": "person",
    "data-phone": person.phone,
  };
  const avatar = { class: `avatar hue-${hueOf(person.phone)}`, "aria-hidden": "true" };
  return element(
    "button",
    attributes,
    element("span", avatar, unknown ? "?" : initialsOf(person.name)),
    element("span", { class: "tab-text" }, element("b", {}, person.name), unknown ? null : element("small", {}, person.phone)),
    count > 0 && element("span", { class: "count", title: words("unread", { count }) }, String(count)),
  );
}

/** The first and the last capital: "Bram de Wit" gives BW. */
function initialsOf(name) {
  const capitals = name.split(" ").map((part) => part[0] ?? "").filter((letter) => /\p{Lu}/u.test(letter));
  return capitals.length > 1 ? capitals[0] + capitals.at(-1) : (capitals[0] ?? "?");
}

const hueOf = (phone) => [...phone].reduce((sum, digit) => sum + digit.charCodeAt(0), 0) % 6;

/** Wire the keys of the tabs and the form for a number. */
export function listenToPeople(choose) {
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const tabs = [...byId("tabs").children];
    const at = tabs.indexOf(document.activeElement);
    if (step) tabs[(at + step + tabs.length) % tabs.length]?.focus();
    else if (event.key === "Home") tabs[0]?.focus();
    else if (event.key === "End") tabs.at(-1)?.focus();
    else return;
    event.preventDefault();
  });
  byId("add").addEventListener("submit", async (event) => {
    event.preventDefault();
    const field = byId("new-number");
    byId("add-problem").textContent = "";
    try {
      const { phone } = await post("/phone/people", { phone: field.value });
      field.value = "";
      choose(phone);
    } catch {
      byId("add-problem").textContent = words("badNumber");
    }
  });
}
