"""The console's door: what each mode of OPS_AUTH lets in, what is forged, and what a session is worth."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from shared.db.pool import Database
from shared.errors import SettingsError
from shared.ops.principal import read_principal
from shared.ops.session import create_link
from shared.settings import load
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import ENVIRONMENT, World

TENANT, ROLE = "11111111-2222-3333-4444-555555555555", "Antwoord.Admin"
LOCAL = {"OPS_AUTH": "local", "PUBLIC_BASE_URL": HERE}
ENTRA = {"OPS_AUTH": "entra", "OPS_TENANT_ID": TENANT, "WEBSITE_AUTH_ENABLED": "True", "PUBLIC_BASE_URL": HERE}


def principal(who: str = "sanne@example.org", **changes: Any) -> dict[str, str]:
    """The platform's headers for somebody who has signed in."""
    claims = {"preferred_username": who, "tid": TENANT, "roles": ROLE} | changes.pop("claims", {})
    told = {
        "auth_typ": "aad",
        "claims": [{"typ": name, "val": value} for name, value in claims.items() if value is not None],
        "name_typ": "name",
        "role_typ": "roles",
    } | changes
    header = base64.b64encode(json.dumps(told).encode()).decode()
    return {"X-MS-CLIENT-PRINCIPAL": header, "X-MS-CLIENT-PRINCIPAL-IDP": "aad", "X-MS-CLIENT-PRINCIPAL-NAME": who}


@pytest.fixture(scope="module")
def local(database: Database) -> World:
    return World(database, **LOCAL)


@pytest.fixture(scope="module")
def entra(database: Database) -> World:
    return World(database, **ENTRA)


def link(world: World) -> str:
    with world.database.connection() as connection:
        return create_link(connection)


def test_it_is_off_by_default_says_why_and_does_not_even_ask_the_database() -> None:
    away = World(Database("postgresql://nobody@127.0.0.1:9/none", 2))
    stranger = Visitor(away.app, signed_in=False)
    for path in ("", "/jobs", "/sign-in?token=x", "/none"):
        answer = stranger.get(path, **principal())
        assert (answer.status_code, "OPS_AUTH=local" in answer.text) == (403, True), path
    assert stranger.post("/sign-in", token="x").status_code == 403
    assert stranger.client.get("/api/ops/static/console.css").status_code == 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"OPS_AUTH": "local", "WEBSITE_SITE_NAME": "antwoord"}, "developer's machine"),
        ({"OPS_AUTH": "entra", "OPS_TENANT_ID": TENANT}, "WEBSITE_AUTH_ENABLED"),
        ({"OPS_AUTH": "entra", "OPS_TENANT_ID": TENANT, "WEBSITE_AUTH_ENABLED": "False"}, "WEBSITE_AUTH_ENABLED"),
        ({"OPS_AUTH": "entra", "WEBSITE_AUTH_ENABLED": "True"}, "OPS_TENANT_ID"),
        ({"OPS_AUTH": "password"}, "off or local or entra"),
    ],
)
def test_a_way_in_that_cannot_be_safe_is_refused_at_the_start(changes: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as wrong:
        load(ENVIRONMENT | changes)
    assert len(wrong.value.problems) == 1


def test_a_link_signs_in_once_and_only_when_its_button_is_pressed(local: World) -> None:
    token = link(local)
    first, second = Visitor(local.app, signed_in=False), Visitor(local.app, signed_in=False)
    for _ in range(2):  # looking does not use it up
        assert first.get(f"/sign-in?token={token}").status_code == 200
    assert first.get("").status_code == 401
    assert first.post("/sign-in", token=token).status_code == 303
    assert first.get("").status_code == 200
    assert second.post("/sign-in", token=token).status_code == 410
    assert second.get(f"/sign-in?token={token}").status_code == 410
    assert second.get("").status_code == 401


@pytest.mark.parametrize("token", ["", "x", "é" * 300, "\x00", "' OR true --"])
def test_a_made_up_link_is_none(local: World, token: str) -> None:
    stranger = Visitor(local.app, signed_in=False)
    assert stranger.post("/sign-in", token=token).status_code == 410
    assert stranger.client.get("/api/ops/sign-in", params={"token": token}).status_code == 410


def test_a_link_is_of_no_use_after_twelve_hours(local: World) -> None:
    token = link(local)
    local.execute("UPDATE ops_links SET created_at = created_at - interval '12 hours'")
    assert Visitor(local.app, signed_in=False).post("/sign-in", token=token).status_code == 410


def test_the_database_holds_no_token_that_signs_in(local: World) -> None:
    token = link(local)
    visitor = Visitor(local.app)
    cookie = visitor.client.cookies["antwoord_ops"]
    kept = str(local.rows("SELECT to_jsonb(l) FROM ops_links l UNION ALL SELECT to_jsonb(s) FROM ops_sessions s"))
    assert token not in kept
    assert cookie not in kept


def test_the_cookie_is_for_the_console_alone(local: World, database: Database) -> None:
    def cookie_of(world: World) -> str:
        answer = Visitor(world.app, signed_in=False).post("/sign-in", token=link(world))
        return answer.headers["set-cookie"]

    plain = cookie_of(local)
    name, value = plain.split(";")[0].split("=", 1)
    assert name == "antwoord_ops"
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", value)  # nothing in it that Azure's host would encode
    attributes = {part.strip().lower() for part in plain.split(";")[1:]}
    assert attributes == {"httponly", "samesite=strict", "path=/api/ops", "max-age=43200"}
    assert "Secure" in cookie_of(World(database, OPS_AUTH="local", PUBLIC_BASE_URL="https://antwoord.example.org"))


def test_a_session_ends_after_twelve_hours_and_when_its_person_says_so(local: World) -> None:
    visitor, other = Visitor(local.app), Visitor(local.app)
    cookie = visitor.client.cookies["antwoord_ops"]
    assert visitor.follow(visitor.post("/sign-out")).status_code == 200
    visitor.client.cookies.set("antwoord_ops", cookie)
    assert visitor.get("").status_code == 401
    assert other.get("").status_code == 200
    local.execute("UPDATE ops_sessions SET expires_at = now()")
    assert other.get("").status_code == 401
    assert other.get("/live/overview", **{"HX-Request": "true"}).status_code == 401


def test_signing_in_anew_ends_the_session_that_the_browser_had(local: World) -> None:
    visitor = Visitor(local.app)
    before = visitor.client.cookies["antwoord_ops"]
    visitor.sign_in()
    visitor.client.cookies.clear()
    visitor.client.cookies.set("antwoord_ops", before)
    assert visitor.get("").status_code == 401


@pytest.mark.parametrize("cookie", ["", "x", "é", "x" * 5000, '"quoted"', "a=b"])
def test_a_made_up_cookie_is_none(local: World, cookie: str) -> None:
    stranger = Visitor(local.app, signed_in=False)
    answer = stranger.client.get("/api/ops", headers={b"Cookie": f"antwoord_ops={cookie}".encode()})
    assert answer.status_code == 401


def test_forged_identity_headers_are_not_even_read_in_other_modes(local: World) -> None:
    stranger = Visitor(local.app, signed_in=False)
    assert stranger.get("", **principal()).status_code == 401
    assert stranger.get("/jobs", **principal()).status_code == 401


def test_the_platform_signs_in_and_others_are_sent_to_it(entra: World) -> None:
    stranger = Visitor(entra.app, signed_in=False)
    sent = stranger.get("/jobs?state=failed&phone=%2B316")
    assert sent.status_code == 302
    assert sent.headers["location"] == (
        "/.auth/login/aad?post_login_redirect_uri=%2Fapi%2Fops%2Fjobs%3Fstate%3Dfailed%26phone%3D%252B316"
    )
    assert stranger.get("/live/jobs", **{"HX-Request": "true"}).status_code == 401  # a part of a page is sent nowhere
    assert stranger.get("", **principal()).status_code == 200
    assert "antwoord_ops" in stranger.client.cookies
    assert stranger.get("").status_code == 302  # the cookie alone is nothing
    assert stranger.post("/sign-in", token=link(entra), headers=principal()).status_code == 403


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claims": {"tid": "99999999-0000-0000-0000-000000000000"}}, "organisatie"),
        ({"claims": {"tid": None}}, "organisatie"),
        ({"claims": {"roles": "Reader"}}, "rol"),
        ({"claims": {"roles": None}}, "rol"),
    ],
)
def test_the_wrong_tenant_or_role_is_told_so(entra: World, changes: dict[str, Any], words: str) -> None:
    answer = Visitor(entra.app, signed_in=False).get("", **principal(**changes))
    assert answer.status_code == 403
    assert words in words_of(answer.text)
    assert "sanne@example.org" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        principal(auth_typ="google"),
        principal() | {"X-MS-CLIENT-PRINCIPAL-IDP": "github"},
        {"X-MS-CLIENT-PRINCIPAL-NAME": "sanne@example.org", "X-MS-CLIENT-PRINCIPAL-ID": "1"},
        {"X-MS-CLIENT-PRINCIPAL": "!!", "X-MS-CLIENT-PRINCIPAL-IDP": "aad"},
        {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b"[]").decode(), "X-MS-CLIENT-PRINCIPAL-IDP": "aad"},
        {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b"\xff").decode(), "X-MS-CLIENT-PRINCIPAL-IDP": "aad"},
        {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(b"[" * 20_000).decode(), "X-MS-CLIENT-PRINCIPAL-IDP": "aad"},
        principal(claims={"preferred_username": None}),
    ],
    ids=["provider", "idp", "name-only", "base64", "list", "utf-8", "deep", "nobody"],
)
def test_half_a_principal_is_none(entra: World, headers: dict[str, str]) -> None:
    assert Visitor(entra.app, signed_in=False).get("", **headers).status_code == 302


@pytest.mark.parametrize("who", ["a\x00b", "a\ud800b"], ids=["nul", "surrogate"])
def test_a_name_that_the_database_cannot_hold_is_signed_in_without_what_it_cannot(entra: World, who: str) -> None:
    answer = Visitor(entra.app, signed_in=False).get("", **principal(claims={"preferred_username": who}))
    assert (answer.status_code, "a\ufffdb" in answer.text) == (200, True)


def test_a_session_is_its_persons_alone(entra: World) -> None:
    browser = Visitor(entra.app, signed_in=False)
    page = browser.get("", **principal("sanne@example.org")).text
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)
    assert csrf
    assert (
        browser.post("/language", csrf=csrf[1], language="en", headers=principal("sanne@example.org")).status_code
        == 303
    )
    # Somebody else in the same browser: their form is refused, their page begins a session of their own.
    assert browser.post("/language", csrf=csrf[1], headers=principal("tom@example.org")).status_code == 401
    assert csrf[1] not in browser.get("", **principal("tom@example.org")).text


def test_the_principal_is_read_from_either_form_of_the_claims() -> None:
    headers = {name.lower(): value for name, value in principal(claims={"tid": None, "roles": None} | {
        "http://schemas.microsoft.com/identity/claims/tenantid": TENANT.upper(),
        "http://schemas.microsoft.com/ws/2008/06/identity/claims/role": ROLE,
    }).items()}  # fmt: skip
    found = read_principal(headers, TENANT, ROLE)
    assert found is not None
    assert (found.who, found.refusal) == ("sanne@example.org", None)
