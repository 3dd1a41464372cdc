"""Files of people for tests, and what stands in people afterwards."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from shared.knowledge.people import ImportRow, Table, import_report, list_imports, read_table, start_import
from tests.fakes.world import World

PEOPLE = "SELECT name, phone, language, department, external_id, attributes FROM people ORDER BY phone"
RECORD_JOBS = """
    SELECT payload ->> 'id', status FROM ai_jobs WHERE type = 'embed_record' AND payload ->> 'record' = 'person' ORDER BY seq
"""

FIRST = "UPDATE ai_jobs SET next_run_at = '2000-01-01' WHERE type = 'import_people' AND status = 'pending'"


def many(count: int, *, hours: str = "uur") -> Table:
    """A file of so many people, numbers from +31610000000 on, with an attribute that tells them apart."""
    lines = [f"Mens {n};06{n + 10000000};W{n};Afdeling {n % 7};{n} {hours}" for n in range(count)]
    return read_table("veel.csv", ("naam;mobiel;personeelsnummer;afdeling;verlof\n" + "\n".join(lines)).encode())


def start(world: World, content: str | Table, *, dry_run: bool = False) -> UUID:
    """Start an import of a file's content."""
    table = read_table("mensen.csv", content.encode()) if isinstance(content, str) else content
    with world.database.connection() as connection:
        return start_import(connection, table, who="test", dry_run=dry_run)


def found(world: World, import_id: UUID) -> ImportRow:
    """The import as it stands."""
    with world.database.connection() as connection:
        return list_imports(connection, import_id=import_id)[0]


def counts(row: ImportRow) -> dict[str, int]:
    """The counts that are not 0."""
    names = ("added", "changed", "unchanged", "rejected")
    return {name: getattr(row, name) for name in names if getattr(row, name)}


def imported(world: World, content: str | Table, *, dry_run: bool = False) -> dict[str, int]:
    """Import a file to its end, without the jobs that it makes."""
    ended = to_end(world, start(world, content, dry_run=dry_run))
    assert (ended.state, ended.rows_done) == ("done", ended.rows_total)
    return counts(ended)


def rejected(world: World, content: str) -> list[tuple[int, str | None]]:
    """The rejected rows of an import to its end."""
    ended = to_end(world, start(world, content))
    with world.database.connection() as connection:
        return [(row.line, row.reason) for row in import_report(connection, ended.id)]


def to_end(world: World, import_id: UUID) -> ImportRow:
    """Run an import to its end, before anything else."""
    while (row := found(world, import_id)).state in ("waiting", "running"):
        world.execute(FIRST)
        assert world.app.worker.poll_once(1)
    return row


def people(world: World) -> list[tuple[Any, ...]]:
    """Name, phone, language, department, employee number and attributes of everybody, by phone."""
    return world.rows(PEOPLE)
