"""Read a file that somebody wants to add: is it text that can be answered from, and in which language? No I/O.

What is wrong is one UserError sentence that says what to do, with a name by which the console finds it in Dutch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from shared.errors import UserError
from shared.knowledge import Language
from shared.knowledge.bytes import looks_like_utf16
from shared.knowledge.chunk import chunk_document, document_title

SIZE_LIMIT = 2_000_000  # bytes: a handbook of a thousand pages
SUFFIXES = (".md", ".markdown", ".txt")
NAME_LIMIT = 300

_CONVERT = "Save or export it as Markdown (.md) or plain text (.txt) and add that file."
_SAVE_AS_UTF8 = "Save it again with the encoding UTF-8 and add it then."
_FORMATS = (
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a Word, Excel or ZIP file"),
    (b"\xd0\xcf\x11\xe0", "an old Word or Excel file"),
    (b"{\\rtf", "an RTF file"),
)
_TEXT_CONTROLS = frozenset(b"\t\n\x0b\x0c\r\x1b")


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document that has been read. `content_sha256` is of its content in UTF-8."""

    title: str
    content: str
    content_sha256: bytes
    language: Language
    collection: str
    source_name: str


def read_upload(
    name: str,
    data: bytes,
    language: Language | None,
    collection: str,
    *,
    detect: Callable[[str], Language | None],
) -> NewDocument:
    """Read an uploaded file.

    `name` is the name under which adding it again replaces it; `detect` tells the language when none is given. Raises
    UserError for what cannot be read: another format or encoding, no text, more than SIZE_LIMIT bytes.
    """
    source_name = _source_name(name)
    suffix = PurePosixPath(source_name).suffix.lower()
    if suffix not in SUFFIXES:
        named = f"of the type {suffix}" if suffix else "without a type at the end of its name"
        raise UserError(f"{source_name}: files {named} cannot be added. {_CONVERT}", name="document_type")
    if len(data) > SIZE_LIMIT:
        raise UserError(
            f"{source_name} is {len(data) / 1e6:.1f} MB; at most {SIZE_LIMIT // 1_000_000} MB can be added at once. "
            "Cut it into files of one subject each and add those.",
            name="document_too_large",
        )
    content = _decode(source_name, data)
    if not content.strip():
        raise UserError(f"{source_name} holds no text: there is nothing to answer from.", name="document_empty")
    if not chunk_document(content, source_name):
        raise UserError(
            f"{source_name} holds headings but no text under them: there is nothing to answer from.",
            name="document_only_headings",
        )
    found = language or detect(content)
    if found is None:
        raise UserError(
            f"{source_name}: it cannot be told whether this is Dutch or English. Say so with --language nl or en.",
            name="document_language",
        )
    digest = hashlib.sha256(content.encode()).digest()
    return NewDocument(document_title(content, source_name), content, digest, found, collection.strip(), source_name)


def _source_name(name: str) -> str:
    shown = name.replace("\\", "/").strip().removeprefix("./")
    if not shown.isprintable() or not 0 < len(shown) <= NAME_LIMIT:
        raise UserError(
            f"A document's name must be 1 to {NAME_LIMIT} printable characters; rename the file.", name="document_name"
        )
    return shown


def _decode(name: str, data: bytes) -> str:
    for magic, kind in _FORMATS:
        if data.startswith(magic):
            raise UserError(f"{name} is {kind}, whatever its name says. {_CONVERT}", name="document_format")
    if looks_like_utf16(data):
        raise UserError(f"{name} is text in UTF-16, not in UTF-8. {_SAVE_AS_UTF8}", name="document_encoding")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        if any(byte < 32 and byte not in _TEXT_CONTROLS for byte in set(data)):
            raise UserError(f"{name} is not a text file. {_CONVERT}", name="document_format") from None
        line = data.count(b"\n", 0, wrong.start) + 1
        raise UserError(
            f"{name} is not in UTF-8: line {line} holds the byte 0x{data[wrong.start]:02X}, as Windows-1252 text does. "
            f"{_SAVE_AS_UTF8}",
            name="document_encoding",
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(
            f"{name} holds a NUL character (first in line {line}), which text never does. {_CONVERT}",
            name="document_format",
        )
    return text
