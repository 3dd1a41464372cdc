// Nothing needs this file. It counts what is left of a message's length, and lets no form go twice by a double click.
"use strict";
(() => {
  const text = document.getElementById("text"), left = document.querySelector("[data-left]");
  if (text && left) {
    const count = () => { left.textContent = left.dataset.words.replace("%", left.dataset.left - text.value.length); };
    text.addEventListener("input", count);
    count();
  }

  const gone = new WeakSet();
  document.addEventListener("submit", (event) => {
    if (gone.has(event.target)) event.preventDefault();
    gone.add(event.target);
    window.setTimeout(() => gone.delete(event.target), 4000);
  });
})();
