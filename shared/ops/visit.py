"""One visit to a page: what a handler gets, and the ways in which it can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.responses import HTMLResponse, RedirectResponse, Response

from shared import audit
from shared.errors import UserError
from shared.ops.fields import Fields
from shared.ops.figures import Overview
from shared.ops.figures_kept import KeptFigures
from shared.ops.incoming import Incoming
from shared.ops.render import digest, framed, render, url, utc_now
from shared.ops.session import Session
from shared.ops.times import Times
from shared.ops.words import Words

if TYPE_CHECKING:
    from shared.clients.azure_openai import Embedder
    from shared.clients.guard import Guard
    from shared.db.pool import Conn, Database
    from shared.settings import Settings
    from shared.webhooks.sending import Sender


@dataclass(frozen=True, slots=True)
class Services:
    """What the console works with. `wake` tells a worker, after the commit, that something is due in so many seconds."""

    settings: Settings
    database: Database
    embedder: Callable[[], Embedder]
    wake: Callable[[float], None]
    overview: Overview
    figures: KeptFigures
    guard: Guard
    sender: Sender


@dataclass(frozen=True, slots=True)
class Visit:
    """A handler's one argument. `session` is None only on pages that are open to all."""

    services: Services
    incoming: Incoming
    words: Words
    session: Session | None
    query: Fields
    form: Fields = field(default_factory=Fields)
    may_act: bool = False  # whether this visitor may do what the page offers

    @property
    def database(self) -> Database:
        """The pool. Hold a connection only while statements run, never during a call to somebody else, never two."""
        return self.services.database

    @property
    def settings(self) -> Settings:
        """The application's settings."""
        return self.services.settings

    @property
    def who(self) -> str:
        """Who acts, as the audit log names them."""
        return self.session.who if self.session else ""

    def id(self, name: str = "id") -> UUID:
        """The id in the route's path."""
        value: UUID = self.incoming.parameters[name]
        return value

    def audit(
        self, connection: Conn, what: str, target_type: str, target_id: str | UUID | None = None, **details: Any
    ) -> None:
        """Write a line of the audit log, in the transaction of what was done. `details` hold ids, counts and reasons."""
        audit.record(connection, who=self.who, what=what, target_type=target_type, target_id=target_id, **details)

    def wake(self, delay_seconds: float = 0.0) -> None:
        """Tell a worker that a job is due, after the commit; if that gets lost, the timer finds the job."""
        self.services.wake(delay_seconds)

    def page(self, template: str, /, status: int = 200, **context: Any) -> Response:
        """A whole page."""
        return HTMLResponse(render(template, self._context() | context), status)

    def live(self, name: str, template: str, address: str, /, **context: Any) -> Response:
        """A live part: what `live(name, template, address)` of the page shows, or 204 when that has not changed."""
        inner = render(template, self._context() | context)
        if self.incoming.headers.get("x-seen") == digest(inner):
            return Response(status_code=204)
        return HTMLResponse(framed(name, inner, address))

    def back(self, path: str, *, notice: str | None = None, n: int | None = None, **query: object) -> Response:
        """After an action: to a page, with the line `notice.NAME` of the catalogue at its top."""
        return RedirectResponse(url(path, **query, notice=notice, n=n), 303)

    def missing(self) -> Response:
        """What was asked for is not there (any more)."""
        return self.page("message.html", 404, name="missing")

    def _context(self) -> dict[str, Any]:
        return {
            "t": self.words,
            "times": Times(self.words, utc_now()),
            "session": self.session,
            "may_act": self.may_act,
            "here": self.incoming.path,
            "target": self.incoming.target,
            "notice": self._notice(),
        }

    def _notice(self) -> str | None:
        name = self.query.text("notice")
        if name is None or not (self.words.has("notice", name) or self.words.has("notice", f"{name}.other")):
            return None
        if self.words.has("notice", name):
            return self.words(f"notice.{name}")
        try:
            return self.words.count(f"notice.{name}", self.query.number("n") or 0)
        except UserError:  # somebody has changed the address by hand
            return None
