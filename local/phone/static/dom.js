// Making elements. Text only ever becomes text nodes: nothing that people or models wrote is parsed as HTML.

/** An element with attributes and children; a string child is text, null and false are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...present(children));
  return made;
}

/** The children without those that are left out. */
export const present = (children) => children.filter((child) => child !== null && child !== false);

/** One of the page's icons. */
export function icon(name, className = "") {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  if (className) svg.setAttribute("class", className);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export const byId = (id) => document.getElementById(id);

/** POST JSON (or another method); throws when the answer is not a success. */
export async function post(path, value, method = "POST") {
  const answer = await fetch(path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(value),
  });
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.status === 204 ? null : answer.json();
}
