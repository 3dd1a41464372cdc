"""The console's documents, over HTTP as a person uses them: adding, trying again, removing, and what a question finds."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.app import App
from shared.clients.azure_openai import AzureOpenAI, Embedder
from shared.db.pool import Database
from shared.errors import Failure, PermanentError, TransientError
from shared.ops.documents_search import embedded
from shared.settings import EMBEDDING_DIMENSIONS
from tests.fakes.faulty_server import faulty, silent
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World, settings

HANDBOOK = (
    b"# Handboek\n\n## Verlof\n\nJe hebt 200 uur verlof in een jaar.\n\n## Reizen\n\nJe krijgt je reiskosten vergoed.\n"
)
NOBODY = uuid4()


class TwoWays:
    """An embedder for which whatever speaks of Peru points another way than all else; told to, it fails."""

    model = "fake-embedding"

    def __init__(self) -> None:
        self.fails: Exception | None = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.fails:
            raise self.fails
        return [_pointing(1 if "Peru" in text else 0) for text in texts]


def _pointing(axis: int) -> list[float]:
    return [float(n == axis) for n in range(EMBEDDING_DIMENSIONS)]


class Documents(World):
    """The application, with an embedder that tells two subjects apart."""

    def __init__(self, database: Database) -> None:
        changes = {"OPS_AUTH": "local", "PUBLIC_BASE_URL": HERE, "RETRIEVAL_FLOOR": "0.4"}
        super().__init__(database, **changes)
        self.embedder = TwoWays()
        self.app = App(
            settings(**changes),
            database=database,
            wake=self.wake,
            chat=self.model,
            embedder=self.embedder,
            line=self.line,
        )

    def document(self, **columns: object) -> UUID:
        """A document as it stands in the table."""
        values = {"title": "Een titel", "state": "ready", "reason": None, "source_name": f"{uuid4()}.md"} | columns
        return UUID(
            str(
                self.value(
                    "INSERT INTO documents (title, content, content_sha256, language, source_name, state, reason)"
                    " VALUES (%(title)s, 'x', 'x', 'nl', %(source_name)s, %(state)s, %(reason)s) RETURNING id",
                    **values,
                )
            )
        )

    def piece(
        self, document: UUID | None, text: str, ordinal: int = 0, *, path: str = "Kop", person: UUID | None = None
    ) -> UUID:
        """A piece of a document, or of a person."""
        return UUID(
            str(
                self.value(
                    "INSERT INTO chunks (document_id, person_id, ordinal, heading_path, text, search_text, language,"
                    " content_sha256, embedding, embedding_model) VALUES (%(document)s, %(person)s, %(ordinal)s,"
                    " ARRAY[%(path)s], %(text)s, %(text)s, 'nl', 'x', %(vector)s::halfvec, 'fake-embedding') RETURNING id",
                    document=document, person=person, ordinal=ordinal, path=path, text=text,
                    vector="[1" + ",0" * (EMBEDDING_DIMENSIONS - 1) + "]",
                )
            )
        )  # fmt: skip

    def audited(self, document: UUID | str) -> list[str]:
        """What the log says was done to a document, in order."""
        rows = self.rows("SELECT what FROM audit_log WHERE target_id = %(id)s ORDER BY id", id=str(document))
        return [row[0] for row in rows]


@pytest.fixture(scope="module")
def opened(database: Database) -> Documents:
    return Documents(database)


@pytest.fixture
def world(opened: Documents) -> Documents:
    """Without what other tests left."""
    opened.execute("TRUNCATE documents, chunks, people, ai_jobs, audit_log CASCADE")
    opened.embedder.fails = None
    opened.wake.delays.clear()
    return opened


@pytest.fixture(scope="module")
def hr(opened: Documents) -> Visitor:
    return Visitor(opened.app, language="nl")


@pytest.fixture(scope="module")
def english(opened: Documents) -> Visitor:
    return Visitor(opened.app, language="en")


def add(hr: Visitor, name: str = "handboek.md", data: bytes = HANDBOOK, **form: Any) -> str:
    """Add a document, which goes well; its id."""
    answer = hr.post("/documents/new", files={"file": (name, data)}, **form)
    assert answer.status_code == 303, words_of(answer.text)
    return re.split(r"[/?]", answer.headers["location"])[4]


def test_a_document_is_added_embedded_and_shown_with_its_pieces(
    world: Documents, hr: Visitor, english: Visitor
) -> None:
    answer = hr.post("/documents/new", files={"file": ("handboek.md", HANDBOOK)}, collection=" hr ", language="")
    page = words_of(hr.follow(answer).text)
    assert "Het document is toegevoegd en wordt nu verwerkt." in page
    assert "in verwerking Dit duurt meestal minder dan een minuut. Taal Nederlands Verzameling hr" in page
    assert "De stukken verschijnen hier zodra het document verwerkt is." in page
    assert len(world.wake.delays) == 1
    document = world.value("SELECT id FROM documents")
    assert world.audited(document) == ["add_document"]

    live = hr.get(f"/live/documents/{document}").text
    seen = re.search(r'X-Seen":"(\w+)"', live)
    assert seen
    assert hr.get(f"/live/documents/{document}", **{"X-Seen": seen[1]}).status_code == 204
    world.run()
    page = words_of(hr.get(f"/live/documents/{document}", **{"X-Seen": seen[1]}).text)
    assert "vindbaar Antwoorden kunnen hieruit komen." in page
    assert "2 stukken" in page
    assert "1 Handboek › Verlof Je hebt 200 uur verlof in een jaar." in page
    assert "2 Handboek › Reizen Je krijgt je reiskosten vergoed." in page
    assert "Handboek handboek.md · hr Nederlands vindbaar 2 zojuist" in words_of(hr.get("/documents").text)
    assert "Handboek handboek.md · hr Dutch can be found 2 just now" in words_of(english.get("/documents").text)
    assert '<option value="hr">' in hr.get("/documents/new").text


def test_the_same_again_changes_nothing_and_another_content_replaces_it(world: Documents, hr: Visitor) -> None:
    first = add(hr)
    world.run()
    again = hr.post("/documents/new", files={"file": ("handboek.md", HANDBOOK)})
    assert "Dit document was er al" in words_of(hr.follow(again).text)
    assert world.audited(first) == ["add_document"]
    replaced = hr.post("/documents/new", files={"file": ("handboek.md", HANDBOOK.replace(b"200", b"210"))})
    assert "Het document is vervangen en wordt nu verwerkt." in words_of(hr.follow(replaced).text)
    page = words_of(hr.get(f"/documents/{first}").text)
    assert "Dit zijn de stukken van de vorige keer dat het verwerkt is." in page
    assert "200 uur" in page
    world.run()
    assert "210 uur" in words_of(hr.get(f"/documents/{first}").text)
    other = add(hr, collection="elders")
    assert other != first


REFUSED = [
    ("rooster.xlsx", b"PK\x03\x04", "Dit soort bestand kan niet worden toegevoegd.", "Files of this kind cannot be added."),
    ("scan.md", b"%PDF-1.7", "Dit is geen tekstbestand, wat de naam ook zegt.", "This is not a text file, whatever its name"),
    ("beeld.txt", b"\x89\x01\x02\xff", "Dit is geen tekstbestand", "This is not a text file"),
    ("oud.txt", "Café één".encode("cp1252"), "Het bestand is niet in UTF-8 bewaard.", "The file was not saved in UTF-8."),
    ("breed.txt", "verlof".encode("utf-16"), "Het bestand is niet in UTF-8 bewaard.", "The file was not saved in UTF-8."),
    ("nul.txt", b"Verlof is\0 fijn", "Dit is geen tekstbestand", "This is not a text file"),
    ("leeg.md", b" \n", "Er staat geen tekst in", "It holds no text"),
    ("koppen.md", b"# Verlof\n\n## Meer\n", "Er staan alleen kopjes in", "It holds headings but no text under them"),
    ("wat.md", b"12345 67890", "Aan de tekst is niet te zien of ze Nederlands", "It cannot be told from the text whether it is"),
    ("groot.txt", b"verlof " * 290_000, "Het bestand is te groot: hooguit 2 MB", "The file is too large: 2 MB at most"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "dutch", "in_english"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_added_is_told_on_the_form_in_both_languages(
    world: Documents, hr: Visitor, english: Visitor, name: str, data: bytes, dutch: str, in_english: str
) -> None:
    for visitor, sentence in ((hr, dutch), (english, in_english)):
        answer = visitor.post("/documents/new", files={"file": (name, data)}, collection="mijn <mappen>")
        assert answer.status_code == 409
        assert f"{name} : {sentence}" in words_of(answer.text)
        assert 'value="mijn &lt;mappen&gt;"' in answer.text
    assert world.value("SELECT count(*) FROM documents") == 0
    assert world.value("SELECT count(*) FROM audit_log") == 0
    assert world.wake.delays == []


def test_the_language_may_be_said_and_a_form_without_a_file_is_told(world: Documents, hr: Visitor) -> None:
    chosen = add(hr, "wat.md", b"12345 67890", language="en")
    assert world.value("SELECT language FROM documents WHERE id = %(id)s", id=chosen) == "en"
    without = hr.post("/documents/new", files={"file": ("", b"")}, language="nl")
    assert without.status_code == 409
    assert "Kies eerst een bestand." in words_of(without.text)
    assert '<option value="nl" selected>' in without.text
    assert hr.post("/documents/new", files={"file": ("a.md", HANDBOOK)}, language="fr").status_code == 409


def test_a_file_name_is_a_name_and_no_path(world: Documents, hr: Visitor) -> None:
    for name in ("../../../etc/cron.d/handboek.md", "C:\\Users\\hr\\handboek.md", "/handboek.md"):
        add(hr, name)
    assert world.rows("SELECT source_name FROM documents") == [("handboek.md",)]


def test_a_failed_document_says_why_and_is_tried_again(world: Documents, hr: Visitor, english: Visitor) -> None:
    world.embedder.fails = PermanentError("rejected", "HTTP 400: <b>no</b>")
    document = add(hr)
    world.run()
    assert "Handboek handboek.md Nederlands mislukt het model weigerde de aanvraag" in words_of(
        hr.get("/documents").text
    )
    page = english.get(f"/documents/{document}").text
    assert "Reason the model refused the request Message HTTP 400: <b>no</b>" in words_of(page)
    assert "<b>no</b>" not in page

    answer = hr.post(f"/documents/{document}/embed")
    assert "Het document wordt opnieuw verwerkt." in words_of(hr.follow(answer).text)
    assert world.rows("SELECT status, run FROM ai_jobs") == [("pending", 2)]  # the dead letter itself runs again
    assert world.audited(document) == ["add_document", "embed_document"]
    assert world.value("SELECT count(*) FROM audit_log WHERE what = 'restart_job'") == 1
    world.embedder.fails = None
    world.run()
    assert "vindbaar" in words_of(hr.get(f"/documents/{document}").text)

    refused = hr.post(f"/documents/{document}/embed")
    assert refused.status_code == 409
    assert "Dit document is niet mislukt" in words_of(refused.text)
    assert world.value("SELECT count(*) FROM ai_jobs") == 1
    assert hr.post(f"/documents/{NOBODY}/embed").status_code == 404


def test_a_failed_document_without_a_dead_letter_gets_a_new_job(world: Documents, hr: Visitor) -> None:
    document = world.document(state="failed", reason="cancelled")
    assert "Iemand heeft het verwerken geannuleerd." in words_of(hr.get(f"/documents/{document}").text)
    assert hr.post(f"/documents/{document}/embed").status_code == 303
    assert world.rows("SELECT payload ->> 'id', status FROM ai_jobs") == [(str(document), "pending")]
    assert world.rows("SELECT state, reason FROM documents") == [("waiting", None)]


def test_removing_asks_first_and_is_audited(world: Documents, hr: Visitor, english: Visitor) -> None:
    document = add(hr)
    world.run()
    asked = words_of(english.get(f"/documents/{document}/remove").text)
    assert "Remove this document? Handboek handboek.md · 2 pieces No answer will come from it any more." in asked
    assert world.value("SELECT count(*) FROM documents") == 1
    answer = hr.post(f"/documents/{document}/remove")
    assert answer.headers["location"].startswith("/api/ops/documents?")
    page = words_of(hr.follow(answer).text)
    assert "Het document is verwijderd." in page
    assert "Er zijn nog geen documenten." in page
    assert world.value("SELECT count(*) FROM chunks") == 0
    assert world.audited(document) == ["add_document", "remove_document"]
    assert hr.post(f"/documents/{document}/remove").status_code == 404
    for path in ("", "/remove"):
        assert hr.get(f"/documents/{document}{path}").status_code == 404
    assert hr.get(f"/live/documents/{document}").status_code == 404


def test_a_link_leads_to_its_piece_wherever_it_stands(world: Documents, hr: Visitor) -> None:
    document = world.document()
    pieces = [world.piece(document, f"Tekst nummer {n}.", n) for n in range(45)]
    first = hr.get(f"/documents/{document}").text
    assert "Tekst nummer 19." in first
    assert "Tekst nummer 20." not in first
    following = re.search(r'href="/api/ops([^"]+)" rel="next"', first)
    assert following
    second = hr.get(following[1]).text
    assert "Tekst nummer 20." in second
    assert "Tekst nummer 39." in second
    assert 'rel="prev"' in second
    linked = hr.get(f"/documents/{document}?chunk={pieces[41]}").text
    assert f'<li id="chunk-{pieces[41]}" class="sought">' in linked
    assert "Tekst nummer 40." in linked
    assert "Tekst nummer 39." not in linked
    gone = words_of(hr.get(f"/documents/{document}?chunk={NOBODY}").text)
    assert "Het stuk waar de link naar verwees, is er niet meer" in gone
    assert "Tekst nummer 0." in gone
    assert hr.get(f"/documents/{document}?chunk=x").status_code == 400
    assert hr.get(f"/documents/{document}?from=99999999999").status_code == 200


def test_the_list_goes_by_title_a_page_at_a_time_and_by_state(world: Documents, hr: Visitor) -> None:
    for n in range(60):
        world.document(title=f"Stuk {n:02}", state="failed" if n == 58 else "ready")
    page = hr.get("/documents").text
    assert "Alle 60" in words_of(page)
    assert "Stuk 49" in page
    assert "Stuk 50" not in page
    following = re.search(r'href="/api/ops([^"]+)" rel="next"', page)
    assert following
    second = hr.get(following[1].replace("&amp;", "&")).text
    assert "Stuk 50" in second
    assert "Stuk 59" in second
    assert "Stuk 49" not in second
    assert "Naar het begin" in words_of(second)
    failed = hr.get("/documents?state=failed").text
    assert re.findall(r"Stuk \d\d", failed) == ["Stuk 58"]
    assert "Er zijn geen documenten in deze staat." in words_of(hr.get("/documents?state=waiting").text)
    assert "Stuk 00" in hr.get(f"/documents?after={NOBODY}").text
    assert hr.get("/documents?state=lost").status_code == 400


def test_a_question_shows_what_it_finds_and_why(world: Documents, hr: Visitor, english: Visitor) -> None:
    document = add(hr)
    world.run()
    person = world.value("INSERT INTO people (phone, name) VALUES ('+31612345678', 'Een Persoon') RETURNING id")
    world.piece(None, "Een Persoon heeft nog 17 uur verlof.", person=person, path="Jouw gegevens")
    page = hr.get("/documents/search?q=Hoeveel+uur+verlof+heb+ik%3F").text
    words = words_of(page)
    assert "Deze 2 stukken zouden naar het taalmodel gaan" in words
    assert "De vraag is in het Nederlands gesteld." in words
    assert re.search(
        r"1 Handboek Handboek › Verlof Je hebt 200 uur verlof in een jaar\. Betekenis 1,000 boven de ondergrens van 0,40"
        r" Woorden 0,0\d\d er staan woorden uit de vraag in Taal Nederlands, de taal van de vraag Score 0,\d{3}",
        words,
    )
    assert "2 Handboek Handboek › Reizen" in words
    assert "Woorden 0,000 geen woord uit de vraag staat erin" in words
    assert "17 uur" not in words  # a person's own details are that person's
    link = re.search(r'href="/api/ops(/documents/[^"]+)#chunk-', page)
    assert link
    assert f"/documents/{document}" in link[1]
    assert 'class="sought"' in hr.get(link[1].replace("&amp;", "&")).text

    beside = words_of(english.get("/documents/search?q=The+capital+of+Peru%3F").text)
    assert "No piece comes near enough to the question (floor 0.40)." in beside
    assert "Meaning 0.000 below the floor of 0.40" in beside
    assert "The question was asked in English." in beside
    unsure = words_of(english.get("/documents/search?q=12345").text)
    assert "It cannot be told which language the question is in; it is taken for Dutch." in unsure


def test_a_question_finds_nothing_where_there_is_nothing(world: Documents, hr: Visitor) -> None:
    assert "Stel een vraag zoals een medewerker" in words_of(hr.get("/documents/search").text)
    assert "Er is niets gevonden: er is nog geen document vindbaar." in words_of(
        hr.get("/documents/search?q=verlof").text
    )


def test_a_model_that_fails_is_a_sentence_and_no_broken_page(world: Documents, hr: Visitor, english: Visitor) -> None:
    world.embedder.fails = TransientError("throttled", "HTTP 429: slow down")
    for visitor, sentence in (
        (hr, "kon nu niet worden omgezet in een zoekopdracht: het model had het te druk."),
        (english, "could not be turned into a search just now: the model was too busy."),
    ):
        answer = visitor.get("/documents/search?q=verlof")
        assert answer.status_code == 200
        assert sentence in words_of(answer.text)
        assert 'value="verlof"' in answer.text
    world.embedder.fails = RuntimeError("what nobody expected")
    assert "onverwachts" in words_of(hr.get("/documents/search?q=verlof").text)


def test_embedding_a_question_has_a_deadline() -> None:
    with faulty(silent) as server:
        model = AzureOpenAI(settings(AZURE_OPENAI_ENDPOINT=server.url))
        model.prepare()
        began = time.monotonic()
        failure = embedded(lambda: model, "verlof", seconds=0.5)
        assert time.monotonic() - began < 10
        model.close()
    assert isinstance(failure, Failure)
    assert failure.error_class == "timeout"


def test_a_vector_that_is_no_vector_is_a_failure_too() -> None:
    class Broken:
        model = "fake-embedding"

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[float("nan")] * EMBEDDING_DIMENSIONS for _ in texts]

    def unopened() -> Embedder:
        raise PermanentError("credential", "no key")

    for opener, error_class in ((Broken, "broken_answer"), (unopened, "credential")):
        failure = embedded(opener, "verlof")
        assert isinstance(failure, Failure)
        assert failure.error_class == error_class


TURNED = "\u202e"
HOSTILE = "\"'><script>alert(1)</script>\u202egnp.exe{{ 7*7 }}" + "z" * 50_000


def test_nothing_that_a_document_says_harms_a_page(world: Documents, hr: Visitor) -> None:
    document = world.document(
        title=HOSTILE, source_name=HOSTILE[:300], state="failed", reason=f"{HOSTILE[:90]}: {HOSTILE}"
    )
    world.piece(document, HOSTILE, path=HOSTILE)
    ready = world.document(title=HOSTILE)
    world.piece(ready, HOSTILE, path=HOSTILE)
    for path in (
        "/documents", f"/documents/{document}", f"/documents/{document}/remove", "/live/documents", "/documents/search?q=x",
        "/documents/search?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE", "/documents/new?collection=%22%3E%3Cscript%3E",
    ):  # fmt: skip
        answer = hr.get(path)
        assert answer.status_code == 200, path
        page = answer.text
        assert "<script>alert" not in page
        assert "><script>" not in page.replace("</script>\n<script", "")
        assert len(page) < 300_000
        title = re.search(r"<title>([^<]*)", page)
        assert title is None or TURNED not in title[1]
        for at in (found.start() for found in re.finditer(TURNED, page)):
            tag = page[page.rindex("<", 0, at) : at]
            assert re.match(r'<(bdi>|(span|div) class="said"|input )', tag), tag[:80]
