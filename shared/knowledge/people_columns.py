"""Which column of a file of people holds which field, by the names that Dutch and English systems give them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from shared.errors import UserError

# What stands in people, but `first_name`, `infix` and `last_name`: those make the name where there is no column for it.
NAMES: Mapping[str, str] = {
    "phone": """
        telefoon telefoonnummer telefoonnr telefoonnummers tel telnr telnummer mobiel mobielnummer mobielnr
        mobieletelefoon mobielenummer mobieltelefoonnummer telefoonmobiel telefoonnummermobiel
        mobielprive mobielzakelijk gsm gsmnummer gsmnr 06 06nummer whatsapp whatsappnummer
        phone phonenumber phoneno telephone telephonenumber mobile mobilephone mobilenumber mobilephonenumber
        cell cellphone cellphonenumber whatsappnumber msisdn
    """,
    "name": """
        naam volledigenaam naamvolledig naammedewerker medewerkernaam medewerker werknemer naamwerknemer weergavenaam
        name fullname displayname employeename employee
    """,
    "first_name": "voornaam voornamen roepnaam firstname givenname forename",
    "infix": "tussenvoegsel tussenvoegsels voorvoegsel voorvoegsels infix middlename nameprefix surnameprefix",
    "last_name": "achternaam familienaam geslachtsnaam lastname surname familyname",
    "department": "afdeling afdelingsnaam afdelingnaam naamafdeling afd department departmentname dept",
    "language": "taal taalcode voertaal voorkeurstaal taalvoorkeur language languagecode preferredlanguage",
    "external_id": """
        personeelsnummer personeelsnr personeelnummer persnr personeelsid medewerkernummer medewerkersnummer medewerkernr
        medewerkerid werknemernummer werknemersnummer werknemernr werknemerid stamnummer
        employeenumber employeeno employeenr employeeid personnelnumber personnelno staffnumber staffid externalid
    """,
    "left_at": """
        uitdienst uitdienstdatum uitdienstper uitdienstop datumuitdienst uitdiensttreding datumuitdiensttreding
        einddatumdienstverband eindedienstverband datumeindedienstverband laatstewerkdag vertrokken vertrekdatum
        left leftat lefton leftdate dateleft leavedate leavingdate leaversdate dateofleaving terminationdate
        employmentenddate lastday lastworkingday
    """,
}
WORDS = {
    "phone": "the phone number",
    "name": "the name",
    "first_name": "the first name",
    "infix": "the prefix of the last name",
    "last_name": "the last name",
    "department": "the department",
    "language": "the language",
    "external_id": "the employee number",
    "left_at": "the date of leaving",
}
NAME_FIELDS = ("name", "first_name", "last_name")

_FIELD_OF = {name: field for field, names in NAMES.items() for name in names.split()}


def field_of(column: str) -> str | None:
    """The field that a column of this name holds; None for any other column."""
    plain = unicodedata.normalize("NFKD", column).casefold()
    return _FIELD_OF.get(re.sub(r"[^a-z0-9]", "", plain))


def recognised(columns: Sequence[str]) -> int:
    """How many fields the columns hold: how much a row looks like a header."""
    return len({field for field in map(field_of, columns) if field})


def is_header(columns: Sequence[str]) -> bool:
    """Whether a phone number and a name are among the columns."""
    fields = {field_of(column) for column in columns}
    return "phone" in fields and not fields.isdisjoint(NAME_FIELDS)


def column_map(source: str, columns: Sequence[str]) -> dict[str, str]:
    """Field → column. Raises UserError when two columns hold one field, have one name, or when the phone or name lacks."""
    found: dict[str, str] = {}
    seen: dict[str, str] = {}
    for column in filter(None, columns):
        if column.casefold() in seen:
            raise UserError(
                f"{source} has two columns called “{column}”: give one of them another name.", name="column_twice"
            )
        seen[column.casefold()] = column
        field = field_of(column)
        if field in found:
            raise UserError(
                f"{source}: the columns “{found[field]}” and “{column}” both hold {WORDS[field]}. Keep the one that counts.",
                name="column_twice",
            )
        if field:
            found[field] = column
    shown = ", ".join(filter(None, columns))[:300]
    if "phone" not in found:
        raise UserError(
            f"{source} has no column with phone numbers. Call it “telefoon” or “phone”; its columns are: {shown}.",
            name="no_phone_column",
        )
    if not set(NAME_FIELDS) & set(found):
        raise UserError(
            f"{source} has no column with names. Call it “naam” or “name”; its columns are: {shown}.",
            name="no_name_column",
        )
    return found
