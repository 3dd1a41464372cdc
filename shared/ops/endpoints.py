"""Endpoints: where events go. How each one does, and adding, changing, testing, rotating, disabling and enabling it."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import failures, refusal
from shared.ops.endpoint_form import FIELD_OF, Typed, headers_of
from shared.ops.figures_kept import DAY
from shared.ops.render import url
from shared.ops.routes import Route, action, form, page
from shared.ops.visit import Visit
from shared.secrets import SecretUnreadable, open_vault
from shared.webhooks import endpoints, ping
from shared.webhooks.endpoint_settings import SCHEDULES
from shared.webhooks.endpoints import OVERLAP_HOURS, Endpoint
from shared.webhooks.ping import Pinged

# How long the old secret signs too, in hours, as forms name it.
OVERLAPS: Final = {"24": OVERLAP_HOURS, "1": 1.0, "168": 168.0, "0": 0.0}


def listed(visit: Visit) -> Response:
    """All of them."""
    return visit.page("webhooks/endpoints.html", **_listed(visit))


def live_listed(visit: Visit) -> Response:
    """Their rows."""
    return visit.live("endpoints", "webhooks/endpoints_rows.html", url("/live/webhooks/endpoints"), **_listed(visit))


def new(visit: Visit) -> Response:
    """The form to add one."""
    return _form(visit, Typed())


def add(visit: Visit) -> Response:
    """Add one, and show its secret, once."""
    typed = Typed.read(visit.form)
    try:
        vault = open_vault(visit.settings.secrets_key)
        with visit.database.connection() as connection:
            added = endpoints.add(
                connection, typed.name, typed.settings(), guard=visit.services.guard, vault=vault, who=visit.who,
                secret=visit.form.text("secret", 1000), headers=headers_of(visit.form),
            )  # fmt: skip
    except UserError as wrong:
        return _form(visit, typed, wrong)
    return visit.page(
        "webhooks/secret.html", of="endpoint", name=typed.name, secret=added.secret, address=None,
        place=f"/webhooks/endpoints/{added.id}", overlap=None,
    )  # fmt: skip


def one(visit: Visit) -> Response:
    """One endpoint."""
    return _page(visit)


def live_one(visit: Visit) -> Response:
    """How it does."""
    shown = _one(visit)
    return visit.live("endpoint", "webhooks/endpoint.html", shown["live_url"], **shown) if shown else visit.missing()


def change(visit: Visit) -> Response:
    """Set what was filled in; a form that cannot be comes back with it."""
    typed = Typed.read(visit.form)
    try:
        headers = headers_of(visit.form)
        vault = open_vault(visit.settings.secrets_key) if headers is not None else None
        with visit.database.connection() as connection:
            endpoints.change(
                connection, visit.id(), typed.settings(), seen=visit.form.number("seen") or 0, guard=visit.services.guard,
                who=visit.who, vault=vault, headers=headers,
            )  # fmt: skip
    except UserError as wrong:
        is_changed = wrong.name == "endpoint_changed"  # then what the form shows is what there is now
        return _page(visit, problem=wrong, typed=None if is_changed else typed)
    visit.wake()
    return visit.back(f"/webhooks/endpoints/{visit.id()}", notice="endpoint_changed")


def test(visit: Visit) -> Response:
    """Send a ping and show what is answered. No connection to the database is held while it is on its way."""
    try:
        vault = open_vault(visit.settings.secrets_key)
        with visit.database.connection() as connection:
            prepared = ping.prepare(connection, visit.id(), vault=vault)
    except SecretUnreadable as unreadable:
        return _page(visit, problem=UserError(str(unreadable), name="secret_unreadable"))
    except UserError as wrong:
        return _page(visit, problem=wrong)
    answered = ping.ping(prepared, visit.services.sender)
    with visit.database.connection() as connection:
        ping.record(connection, prepared, answered, who=visit.who)
    return _page(visit, pinged=answered)


def rotate(visit: Visit) -> Response:
    """Give it a new secret, and show that, once."""
    overlap = OVERLAPS[visit.form.choice("overlap", OVERLAPS) or "24"]
    try:
        vault = open_vault(visit.settings.secrets_key)
        with visit.database.connection() as connection:
            secret = endpoints.rotate(connection, visit.id(), vault=vault, who=visit.who, overlap_hours=overlap)
            found = endpoints.find_endpoint(connection, visit.id())
    except UserError as wrong:
        return _page(visit, problem=wrong)
    return visit.page(
        "webhooks/secret.html", of="endpoint", name=found.name if found else "", secret=secret, address=None,
        place=f"/webhooks/endpoints/{visit.id()}", overlap=overlap * 3600,
    )  # fmt: skip


def disable(visit: Visit) -> Response:
    """Deliver nothing more to it."""
    try:
        with visit.database.connection() as connection:
            endpoints.disable(connection, visit.id(), who=visit.who, reason=visit.form.raw("reason"))
    except UserError as wrong:
        return _page(visit, problem=wrong)
    visit.wake()
    return visit.back(f"/webhooks/endpoints/{visit.id()}", notice="endpoint_disabled")


def enable(visit: Visit) -> Response:
    """Deliver to it again, at once."""
    try:
        with visit.database.connection() as connection:
            endpoints.enable(connection, visit.id(), who=visit.who)
    except UserError as wrong:
        return _page(visit, problem=wrong)
    visit.wake()
    return visit.back(f"/webhooks/endpoints/{visit.id()}", notice="endpoint_enabled")


def _listed(visit: Visit) -> dict[str, Any]:
    with visit.database.connection() as connection:
        rows = endpoints.list_endpoints(connection)
        report = visit.services.figures.lately(connection, DAY).report
    return {"rows": rows, "report": report}


def _one(visit: Visit) -> dict[str, Any] | None:
    with visit.database.connection() as connection:
        found = endpoints.find_endpoint(connection, visit.id())
        if found is None:
            return None
        report = visit.services.figures.lately(connection, DAY).report
    return {"it": found, "lately": report.of(found.id), "live_url": url(f"/live/webhooks/endpoints/{found.id}")}


def _page(
    visit: Visit, *, problem: UserError | None = None, typed: Typed | None = None, pinged: Pinged | None = None
) -> Response:
    shown = _one(visit)
    if shown is None:
        return visit.missing()
    found: Endpoint = shown["it"]
    return refusal.page_with(
        visit,
        problem,
        "webhooks/endpoint_page.html",
        url(f"/webhooks/endpoints/{found.id}"),
        field_of=FIELD_OF,
        exactly=_exactly(visit, problem),
        typed=typed or Typed.of(found.settings),
        # What comes back was typed over what was seen then.
        seen=visit.form.number("seen") or 0 if typed else found.version,
        pinged=pinged,
        schedules=SCHEDULES,
        overlaps=list(OVERLAPS.items()),
        is_new=False,
        **shown,
    )


def _form(visit: Visit, typed: Typed, problem: UserError | None = None) -> Response:
    return refusal.page_with(
        visit,
        problem,
        "webhooks/endpoint_new.html",
        url("/webhooks/endpoints/new"),
        field_of=FIELD_OF,
        exactly=_exactly(visit, problem),
        typed=typed,
        schedules=SCHEDULES,
        is_new=True,
        it=None,
    )


def _exactly(visit: Visit, problem: UserError | None) -> str | None:
    """Why it was refused in the words of the code, where they say more than the page's sentence."""
    if problem is None or str(problem) == failures.sentence(visit, problem):
        return None
    says_which_rule = problem.name in ("endpoint_url", "endpoint_host_name")
    return str(problem) if says_which_rule or visit.words.language != "en" else None


ROUTES: tuple[Route, ...] = (
    page("/webhooks/endpoints", listed),
    page("/live/webhooks/endpoints", live_listed),
    form("/webhooks/endpoints/new", new),
    action("/webhooks/endpoints/new", add),
    page("/webhooks/endpoints/{id:uuid}", one),
    page("/live/webhooks/endpoints/{id:uuid}", live_one),
    action("/webhooks/endpoints/{id:uuid}/change", change),
    action("/webhooks/endpoints/{id:uuid}/test", test),
    action("/webhooks/endpoints/{id:uuid}/rotate", rotate),
    action("/webhooks/endpoints/{id:uuid}/disable", disable),
    action("/webhooks/endpoints/{id:uuid}/enable", enable),
)
