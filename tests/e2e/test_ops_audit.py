"""The console's log, over HTTP as a person reads it: who did what to which, in words."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest

from shared import audit
from shared.db.pool import Database
from shared.ops.render import FOLDER
from shared.ops.words import Words
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

SHARED = Path(FOLDER).parent.parent
HR, OTHER = "hr@example.org", "ander@example.org"
HOSTILE = "\"'><script>alert(1)</script>\u202egnp.exe{{ 7*7 }}" + "z" * 50_000


@pytest.fixture(scope="module")
def opened(database: Database) -> World:
    return World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)


@pytest.fixture
def world(opened: World) -> World:
    """Without what other tests left."""
    opened.execute("TRUNCATE audit_log, documents, conversations, people CASCADE")
    return opened


@pytest.fixture(scope="module")
def hr(opened: World) -> Visitor:
    return Visitor(opened.app, language="nl")


@pytest.fixture(scope="module")
def english(opened: World) -> Visitor:
    return Visitor(opened.app, language="en")


def record(
    world: World, what: str, target_type: str, target_id: object = None, who: str = HR, **details: object
) -> None:
    """Somebody does something."""
    with world.database.connection() as connection:
        target = None if target_id is None else str(target_id)
        audit.record(connection, who=who, what=what, target_type=target_type, target_id=target, **details)


def lines(page: str) -> list[str]:
    """Who and what of each line, without the raw details."""
    rows = re.findall(r'<tr id="line-\d+">(.*?)<details', page, re.DOTALL)
    return [" ".join(words_of(row).split()[3:]) for row in rows]  # after day, month and time


def test_the_steps_of_a_replay_show_only_when_asked_for_or_with_their_jobs(world: World, english: Visitor) -> None:
    replay_id, job = uuid4(), uuid4()
    record(world, "start_replay", "replay", replay_id)
    for _ in range(60):
        record(world, "replay_jobs", "replay", replay_id, jobs=[str(job)])
    record(world, "finish_replay", "replay", replay_id)
    for about in ("", f"?target={replay_id}", f"?who={HR}"):
        page = english.get(f"/audit{about}").text
        assert len(lines(page)) == 2, about
        assert "Each step of replays too" in page
    assert len(lines(english.get("/audit?steps=1").text)) == 50
    assert "Without the steps of replays" in english.get("/audit?steps=1").text
    assert len(lines(english.get(f"/audit?target={job}").text)) == 50


def test_the_log_says_what_was_done_the_newest_first(world: World, hr: Visitor, english: Visitor) -> None:
    assert "Er is nog niets gedaan dat hier hoort te staan." in words_of(hr.get("/audit").text)
    world.says("+31612345678", "hallo", ProfileName="Jan <b>")
    conversation = world.value("SELECT id FROM conversations")
    job = world.value("SELECT id FROM ai_jobs ORDER BY seq DESC LIMIT 1")
    document = world.add_handbook()
    gone = uuid4()
    record(world, "take_over", "conversation", conversation)
    record(world, "hand_back", "conversation", conversation, settled=3)
    record(world, "approve_suggestion", "conversation", conversation, edited=True, message=uuid4())
    record(world, "add_document", "document", document, title="Personeelshandboek", name="h.md", outcome="replaced")
    record(world, "remove_document", "document", gone, title="Oud beleid", collection="hr", name="oud.md")
    record(world, "close_job", "job", job, type="autoreply", reason="Is al gebeld")
    record(
        world,
        "restart_jobs",
        "job",
        jobs=[uuid4(), uuid4()],
        filter={"type": "suggest", "error_class": "throttled", "phone": None},
    )
    record(world, "import_people", "import", uuid4(), source="mensen.csv", rows=20_000, dry_run=True, who=OTHER)
    record(world, "a_new_thing", "gadget", "x1", who=OTHER)
    page = hr.get("/audit").text
    assert lines(page) == [
        f"{OTHER} a_new_thing",
        f"{OTHER} Startte een import van mensen: mensen.csv (bestaat niet meer) rijen: 20 000 · als proef",
        f"{HR} Startte 2 taken opnieuw gekozen op: soort Voorstel voor een antwoord, probleem te druk",
        f"{HR} Sloot een mislukte taak: Automatisch antwoord reden: Is al gebeld",
        f"{HR} Verwijderde een document: Oud beleid (bestaat niet meer) bestand: oud.md · verzameling: hr",
        f"{HR} Voegde een document toe: Personeelshandboek bestand: h.md · uitkomst: vervangen",
        f"{HR} Verstuurde een voorstel: Jan <b> na aanpassing",
        f"{HR} Gaf een gesprek terug aan de assistent: Jan <b> berichten zonder antwoord gelaten: 3",
        f"{HR} Nam een gesprek over: Jan <b>",
    ]
    for path in (f"/conversations/{conversation}", f"/documents/{document}", f"/jobs/{job}"):
        assert f'<a href="/api/ops{path}">' in page
    assert f'<a href="/api/ops/documents/{gone}">' not in page
    assert lines(english.get("/audit").text)[-2:] == [
        f"{HR} Handed a conversation back to the assistant: Jan <b> messages left without an answer: 3",
        f"{HR} Took over a conversation: Jan <b>",
    ]


def test_the_log_is_filtered_by_who_and_by_what_it_is_about(world: World, hr: Visitor) -> None:
    document, job = world.add_handbook(), uuid4()
    record(world, "take_over", "conversation", uuid4())
    record(world, "embed_document", "document", document, who=OTHER)
    record(world, "remove_document", "document", document)
    record(world, "restart_jobs", "job", jobs=[job])
    assert len(lines(hr.get("/audit").text)) == 4
    assert len(lines(hr.get(f"/audit?who={OTHER}").text)) == 1
    assert len(lines(hr.get("/audit?target=document").text)) == 2
    assert len(lines(hr.get(f"/audit?target={document}&who={HR}").text)) == 1
    page = hr.get(f"/audit?target={document}").text
    assert len(lines(page)) == 2
    assert f'<option value="{document}" selected>alleen Personeelshandboek</option>' in page
    assert len(lines(hr.get(f"/audit?target={job}").text)) == 1  # one of several that were restarted together
    assert "Er is niets dat hieraan voldoet." in words_of(hr.get("/audit?who=niemand").text)
    link = re.search(r'href="/api/ops(/audit\?who=[^"]+)"', hr.get("/audit").text)
    assert link
    assert len(lines(hr.get(link[1]).text)) == 3


def test_the_log_goes_on_by_key_and_keeps_its_filter(world: World, hr: Visitor) -> None:
    for number in range(120):
        record(world, "close_job", "job", uuid4(), reason=f"reden {number:03}", who=HR if number % 2 else OTHER)
    seen, path = [], f"/audit?who={HR}"
    for _ in range(5):
        page = hr.get(path).text
        seen += re.findall(r"reden: <bdi>reden (\d{3})", page)
        older = re.search(r'href="/api/ops([^"]+)" rel="next"', page)
        if older is None:
            break
        path = older[1].replace("&amp;", "&")
        record(world, "close_job", "job", uuid4(), reason="reden 999")  # what comes meanwhile shifts nothing
    assert [int(number) for number in seen] == list(range(119, 0, -2))
    assert hr.get("/audit?before=1").status_code == 200
    assert hr.get("/audit?before=x").status_code == 400


def test_whatever_is_audited_has_words_in_both_languages() -> None:
    text = "\n".join(path.read_text("utf-8") for path in SHARED.rglob("*.py"))
    named = set(re.findall(r'what="(\w+)"', text)) | set(re.findall(r'\.audit\(\s*\w+,\s*"(\w+)"', text))
    assert len(named) > 12
    for language in ("nl", "en"):
        words = Words("nl" if language == "nl" else "en")
        lacking = [
            name for name in named if not words.has("audit.did", name) and not words.has("audit.did", f"{name}.one")
        ]
        assert lacking == [], f"say what these are in words/{language}/audit.json, as audit.did.NAME"


def test_nothing_in_the_log_harms_a_page(world: World, hr: Visitor) -> None:
    record(
        world,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        who=HOSTILE,
        title=HOSTILE,
        reason=HOSTILE,
        filter={HOSTILE: HOSTILE},
        jobs=HOSTILE,
    )
    record(world, "remove_document", "document", "no uuid", title=HOSTILE, name=[HOSTILE], rows={"a": 1}, filter=[1])
    record(world, "restart_jobs", "job", jobs=[])
    for path in ("/audit", "/audit?who=%22%3E%3Cscript%3E", f"/audit?target=%22%3E%3Cscript%3E{'z' * 3000}"):
        answer = hr.get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert '"><script>' not in answer.text
        title = re.search(r"<title>([^<]*)", answer.text)
        assert title is not None
        for at in (found.start() for found in re.finditer("\u202e", answer.text)):
            tag = answer.text[answer.text.rindex("<", 0, at) : at]
            assert re.match(r'<(bdi>|(span|div) class="said")', tag), tag[:80]
    assert len(hr.get("/audit").text) < 500_000
