"""From the bytes of a CSV file to its text: UTF-8 with or without a byte order mark, or else Windows-1252. Pure."""

from __future__ import annotations

from shared.errors import UserError
from shared.knowledge.bytes import looks_like_utf16

_SAVE_AS = "In Excel choose Save as, “CSV UTF-8”, and import that file."
_FORMATS = (
    (b"%PDF-", "a PDF file", "file_pdf"),
    (b"PK\x03\x04", "an Excel or ZIP file", "file_excel"),
    (b"\xd0\xcf\x11\xe0", "an old Excel file", "file_excel"),
)
_TEXT_CONTROLS = frozenset(b"\t\n\x0b\x0c\r")


def decoded(source: str, data: bytes) -> tuple[str, str]:
    """The text and the name of its encoding. Raises UserError for what is not a text file in one of these.

    What is not UTF-8 is taken for Windows-1252, which Excel writes: hardly any other text is valid UTF-8 by chance.
    """
    for magic, kind, name in _FORMATS:
        if data.startswith(magic):
            raise UserError(f"{source} is {kind}, not CSV. {_SAVE_AS}", name=name)
    if looks_like_utf16(data):
        raise UserError(f"{source} is text in UTF-16, not in UTF-8. {_SAVE_AS}", name="file_utf16")
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise UserError(f"{source} is empty.", name="file_empty")
    if b"\0" in data:
        raise _binary(source)
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError:
        pass
    if any(byte < 32 and byte not in _TEXT_CONTROLS for byte in set(data)):
        raise _binary(source)
    try:
        return data.decode("cp1252"), "cp1252"
    except UnicodeDecodeError:
        raise _binary(source) from None


def _binary(source: str) -> UserError:
    return UserError(f"{source} is not a text file in UTF-8 or Windows-1252. {_SAVE_AS}", name="file_binary")
