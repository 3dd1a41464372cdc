"""The settings that a check works with: whatever can be read of them, however much else is missing or wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from cli.doctor.finding import Finding, ok, wrong
from shared.errors import SettingsError, protect
from shared.settings import Settings, load, setting_names


@dataclass(frozen=True, slots=True)
class Setup:
    """`settings` has None for what is missing or wrong; `problems` are all of settings.load at once."""

    settings: Settings
    problems: tuple[str, ...] = ()

    def lacks(self, *names: str) -> str:
        """Which of these settings are not there, in words; empty when all are."""
        missing = [name for name in names if getattr(self.settings, name.lower()) is None]
        return (
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set here, or wrong." if missing else ""
        )


def read_setup(environment: Mapping[str, str], only: Collection[str] | None) -> Setup:
    """Read the settings, of which those named in `only` must be there (None: all that the application needs)."""
    given = dict(environment)
    if not given.get("WEBSITE_SITE_NAME"):
        # On Azure the platform says so. From elsewhere it is the forged header that shows whether its sign-in is on.
        given["WEBSITE_AUTH_ENABLED"] = "True"
    problems: tuple[str, ...] = ()
    try:
        settings = load(given, only=only)
    except SettingsError as found:
        problems = tuple(found.problems)
        settings = load(dict(_readable(given)), only=())
    protect(settings.secrets())
    return Setup(settings, problems)


def check(setup: Setup) -> Iterator[Finding]:
    """A line for each setting that is missing or wrong."""
    for problem in setup.problems:
        yield wrong("settings", problem)
    if not setup.problems:
        yield ok("settings", "All that are needed are there, and none is wrong.")


def _readable(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings whose values can be read."""
    for name in setting_names():
        if name in given:
            try:
                load({name: given[name]}, only=())
            except SettingsError:
                continue
            yield name, given[name]
