"""The rows of a file of people: names, languages, numbers, dates and attributes as they are written in real exports."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.knowledge.people_columns import field_of
from shared.knowledge.people_file import read_table
from shared.knowledge.people_reasons import DETAIL_CHARACTERS, SENTENCES, BadRow, sentence, split_reason
from shared.knowledge.people_rows import CELL_CHARACTERS, PersonRow, fields_of, rows_of
from shared.knowledge.people_values import Leaving, external_id_of, language_of, leaving_of


def rows(*lines: str) -> list[PersonRow]:
    return list(rows_of(read_table("x.csv", "\n".join(lines).encode())))


def row(header: str, line: str) -> PersonRow:
    return rows(header, line)[0]


def reasons(*lines: str) -> list[str | None]:
    return [found.reason for found in rows(*lines)]


@pytest.mark.parametrize(
    ("column", "field"),
    [
        *((name, "phone") for name in ("Telefoon", "telefoonnummer", "Tel.", "Tel.nr.", "MOBIEL", "GSM", "Mobiele telefoon",
                                       "phone", "Mobile", "Phone number", "phone_number", "WhatsApp-nummer", "06-nummer")),
        *((name, "name") for name in ("Naam", "Volledige naam", "name", "Full Name", "Naam medewerker")),
        *((name, "first_name") for name in ("Voornaam", "Roepnaam", "First name", "first_name")),
        *((name, "infix") for name in ("Tussenvoegsel", "tussenvoegsels", "Voorvoegsel")),
        *((name, "last_name") for name in ("Achternaam", "Last name", "Surname", "lastName")),
        *((name, "department") for name in ("Afdeling", "department", "Dept.")),
        *((name, "language") for name in ("Taal", "Language", "Voorkeurstaal")),
        *((name, "external_id") for name in ("Personeelsnummer", "Pers.nr.", "Medewerkernummer", "employee number",
                                             "Employee ID", "external_id", "Personeelsnr")),
        *((name, "left_at") for name in ("Uit dienst", "Datum uit dienst", "Uitdiensttreding", "left", "Date of leaving",
                                         "left_at", "Termination date")),
        *((name, None) for name in ("", "Verlofsaldo", "E-mail", "Team", "Telefoon partner", "Functie", "Name of manager")),
    ],
)  # fmt: skip
def test_columns_are_known_by_their_dutch_and_english_names(column: str, field: str | None) -> None:
    assert field_of(column) == field


@pytest.mark.parametrize(
    ("header", "line", "name"),
    [
        ("naam;mobiel", "  Sam   de Boer ;0612345678", "Sam de Boer"),
        ("voornaam;achternaam;mobiel", "Lotte;Smit;0612345678", "Lotte Smit"),
        ("mobiel;voornaam;tussenvoegsel;achternaam", "0612345678;Lotte;van den;Berg", "Lotte van den Berg"),
        ("achternaam;tussenvoegsel;voornaam;mobiel", "Berg;;Lotte;0612345678", "Lotte Berg"),
        ("voornaam;achternaam;mobiel", ";Berg;0612345678", "Berg"),
        ("voornaam;mobiel", "Lotte;0612345678", "Lotte"),
        ("naam;voornaam;tussenvoegsel;mobiel", "Berg;Lotte;van den;0612345678", "Lotte van den Berg"),
        ("naam;voornaam;mobiel", "Lotte van den Berg;Lotte;0612345678", "Lotte van den Berg"),
        ("naam;voornaam;achternaam;mobiel", "L. van den Berg;Lotte;Berg;0612345678", "L. van den Berg"),
        ("naam;voornaam;achternaam;mobiel", ";Lotte;Berg;0612345678", "Lotte Berg"),
    ],
)
def test_names_are_put_together(header: str, line: str, name: str) -> None:
    found = row(header, line)
    assert (found.name, found.reason, found.attributes) == (name, None, {})


def test_what_is_no_field_is_an_attribute_unless_it_is_empty() -> None:
    found = row("Naam;Mobiel;Verlofsaldo;Kamer;", "Sam;0612345678;120 uur;  ;zonder kop")
    assert found.reason == "too_many_cells: 5"
    found = row("Naam;Mobiel;Verlofsaldo;Kamer;;", "Sam;0612345678;120 uur;  ;;")
    assert found.attributes == {"Verlofsaldo": "120 uur"}


def test_short_rows_are_filled_up_and_long_ones_refused() -> None:
    header = "naam;mobiel;afdeling;verlof"
    assert reasons(header, "Sam;0612345678", "Kim;0612345679;;;;;", "Bo;0612345670;a;b;c") == [
        None,
        None,
        "too_many_cells: 5",
    ]


def test_what_is_missing_or_too_long_is_told() -> None:
    header = "naam;mobiel;personeelsnummer;noot"
    assert reasons(
        header,
        ";0612345671;1;",
        "Sam;;2;",
        f"{'S' * 201};0612345672;3;",
        f"Sam;0612345673;{'4' * 65};",
        f"Sam;0612345674;5;{'x' * (CELL_CHARACTERS + 1)}",
        f"Sam;0612345675;6;{'x' * CELL_CHARACTERS}",
    ) == ["name_missing", "phone_missing", "too_long: naam", "too_long: personeelsnummer", "too_long: noot", None]


def test_of_two_rows_with_one_phone_or_number_the_first_good_one_counts() -> None:
    assert reasons(
        "naam;mobiel;personeelsnummer",
        ";0612345678;W1",  # not good: does not count
        "Sam;06-12345678;W1",
        "Kim;+31 6 1234 5678;W2",
        "Bo;0612345679;W1",
        "Noor;0612345680;W2",
        "Wil;0612345681;",
        "Jip;0612345682;",
    ) == ["name_missing", None, "phone_twice: 3", "external_id_twice: 3", None, None, None]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        *(
            (text, "nl")
            for text in ("nl", "NL", " Nederlands", "Dutch", "nl-NL", "nl_BE", "Nederlands (Nederland)", "NLD")
        ),
        *((text, "en") for text in ("en", "EN", "Engels", "English", "en-GB", "eng")),
        ("", None),
        ("  ", None),
    ],
)
def test_languages(text: str, language: str | None) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize("text", ["Duits", "de", "n", "Nederlandsch", "nlx"])
def test_other_languages_are_told(text: str) -> None:
    with pytest.raises(BadRow) as bad:
        language_of(text)
    assert bad.value.reason == f"language_unknown: {text}"


@pytest.mark.parametrize(
    ("text", "number"),
    [("W1001", "W1001"), (" 1001.0", "1001"), ("1001,00", "1001"), ("10.000", "10.000"), ("'007", "007"), ('="007"', "007"),
     ("0", "0"), ("", None), ("A-1.0", "A-1.0"), ("1.5", "1.5"), ("1,23E+02", "123")],
)  # fmt: skip
def test_employee_numbers_are_as_they_were_meant(text: str, number: str | None) -> None:
    assert external_id_of(text) == number


@pytest.mark.parametrize("text", ["1,23E+10", "1E+05", "######"])
def test_employee_numbers_that_a_spreadsheet_rounded_are_told(text: str) -> None:
    with pytest.raises(BadRow) as bad:
        external_id_of(text)
    assert bad.value.reason == f"external_id_mangled: {text}"


@pytest.mark.parametrize(
    "text",
    ["31-12-2026", "31/12/2026", "31.12.2026", "31 12 2026", "31-12-26", "2026-12-31", "2026/12/31", "20261231",
     "31 december 2026", "31 Dec 2026", "31-dec-26", "31-dec.-2026", "31 dec. 2026", "2026-12-31T00:00:00",
     "2026-12-31 00:00:00.000", "2026-12-31T00:00:00Z", "31-12-2026 00:00", "31-12-2026 23:59:59", "46387", "46387.0"],
)  # fmt: skip
def test_a_date_of_leaving_in_many_notations(text: str) -> None:
    assert leaving_of(text) == Leaving(True, datetime.date(2026, 12, 31))


@settings(max_examples=60, deadline=None)
@given(st.dates(datetime.date(1970, 1, 1), datetime.date(2069, 12, 31)))
def test_every_day_is_read_in_every_order(day: datetime.date) -> None:
    dutch = "januari februari maart april mei juni juli augustus september oktober november december"
    month = dutch.split()[day.month - 1]
    texts = [f"{day:%d-%m-%Y}", f"{day.day}/{day.month}/{day.year}", f"{day:%Y-%m-%d}", f"{day:%Y%m%d}", f"{day:%d.%m.%y}",
             f"{day.day} {month} {day.year}", f"{day:%d %B %Y}", f"{day:%d-%b-%y}"]  # fmt: skip
    assert {leaving_of(text) for text in texts} == {Leaving(True, day)}


@pytest.mark.parametrize("text", ["", " ", "nee", "No", "0", "-", "actief", "31-12-9999", "9999-12-31", "0000-00-00"])
def test_who_has_not_left(text: str) -> None:
    assert leaving_of(text) == Leaving(False)


@pytest.mark.parametrize("text", ["ja", "Yes", "1", "x", "TRUE"])
def test_who_has_left_without_a_date(text: str) -> None:
    assert leaving_of(text) == Leaving(True)


@pytest.mark.parametrize(
    "text", ["12/31/2026", "31-13-2026", "30-02-2026", "volgend jaar", "2026", "31-12", "31-12-1026"]
)
def test_what_is_no_date_is_told(text: str) -> None:
    with pytest.raises(BadRow) as bad:
        leaving_of(text)
    assert bad.value.reason == f"date_invalid: {text}"


def test_only_fields_with_a_column_empty_what_is_there() -> None:
    assert fields_of(read_table("x.csv", b"naam;mobiel;taal;uit dienst\na;1;;")) == ["language", "left_at"]


def test_a_reason_is_a_name_a_detail_and_a_sentence() -> None:
    bad = BadRow("phone_invalid", "06-123\u202e\n<b>" + "x" * 500)
    assert bad.name == "phone_invalid"
    assert bad.reason.startswith("phone_invalid: 06-123 <b>xxx")
    name, detail = split_reason(bad.reason)
    assert (name, len(detail)) == ("phone_invalid", DETAIL_CHARACTERS)
    assert str(bad) == sentence(bad.reason) == SENTENCES["phone_invalid"].replace("{}", detail)
    assert sentence("of another version: x") == "of another version: x"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=300), min_size=6, max_size=6))
def test_a_report_never_carries_much_of_a_row(cells: list[str]) -> None:
    line = ";".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    for found in rows("naam;mobiel;taal;uit dienst;personeelsnummer;noot", line + "\nz;0612345678;;;;"):
        assert found.reason is None or len(split_reason(found.reason)[1]) <= DETAIL_CHARACTERS
        assert found.reason is None or split_reason(found.reason)[0] in SENTENCES
