"""What each app role may do in the console: every page and every action of its table, and no other way in."""

from __future__ import annotations

import base64
import json
import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page

from shared.db.pool import Database
from shared.ops.files import static_files
from shared.ops.roles import Role, role_of
from shared.ops.routes import Route
from shared.ops.table import TABLE
from tests.e2e.browser import chromium
from tests.e2e.test_ops_sign_in import ENTRA, principal
from tests.fakes.deliveries import add_delivery, add_endpoint, add_event
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

REFUSED = {"nl": "Dit hoort niet bij jouw rol", "en": "This is not for your role"}
LOOKS = "Met jouw rol kun je dit bekijken, maar niet wijzigen."
FORMS = [route for route in TABLE if route.is_form]
ACTIONS = [route for route in TABLE if route.method == "POST" and not route.is_open]
# What somebody is given who has to look after conversations and jobs; all else with a button is an administrator's.
OPERATORS = re.compile(r"/(conversations|jobs|webhooks/(events|deliveries))/")
EVERYBODYS = ("/sign-out", "/language")
OFFERS = "main :is(form[method=post], a.button, details.again, .card h2:is([id^=change], [id^=rotate], [id^=disable]))"
ADD_SOURCE = """
    INSERT INTO webhook_sources (name, scheme, secret, created_by) VALUES ('openai', 'standard', '\\x00', 'anna') RETURNING id
"""


@pytest.fixture(scope="module")
def world(database: Database) -> World:
    return World(database, **ENTRA)


class Somebody(Visitor):
    """Signed in by the platform with these app roles."""

    def __init__(self, world: World, *roles: str) -> None:
        super().__init__(world.app, signed_in=False)
        self.headers = principal(f"{'-'.join(roles).lower()}@example.org", claims={"roles": roles[0]})
        if len(roles) > 1:
            self.headers = several(roles)
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("", **self.headers).text)
        self.csrf = found[1] if found else ""

    def open(self, path: str) -> tuple[int, str]:
        answer = self.get(path, **self.headers)
        return answer.status_code, words_of(answer.text)

    def press(self, path: str) -> tuple[int, str]:
        answer = self.post(path, headers=self.headers)
        return answer.status_code, words_of(answer.text)


def several(roles: tuple[str, ...]) -> dict[str, str]:
    """The platform's headers for somebody with several roles: a claim for each."""
    headers = principal()
    told = json.loads(base64.b64decode(headers["X-MS-CLIENT-PRINCIPAL"]))
    told["claims"] = [one for one in told["claims"] if one["typ"] != "roles"]
    told["claims"] += [{"typ": "roles", "val": role} for role in roles]
    return headers | {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(json.dumps(told).encode()).decode()}


def address(route: Route) -> str:
    return re.sub(r"\{\w+(:uuid)?\}", lambda found: str(uuid4()) if found[1] else "autoreply", route.path)


def refused(somebody: Somebody) -> set[str]:
    """The actions that somebody's role does not allow."""
    found = set()
    for route in ACTIONS:
        if route.path == "/sign-out":
            continue
        status, page = somebody.press(address(route))
        if REFUSED["nl"] in page:
            assert status == 403
            found.add(route.path)
    return found


def test_a_viewer_may_do_nothing_but_sign_out_and_choose_a_language(world: World) -> None:
    viewer = Somebody(world, "Antwoord.Viewer")
    assert refused(viewer) == {route.path for route in ACTIONS} - set(EVERYBODYS)
    assert viewer.press("/sign-out")[0] == 303


def test_an_operator_acts_on_conversations_jobs_and_deliveries(world: World) -> None:
    theirs = {route.path for route in ACTIONS if OPERATORS.match(route.path)}
    assert len(theirs) > 15
    assert refused(Somebody(world, "Antwoord.Operator")) == {route.path for route in ACTIONS} - theirs - set(EVERYBODYS)


def test_an_administrator_does_everything(world: World) -> None:
    assert refused(Somebody(world, "Antwoord.Admin")) == set()


def test_a_viewer_opens_every_page_and_is_told_where_there_is_more_to_do(world: World) -> None:
    viewer, operator = Somebody(world, "Antwoord.Viewer"), Somebody(world, "Antwoord.Operator")
    for route in TABLE:
        if route.method == "GET" and not route.is_open and not route.is_form:
            status, page = viewer.open(address(route))
            assert REFUSED["nl"] not in page, route.path
            assert status in (200, 400, 404), route.path
    assert LOOKS in viewer.open("/conversations")[1]
    assert LOOKS not in viewer.open("/audit")[1]
    assert LOOKS not in operator.open("/conversations")[1]
    assert LOOKS in operator.open("/documents")[1]
    assert 'class="looks"' in viewer.get("/jobs", **viewer.headers).text


def test_each_page_that_is_only_a_form_is_marked_as_one() -> None:
    posted = {route.path for route in ACTIONS}
    shown = {route.path for route in TABLE if route.method == "GET" and not route.is_open}
    # Those two say something worth looking at: what would be restarted, and which imports there were.
    assert {route.path for route in FORMS} == shown & posted - {"/jobs/restart", "/people/imports"}


@pytest.mark.parametrize("role", ["Antwoord.Viewer", "Antwoord.Operator"])
def test_who_may_not_fill_in_a_form_is_told_which_role_may(world: World, role: str) -> None:
    somebody = Somebody(world, role)
    for route in FORMS:
        status, page = somebody.open(address(route))
        assert (status, REFUSED["nl"] in page, "de rol Antwoord.Admin" in page) == (403, True, True), route.path
        assert LOOKS not in page, "there is nothing on it to look at"


def test_what_an_operator_may_do_names_that_role(world: World) -> None:
    assert "de rol Antwoord.Operator" in Somebody(world, "Antwoord.Viewer").press("/jobs/restart")[1]


def test_an_administrator_gets_the_forms(world: World) -> None:
    admin = Somebody(world, "Antwoord.Admin")
    assert {admin.open(address(route))[0] for route in FORMS} <= {200, 404}


def test_the_refusal_is_in_the_readers_language_and_changes_nothing(world: World) -> None:
    viewer = Somebody(world, "Antwoord.Viewer")
    path = "/documents/new"
    assert viewer.post("/language", language="en", back="/api/ops", headers=viewer.headers).status_code == 303
    before = world.value("SELECT count(*) FROM audit_log")
    status, page = viewer.press(path)
    assert (status, REFUSED["en"] in page) == (403, True)
    assert world.value("SELECT count(*) FROM audit_log") == before


def test_the_highest_of_several_roles_counts_and_a_strange_one_opens_nothing(world: World) -> None:
    both = Somebody(world, "Antwoord.Viewer", "Antwoord.Operator")
    assert LOOKS not in both.open("/jobs")[1]
    assert Somebody(world, "Antwoord.Owner").open("/jobs")[0] == 403


def test_what_a_role_is_worth_is_asked_again_with_each_request(world: World) -> None:
    """A session is no role: whoever loses theirs in Entra loses it here when the platform's token is renewed."""
    somebody = Somebody(world, "Antwoord.Admin")
    assert REFUSED["nl"] not in somebody.press("/documents/new")[1]
    somebody.headers = principal("antwoord.admin@example.org", claims={"roles": "Antwoord.Viewer"})
    assert REFUSED["nl"] in somebody.press("/documents/new")[1]


def offered(page: Page, somebody: Somebody, path: str) -> int:
    """How many things to do somebody sees on a page, by the console's style sheet alone."""
    page.set_content(re.sub(r"<(script|link)[^>]*>", "", somebody.get(path, **somebody.headers).text))
    page.add_style_tag(content=static_files()["console.css"].content.decode())
    assert page.locator("h1").is_visible()
    return page.locator(OFFERS).locator("visible=true").count()


def test_who_may_only_look_sees_nothing_to_press(world: World) -> None:
    viewer, admin = Somebody(world, "Antwoord.Viewer"), Somebody(world, "Antwoord.Admin")
    endpoint, event = add_endpoint(world, "billing"), add_event(world)
    add_delivery(world, endpoint, event=event)
    source = world.value(ADD_SOURCE)
    paths = {
        f"/webhooks/endpoints/{endpoint}": 7, f"/webhooks/sources/{source}": 6, f"/webhooks/events/{event}": 1,
        "/documents": 1, "/jobs?state=failed": 1, "/jobs/queue/autoreply": 2,
    }  # fmt: skip
    with chromium() as browser:
        page = browser.new_page()
        assert {path: offered(page, viewer, path) for path in paths} == dict.fromkeys(paths, 0)
        assert {path: offered(page, admin, path) for path in paths} == paths


def test_a_link_on_a_developers_machine_opens_everything(database: Database) -> None:
    local = World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)
    assert LOOKS not in words_of(Visitor(local.app).get("/documents").text)


def test_the_administrators_role_has_the_name_that_is_set() -> None:
    assert role_of(["HR.Console"], "HR.Console") is Role.ADMIN
    assert role_of(["Antwoord.Admin"], "HR.Console") is None
    assert role_of(["Antwoord.Operator", "x"], "HR.Console") is Role.OPERATOR
    assert role_of(["Antwoord.Viewer"], "Antwoord.Viewer") is Role.ADMIN
    assert role_of([], "Antwoord.Admin") is None
