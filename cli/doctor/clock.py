"""Clocks: due times go by the database's, signatures and look-ups by the others'. What differs widely breaks both."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

from cli.doctor.finding import Finding, left_out, ok, wrong

SECONDS_AT_MOST = 30.0  # a look-up at Twilio with a larger difference counts as failed


def compare(whose: str, theirs: float, before: float, after: float) -> Finding:
    """Hold a clock that was read between two readings of this machine's against it; all in Unix seconds."""
    offset = theirs - (before + after) / 2
    if abs(offset) <= SECONDS_AT_MOST + (after - before) / 2:
        return ok(f"clock: {whose}", f"{abs(offset):.0f} s from this machine's.")
    direction = "ahead of" if offset > 0 else "behind"
    return wrong(
        f"clock: {whose}",
        f"It is {abs(offset):.0f} s {direction} this machine's: set this machine's by the network's time (`timedatectl "
        "set-ntp true`, or the date settings of macOS and Windows), and look at the other one if that changes nothing.",
    )


def compare_date(whose: str, headers: Mapping[str, str], before: float) -> Finding:
    """The same for the `Date` header of an answer that came just now."""
    said = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        theirs = email.utils.parsedate_to_datetime(said).timestamp() + 0.5  # whole seconds, cut off
    except ValueError:
        return left_out(f"clock: {whose}", "Its answer does not say the time.")
    return compare(whose, theirs, before, time.time())
