"""Checks that go by the person's own sign-in, where the app goes by its identity: what is refused here may be well there."""

from __future__ import annotations

import logging

from cli.doctor.finding import Finding, left_out


def be_quiet() -> None:
    """The identity's library writes a page about every way that it tried; the findings say what to do."""
    logging.getLogger("azure").setLevel(logging.CRITICAL)


def refused(check: str, status: int | None, role: str, said: str) -> Finding:
    """`role` is what the person lacks, if anybody is signed in at all; `status` is None when there is no token."""
    if status is None:
        return left_out(check, "Nobody is signed in to Azure here: run `az login`.")
    return left_out(
        check,
        f"You may not look at it from here (the app's identity may, all the same): give yourself the role {role} on the "
        f"account. {said}",
    )
