"""Reading a file that somebody adds: what is taken, and the sentence for what is not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from shared.errors import UserError
from shared.knowledge import Language
from shared.knowledge.upload import SIZE_LIMIT, NewDocument, read_upload

TEXT = "# Regels voor ons huis\n\nJe meldt je vóór 9:00 uur ziek.\n"


def always(language: Language | None) -> Callable[[str], Language | None]:
    return lambda text: language


def read(data: bytes, name: str = "regels.md", language: Language | None = None) -> NewDocument:
    return read_upload(name, data, language, " hr ", detect=always("nl"))


def refusal(data: bytes, name: str = "regels.md") -> str:
    with pytest.raises(UserError) as refused:
        read(data, name)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert name in sentence
    return sentence


def test_a_document_is_read() -> None:
    digest = hashlib.sha256(TEXT.encode()).digest()
    assert read(TEXT.encode()) == NewDocument("Regels voor ons huis", TEXT, digest, "nl", "hr", "regels.md")
    assert read(TEXT.encode(), language="en").language == "en"
    assert read(TEXT.encode("utf-8-sig")) == read(TEXT.encode())


@pytest.mark.parametrize("name", ["a.MD", "./a.markdown", "map\\a.txt", "reiskosten é.md"])
def test_names_that_are_taken(name: str) -> None:
    assert read(TEXT.encode(), name).source_name == name.replace("\\", "/").removeprefix("./")


@pytest.mark.parametrize("name", ["a.docx", "a.html", "README", "a.md.exe", "a.csv"])
def test_other_types_are_refused(name: str) -> None:
    assert "Markdown (.md) or plain text (.txt)" in refusal(TEXT.encode(), name)


@pytest.mark.parametrize("name", ["", "  ", "a\nb.md", "a\0.md", "x" * 400 + ".md", "a\u202edm.md"])
def test_unusable_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="printable characters"):
        read(TEXT.encode(), name)


def test_too_large_says_the_limit_and_what_to_do() -> None:
    read(b"Een zin. " * (SIZE_LIMIT // 9))
    sentence = refusal(b"Een zin. " * (20_000_000 // 9))
    assert "20.0 MB" in sentence
    assert "at most 2 MB" in sentence
    assert "Cut it" in sentence


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf16_is_named(encoding: str) -> None:
    assert "UTF-8" in refusal(TEXT.encode(encoding)) or "not a text file" in refusal(TEXT.encode(encoding))
    if encoding != "utf-32":
        assert "is text in UTF-16" in refusal(TEXT.encode(encoding))


def test_windows_1252_is_named_with_line_and_byte() -> None:
    sentence = refusal("Regels\n\nVóór negen uur € 12".encode("cp1252"))
    assert "line 3 holds the byte 0xF3" in sentence
    assert "encoding UTF-8" in sentence


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"%PDF-1.7\n...", "is a PDF file"),
        (b"PK\x03\x04word/document.xml", "is a Word, Excel or ZIP file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Word or Excel file"),
        (b"{\\rtf1\\ansi Regels}", "an RTF file"),
        (b"\x89PNG\r\n\x1a\n\x00\x01\x02\xff\xfe", "not a text file"),
        (b"tekst\nen een\x00 nul", "a NUL character (first in line 2)"),
        (b"", "holds no text"),
        (b" \n\t\r\n\xc2\xa0", "holds no text"),
        (b"\xef\xbb\xbf", "holds no text"),
        (b"# Kop\n## Nog een kop\n", "headings but no text"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes, words: str) -> None:
    assert words in refusal(data)


def test_an_unknown_language_is_asked_for() -> None:
    with pytest.raises(UserError, match="--language nl or en"):
        read_upload("a.md", b"12345", None, "", detect=always(None))
