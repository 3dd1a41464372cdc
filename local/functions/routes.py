"""Route templates of HTTP triggers, and which function a request goes to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from local.functions.errors import CannotStart

_PARAMETER = re.compile(r"\{(?P<star>\*{0,2})(?P<name>[A-Za-z_]\w*)(?::(?P<kind>\w+))?(?P<optional>\?)?\}")
_CONSTRAINTS = {
    None: r"[^/]+",
    "int": r"-?\d+",
    "long": r"-?\d+",
    "alpha": r"[A-Za-z]+",
    "bool": r"(?i:true|false)",
    "guid": r"[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}",
}
_LITERAL, _CONSTRAINED, _FREE, _REST = range(4)  # which of two matching routes wins, segment by segment


@dataclass(frozen=True, slots=True)
class Route:
    """One template with its methods (upper case; None: all)."""

    template: str
    methods: frozenset[str] | None
    pattern: re.Pattern[str]
    rank: tuple[int, ...]

    @classmethod
    def parse(cls, template: str, methods: Iterable[str] | None) -> Route:
        """Read a template: literal segments, {name}, {name?}, {name:kind} and {*rest}. Raises CannotStart."""
        pattern = ""
        rank: list[int] = []
        for index, segment in enumerate(part for part in template.split("/") if part):
            expression, weight = _segment(template, segment, "/" if index else "")
            pattern += expression
            rank.append(weight)
        wanted = frozenset(method.upper() for method in methods) if methods else None
        return cls(template, wanted, re.compile(pattern + "/?", re.IGNORECASE), tuple(rank))

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of a path without its leading slash, or None when the template does not fit the whole path."""
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        return {name: value for name, value in found.groupdict().items() if value is not None}


class RouteTable[Target]:
    """All routes, the more specific ones first."""

    def __init__(self, routes: Iterable[tuple[Route, Target]]) -> None:
        self._routes = sorted(routes, key=lambda entry: entry[0].rank)

    def find(self, method: str, path: str) -> tuple[Target, dict[str, str]] | None:
        """The function for a request, and the route's parameters. None: 404, for another method too."""
        for route, target in self._routes:
            if route.methods is None or method in route.methods:
                parameters = route.match(path)
                if parameters is not None:
                    return target, parameters
        return None


def _segment(template: str, segment: str, slash: str) -> tuple[str, int]:
    if "{" not in segment and "}" not in segment:
        return slash + re.escape(segment), _LITERAL
    found = _PARAMETER.fullmatch(segment)
    if found is None or found["kind"] not in _CONSTRAINTS:
        raise CannotStart(f"the local host cannot serve the route {template!r}: it does not know {segment!r}")
    if found["star"]:
        return f"(?:{slash}(?P<{found['name']}>.*))?", _REST
    value = f"{slash}(?P<{found['name']}>{_CONSTRAINTS[found['kind']]})"
    return (f"(?:{value})?" if found["optional"] else value), _CONSTRAINED if found["kind"] else _FREE
