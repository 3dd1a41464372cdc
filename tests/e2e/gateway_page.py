"""The webhooks page of `up` in a browser, as a person uses it: sending, looking at tries, switching faults, replaying."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.phone_page import Screen, appears

REFUSED = """
    window.refused = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      refused.push(event.violatedDirective + " " + event.blockedURI);
    });
"""
STICKS_OUT = """() => [...document.querySelectorAll("main *")].filter((part) => {
    const box = part.getBoundingClientRect();
    return box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
}).map((part) => part.className || part.tagName)"""


class GatewayPage:
    """One open page, without the movements that some people switch off. `check` tells whether anything went wrong in it."""

    def __init__(self, browser: Browser, url: str, screen: Screen) -> None:
        self._context = browser.new_context(
            viewport={"width": screen.width, "height": screen.height}, locale=screen.locale, reduced_motion="reduce"
        )
        self._context.set_default_timeout(30_000)
        self._context.add_init_script(REFUSED)
        self.page: Page = self._context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.goto(url)
        appears(self.page.locator("[data-fault]"), "the page")

    def check(self) -> None:
        """Raises AssertionError if the page said an error or broke its content security policy since the last check."""
        problems, self.problems[:] = [*self.problems, *self.page.evaluate("refused.splice(0)")], []
        assert not problems, problems

    def close(self) -> None:
        """End it."""
        self._context.close()

    def send(self, event_type: str, how: str = "as usual") -> None:
        """Have the vendor send an event."""
        self.page.get_by_test_id("type").select_option(event_type)
        self.page.get_by_test_id("how").select_option(how)
        with self.page.expect_response(lambda answer: answer.url.endswith("/gateway/send")):
            self.page.get_by_test_id("send").click()

    def answered(self, *words: str) -> None:
        """Wait until what was sent last has had these answers."""
        newest = self.page.get_by_test_id("sent").first
        for word in words:
            appears(newest.get_by_test_id("answer").filter(has_text=re.compile(word)), f"the answer {word}")

    def delivery(self, event_type: str) -> Locator:
        """The newest delivery of the newest event of a type."""
        return self.page.locator(f"[data-type='{event_type}']").first.get_by_test_id("delivery").last

    def delivery_gets(self, event_type: str, state: str) -> Locator:
        """Wait until that one is in a state, in the page's words for states; it."""
        found = self.delivery(event_type)
        appears(found.and_(self.page.locator(f"[data-state={state}]")), f"a delivery of {event_type} that is {state}")
        return found

    def press(self, within: Locator | Page, name: str) -> None:
        """Press a button that does something, and wait until it is done."""
        with self.page.expect_response(lambda answer: answer.url.endswith("/gateway/act")) as done:
            within.get_by_test_id(name).click()
        assert done.value.status == 204

    def switch(self, fault: str, on: bool) -> None:
        """Turn one of the receiver's faults on or off."""
        found = self.page.locator(f"[data-fault={fault}]")
        with self.page.expect_response(lambda answer: answer.url.endswith("/gateway/faults")):
            found.click()
        expect(found).to_have_attribute("aria-checked", str(on).lower())

    def count(self, name: str) -> int:
        """What the receiver has counted: acted, seen or refused."""
        return int(self.page.get_by_test_id(name).text_content() or "-1")

    def sticks_out(self) -> list[Any]:
        """What is wider than the screen; nothing when all fits."""
        return list(self.page.evaluate(STICKS_OUT))
