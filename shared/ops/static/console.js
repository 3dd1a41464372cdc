// Everything works without this file; with it, parts of a page refresh themselves.
// Every two seconds, while the page is seen, a `tick` tells them to ask whether something has changed.
"use strict";
(() => {
  const calm = 2000, longest = 30000;
  let pause = calm, timer = 0;

  const tick = () => {
    window.clearTimeout(timer);
    if (document.hidden) return;
    document.body.dispatchEvent(new CustomEvent("tick"));
    timer = window.setTimeout(tick, pause);
  };
  const heard = (isWell) => {
    pause = isWell ? calm : Math.min(pause * 2, longest);
    document.getElementById("stale").hidden = isWell;
  };

  document.addEventListener("htmx:after:request", (event) => heard(event.detail.ctx.response.status < 400));
  document.addEventListener("htmx:error", () => heard(false));
  document.addEventListener("visibilitychange", tick);
  if (document.querySelector(".live")) timer = window.setTimeout(tick, calm);
})();
