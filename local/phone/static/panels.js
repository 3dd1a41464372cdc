// On narrow screens the people and the drawer are panels that lie over the phone, one at a time.

import { byId } from "./dom.js";

const PANELS = ["people", "drawer"];
const phone = document.querySelector("main");

export function openPanel(id) {
  closePanels();
  byId(id).classList.add("is-open");
  byId(`show-${id}`).setAttribute("aria-expanded", "true");
  byId("veil").hidden = false;
  phone.inert = true;
  byId(id).querySelector("[data-close]").focus();
}

export function closePanels() {
  phone.inert = false;
  byId("veil").hidden = true;
  for (const id of PANELS) {
    if (!byId(id).classList.contains("is-open")) continue;
    byId(id).classList.remove("is-open");
    byId(`show-${id}`).setAttribute("aria-expanded", "false");
    byId(`show-${id}`).focus();
  }
}

/** Wire the buttons, the veil and Escape. */
export function listenToPanels() {
  for (const id of PANELS) byId(`show-${id}`).addEventListener("click", () => openPanel(id));
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", closePanels);
  byId("veil").addEventListener("click", closePanels);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closePanels();
  });
  for (const width of ["800px", "1180px"]) {
    matchMedia(`(width < ${width})`).addEventListener("change", closePanels);
  }
}
