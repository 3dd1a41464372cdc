"""The console's people, over HTTP as a person uses them: finding somebody, and what is known about them."""

from __future__ import annotations

import re
from uuid import UUID, uuid4

import pytest

from shared.db.pool import Database
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

NOBODY = uuid4()
TURNED = "\u202e"
HOSTILE = "\"'><script>alert(1)</script>" + TURNED + "gnp.exe{{ 7*7 }}" + "z" * 50_000


@pytest.fixture(scope="module")
def opened(database: Database) -> World:
    return World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)


@pytest.fixture
def world(opened: World) -> World:
    """Without what other tests left."""
    opened.execute("TRUNCATE people, conversations, chunks, imports, ai_jobs, audit_log CASCADE")
    opened.wake.delays.clear()
    return opened


@pytest.fixture(scope="module")
def hr(opened: World) -> Visitor:
    return Visitor(opened.app, language="nl")


@pytest.fixture(scope="module")
def english(opened: World) -> Visitor:
    return Visitor(opened.app, language="en")


def person(world: World, number: int, **columns: object) -> UUID:
    """Somebody, as they stand in the table."""
    values = {
        "name": f"Persoon {number:02}",
        "department": None,
        "external_id": None,
        "left_at": None,
        "attributes": "{}",
    }
    return UUID(
        str(
            world.value(
                "INSERT INTO people (phone, name, department, external_id, left_at, attributes) VALUES (%(phone)s, %(name)s,"
                " %(department)s, %(external_id)s, %(left_at)s, %(attributes)s::jsonb) RETURNING id",
                **(values | {"phone": f"+316{20_000_000 + number}"} | columns),
            )
        )
    )


def shown_names(page: str) -> list[str]:
    """The names of a list of people, in its order."""
    return re.findall(r'<th scope="row"><a[^>]*><bdi>([^<]*)</bdi>', page)


def test_people_are_found_by_name_number_and_department(world: World, hr: Visitor, english: Visitor) -> None:
    assert "Er zijn nog geen mensen." in words_of(hr.get("/people").text)
    person(world, 1, department="Zorg")
    person(world, 2, external_id="W1002")
    person(world, 3, left_at="2020-12-31T12:00:00Z")
    person(world, 4, left_at="2999-12-31T12:00:00Z")
    page = hr.get("/people").text
    assert shown_names(page) == ["Persoon 01", "Persoon 02", "Persoon 04"]
    assert "3 mensen" in words_of(page)
    assert "Persoon 04 gaat uit dienst op 31 dec 2999 +31620000004 niet vindbaar" in words_of(page)
    everybody = words_of(english.get("/people?left=1").text)
    assert "4 people" in everybody
    assert "Persoon 03 left on 31 Dec 2020 +31620000003 cannot be found" in everybody
    for query, names in (
        ("persoon+01", ["Persoon 01"]), ("06-2000+0002", ["Persoon 02"]), ("zorg", ["Persoon 01"]), ("w1002", ["Persoon 02"]),
        ("%25", []), ("persoon+03", []),
    ):  # fmt: skip
        assert shown_names(hr.get(f"/people?q={query}").text) == names, query
    nobody = words_of(hr.get("/people?q=persoon+03").text)
    assert "Niemand gevonden. Zoek ook onder wie uit dienst is" in nobody
    assert shown_names(hr.get("/people?q=persoon+03&left=1").text) == ["Persoon 03"]


def test_people_come_a_page_at_a_time(world: World, hr: Visitor) -> None:
    for number in range(60):
        person(world, number)
    first = hr.get("/people?q=persoon").text
    assert len(shown_names(first)) == 50
    following = re.search(r'href="/api/ops([^"]+)" rel="next"', first)
    assert following
    second = hr.get(following[1].replace("&amp;", "&")).text
    assert shown_names(second) == [f"Persoon {number:02}" for number in range(50, 60)]
    assert 'rel="next"' not in second
    back = re.search(r'href="/api/ops([^"]+)" rel="prev"', second)
    assert back
    assert shown_names(hr.get(back[1].replace("&amp;", "&")).text) == shown_names(first)
    assert shown_names(hr.get("/people?from=99999").text) == []


def test_one_person_with_their_conversation(world: World, hr: Visitor, english: Visitor) -> None:
    one = person(
        world, 1, department="Zorg", external_id="1001", attributes='{"Verlofuren": "112", "<i>x</i>": "=1+1"}'
    )
    page = words_of(hr.get(f"/people/{one}").text)
    assert (
        "Telefoon +31620000001 Afdeling Zorg Taal niet bekend: zoals die van de berichten Personeelsnummer 1001" in page
    )
    assert "Verlofuren 112" in page
    assert "<i>x</i> =1+1" in page
    assert "Deze persoon heeft nog niets gestuurd." in page
    world.says("+31620000001", "hallo")
    page = hr.get(f"/people/{one}").text
    assert "Gesprek met +31620000001" in words_of(page)
    assert "laatste bericht zojuist" in words_of(page)
    assert f"/conversations/{world.value('SELECT id FROM conversations')}" in page
    assert "Language not known: as in the messages" in words_of(english.get(f"/people/{one}").text)
    for path in (f"/people/{NOBODY}", f"/live/people/{NOBODY}"):
        assert hr.get(path).status_code == 404


def test_how_a_persons_own_record_stands(world: World, hr: Visitor, english: Visitor) -> None:
    one = person(world, 1)
    payload = f'{{"type": "embed_record", "record": "person", "id": "{one}"}}'

    def says(sentence: str) -> bool:
        return sentence in words_of(hr.get(f"/people/{one}").text) and hr.get(f"/live/people/{one}").status_code == 200

    for state in ("pending", "failed"):  # somebody else's
        other = f'{{"type": "embed_record", "record": "person", "id": "{NOBODY}"}}'
        world.execute(
            "INSERT INTO ai_jobs (payload, status, next_run_at) VALUES (%(payload)s::jsonb, %(state)s, 'infinity')",
            payload=other, state=state,
        )  # fmt: skip
    assert says("Eigen gegevens niet vindbaar De eigen gegevens zijn niet verwerkt.")
    world.execute("INSERT INTO ai_jobs (payload) VALUES (%(payload)s::jsonb)", payload=payload)
    assert says("Eigen gegevens in verwerking Zodra dit klaar is,")
    world.run()
    assert says("Eigen gegevens vindbaar Antwoorden aan deze persoon kunnen uit de eigen gegevens komen.")
    assert says("Wat een antwoord mag gebruiken Naam: Persoon 01 Verwerkt:")
    world.execute("INSERT INTO ai_jobs (payload) VALUES (%(payload)s::jsonb)", payload=payload)
    assert says("Eigen gegevens wordt bijgewerkt De nieuwe gegevens worden verwerkt;")
    world.force("UPDATE ai_jobs SET status = 'failed', error_class = 'throttled' WHERE status = 'pending'")
    world.execute("DELETE FROM chunks")
    assert says("Eigen gegevens mislukt Het verwerken is mislukt,")
    failed = english.get(f"/people/{one}").text
    assert "To the job that failed : the model was too busy" in words_of(failed)
    assert f"/jobs/{world.value('SELECT id FROM ai_jobs ORDER BY seq DESC LIMIT 1')}" in failed
    world.execute("DELETE FROM ai_jobs")
    world.execute("UPDATE people SET left_at = now()")
    assert says("Eigen gegevens niet meer Wie uit dienst is, krijgt geen antwoorden uit de eigen gegevens.")


def test_nothing_that_is_known_about_a_person_harms_a_page(world: World, hr: Visitor) -> None:
    one = person(world, 1, name=HOSTILE, department=HOSTILE, external_id=HOSTILE[:200])
    world.execute("UPDATE people SET attributes = jsonb_build_object(%(text)s::text, %(text)s::text)", text=HOSTILE)
    paths = ("/people", f"/people/{one}", f"/people?q=%22%3E%3Cscript%3E{'z' * 500}")
    pages = {path: hr.get(path).text for path in paths}
    for shown, page in pages.items():
        assert "&lt;script&gt;" in page, shown
        assert "<script>alert" not in page, shown
        assert len(page) < 400_000
        title = re.search(r"<title>([^<]*)", page)
        assert title is not None
        assert TURNED not in title[1]
        for at in (found.start() for found in re.finditer(TURNED, page)):
            tag = page[page.rindex("<", 0, at) : at]
            assert re.match(r'<(bdi>|(span|div) class="said"|input )', tag), (shown, tag[:80])
