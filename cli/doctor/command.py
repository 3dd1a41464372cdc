"""`doctor`: checks a live set-up from this machine; each line is OK, or says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from cli.doctor import application, database, model, setup, sign_in, storage, twilio
from cli.doctor.finding import Finding, State, wrong
from cli.doctor.setup import Setup, read_setup
from cli.environment import environment
from cli.output import AsJson, Output, Status, table
from shared.errors import UserError, shorten

Check = Callable[[Setup], Iterator[Finding]]
# area: (its checks, the settings that they need)
AREAS: Mapping[str, tuple[Check, Sequence[str]]] = {
    "settings": (setup.check, ()),
    "database": (database.check, database.NEEDED),
    "storage": (storage.check, storage.NEEDED),
    "model": (model.check, model.NEEDED),
    "twilio": (twilio.check, twilio.NEEDED),
    "app": (application.check, application.NEEDED),
}
MARKS = {State.OK: "OK", State.ADVICE: "advice", State.LEFT_OUT: "left out", State.WRONG: "WRONG"}


def command(
    areas: Annotated[
        list[str] | None,
        typer.Argument(metavar="AREA", help="settings, database, storage, model, twilio, app; all by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a live set-up from this machine: settings, database, storage queue, models, Twilio, and the app from outside."""
    output = Output(as_json=as_json)
    findings = examine(environment(), areas or [], output.note)
    show(output, findings)
    if is_wrong(findings):
        raise typer.Exit(Status.FAILED)


def examine(given: Mapping[str, str], areas: Sequence[str], note: Callable[[str], None]) -> list[Finding]:
    """Run the checks of these areas (none named: all); with some named, only the settings that they need are asked for."""
    if unknown := [area for area in areas if area not in AREAS]:
        raise UserError(f"There is nothing called {unknown[0]!r} to check: choose from {', '.join(AREAS)}.")
    chosen = [area for area in AREAS if not areas or area in areas or area == "settings"]
    needed = [name.lower() for area in chosen for name in AREAS[area][1]] if areas and "settings" not in areas else None
    sign_in.be_quiet()
    read = read_setup(given, needed)
    findings: list[Finding] = []
    for area in chosen:
        note(f"checking {area} …")
        findings += look(area, AREAS[area][0], read)
    return findings


def look(area: str, check: Check, read: Setup) -> Iterator[Finding]:
    """One area's findings; what its peer does that nobody foresaw is one of them, and hides none of the other areas."""
    try:
        yield from check(read)
    except Exception as unforeseen:  # noqa: BLE001 - whatever it is
        yield wrong(area, f"It answers as nobody foresaw, and was not checked to the end. {shorten(unforeseen)}")


def is_wrong(findings: Sequence[Finding]) -> bool:
    """Whether anything has to be mended."""
    return any(finding.state is State.WRONG for finding in findings)


def show(output: Output, findings: Sequence[Finding]) -> None:
    """Print the findings, and how many are wrong."""
    counts = {state.replace(" ", "_"): sum(one.state is state for one in findings) for state in State}
    data = {"ok": not is_wrong(findings), "counts": counts, "checks": findings}

    def lines(console: Console) -> None:
        console.print(table(["", "check", ""], [(MARKS[one.state], one.check, one.said) for one in findings]))
        bad, missed = counts["wrong"], counts["left_out"]
        told = "Nothing is wrong" if not bad else f"{bad} {'thing is' if bad == 1 else 'things are'} wrong"
        console.print(f"\n{told}; {missed} {'check was' if missed == 1 else 'checks were'} left out.")

    output.result(data, lines)
