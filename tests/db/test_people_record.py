"""A person's own record: one chunk, in their language, found by them alone, and gone when they have left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from shared.db.pool import Database
from shared.errors import PermanentError
from shared.knowledge.people_record import RECORD_CHARACTERS, read_person, record_of, refresh_records
from shared.knowledge.search import search
from tests.fakes.people import RECORD_JOBS, imported
from tests.fakes.world import World

CLEAR = "TRUNCATE message_events, people, imports, import_rows, conversations, messages, ai_jobs, job_attempts, documents CASCADE"
FILE = "naam;mobiel;taal;afdeling;personeelsnummer;verlofsaldo\n{}\n"
SAM = "Sam de Boer;06-12345671;nl;Bibliobus;W1;120 uur"
ROBIN = "Robin Hill;06-12345672;en;Education;W2;80 hours"
ROWS = "SELECT p.name, c.heading_path, c.text, c.language FROM chunks c JOIN people p ON p.id = c.person_id ORDER BY p.phone"


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    made = World(database)
    made.execute(CLEAR)
    yield made
    made.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")


def both(world: World) -> tuple[UUID, UUID]:
    imported(world, FILE.format(f"{SAM}\n{ROBIN}"))
    world.run()
    (sam,), (robin,) = world.rows("SELECT id FROM people ORDER BY phone")
    return sam, robin


def test_it_is_one_chunk_in_the_person_s_language(world: World) -> None:
    both(world)
    assert world.rows(ROWS) == [
        (
            "Sam de Boer",
            ["Jouw gegevens"],
            "Naam: Sam de Boer\nAfdeling: Bibliobus\nPersoneelsnummer: W1\nverlofsaldo: 120 uur",
            "nl",
        ),
        (
            "Robin Hill",
            ["Your details"],
            "Name: Robin Hill\nDepartment: Education\nEmployee number: W2\nverlofsaldo: 80 hours",
            "en",
        ),
    ]
    assert {texts[0].partition(":")[0] for texts in world.model.embedded} == {
        "Jouw gegevens\nNaam",
        "Your details\nName",
    }


def test_a_search_finds_it_for_that_person_alone(world: World) -> None:
    sam, robin = both(world)
    question, embedding = "verlofsaldo 120 uur 80 hours", world.model.embed(["x"])[0]
    with world.database.connection() as connection:
        found = {
            asker: [
                hit.text.split("\n")[0]
                for hit in search(
                    connection, question=question, embedding=embedding, embedding_model=world.model.model, language="nl",
                    asker=asker,
                )
            ]
            for asker in (sam, robin, None)
        }  # fmt: skip
    assert found == {sam: ["Naam: Sam de Boer"], robin: ["Name: Robin Hill"], None: []}


def test_an_answer_is_made_from_it_for_that_person_alone(world: World) -> None:
    both(world)
    world.add_handbook()
    world.model.says = lambda messages: "Je saldo is bekend. [1]"
    for phone in ("+31612345671", "+31612345672", "+31612345679"):
        world.says(phone, "wat is mijn verlofsaldo?")
        world.run()
    sam, robin, stranger = (messages[-1]["content"] for messages in world.model.asked)
    assert "verlofsaldo: 120 uur" in sam
    assert 'title="Jouw gegevens"' in sam
    assert "80 hours" not in sam
    assert "verlofsaldo: 80 hours" in robin
    assert "120 uur" not in robin
    assert "verlofsaldo:" not in stranger


def test_after_a_number_has_moved_its_next_holder_does_not_find_it(world: World) -> None:
    both(world)
    world.add_handbook()
    world.says("+31612345671", "wat is mijn verlofsaldo?")
    imported(world, FILE.format(SAM.replace("06-12345671", "06-12345679")))
    imported(world, FILE.format("Kim;06-12345671;nl;;W3;"))
    world.run()
    for phone in ("+31612345671", "+31612345679"):
        world.says(phone, "wat is mijn verlofsaldo?")
        world.run()
    kim, sam = (messages[-1]["content"] for messages in world.model.asked[-2:])
    assert "120 uur" not in kim
    assert "120 uur" in sam


def test_what_did_not_change_is_not_embedded_again(world: World) -> None:
    both(world)
    imported(world, FILE.format(SAM.replace("06-12345671", "06-12345679")))
    world.run()
    assert len(world.model.embedded) == 2
    imported(world, FILE.format(SAM.replace("06-12345671", "06-12345679").replace("120", "112")))
    world.run()
    assert len(world.model.embedded) == 3
    assert [row[2].rpartition(" ")[0] for row in world.rows(ROWS)][1].endswith("verlofsaldo: 112")


def test_who_has_left_has_no_record_any_more(world: World) -> None:
    both(world)
    file = "naam;mobiel;uit dienst\nSam de Boer;0612345671;{}\n"
    imported(world, file.format("31-12-2149"))
    world.run()
    assert len(world.rows(ROWS)) == 2
    imported(world, file.format("31-12-2020"))
    world.run()
    assert [row[0] for row in world.rows(ROWS)] == ["Robin Hill"]
    imported(world, file.format(""))
    world.run()
    assert len(world.rows(ROWS)) == 2


def test_a_person_who_changes_while_the_record_is_embedded_is_embedded_again(world: World) -> None:
    embed = world.model.embed

    def embed_slowly(texts: Sequence[str]) -> list[list[float]]:
        if "120" in texts[0]:
            imported(world, FILE.format(SAM.replace("120", "112")))
        return embed(texts)

    world.model.embed = embed_slowly  # type: ignore[method-assign]
    imported(world, FILE.format(SAM))
    world.app.worker.poll_once(1)
    assert [status for _, status in world.rows(RECORD_JOBS)] == ["done", "pending"]
    assert world.rows(ROWS) == []
    world.run()
    assert world.rows(ROWS)[0][2].endswith("verlofsaldo: 112 uur")


def test_a_person_who_is_gone_and_a_record_of_another_kind(world: World) -> None:
    imported(world, FILE.format(SAM))
    world.execute("DELETE FROM people")
    world.execute("""INSERT INTO ai_jobs (payload) VALUES ('{"type": "embed_record", "record": "car", "id": "1"}')""")
    world.run()
    jobs = "SELECT payload ->> 'record', status, error_class FROM ai_jobs WHERE type = 'embed_record' ORDER BY seq"
    assert world.rows(jobs) == [("person", "done", None), ("car", "failed", "bad_payload")]


def test_an_outdated_record_that_cannot_be_embedded_is_found_no_more(world: World) -> None:
    both(world)

    def refuse(texts: Sequence[str]) -> list[list[float]]:
        raise PermanentError("content_filter", "refused")

    world.model.embed = refuse  # type: ignore[method-assign]
    imported(world, FILE.format(SAM.replace("120", "112")))
    world.run()
    assert [row[0] for row in world.rows(ROWS)] == ["Robin Hill"]
    assert world.rows("SELECT error_class FROM dead_letters") == [("content_filter",)]
    with world.database.connection() as connection:
        assert refresh_records(connection, world.model.model) == 0


def test_after_a_change_of_model_each_record_is_embedded_anew_once(world: World) -> None:
    sam, _ = both(world)
    with world.database.connection() as connection:
        assert refresh_records(connection, "fake-embedding") == 0
        world.execute("UPDATE people SET left_at = now() WHERE id <> %(sam)s", sam=sam)
        assert refresh_records(connection, "new") == 1
        assert refresh_records(connection, "new") == 0
    world.model.model = "new"
    world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    world.run()
    assert world.rows("SELECT person_id, embedding_model FROM chunks") == [(sam, "new")]
    with world.database.connection() as connection:
        assert refresh_records(connection, "new") == 0
        world.force("UPDATE ai_jobs SET status = 'failed' WHERE payload ->> 'id' = %(sam)s::text", sam=sam)
        assert refresh_records(connection, "newer") == 0  # a dead letter is a person's to restart


def test_a_record_fits_and_its_lines_are_lines(world: World) -> None:
    imported(world, 'naam;mobiel;noot;lang;kort\nSam;0612345671;"een\ntwee";' + "x" * 990 + ";y\n")
    long = {f"k{n}": "x" * 900 for n in range(9)}
    world.execute("UPDATE people SET attributes = attributes || jsonb_build_object('k', 'z')")
    (person_id,) = world.rows("SELECT id FROM people")[0]
    with world.database.connection() as connection:
        person = read_person(connection, person_id, "en")
    assert person is not None
    assert person.language == "en"
    assert record_of(person).text.split("\n") == [
        "Name: Sam",
        "k: z",
        "kort: y",
        "lang: " + "x" * 990,
        "noot: een twee",
    ]
    person.attributes.update(long)
    assert RECORD_CHARACTERS / 2 < len(record_of(person).text) <= RECORD_CHARACTERS
