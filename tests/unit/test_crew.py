"""The threads of a drain."""

from __future__ import annotations

import contextvars

from shared.queue.crew import Crew

INVOCATION: contextvars.ContextVar[str] = contextvars.ContextVar("invocation")


def test_work_is_done_in_the_context_of_who_hands_it_out() -> None:
    """The platform keeps a log line only if its thread knows the invocation that it belongs to."""
    INVOCATION.set("this one")
    seen: list[str] = []
    with Crew[str](4) as crew:
        crew.hand([lambda: INVOCATION.get("none")] * 8)
        while crew.busy:
            seen += crew.collect(1.0)
    assert seen == ["this one"] * 8
