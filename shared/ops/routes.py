"""How a page or an action is entered in the console's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from shared.ops.roles import Role

if TYPE_CHECKING:
    from starlette.responses import Response

    from shared.ops.visit import Visit

PREFIX = "/api/ops"
FORM_BYTES = 64 * 1024
UPLOAD_BYTES = 10 * 1024 * 1024

type Handler = Callable[[Visit], Response]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is below /api/ops; `{id:uuid}` in it becomes a UUID. `is_open`: also for who has not signed in. `acts` is who may do
    what its page offers; looking is for all who are in, but at a form there is nothing to see (`is_form`)."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    limit: int = FORM_BYTES
    is_open: bool = False
    acts: Role = Role.ADMIN
    is_form: bool = False

    def is_for(self, role: Role) -> bool:
        """Whether somebody with this role may call it."""
        return role >= self.acts or (self.method == "GET" and not self.is_form)


def done_by(role: Role, routes: Iterable[Route]) -> tuple[Route, ...]:
    """The same routes, whose actions are also for those with less than all rights."""
    return tuple(replace(route, acts=role) for route in routes)


def page(path: str, handler: Handler, *, is_open: bool = False) -> Route:
    """Something to look at: changes nothing."""
    return Route("GET", path, handler, is_open=is_open)


def form(path: str, handler: Handler) -> Route:
    """A page that is there to be filled in, or to be asked whether one is sure: for those who may do what it is about."""
    return Route("GET", path, handler, is_form=True)


def action(
    path: str, handler: Handler, *, upload: bool = False, is_open: bool = False, limit: int = FORM_BYTES
) -> Route:
    """Something that is done: only by a POST with the session's CSRF token, from a page of ours, of at most `limit` bytes."""
    return Route("POST", path, handler, UPLOAD_BYTES if upload else limit, is_open)
