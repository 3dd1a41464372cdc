"""The console's list of conversations over HTTP: its order, its pages, its filter, and its live part."""

from __future__ import annotations

import re

import pytest

from shared.conversation import listing
from shared.db.pool import Database
from tests.e2e.talks import BRAM, asked, fresh, id_of, live_address
from tests.fakes.visitor import Visitor, words_of
from tests.fakes.world import World


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app, language="nl")


def many(world: World, count: int) -> None:
    """Conversations of strangers; every third waits for a person, every fourth is a person's."""
    world.execute(
        """INSERT INTO conversations (address, profile_name, last_inbound_at, mode, needs_person_since, needs_person_reason)
        SELECT '+3197000' || lpad(n::text, 6, '0'), 'Persoon ' || n, now() - n * interval '1 minute',
            CASE WHEN mod(n, 4) = 0 THEN 'manual' ELSE 'auto' END,
            CASE WHEN mod(n, 3) = 0 THEN now() - n * interval '1 second' END, CASE WHEN mod(n, 3) = 0 THEN 'asked' END
        FROM generate_series(1, %(count)s) AS n""",
        count=count,
    )


def names_in(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a [^>]*><bdi>([^<]*)</bdi>', page)


class TestList:
    def test_says_when_there_is_nothing(self, hr: Visitor) -> None:
        assert "Er zijn nog geen gesprekken." in words_of(hr.get("/conversations").text)

    def test_those_that_wait_for_a_person_come_first_and_pages_hold_each_once(self, world: World, hr: Visitor) -> None:
        many(world, 110)
        pages, address = [], "/conversations"
        while address:
            page = hr.get(address).text
            pages.append(names_in(page))
            older = re.search(r'href="/api/ops([^"]+)" rel="next"', page)
            address = older[1].replace("&amp;", "&") if older else ""
        shown = [int(name.removeprefix("Persoon ")) for names in pages for name in names]
        waiting = [number for number in range(1, 111) if number % 3 == 0]
        assert [len(names) for names in pages] == [50, 50, 10]
        assert shown[: len(waiting)] == waiting[::-1], "the longest waiting first"
        assert shown[len(waiting) :] == [number for number in range(1, 111) if number % 3], "then the newest"

    def test_a_broken_key_shows_the_first_page(self, world: World, hr: Visitor) -> None:
        many(world, 3)
        for key in ("x", "1.2", f"2.1.{id_of(world, '+3197000000001')}", "1.1." + "-" * 36, "1.1.%00"):
            assert len(names_in(hr.get(f"/conversations?after={key}").text)) == 3

    @pytest.mark.parametrize(
        "typed", ["noor", "SMIT", "+31612345601", "06-12345601", "0031 6 1234 5601", "+31 (0)6 12345601", "2345601"]
    )
    def test_finds_by_name_and_by_number_as_people_write_it(self, world: World, hr: Visitor, typed: str) -> None:
        asked(world)
        many(world, 5)
        page = hr.client.get("/api/ops/conversations", params={"q": typed}).text
        assert names_in(page) == ["Noor Smit"]
        assert f'value="{typed}"' in page, "the field holds what was looked for"

    def test_finds_by_the_name_in_whatsapp_and_by_id(self, world: World, hr: Visitor) -> None:
        many(world, 12)
        assert names_in(hr.get("/conversations?q=persoon+12").text) == ["Persoon 12"]
        assert names_in(hr.get(f"/conversations?q={id_of(world, '+3197000000007')}").text) == ["Persoon 7"]
        assert names_in(hr.get("/conversations?q=%25").text) == [], "a percent sign is a percent sign"
        assert "Geen gesprek gevonden" in words_of(hr.get("/conversations?q=niemand").text)

    def test_filters_are_in_the_address_and_stay_on_the_next_page(self, world: World, hr: Visitor) -> None:
        many(world, 220)
        page = hr.get("/conversations?q=persoon&mode=manual").text
        assert len(names_in(page)) == 50
        assert all(int(name.split()[1]) % 4 == 0 for name in names_in(page))
        assert '<option value="manual" selected>' in page
        older = re.search(r'href="([^"]+)" rel="next"', page)
        assert older
        assert "q=persoon" in older[1]
        assert "mode=manual" in older[1]
        assert len(names_in(hr.client.get(older[1].replace("&amp;", "&")).text)) == 5
        waiting = names_in(hr.get("/conversations?show=needs_person&mode=auto").text)
        assert {int(name.split()[1]) % 12 in (3, 6, 9) for name in waiting} == {True}

    def test_an_unknown_filter_is_refused_in_words(self, hr: Visitor) -> None:
        answer = hr.get("/conversations?mode=robot")
        assert answer.status_code == 400
        assert "niet begrepen" in words_of(answer.text)

    def test_shows_state_reason_and_the_last_message(self, world: World, hr: Visitor) -> None:
        world.model.says = lambda _: "NO_ANSWER"
        asked(world, body="Wat voor weer wordt het?")
        asked(world, BRAM, "STOP")
        said = words_of(hr.get("/conversations").text)
        assert "wacht op een mens" in said
        assert "het handboek geeft geen antwoord" in said
        assert "Assistent: Je praat met een digitale assistent" in said
        assert "afgemeld" in said
        assert "onbekend nummer" in said

    def test_live_part_is_204_until_something_changes(self, world: World, hr: Visitor) -> None:
        asked(world)
        page = hr.get("/conversations").text
        seen = re.search(r'"X-Seen":"([^"]+)"', page)
        assert seen
        headers = {"HX-Request": "true", "X-Seen": seen[1]}
        assert hr.get(live_address(page), **headers).status_code == 204
        world.says(BRAM, "Dag", ProfileName="Bram")
        fresh = hr.get(live_address(page), **headers)
        assert names_in(fresh.text) == ["Bram", "Noor Smit"]
        assert "<html" not in fresh.text

    def test_the_key_reads_what_it_writes(self, database: Database, world: World) -> None:
        many(world, 7)
        with database.connection() as connection:
            for row in listing.page(connection):
                assert listing.Key.read(str(row.key)) == row.key
