"""The first page: how it stands, and what needs a person."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from shared.ops import chart
from shared.ops.render import url
from shared.ops.routes import Route, page
from shared.ops.visit import Visit


def overview(visit: Visit) -> Response:
    """The whole page."""
    return visit.page("overview/page.html", **_shown(visit))


def live(visit: Visit) -> Response:
    """All of its figures."""
    return visit.live("overview", "overview/figures.html", url("/live/overview"), **_shown(visit))


def _shown(visit: Visit) -> dict[str, Any]:
    figures = visit.services.overview.read()
    return {"figures": figures, "chart": chart.draw(figures.lately.hours)}


ROUTES: tuple[Route, ...] = (page("", overview), page("/live/overview", live))
