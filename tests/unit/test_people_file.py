"""A file of people: whatever encoding, delimiter, quoting and header it has, its rows are found; what is none is refused."""

from __future__ import annotations

import contextlib
import csv
import io
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from local.demo.load import PEOPLE
from shared.errors import UserError
from shared.knowledge.people_file import COLUMNS_LIMIT, ROWS_LIMIT, SIZE_LIMIT, read_table, reopened
from shared.knowledge.people_rows import PersonRow, rows_of
from shared.knowledge.plain import one_line, plain

HEADER = ["Naam", "Telefoon", "Afdeling", "Opmerking"]
PLAIN = "naam;telefoon\nSam;0612345678\n"


def rows(text: str | bytes) -> list[PersonRow]:
    data = text.encode() if isinstance(text, str) else text
    return list(rows_of(read_table("mensen.csv", data)))


def refused(data: bytes | str, name: str = "mensen.csv") -> UserError:
    with pytest.raises(UserError) as caught:
        read_table(name, data.encode() if isinstance(data, str) else data)
    assert caught.value.name
    return caught.value


def cells(encoding: str) -> st.SearchStrategy[str]:
    """Cells with delimiters, quotation marks and line breaks more often than chance would have them."""
    codec = "cp1252" if encoding == "cp1252" else "utf-8"
    letters = st.characters(codec=codec, exclude_categories=["Cc", "Cs"])
    return st.text(st.one_of(letters, st.sampled_from(";,\t\"'\n\r ")), max_size=12)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, str, str, list[list[str]]]:
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252"]))
    names = cells(encoding).filter(lambda cell: bool(one_line(cell)))
    people = draw(st.lists(st.tuples(names, cells(encoding), cells(encoding)), min_size=1, max_size=6))
    written = [[name, f"06{n + 10000000}", department, note] for n, (name, department, note) in enumerate(people)]
    dialect: dict[str, Any] = {
        "delimiter": draw(st.sampled_from([",", ";", "\t"])),
        "quoting": draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        "lineterminator": draw(st.sampled_from(["\n", "\r\n", "\r"])),
    }
    out = io.StringIO(newline="")
    csv.writer(out, **dialect).writerows([HEADER, *written])
    text = out.getvalue()
    if draw(st.booleans()):
        text = text.rstrip("\r\n") if not text.endswith(('"\n', '"\r')) else text
    return text.encode(encoding), encoding, dialect["delimiter"], written


@settings(max_examples=100, deadline=None)
@given(files())
def test_what_is_written_is_read(file: tuple[bytes, str, str, list[list[str]]]) -> None:
    data, encoding, delimiter, written = file
    if encoding == "cp1252" and not data.isascii():
        assume(not is_utf8(data))
    table = read_table("mensen.csv", data)
    assert table.delimiter == delimiter
    assert table.encoding == ("utf-8" if data.isascii() else encoding)
    assert (table.columns, table.attributes, table.rows_total) == (tuple(HEADER), ("Opmerking",), len(written))
    found = list(rows_of(table))
    assert [(row.reason, row.name, row.phone, row.department, row.attributes.get("Opmerking")) for row in found] == [
        (None, one_line(name), f"+31{phone[1:]}", one_line(department) or None, plain(note).strip() or None)
        for name, phone, department, note in written
    ]
    again = reopened("mensen.csv", data, encoding=table.encoding, delimiter=table.delimiter, mapped=dict(table.map))
    assert again == table


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=80), st.text(st.sampled_from('naam;telefoon,"\n\r\t06+ é'), max_size=80).map(str.encode)
    )
)
def test_nothing_raises_anything_but_a_sentence(data: bytes) -> None:
    with contextlib.suppress(UserError):
        table = read_table("x.csv", data)
        assert len(list(rows_of(table))) == table.rows_total


def test_the_demo_people_are_all_imported() -> None:
    found = list(rows_of(read_table(PEOPLE.name, PEOPLE.read_bytes())))
    assert len(found) == 20
    assert [row.reason for row in found] == [None] * 20
    assert found[0].phone == "+319700000001"


def test_lines_are_those_of_the_file_whatever_stands_in_the_cells() -> None:
    text = '\n\nnaam;telefoon;noot\n"Sam";0612345671;"een\r\ntwee\n""drie"""\n\n;;\nRobin;0612345672;\nKim;geen;x\n'
    assert [(row.line, row.name, row.reason) for row in rows(text)] == [
        (4, "Sam", None),
        (9, "Robin", None),
        (10, None, "phone_invalid: geen"),
    ]
    assert rows(text)[0].attributes == {"noot": 'een\ntwee\n"drie"'}


@pytest.mark.parametrize("above", ["sep=;\n", "Personeel per 1 januari\n\n", "Export;;\nVertrouwelijk, intern;\n"])
def test_what_stands_above_the_header_is_passed_over(above: str) -> None:
    table = read_table("x.csv", (above + PLAIN).encode())
    assert (table.columns, table.delimiter, table.rows_total) == (("naam", "telefoon"), ";", 1)
    assert table.header_line == above.count("\n") + 1


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found_among_the_others(delimiter: str) -> None:
    line = delimiter.join
    rest = {",", ";", "\t"} - {delimiter}
    others = "".join(sorted(rest)).replace("\t", "")
    text = (
        line(["Naam", "Mobiel", "Notitie"]) + "\n" + line(["Sam", "0612345678", f"a{others}b{others}c{others}d"]) + "\n"
    )
    assert read_table("x.csv", text.encode()).delimiter == delimiter


def test_a_space_before_a_quotation_mark_is_no_part_of_the_cell() -> None:
    assert rows('naam; telefoon; noot\n"Sam"; "0612345678"; "een; twee"\n')[0].attributes == {"noot": "een; twee"}


def test_windows_1252_keeps_its_letters() -> None:
    data = "naam;telefoon;verlof\nZoë “Zo” Šimůnek;0612345678;€ 5\n".replace("ů", "u").encode("cp1252")
    found = rows(data)[0]
    assert (found.name, found.attributes) == ("Zoë “Zo” Šimunek", {"verlof": "€ 5"})


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "file_empty"),
        (b"\xef\xbb\xbf \r\n\n", "file_empty"),
        (b"PK\x03\x04rest", "file_excel"),
        (b"\xd0\xcf\x11\xe0rest", "file_excel"),
        (b"%PDF-1.7", "file_pdf"),
        (PLAIN.encode("utf-16"), "file_utf16"),
        (PLAIN.encode("utf-16-le"), "file_utf16"),
        (PLAIN.encode("utf-16-be"), "file_utf16"),
        (PLAIN.encode() + b"\0", "file_binary"),
        (b"naam;telefoon\n\x81\x02;1", "file_binary"),
        (b"naam;telefoon\n\x90;1", "file_binary"),
        (b"x" * (SIZE_LIMIT + 1), "file_too_large"),
        ("Sam;0612345678\nRobin;0687654321\n", "no_header"),
        ("naam;afdeling\nSam;IT\n", "no_phone_column"),
        ("telefoon;afdeling\n0612345678;IT\n", "no_name_column"),
        ("iets anders\n", "no_phone_column"),
        ("naam;telefoon\n", "file_without_rows"),
        ("naam;telefoon;;;\n;;;;\n", "file_without_rows"),
        ("naam;telefoon;mobiel\nSam;1;2\n", "column_twice"),
        ("naam;name;mobiel\nSam;1;2\n", "column_twice"),
        ("naam;mobiel;Team;team\nSam;1;2;3\n", "column_twice"),
        ('naam;telefoon\nSam;"0612345678\nRobin;0687654321\n', "quote_open"),
        ("naam;telefoon\nSam;" + "1" * 200_000 + "\n", "file_unreadable"),
        ("naam;telefoon;" + ";".join(f"k{n}" for n in range(COLUMNS_LIMIT)) + "\nSam;1\n", "too_many_columns"),
        ("naam;telefoon\n" + "S;1\n" * (ROWS_LIMIT + 1), "too_many_rows"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_people_is_refused_in_a_sentence(data: bytes | str, name: str) -> None:
    wrong = refused(data)
    assert wrong.name == name
    assert len(str(wrong)) < 500
    assert "mensen.csv" in str(wrong)


def test_two_columns_of_one_field_are_named() -> None:
    assert "“Telefoon” and “GSM” both hold the phone number" in str(refused("Naam;Telefoon;GSM\nSam;1;2\n"))


def test_a_name_is_shown_and_is_no_path() -> None:
    assert read_table("C:\\geheim\\..\\mensen\u202e\x00.csv", PLAIN.encode()).source == "mensen.csv"
    assert read_table("/etc/", PLAIN.encode()).source == "The file"
    assert len(read_table("x" * 5000, PLAIN.encode()).source) == 200
