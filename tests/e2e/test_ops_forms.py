"""What an action asks for before it is done, what every answer has, and what is too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.app import App
from shared.db.pool import Database
from shared.ops.routes import Route
from shared.ops.table import TABLE
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

NOWHERE = "00000000-0000-0000-0000-000000000000"
ACTIONS = [route for route in TABLE if route.method == "POST" and not route.is_open]


@pytest.fixture(scope="module")
def world(database: Database) -> World:
    return World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app)


def path_of(route: Route) -> str:
    return "/".join(NOWHERE if "{" in part else part for part in route.path.split("/"))


@pytest.mark.parametrize("route", ACTIONS, ids=lambda route: str(route.path))
def test_no_action_is_done_without_the_sessions_own_token(world: World, hr: Visitor, route: Route) -> None:
    """Missing, made up, another session's, and one that is older than the sign-in."""
    other = Visitor(world.app)
    old = hr.csrf
    before = world.value("SELECT count(*) FROM audit_log")
    for csrf in ("", "x", "é", other.csrf):
        answer = hr.post(path_of(route), csrf=csrf)
        assert answer.status_code == 403, csrf
        assert "formulier is verlopen" in words_of(answer.text)
    hr.sign_in()
    assert hr.csrf != old
    assert hr.post(path_of(route), csrf=old).status_code == 403
    assert Visitor(world.app, signed_in=False).post(path_of(route), csrf=other.csrf).status_code == 401
    assert world.value("SELECT count(*) FROM audit_log") == before


@pytest.mark.parametrize("route", ACTIONS, ids=lambda route: str(route.path))
def test_nothing_is_done_by_opening_an_address(world: World, hr: Visitor, route: Route) -> None:
    before = world.value("SELECT count(*) FROM audit_log")
    answer = hr.client.get(f"/api/ops{path_of(route)}", params={"csrf": hr.csrf})
    has_page = any(page.method == "GET" and page.path == route.path for page in TABLE)
    assert answer.status_code in (200, 400, 404) if has_page else answer.status_code == 405
    assert world.value("SELECT count(*) FROM audit_log") == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": HERE, "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 303),  # what no-referrer makes of our own forms
        ({"Origin": HERE, "Sec-Fetch-Site": ""}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": HERE, "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": HERE, "Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://127.0.0.1:7072", "Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_a_form_comes_from_a_page_of_ours(hr: Visitor, headers: dict[str, str], status: int) -> None:
    assert hr.post("/language", language="nl", back="/api/ops", headers=headers).status_code == status


def test_an_old_browser_that_tells_nothing_has_its_token(hr: Visitor) -> None:
    form = {"csrf": hr.csrf, "language": "nl", "back": "/api/ops"}
    assert hr.client.post("/api/ops/language", data=form).status_code == 303
    assert hr.client.post("/api/ops/language", data=form, headers={"Origin": "null"}).status_code == 403
    assert hr.client.post("/api/ops/language", data=form, headers={"Origin": HERE}).status_code == 303


@pytest.mark.parametrize(
    "path", ["", "/jobs", "/none", "/static/console.js", "/static/none", "/sign-in?token=x", "/live/overview"]
)
def test_every_answer_has_its_headers(hr: Visitor, path: str) -> None:
    for answer in (hr.get(path), hr.client.head(f"/api/ops{path}"), hr.client.post(f"/api/ops{path}")):
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {
            "'self'"
        }
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        if not path.startswith("/static/console"):
            assert answer.headers["cache-control"] == "no-store"


def test_pages_hold_nothing_that_the_policy_would_stop(hr: Visitor) -> None:
    for path in ("", "/jobs", "/jobs?state=failed", "/none"):
        page = hr.get(path).text
        assert " style=" not in page
        assert "<style" not in page
        assert " onclick=" not in page
        assert page.count("<script") == page.count('<script src="/api/ops/static/') == 2
        assert "http://" not in page.replace("http://www.w3.org", "")


def test_static_files_are_found_by_name_alone(hr: Visitor) -> None:
    kinds = {
        "console.css": "text/css",
        "console.js": "text/javascript",
        "htmx.min.js": "text/javascript",
        "icon.svg": "image/svg+xml",
    }
    for name, kind in kinds.items():
        assert hr.get(f"/static/{name}").headers["content-type"].startswith(kind)
    for name in ("../app.py", "..%2fapp.py", "licences/htmx.txt", "", "%00", "console.css%2f.."):
        answer = hr.client.get(f"/api/ops/static/{name}")
        assert answer.status_code == 404, name


def test_a_body_over_its_limit_is_not_read(hr: Visitor) -> None:
    assert hr.post("/language", language="nl", back="x" * 70_000).status_code == 413
    declared = hr.client.post("/api/ops/language", content=b"", headers={"Content-Length": "1" * 30})
    assert declared.status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    assert hr.client.post("/api/ops/language", content=endless()).status_code == 413


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("", b"x", 415),
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n", 400),
        ("multipart/form-data; boundary=x", b"\xff" * 100, 400),
        ("application/x-www-form-urlencoded", b"a=1&" * 2000, 400),
        ("application/x-www-form-urlencoded", b"%ff%00=%ff&csrf=%00", 403),
    ],
)
def test_a_broken_form_is_refused_with_a_page(hr: Visitor, kind: str, body: bytes, status: int) -> None:
    answer = hr.client.post("/api/ops/language", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert "<h1>" in answer.text


def test_the_language_is_switched_remembered_and_comes_back_to_the_page(world: World, hr: Visitor) -> None:
    assert '<html lang="nl">' in hr.get("").text
    answer = hr.post("/language", language="en", back="/api/ops/jobs?state=failed")
    assert answer.headers["location"] == "/api/ops/jobs?state=failed"
    assert '<html lang="en">' in hr.follow(answer).text
    hr.post("/sign-out")
    assert '<html lang="en">' in hr.get("").text  # a page for strangers, in this browser's language
    hr.sign_in()
    assert '<html lang="en">' in hr.get("").text
    english = World(world.database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE, DEFAULT_LANGUAGE="en")
    assert '<html lang="en">' in Visitor(english.app).get("").text


@pytest.mark.parametrize(
    ("accepts", "language"),
    [
        ("en-GB,en;q=0.9,nl;q=0.8", "en"),
        ("fr-FR, nl-BE;q=0.9, en;q=0.8", "nl"),
        ("EN", "en"),
        ("de, fr;q=0.5", "nl"),
        ("english,;q=,,-", "nl"),
        ("", "nl"),
    ],
)
def test_who_has_chosen_no_language_gets_the_browsers(world: World, accepts: str, language: str) -> None:
    stranger = Visitor(world.app, signed_in=False)
    assert f'<html lang="{language}">' in stranger.get("/sign-in", **{"accept-language": accepts}).text
    hr = Visitor(world.app)
    assert f'<html lang="{language}">' in hr.get("", **{"accept-language": accepts}).text
    hr.post("/language", language="nl", back="/api/ops")
    assert '<html lang="nl">' in hr.get("", **{"accept-language": accepts}).text


@pytest.mark.parametrize(
    "back",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/api/opsevil",
        "",
        "javascript:alert(1)",
        "/api/ops\r\nX: y",
    ],
)
def test_the_way_back_stays_in_the_console(hr: Visitor, back: str) -> None:
    answer = hr.post("/language", language="nl", back=back)
    assert (answer.status_code, answer.headers["location"]) == (303, "/api/ops")


def test_failures_are_pages_without_a_trace(world: World, hr: Visitor, caplog: pytest.LogCaptureFixture) -> None:
    assert hr.get("/none").status_code == 404
    assert hr.get(f"/jobs/{NOWHERE}").status_code == 404
    assert hr.get("/jobs/nonsense").status_code == 404
    world.execute("ALTER TABLE job_types RENAME TO elsewhere")
    try:
        broken = hr.get("")
    finally:
        world.execute("ALTER TABLE elsewhere RENAME TO job_types")
    assert broken.status_code == 500
    error_id = words_of(broken.text).split("kijkt: ")[1].split()[0]
    assert f'"error_id": "{error_id}"' in caplog.text
    assert "UndefinedTable" in caplog.text
    assert "Traceback" not in broken.text + caplog.text
    assert "job_types" not in broken.text


def test_without_a_database_there_is_a_page_that_says_so() -> None:
    away = App(World(Database("postgresql://nobody@127.0.0.1:9/none", 2), OPS_AUTH="local").settings,
               database=Database("postgresql://nobody@127.0.0.1:9/none", 2))  # fmt: skip
    answer = Visitor(away, signed_in=False).get("")
    assert answer.status_code == 503
    assert "database is even weg" in words_of(answer.text)
