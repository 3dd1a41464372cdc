// The switch of a fault.

import { element, post } from "./dom.js";

/** A switch that posts to `path`, and gives `show` the faults that are in force then; back as it was when that fails. */
export function faultSwitch(name, [title, effect], path, show) {
  const row = element(
    "button",
    { type: "button", class: "switch", role: "switch", "aria-checked": "false", "data-fault": name },
    element("span", { class: "switch-text" }, element("b", {}, title), element("small", {}, effect)),
    element("span", { class: "track", "aria-hidden": "true" }, element("span", { class: "thumb" })),
  );
  row.addEventListener("click", async () => {
    const on = row.getAttribute("aria-checked") !== "true";
    row.setAttribute("aria-checked", String(on));
    try {
      show((await post(path, { name, on })).on);
    } catch {
      row.setAttribute("aria-checked", String(!on));
    }
  });
  return row;
}
