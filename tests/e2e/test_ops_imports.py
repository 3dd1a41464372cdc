"""The console's imports of people, over HTTP as a person uses them: a file from its preview to its report."""

from __future__ import annotations

import base64
import csv
import io
import re
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from shared.db.pool import Database
from shared.knowledge.people import ReportRow
from shared.knowledge.people_file import SIZE_LIMIT
from shared.knowledge.people_reasons import SENTENCES
from shared.ops import imports_file
from shared.ops.imports_report import csv_of, reason_of
from shared.ops.render import FOLDER
from shared.ops.words import Words
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

NOBODY = uuid4()
KNOWLEDGE = Path(FOLDER).parent.parent / "knowledge"
TURNED = "\u202e"
HOSTILE = "\"'><script>alert(1)</script>" + TURNED + "gnp.exe{{ 7*7 }}" + "z" * 50_000
FILE = (
    b"Mobiel;Naam;Afdeling;Taal;Personeelsnummer;Uit dienst;Verlofuren;;\n"
    b"06-12345678;Anne Een;Zorg;nl;1001;;112;;\n"
    b"+31 6 87654321;Bert Twee;ICT;English;1002;31-12-2020;80;;\n"
    b"12;Niet Bereikbaar;;;;;;;\n"
    b'06-11223344;"<script>alert(1)</script>";;;;;;;\n'
    b"06-12345678;Anne Dubbel;;;;;;;\n"
)


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


def shown_names(page: str) -> list[str]:
    """The names of a list of people, in its order."""
    return re.findall(r'<th scope="row"><a[^>]*><bdi>([^<]*)</bdi>', page)


def look(visitor: Visitor, data: bytes = FILE, name: str = "export.csv") -> str:
    """The preview of a file."""
    answer = visitor.post("/people/imports/new", files={"file": (name, data)})
    assert answer.status_code == 200, words_of(answer.text)
    return answer.text


def start(visitor: Visitor, mode: str, data: bytes = FILE, name: str = "export.csv") -> str:
    """Press a button of the preview; the import's path."""
    page = look(visitor, data, name)
    carried = dict(re.findall(r'<input type="hidden" name="(name|content)" value="([^"]*)">', page))
    answer = visitor.post("/people/imports", files={"none": ("", b"")}, mode=mode, **carried)
    assert answer.status_code == 303, words_of(answer.text)
    return str(answer.headers["location"]).removeprefix("/api/ops")


def test_a_file_is_looked_at_before_anything_is_stored(world: World, hr: Visitor, english: Visitor) -> None:
    page = look(hr)
    words = words_of(page)
    assert "export.csv 5 rijen · 7 kolommen · 1 kB · puntkomma's · UTF-8" in words
    assert "2 rijen zouden worden afgewezen." in words
    assert "Mobiel Telefoonnummer Naam Naam Afdeling Afdeling Taal Taal" in words
    assert "Uit dienst Uit dienst Verlofuren eigen gegeven" in words
    assert "Anne Een +31612345678 Zorg Nederlands 1001 Verlofuren : 112" in words
    assert "Bert Twee laatste dag 31 dec 2020 +31687654321 ICT Engels 1002 Verlofuren : 80" in words
    assert "Regel 4: “ 12 ” is geen telefoonnummer dat bereikt kan worden." in words
    assert "Regel 6: Hetzelfde telefoonnummer staat op regel 2 ; de eerste telt." in words
    assert "<script>alert" not in page
    in_english = words_of(look(english))
    assert "5 rows · 7 columns · 1 kB · semicolons · UTF-8 2 rows would be rejected." in in_english
    assert "Mobiel Phone number Naam Name" in in_english
    assert "Line 4: “ 12 ” is not a phone number that can be reached." in in_english
    assert world.value("SELECT count(*) FROM imports") == 0
    assert world.wake.delays == []
    assert "Mensen importeren" in words_of(hr.get("/people/imports/new").text)  # where the language button leads


def test_a_long_file_is_looked_at_in_part(world: World, hr: Visitor) -> None:
    rows = "".join(f"06-{20_000_000 + n},Persoon {n}\n" if n % 2 else f"{n},Persoon {n}\n" for n in range(700))
    words = words_of(look(hr, f"telefoon,naam\n{rows}".encode()))
    assert "700 rijen · 2 kolommen" in words
    assert "Van de eerste 500 rijen zouden er 250 worden afgewezen." in words


def test_a_trial_changes_nothing_and_the_import_does(world: World, hr: Visitor, english: Visitor) -> None:
    tried = start(hr, "try")
    assert "wacht proef De import begint zo. 0 van 5 rijen" in words_of(hr.get(tried).text)
    assert len(world.wake.delays) == 1
    world.run()
    page = words_of(english.get(tried).text)
    assert "done trial The import is done. This was a trial: nothing has changed." in page
    assert "3 would be added 0 would change 0 would stay the same 2 would be rejected" in page
    assert "2 rows would be rejected" in page
    assert world.value("SELECT count(*) FROM people") == 0

    done = start(hr, "import")
    world.run()
    page = words_of(hr.get(done).text)
    assert "klaar De import is klaar. 3 Toegevoegd 0 Veranderd 0 Ongewijzigd 2 Afgewezen" in page
    assert "2 rijen zijn afgewezen" in page
    assert (
        "4 “ 12 ” is geen telefoonnummer dat bereikt kan worden. 6 Hetzelfde telefoonnummer staat op regel 2 ;" in page
    )
    assert "Door console:local" in page
    assert "Telefoonnummer kolom Mobiel Naam kolom Naam Afdeling kolom Afdeling" in page
    assert shown_names(hr.get("/people").text) == ["&lt;script&gt;alert(1)&lt;/script&gt;", "Anne Een"]

    again = start(hr, "import")
    world.run()
    assert "0 Toegevoegd 0 Veranderd 3 Ongewijzigd 2 Afgewezen" in words_of(hr.get(again).text)
    listed = words_of(hr.get("/people/imports").text)
    assert "export.csv console:local klaar 5 3 0 2 zojuist" in listed
    assert "export.csv console:local klaar proef 5 3 0 2 zojuist" in listed
    assert world.value("SELECT count(*) FROM audit_log WHERE what = 'import_people'") == 3


def test_an_import_shows_how_far_it_is(world: World, hr: Visitor) -> None:
    path = start(hr, "import")
    page = hr.get(f"/live{path}").text
    seen = re.search(r'X-Seen":"(\w+)"', page)
    assert seen
    assert hr.get(f"/live{path}", **{"X-Seen": seen[1]}).status_code == 204
    world.execute("UPDATE imports SET state = 'running', rows_done = 2, added = 1, rejected = 1")
    running = hr.get(f"/live{path}", **{"X-Seen": seen[1]})
    assert running.status_code == 200
    assert '<progress id="progress" value="2" max="5">' in running.text
    assert "bezig" in words_of(hr.get("/live/people/imports").text)
    assert hr.get(f"/live/people/imports/{NOBODY}").status_code == 404


def test_an_import_that_stopped_says_why(world: World, hr: Visitor, english: Visitor) -> None:
    path = start(hr, "import")
    world.execute(
        "UPDATE imports SET state = 'failed', ended_at = now(), reason = 'no_content: <b>the file</b> is gone'"
    )
    page = hr.get(path).text
    assert "gestopt De import is gestopt. Wat hieronder staat, is wel gebeurd." in words_of(page)
    assert "Wat er misging: het bestand van deze import is er niet meer." in words_of(page)
    assert "<b>the file</b>" not in page
    assert "/jobs?state=failed&amp;type=import_people" in page
    world.execute("UPDATE imports SET reason = 'cancelled'")
    assert "Somebody cancelled the import." in words_of(english.get(path).text)


def test_the_report_is_a_file_that_does_no_harm(world: World, hr: Visitor, english: Visitor) -> None:
    path = start(hr, "import", FILE.replace(b"\n12;", b"\n=cmd|'/c calc'!A1;"), name='x";\r\nSet-Cookie: a=b.csv')
    world.run()
    answer = hr.get(f"{path}/report")
    assert answer.headers["content-disposition"] == 'attachment; filename="import-verslag.csv"'
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "set-cookie" not in answer.headers
    assert answer.content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig")), delimiter=";"))
    assert rows[0] == ["Regel", "Uitkomst", "Reden"]
    assert [row[0] for row in rows[1:]] == ["4", "6"]
    assert rows[1][1:] == ["Afgewezen", "“=cmd|'/c calc'!A1” is geen telefoonnummer dat bereikt kan worden."]
    everything = english.get(f"{path}/report?all=1")
    assert everything.headers["content-disposition"] == 'attachment; filename="import-report.csv"'
    rows = list(csv.reader(io.StringIO(everything.content.decode("utf-8-sig"))))
    assert [row[:2] for row in rows] == [
        ["Line", "Outcome"], ["2", "Added"], ["3", "Added"], ["4", "Rejected"], ["5", "Added"], ["6", "Rejected"],
    ]  # fmt: skip
    assert hr.get(f"/people/imports/{NOBODY}/report").status_code == 404


@pytest.mark.parametrize("start_of_cell", ["=", "+", "-", "@", "\t=", "\r=", " =", "\n+"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(start_of_cell: str) -> None:
    report = csv_of(
        Words("en"), [ReportRow(7, "rejected", f"{start_of_cell}1+1"), ReportRow(8, "rejected", "nothing: x")]
    )
    rows = list(csv.reader(io.StringIO(report.decode("utf-8-sig"), newline="")))
    assert rows[1:] == [["7", "Rejected", f"'{start_of_cell}1+1"], ["8", "Rejected", "nothing: x"]]


def test_every_reason_and_every_refusal_is_said_in_both_languages() -> None:
    for name in SENTENCES:
        for language in ("nl", "en"):
            said = reason_of(Words(language), ReportRow(1, "rejected", f"{name}: {{0}} <b>"))
            assert not said.startswith(name)
            assert ("{0} <b>" in said) == ("{}" in SENTENCES[name])
    sources = [*KNOWLEDGE.glob("people*.py"), KNOWLEDGE / "phone.py", KNOWLEDGE / "upload.py"]
    text = "\n".join(path.read_text("utf-8") for path in sources)
    named = set(re.findall(r'UserError\(.*?name="(\w+)"', text, re.DOTALL)) | set(re.findall(r'"(file_\w+)"\)', text))
    assert len(named) > 15
    assert [name for name in named if not Words("nl").has("error", name)] == []


REFUSED = [
    ("a.xlsx", b"PK\x03\x04", "Dit is een Excel- of ZIP-bestand, geen CSV.", "This is an Excel or ZIP file, not CSV."),
    ("a.csv", b"", "Het bestand is leeg.", "The file is empty."),
    ("a.csv", b"naam\nAnne\n", "Er is geen kolom met telefoonnummers.", "There is no column with phone numbers."),
    ("a.csv", b"naam;telefoon\n", "Er staan kolomnamen in, maar geen rijen", "It has a header, but no rows"),
    ("a.csv", b"naam;telefoon;mobiel\na;1;2\n", "Twee kolommen heten hetzelfde", "Two columns have one name"),
    ("a.csv", b"naam;telefoon\n\"a;1\n", "Ergens staat een aanhalingsteken dat opent", "Somewhere a quotation mark opens"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "dutch", "in_english"), REFUSED, ids=[row[3][:30] for row in REFUSED])
def test_a_file_that_cannot_be_imported_is_told_in_both_languages(
    world: World, hr: Visitor, english: Visitor, name: str, data: bytes, dutch: str, in_english: str
) -> None:
    for visitor, sentence in ((hr, dutch), (english, in_english)):
        answer = visitor.post("/people/imports/new", files={"file": (name, data)})
        assert answer.status_code == 409
        assert f"{name} : {sentence}" in words_of(answer.text)
        assert name in words_of(answer.text.partition("<details>")[2])  # the message itself names line and column
    assert world.value("SELECT count(*) FROM imports") == 0


def test_a_form_that_was_tampered_with_starts_nothing(world: World, hr: Visitor) -> None:
    whole = zlib.compress(FILE)
    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(50_000_000))).decode()
    cut = base64.urlsafe_b64encode(whole[:-9]).decode()
    sentences: dict[str, str] = {
        "": "Het bestand is onderweg kwijtgeraakt", "é": "kwijtgeraakt", "AAAA": "kwijtgeraakt", cut: "kwijtgeraakt",
        bomb: "Het bestand is te groot: hooguit 10 MB",
        base64.urlsafe_b64encode(zlib.compress(b"%PDF-")).decode(): "Dit is een PDF-bestand",
    }  # fmt: skip
    for content, sentence in sentences.items():
        answer = hr.post("/people/imports", name="x.csv", content=content, mode="import")
        assert answer.status_code == 409
        assert sentence in words_of(answer.text)
    whole_form: dict[str, Any] = {"name": "x.csv", "content": base64.urlsafe_b64encode(whole).decode()}
    assert hr.post("/people/imports", mode="erase", **whole_form).status_code == 409
    without = hr.post("/people/imports/new", files={"file": ("", b"")})
    assert "Kies eerst een bestand." in words_of(without.text)
    assert world.value("SELECT count(*) FROM imports") == 0
    assert hr.post("/people/imports", **whole_form).status_code == 303
    assert world.value("SELECT dry_run FROM imports")  # what is not said is tried only


def test_a_file_that_grows_without_end_is_not_unpacked_to_its_end() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(bytes(50_000_000))).decode()
    assert len(imports_file.unpacked(bomb)) == SIZE_LIMIT + 1
    assert imports_file.unpacked(imports_file.packed(FILE)) == FILE


def test_nothing_that_a_file_says_harms_a_page(world: World, hr: Visitor) -> None:
    cell = HOSTILE[:150].replace('"', '""')
    header = f'"{cell[:90]}"'
    data = f'telefoon,naam,afdeling,{header}\n06-11111111,"{cell}","{cell}","{cell}"\n"{cell}",x,"{cell}",y\n'.encode()
    path = start(hr, "import", data, name=HOSTILE[:150])
    world.run()
    world.execute("UPDATE imports SET created_by = %(text)s, source = %(text)s", text=HOSTILE)
    pages = {shown: hr.get(shown).text for shown in (path, "/people", "/people/imports")}
    pages["preview"] = look(hr, data, HOSTILE[:150])
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
