"""The phone page in a browser, as a person uses it: choosing a phone, asking, looking at bubbles, ticks, switches and jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.fakes.eventually import eventually

# What came and went, in order: a tick or a typing bubble may be there for less than the time between two looks.
RECORDER = """
    window.seen = [];
    window.refused = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      refused.push(event.violatedDirective + " " + event.blockedURI);
    });
    const note = (node) => {
      if (!(node instanceof Element)) return;
      if (node.dataset.testid === "typing") seen.push("typing");
      if (node.dataset.testid === "message") seen.push(node.dataset.direction + " " + node.dataset.status);
    };
    new MutationObserver((changes) => {
      for (const change of changes) {
        if (change.type === "attributes") note(change.target);
        else change.addedNodes.forEach(note);
      }
    }).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-status"] });
"""

FOCUS_IS_SEEN = """() => {
    const at = document.activeElement;
    const box = at.getBoundingClientRect();
    const marked = at.matches(":focus-visible") && getComputedStyle(at).outlineStyle !== "none";
    const inside = box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight;
    return marked && inside && box.width > 0;
}"""
# What is wider than the screen, or than the bubble that it is in.
STICKS_OUT = """() => {
    const wide = [];
    const root = document.documentElement;
    if (root.scrollWidth > innerWidth) wide.push("page " + root.scrollWidth);
    const log = document.getElementById("log");
    if (log.scrollWidth > log.clientWidth) wide.push("log " + log.scrollWidth);
    const edges = log.getBoundingClientRect();
    for (const bubble of log.querySelectorAll(".bubble")) {
        const box = bubble.getBoundingClientRect();
        if (box.left < edges.left || box.right > edges.right) wide.push("bubble " + box.width);
        for (const part of bubble.querySelectorAll(".text, .meta, .source")) {
            const inside = part.getBoundingClientRect();
            if (inside.left < box.left || inside.right > box.right + 1) wide.push(part.className);
        }
    }
    return wide;
}"""


def appears(what: Locator, name: str, seconds: float = 60.0) -> None:
    """Wait until there is such an element; the browser's own waiting looks twice a second only."""
    eventually(what.count, seconds, name)


@dataclass(frozen=True)
class Screen:
    """A screen's size in CSS pixels, and the language of its browser."""

    name: str
    width: int
    height: int
    locale: str
    scale: float = 1.0


PHONE = Screen("phone", 360, 740, "nl-NL", scale=2.0)
DESKTOP = Screen("desktop", 1400, 900, "en-GB")


class PhonePage:
    """One open page, without the movements that some people switch off. `check` tells whether anything went wrong in it."""

    def __init__(self, browser: Browser, url: str, screen: Screen) -> None:
        self.screen = screen
        self._context = browser.new_context(
            viewport={"width": screen.width, "height": screen.height}, locale=screen.locale, reduced_motion="reduce",
            device_scale_factor=screen.scale,
        )  # fmt: skip
        self._context.set_default_timeout(30_000)
        self._context.add_init_script(RECORDER)
        self.page: Page = self._context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None,
        )
        self.page.goto(url)
        appears(self.page.get_by_test_id("chip"), "the page")

    def again(self) -> None:
        """Load the page anew; the phone is remembered."""
        self.page.reload()
        appears(self.page.get_by_test_id("chip"), "the page")

    def check(self) -> None:
        """Raises AssertionError if the page said an error or broke its content security policy since the last check."""
        problems, self.problems[:] = [*self.problems, *self.page.evaluate("refused.splice(0)")], []
        assert not problems, problems

    def close(self) -> None:
        """End it."""
        self._context.close()

    def picture(self, path: Path) -> None:
        """Write what is on the screen as a PNG; of a wide screen the phone and the drawer, without the list of people."""
        left, right = 0.0, float(self.screen.width)
        if self.screen is DESKTOP:
            phone, drawer = (
                self.page.locator(".device").bounding_box(),
                self.page.get_by_test_id("drawer").bounding_box(),
            )
            assert phone is not None
            assert drawer is not None
            left, right = phone["x"] - 32, drawer["x"] + drawer["width"] + 32
        self.page.screenshot(
            path=path,
            clip={"x": left, "y": 0, "width": right - left, "height": self.screen.height},
            animations="disabled",
        )

    # ---- the phone

    def hold(self, name: str) -> None:
        """Take somebody's phone."""
        if self.screen is PHONE:
            self.page.get_by_test_id("show-people").click()
        self.page.get_by_test_id("person").filter(has_text=name).click()
        expect(self.page.locator("#presence")).to_contain_text(name)

    def ask(self, text: str) -> None:
        """Type a message and press Enter; what is seen from here on is in `seen`."""
        self.page.evaluate("seen.length = 0")
        composer = self.page.get_by_test_id("composer")
        composer.fill(text)
        composer.press("Enter")
        expect(composer).to_have_value("")

    @property
    def seen(self) -> list[str]:
        """Bubbles and ticks since the last question, in order: "mine sent", "typing", "theirs delivered"."""
        return list(self.page.evaluate("seen"))

    @property
    def mine(self) -> Locator:
        """The bubbles of who holds the phone."""
        return self.page.locator("[data-direction=mine]")

    @property
    def theirs(self) -> Locator:
        """The bubbles that came in."""
        return self.page.locator("[data-direction=theirs]")

    @property
    def source(self) -> Locator:
        """The source lines of the bubbles that came in."""
        return self.theirs.get_by_test_id("source")

    def gets(self, text: str) -> None:
        """Wait until a bubble with this text has come in."""
        appears(self.theirs.filter(has_text=text), f"an answer with {text!r}")

    def gets_status(self, status: str) -> None:
        """Wait until the newest own bubble has its ticks: sent, delivered, read or failed."""
        appears(self.mine.last.and_(self.page.locator(f"[data-status={status}]")), f"a message that is {status}")

    @property
    def typing(self) -> Locator:
        """The typing bubble."""
        return self.page.get_by_test_id("typing")

    # ---- the drawer

    def open_drawer(self) -> None:
        """Look behind the scenes: on a phone the drawer lies over the conversation."""
        if self.screen is PHONE:
            self.page.get_by_test_id("show-drawer").click()
        expect(self.page.get_by_test_id("drawer")).to_be_in_viewport()

    def close_drawer(self) -> None:
        """Back to the conversation."""
        if self.screen is PHONE:
            self.page.keyboard.press("Escape")
            expect(self.page.get_by_test_id("show-drawer")).to_be_focused()

    def switch(self, fault: str, on: bool) -> None:
        """Turn a fault on or off in the open drawer."""
        found = self.page.locator(f"[data-fault={fault}]")
        group = self.page.locator("details.group").filter(has=found)
        if group.get_attribute("open") is None:
            group.locator("summary").click()
        expect(found).to_have_attribute("aria-checked", str(not on).lower())
        with self.page.expect_response(
            lambda answer: answer.url.endswith("/phone/faults") and answer.request.method != "GET"
        ):
            found.click()  # the page shows it before the server has heard of it
        expect(found).to_have_attribute("aria-checked", str(on).lower())

    def kill(self) -> None:
        """Press the button that kills the host."""
        button = self.page.locator("[data-fault=kill_host]")
        button.click()
        expect(button).to_be_disabled()

    def job(self, name: str) -> Locator:
        """The cards of somebody's jobs."""
        return self.page.get_by_test_id("job").filter(has_text=name)

    def job_gets(self, name: str, state: str) -> Locator:
        """Wait until somebody's newest job is in this state, in the page's words for states; its card."""
        newest = self.job(name).first
        appears(newest.and_(self.page.locator(f"[data-state={state}]")), f"a job of {name} that is {state}")
        return newest

    def message_gets(self, name: str, status: str) -> Locator:
        """Wait until a message of somebody's newest job is in this state, in the page's words for states; its line."""
        line = self.job(name).first.locator(f"[data-testid=sent][data-status={status}]")
        appears(line, f"a message to {name} that is {status}")
        return line

    def close_groups(self) -> None:
        """Fold the switches away, so that the jobs can be seen."""
        for opened in self.page.locator("details.group[open] summary").all():
            opened.click()

    def all_off(self) -> None:
        """Press the button that turns all faults off."""
        button = self.page.get_by_test_id("all-off")
        button.click()
        expect(button).to_be_hidden()

    def seconds_left(self, name: str) -> int:
        """The countdown on the card of somebody's newest job, in seconds; 0 when there is none."""
        text = self.job(name).first.locator(".countdown").text_content() or ""
        return int(found[1]) if (found := re.search(r"(\d+) s$", text)) else 0

    def focus(self) -> str:
        """What has the focus now: its id or class. Raises AssertionError if a person cannot see that it has."""
        what = str(self.page.evaluate("document.activeElement.id || document.activeElement.className"))
        eventually(lambda: self.page.evaluate(FOCUS_IS_SEEN), what=f"that the focus on {what} can be seen")
        return what

    # ---- the layout

    def sticks_out(self) -> list[str]:
        """What is wider than the screen, or than its bubble; nothing when all fits."""
        return list(self.page.evaluate(STICKS_OUT))
