"""What happens to one request, in a thread: who is it, may they, is it really theirs, then the handler."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import RedirectResponse, Response

from shared.ops import failures, gate
from shared.ops.cookies import give_cookie
from shared.ops.fields import Fields, read_form, read_query
from shared.ops.incoming import Incoming
from shared.ops.roles import OPERATOR_NAME, Role
from shared.ops.routes import Route, done_by, page
from shared.ops.session import COOKIE, SESSION_HOURS, Session
from shared.ops.visit import Services, Visit
from shared.ops.words import Words

# Stand in for a route where there is none: who has not signed in does not learn that.
NO_PAGE, NO_SUCH_METHOD = done_by(
    Role.VIEWER,
    (
        page("", lambda visit: visit.missing()),
        page("", lambda visit: visit.page("message.html", 405, name="wrong_method")),
    ),
)

DOOR_SECONDS = 2.0  # for a connection; who waits longer is told that the database is away


class Desk:
    """Takes requests whose bodies have been read."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def answer(self, incoming: Incoming, route: Route) -> Response:
        """The answer, whatever goes wrong."""
        visit = self._visit(incoming)
        try:
            admitted = self._admit(incoming)
            if isinstance(admitted, gate.Admitted):
                visit = replace(self._visit(incoming, admitted.session), may_act=admitted.role >= route.acts)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is a page
            return failures.answer(visit, error)
        if isinstance(admitted, gate.Refused) and (admitted.is_final or not route.is_open):
            return _refusal(visit, admitted)
        if isinstance(admitted, gate.Admitted) and not route.is_open and not route.is_for(admitted.role):
            role = OPERATOR_NAME if route.acts is Role.OPERATOR else visit.settings.ops_role
            return replace(visit, may_act=True).page("message.html", 403, name="not_your_role", values={"role": role})
        response = self._handled(visit, route)
        if isinstance(admitted, gate.Admitted) and admitted.is_new:
            give_cookie(response, self._services, COOKIE, admitted.session.token, SESSION_HOURS * 3600)
        return response

    def refuse_size(self, incoming: Incoming, limit: int) -> Response:
        """The body was not read, so nobody knows whose form it is: the page tells nothing else."""
        visit = self._visit(incoming)
        if self._services.settings.ops_auth == "off":
            return _refusal(visit, gate.OFF)
        return visit.page("message.html", 413, name="too_large", values={"kilobytes": limit // 1024})

    def _admit(self, incoming: Incoming) -> gate.Admitted | gate.Refused:
        if self._services.settings.ops_auth == "off":  # the database is not asked
            return gate.OFF
        with self._services.database.connection(wait=DOOR_SECONDS) as connection:
            return gate.admit(connection, incoming, self._services.settings)

    def _handled(self, visit: Visit, route: Route) -> Response:
        incoming, session = visit.incoming, visit.session
        try:
            if incoming.method == "POST":
                if not gate.is_from_its_page(incoming, self._services.settings):
                    return visit.page("message.html", 403, name="not_its_form")
                form = read_form(incoming.headers.get("content-type", ""), incoming.body)
                if not route.is_open and (session is None or not gate.has_token(form, session)):
                    return visit.page("message.html", 403, name="not_its_form")
                visit = replace(visit, form=form)
            return route.handler(visit)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is a page
            return failures.answer(visit, error)

    def _visit(self, incoming: Incoming, session: Session | None = None, form: Fields | None = None) -> Visit:
        chosen = (session.language if session else None) or gate.chosen_language(incoming)
        language = chosen or gate.browsers_language(incoming) or self._services.settings.default_language
        return Visit(self._services, incoming, Words(language), session, read_query(incoming.query), form or Fields())


def _refusal(visit: Visit, refused: gate.Refused) -> Response:
    if refused.sign_in and visit.incoming.method != "POST" and not visit.incoming.is_live:
        return RedirectResponse(refused.sign_in, 302)
    return visit.page("refused.html", refused.status, refused=refused)
