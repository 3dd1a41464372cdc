"""Importing people: what is new, changed, the same or refused; whose row it is; and what a report and a list show."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest

from shared.db.pool import Database
from shared.knowledge.people import count_people, import_report, list_imports, list_people
from tests.fakes.people import RECORD_JOBS, counts, found, imported, people, rejected, start
from tests.fakes.world import World

CLEAR = "TRUNCATE message_events, people, imports, import_rows, conversations, messages, ai_jobs, documents, audit_log CASCADE"
HEADER = "naam;mobiel;taal;afdeling;personeelsnummer;verlof\n"
SAM = "Sam de Boer;06-12345671;nl;IT;W1;120 uur\n"
ROBIN = "Robin Hill;06-12345672;Engels;HR;W2;80 uur\n"
BOTH = HEADER + SAM + ROBIN


@pytest.fixture
def world(database: Database) -> World:
    made = World(database, RETRIEVAL_FLOOR="-1")
    made.execute(CLEAR)
    return made


def test_new_people_are_added_with_a_job_each(world: World) -> None:
    assert imported(world, BOTH) == {"added": 2}
    assert people(world) == [
        ("Sam de Boer", "+31612345671", "nl", "IT", "W1", {"verlof": "120 uur"}),
        ("Robin Hill", "+31612345672", "en", "HR", "W2", {"verlof": "80 uur"}),
    ]
    jobs = world.rows(RECORD_JOBS)
    assert [status for _, status in jobs] == ["pending", "pending"]
    assert {job for job, _ in jobs} == {str(row[0]) for row in world.rows("SELECT id FROM people")}


def test_the_start_stores_the_file_the_job_and_a_line_in_the_log(world: World) -> None:
    import_id = start(world, BOTH)
    waiting = found(world, import_id)
    assert (waiting.state, waiting.rows_total, waiting.rows_done, waiting.created_by) == ("waiting", 2, 0, "test")
    assert waiting.column_map["phone"] == "mobiel"
    assert world.rows("SELECT type, payload ->> 'import_id' FROM ai_jobs") == [("import_people", str(import_id))]
    assert world.rows("SELECT who, what, target_id FROM audit_log") == [("test", "import_people", str(import_id))]
    world.run()
    ended = found(world, import_id)
    assert (ended.state, ended.reason, counts(ended)) == ("done", None, {"added": 2})
    assert ended.ended_at is not None
    assert world.value("SELECT content IS NULL FROM imports")


def test_the_same_file_again_changes_nothing(world: World) -> None:
    imported(world, BOTH)
    world.run()
    before = world.rows("SELECT * FROM people ORDER BY id")
    assert imported(world, BOTH) == {"unchanged": 2}
    assert imported(world, BOTH.replace("06-", "+31 (0)6 ").replace("Engels", "en")) == {"unchanged": 2}
    assert world.rows("SELECT * FROM people ORDER BY id") == before
    assert len(world.rows(RECORD_JOBS)) == 2


def test_only_what_changed_is_changed_and_who_is_not_in_the_file_is_left_alone(world: World) -> None:
    imported(world, BOTH)
    world.run()
    assert imported(world, HEADER + ROBIN.replace("80", "72")) == {"changed": 1}
    assert [row[5]["verlof"] for row in people(world)] == ["120 uur", "72 uur"]
    assert [status for _, status in world.rows(RECORD_JOBS)] == ["done", "done", "pending"]


def test_a_column_that_is_not_there_changes_nothing_and_an_empty_cell_empties(world: World) -> None:
    imported(world, BOTH)
    assert imported(world, "naam;mobiel\nSam de Boer;0612345671\n") == {"unchanged": 1}
    assert imported(world, "naam;mobiel;kamer\nSam de Boer;0612345671;4.12\n") == {"changed": 1}
    assert people(world)[0][2:] == ("nl", "IT", "W1", {"verlof": "120 uur", "kamer": "4.12"})
    assert imported(world, "naam;mobiel;taal;afdeling;personeelsnummer;verlof\nSam de Boer;0612345671;;;;\n") == {
        "changed": 1
    }
    assert people(world)[0][2:] == (None, None, "W1", {"kamer": "4.12"})


def test_one_job_while_one_is_waiting(world: World) -> None:
    imported(world, BOTH)
    assert imported(world, BOTH.replace("IT", "ICT")) == {"changed": 1, "unchanged": 1}
    assert len(world.rows(RECORD_JOBS)) == 2
    world.run()
    assert "Afdeling: ICT" in world.value(
        "SELECT text FROM chunks c JOIN people p ON p.id = person_id WHERE name LIKE 'S%%'"
    )


def test_a_job_that_is_being_claimed_does_not_count_as_waiting(world: World) -> None:
    imported(world, BOTH)
    with world.database.transaction() as claiming:
        claiming.execute("SELECT FROM ai_jobs WHERE status = 'pending' FOR UPDATE")
        assert imported(world, BOTH.replace("IT", "ICT")) == {"changed": 1, "unchanged": 1}
    assert len(world.rows(RECORD_JOBS)) == 3


def test_by_its_employee_number_a_person_gets_a_new_phone(world: World) -> None:
    imported(world, BOTH)
    world.says("+31612345671", "hallo")
    (person,) = world.rows("SELECT id FROM people WHERE external_id = 'W1'")[0]
    assert imported(world, HEADER + SAM.replace("06-12345671", "06-12345679")) == {"changed": 1}
    assert world.rows("SELECT id, phone FROM people WHERE external_id = 'W1'") == [(person, "+31612345679")]
    # Whoever gets the old number must not be taken for the person who had it.
    assert world.value("SELECT person_id FROM conversations WHERE address = '+31612345671'") is None
    assert imported(world, HEADER + "Kim;0612345671;;;W3;\n") == {"added": 1}
    world.says("+31612345671", "hallo")
    world.says("+31612345679", "hallo")
    names = world.rows("SELECT address, name FROM conversations c JOIN people p ON p.id = person_id ORDER BY 1")
    assert names == [("+31612345671", "Kim"), ("+31612345679", "Sam de Boer")]


def test_a_conversation_that_was_there_goes_to_whoever_has_its_number_now(world: World) -> None:
    world.says("+31612345679", "hallo")
    imported(world, BOTH)
    imported(world, HEADER + SAM.replace("06-12345671", "06-12345679"))
    assert world.value("SELECT name FROM conversations JOIN people p ON p.id = person_id") == "Sam de Boer"


def test_a_number_of_somebody_else_is_refused(world: World) -> None:
    imported(world, BOTH)
    refused = rejected(
        world,
        HEADER
        + SAM.replace("06-12345671", "06-12345672")  # has a number, and would take Robin's
        + "Kim;0612345671;;;W3;\n",  # is new, and would take Sam's: a slip of the finger shows Sam's record to Kim
    )
    assert refused == [(2, "phone_taken: W2"), (3, "phone_taken: W1")]
    assert [row[0] for row in people(world)] == ["Sam de Boer", "Robin Hill"]


def test_a_person_who_was_numbered_anew_or_renamed_stays_the_same(world: World) -> None:
    imported(world, BOTH)
    before = world.rows("SELECT id FROM people ORDER BY phone")
    assert imported(world, HEADER + SAM.replace("W1", "9001") + ROBIN.replace("Hill", "Hill-Smith")) == {"changed": 2}
    assert imported(world, "naam;mobiel\nSam B.;0612345671\n") == {"changed": 1}
    assert world.rows("SELECT id FROM people ORDER BY phone") == before
    assert [(row[0], row[4]) for row in people(world)] == [("Sam B.", "9001"), ("Robin Hill-Smith", "W2")]


def test_two_rows_about_one_person_are_not_both_written(world: World) -> None:
    imported(world, BOTH)
    assert rejected(world, HEADER + SAM.replace("06-12345671", "06-12345679") + "Kim;0612345671;;;;\n") == [
        (3, "phone_taken: W1")
    ]
    assert people(world)[-1][:2] == ("Sam de Boer", "+31612345679")


def test_a_number_that_was_handed_on_brings_nothing_of_the_old_record_along(world: World) -> None:
    imported(world, BOTH)
    world.run()
    world.execute("UPDATE people SET left_at = now() - interval '1 day' WHERE external_id = 'W1'")
    assert imported(world, "naam;mobiel;personeelsnummer\nKim;0612345671;W3\n") == {"changed": 1}
    assert people(world)[0] == ("Kim", "+31612345671", None, None, "W3", {})
    assert world.value("SELECT left_at FROM people WHERE name = 'Kim'") is None
    assert world.value("SELECT count(*) FROM chunks c JOIN people p ON p.id = person_id WHERE name = 'Kim'") == 0
    world.run()
    assert "Sam" not in world.value("SELECT text FROM chunks c JOIN people p ON p.id = person_id WHERE name = 'Kim'")


def test_leaving(world: World) -> None:
    file = "naam;mobiel;uit dienst\nSam;0612345671;{}\nRobin;0612345672;{}\n"
    assert imported(world, file.format("31-12-2020", "")) == {"added": 2}
    last_second = datetime.datetime(2020, 12, 31, 23, 59, 59, tzinfo=ZoneInfo("Europe/Amsterdam"))
    assert world.rows("SELECT left_at FROM people ORDER BY phone") == [(last_second,), (None,)]
    assert imported(world, file.format("2020-12-31", "nee")) == {"unchanged": 2}
    assert imported(world, "naam;mobiel\nSam;0612345671\n") == {"unchanged": 1}
    assert imported(world, file.format("", "ja")) == {"changed": 2}
    assert world.rows("SELECT left_at <= now() FROM people ORDER BY phone") == [(None,), (True,)]
    assert imported(world, file.format("nee", "ja")) == {"unchanged": 2}


def test_rejected_rows_are_reported_and_the_others_imported(world: World) -> None:
    content = HEADER + SAM + "Kim;06-123;nl;IT;W3;\n\nBo;06-12345671;nl;IT;W4;\n;0612345674;;;;\n" + ROBIN
    import_id = start(world, content)
    world.app.worker.poll_once(1)
    ended = found(world, import_id)
    assert counts(ended) == {"added": 2, "rejected": 3}
    with world.database.connection() as connection:
        report = import_report(connection, import_id)
        everything = import_report(connection, import_id, outcomes=("added", "changed", "unchanged", "rejected"))
    assert [(row.line, row.reason) for row in report] == [
        (3, "phone_invalid: 06-123"),
        (5, "phone_twice: 2"),
        (6, "name_missing"),
    ]
    assert [(row.name, row.detail) for row in report[:2]] == [("phone_invalid", "06-123"), ("phone_twice", "2")]
    assert report[1].sentence == "The same phone number stands on line 2; the first one counts."
    assert [(row.line, row.outcome) for row in everything if row.outcome != "rejected"] == [(2, "added"), (7, "added")]


def test_a_dry_run_counts_and_reports_and_writes_no_people(world: World) -> None:
    imported(world, HEADER + SAM)
    world.run()
    changed = HEADER + SAM.replace("06-12345671", "06-12345679") + ROBIN + "Kim;06-123;;;;\n"
    before = world.rows("SELECT * FROM people")
    assert imported(world, changed, dry_run=True) == {"changed": 1, "added": 1, "rejected": 1}
    assert world.rows("SELECT * FROM people") == before
    assert len(world.rows(RECORD_JOBS)) == 1
    assert imported(world, changed) == {"changed": 1, "added": 1, "rejected": 1}


def test_an_import_that_is_gone_or_done_does_nothing(world: World) -> None:
    import_id = start(world, BOTH)
    world.run()
    world.force("UPDATE ai_jobs SET status = 'pending' WHERE type = 'import_people'")
    world.run()
    assert counts(found(world, import_id)) == {"added": 2}
    start(world, BOTH)
    world.execute("DELETE FROM imports")
    world.run()
    assert world.rows("SELECT DISTINCT status FROM ai_jobs") == [("done",)]


def test_lists(world: World) -> None:
    imported(world, BOTH)
    imported(world, BOTH, dry_run=True)
    world.execute("UPDATE people SET left_at = now() WHERE external_id = 'W2'")
    with world.database.connection() as connection:
        assert [(row.name, row.has_record) for row in list_people(connection)] == [
            ("Robin Hill", False),
            ("Sam de Boer", False),
        ]
        for search, names in {
            "BOER": ["Sam de Boer"],
            "w2": ["Robin Hill"],
            "hr": ["Robin Hill"],
            "06-1234567": ["Robin Hill", "Sam de Boer"],
            "612345671": ["Sam de Boer"],
            "61": [],
            "%": [],
            "\0 ": ["Robin Hill", "Sam de Boer"],
        }.items():
            assert [row.name for row in list_people(connection, search=search)] == names
            assert count_people(connection, search=search) == len(names)
        assert [row.name for row in list_people(connection, with_left=False)] == ["Sam de Boer"]
        assert [row.name for row in list_people(connection, limit=1, offset=1)] == ["Sam de Boer"]
        assert [row.dry_run for row in list_imports(connection)] == [True, False]
        assert [row.dry_run for row in list_imports(connection, limit=1)] == [True]
