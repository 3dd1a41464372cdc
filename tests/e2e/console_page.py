"""The console in a browser, as a person at HR uses it: opening pages, pressing buttons by what they say, reading what comes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from shared.ops.words import Words
from tests.e2e.phone_page import DESKTOP, PHONE, Screen
from tests.fakes.eventually import eventually

PICTURES = os.environ.get("ANTWOORD_SCREENSHOTS") == "1"
LIVE_SECONDS = 2  # how often a page asks whether something has changed
READY: Final = "domcontentloaded"  # the pages' own scripts have run by then
LANGUAGES: Final = {PHONE: Words("nl"), DESKTOP: Words("en")}

# A page that is left takes its notes along, so what was refused is said on the browser's console, which is kept.
RECORDER = """
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error("refused: " + event.violatedDirective + " " + event.blockedURI);
    });
"""
# Elements that are wider than the screen or hidden under its edge, but for what scrolls within itself.
STICKS_OUT = """() => {
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    const wide = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1);
    return ["page " + document.documentElement.scrollWidth, ...wide.slice(0, 5).map((one) => one.outerHTML.slice(0, 160))];
}"""
# Marked, and on the screen but for what scrolling cannot do about half a pixel.
FOCUS_IS_SEEN = """() => {
    const at = document.activeElement, box = at.getBoundingClientRect();
    const marked = at.matches(":focus-visible") && getComputedStyle(at).outlineStyle !== "none";
    const inside = box.left >= -2 && box.top >= -2 && box.right <= innerWidth + 2 && box.bottom <= innerHeight + 2;
    return marked && inside && box.width > 0;
}"""
# The contrast of colours takes most of axe's time, and a width more or less does not change it.
VIOLATIONS = """(is_contrast) => axe.run(document, {
        resultTypes: ["violations"], rules: {"color-contrast": {enabled: is_contrast}},
    }).then(({violations}) => violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .flatMap((one) => one.nodes.map((node) => one.id + ": " + node.html + " " + node.failureSummary)))"""


class ConsolePage:
    """One signed-in browser window. `t` holds the words of its language; `check` tells whether anything went wrong in it."""

    def __init__(self, browser: Browser, link: str, screen: Screen, state: Any = None) -> None:
        self.screen, self.root = screen, link.partition("/sign-in")[0]
        self.t = LANGUAGES[screen]  # the browser's, until somebody chooses the other language
        self._browser = browser
        self._context = browser.new_context(
            viewport={"width": screen.width, "height": screen.height}, locale=screen.locale, reduced_motion="reduce",
            device_scale_factor=screen.scale if PICTURES else 1, color_scheme="light", storage_state=state, accept_downloads=True,
        )  # fmt: skip
        self._context.set_default_timeout(30_000)
        self._context.add_init_script(RECORDER)
        self.page: Page = self._context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.goto(link, wait_until=READY)

    def sign_in(self) -> None:
        """Press the button of the page that the link leads to, and look at the other language once."""
        self.press("sign_in.button")
        for _ in range(2):
            self.switch_language()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(self.t.text("nav.overview"))

    def switch_language(self) -> None:
        """Choose the language that is not shown."""
        self.press("app.other_language")
        self.t = next(words for words in LANGUAGES.values() if words is not self.t)

    def window(self) -> ConsolePage:
        """Another window of the same person, with a clock and timers of its own, on the overview."""
        return ConsolePage(self._browser, self.root, self.screen, self._context.storage_state())

    def check(self) -> None:
        """Raises AssertionError if a page said an error or broke its content security policy since the last check."""
        problems, self.problems[:] = [*self.problems], []
        assert not problems, problems

    def close(self) -> None:
        """End it."""
        self._context.close()

    # ---- going somewhere

    def open(self, path: str = "") -> None:
        """Type an address below the console's."""
        self.page.goto(self.root + path, wait_until=READY)

    def go(self, place: str) -> None:
        """Follow a link of the navigation: overview, conversations, jobs, documents, people, audit."""
        name = self.t.text(f"nav.{place}")
        self.follow(self.page.locator(".nav").get_by_role("link", name=name, exact=True))

    def follow(self, link: Locator | str) -> None:
        """Click a link, given as a locator or by what it says, and wait for its page."""
        found = self.page.get_by_role("link", name=link, exact=True) if isinstance(link, str) else link
        with self.page.expect_navigation(wait_until=READY):
            found.click()

    def button(self, key: str, within: Locator | None = None, **values: object) -> Locator:
        """A button by the key of its words."""
        name = self.t.text(key, **values)
        return (within or self.page.locator("body")).get_by_role("button", name=name, exact=True)

    def press(self, key: str, within: Locator | None = None, **values: object) -> None:
        """Press a button, and wait for the page that follows."""
        with self.page.expect_navigation(wait_until=READY):
            self.button(key, within, **values).click()

    def field(self, key: str) -> Locator:
        """A field by the key of its label."""
        return self.page.get_by_label(self.t.text(key), exact=True)

    # ---- looking

    def has(self, key: str, /, **values: object) -> Locator:
        """Elements that say a line of the words."""
        return self.page.get_by_text(self.t.text(key, **values))

    def notices(self, key: str, **values: object) -> None:
        """The page confirms what was done."""
        notice = self.page.locator("p.notice[role=status]:not([hidden])")
        expect(notice).to_have_text(self.t.text(f"notice.{key}", **values))

    def appears(self, what: Locator, name: str, seconds: float = 60.0) -> None:
        """Wait until something is there; each look is that of somebody who comes back to the window, which refreshes it."""

        def look() -> bool:
            self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            try:
                what.first.wait_for(state="attached", timeout=150)
            except TimeoutError:
                return False
            return True

        eventually(look, seconds, name)

    def logged(self, *did: str, about: str = "") -> None:
        """The log holds all of these, each of them with what it was about."""
        self.go("audit")
        lines = self.page.locator("tbody tr").filter(has_text=about)
        for one in did:
            expect(lines.filter(has_text=self.t.text(f"audit.did.{one}")).first).to_be_visible()

    def focus(self) -> str:
        """What has the focus now, as text. Raises AssertionError if a person cannot see that it has."""
        what = str(self.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        eventually(lambda: self.page.evaluate(FOCUS_IS_SEEN), what=f"that the focus on {what!r} can be seen")
        return what

    def tab_to(self, what: Locator) -> None:
        """Press Tab until something has the focus."""
        stops: list[str] = []
        while len(stops) < 60:
            self.page.keyboard.press("Tab")
            stop = self.focus()
            if what.evaluate("one => one === document.activeElement"):
                return
            stops.append(stop)
        raise AssertionError(f"the keyboard does not reach {what}, but {stops}")

    def enter(self) -> None:
        """Press Enter, and wait for the page that follows."""
        with self.page.expect_navigation(wait_until=READY):
            self.page.keyboard.press("Enter")

    def flaws(self) -> list[str]:
        """What axe-core calls serious or critical on this page, and what sticks out, at both widths; it ends at its own.

        The colours are the dark ones on a phone.
        """
        found: list[str] = []
        self.page.emulate_media(color_scheme="dark" if self.screen is PHONE else "light")
        self.page.evaluate(AXE_SCRIPT)
        for screen in (DESKTOP, PHONE) if self.screen is PHONE else (PHONE, DESKTOP):
            self.page.set_viewport_size({"width": screen.width, "height": screen.height})
            found += [f"at {screen.width}: {one}" for one in self.page.evaluate(STICKS_OUT)]
            found += [f"at {screen.width}: {one}" for one in self.page.evaluate(VIOLATIONS, screen is self.screen)]
        self.page.emulate_media(color_scheme="light")
        return found

    def picture(self, path: Path, what: Locator | None = None) -> None:
        """Write what is on the screen as a PNG; with `what`, scrolled until that is at the top."""
        if what is not None:
            what.evaluate("one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 16)")
        self.page.screenshot(path=path, animations="disabled")
        self.page.evaluate("scrollTo(0, 0)")
