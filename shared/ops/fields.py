"""What came with a request: the query of its address, and its form. Read by name and by kind; never trusted."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import parse_qsl
from uuid import UUID

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header

from shared.db.text import storable
from shared.errors import RequestRefused, UserError

FIELDS_AT_MOST = 1000
QUERY_TEXT_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of a form. `name` is what the sender calls it: for showing, never a path."""

    name: str
    data: bytes


class Fields:
    """Named values; a name may be there more than once. A value that is not of the asked kind raises UserError."""

    def __init__(self, pairs: Sequence[tuple[str, str]] = (), files: Mapping[str, Upload] | None = None) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(storable(value))
        self._files = dict(files or {})

    def text(self, name: str, limit: int = QUERY_TEXT_LIMIT) -> str | None:
        """The trimmed text, at most `limit` characters of it; None when it is absent or blank."""
        return self.raw(name).strip()[:limit].strip() or None

    def raw(self, name: str) -> str:
        """The text as it came, with its white space and of any length; empty when absent."""
        return self._values.get(name, [""])[0]

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return bool(self.raw(name))

    def choice[T: str](self, name: str, options: Collection[T]) -> T | None:
        """One of `options`, or None when absent."""
        value = self.text(name)
        found = next((option for option in options if option == value), None)
        if value is not None and found is None:
            raise _not_understood(name)
        return found

    def number(self, name: str) -> int | None:
        """A whole number from 0 that fits in Postgres' bigint."""
        value = self.text(name)
        if value is not None and not re.fullmatch(r"[0-9]{1,18}", value):
            raise _not_understood(name)
        return int(value) if value else None

    def day(self, name: str) -> date | None:
        """A day, as a date field sends it: 2026-03-31."""
        value = self.text(name)
        try:
            return date.fromisoformat(value) if value else None
        except ValueError as wrong:
            raise _not_understood(name) from wrong

    def uuid(self, name: str) -> UUID | None:
        """One id."""
        return next(iter(self.uuids(name)), None)

    def uuids(self, name: str) -> list[UUID]:
        """All ids that have this name."""
        try:
            return [UUID(value.strip()) for value in self._values.get(name, []) if value.strip()]
        except ValueError as wrong:
            raise _not_understood(name) from wrong

    def file(self, name: str) -> Upload | None:
        """An uploaded file; None when none was chosen."""
        return self._files.get(name)


def _not_understood(name: str) -> UserError:
    return UserError(f"The value of {name[:40]!r} is not understood.", name="not_understood")


def read_query(query: str) -> Fields:
    """The part of an address after `?`."""
    return Fields(parse_qsl(query, max_num_fields=None)[:FIELDS_AT_MOST])


def read_form(content_type: str, body: bytes) -> Fields:
    """A form as browsers send it. Raises RequestRefused for anything else; nothing is written to disk."""
    kind, options = parse_options_header(content_type)
    try:
        if kind == b"application/x-www-form-urlencoded":
            text = body.decode("utf-8", "replace")
            return Fields(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_AT_MOST))
        if kind == b"multipart/form-data":
            return _read_parts(options.get(b"boundary"), body)
    except (FormParserError, ValueError) as broken:
        raise RequestRefused(400, "The form cannot be read.") from broken
    raise RequestRefused(415, "Only forms are read here.")


def _read_parts(boundary: bytes | None, body: bytes) -> Fields:
    pairs: list[tuple[str, str]] = []
    files: dict[str, Upload] = {}

    def keep_field(field: Field) -> None:
        if len(pairs) >= FIELDS_AT_MOST:
            raise FormParserError("too many fields")
        pairs.append((_decoded(field.field_name), _decoded(field.value)))

    def keep_file(file: File) -> None:
        if len(files) >= FIELDS_AT_MOST:
            raise FormParserError("too many files")
        file.file_object.seek(0)
        data, name = file.file_object.read(), _decoded(file.file_name)
        file.close()
        if name or data:
            files[_decoded(file.field_name)] = Upload(_shown_name(name), data)

    config = {"MAX_MEMORY_FILE_SIZE": len(body) + 1}
    parser = FormParser("multipart/form-data", keep_field, keep_file, boundary=boundary, config=config)
    parser.write(body)
    parser.finalize()
    parser.close()
    return Fields(pairs, files)


def _decoded(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _shown_name(name: str) -> str:
    """The last part of what may be a path, without characters that cannot be shown."""
    last = re.split(r"[/\\]", name)[-1]
    return "".join(character for character in last if character.isprintable()).strip()[:200] or "?"
