"""The SQL rule: on small trees that break it, and on this project."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.rules import sql

REPOSITORY = Path(__file__).resolve().parents[2]
BUILT = "execute() is handed SQL that is built here: use a constant with placeholders"


def test_this_project_keeps_the_rule() -> None:
    assert sql.violations(REPOSITORY) == []


@pytest.mark.parametrize(
    "source",
    [
        "FIND = \"SELECT id FROM people WHERE phone = %(phone)s AND name LIKE 'a%%' AND language = %(language)s\"",
        'FIND: Final = """\n-- who it is\nSELECT %s::uuid, %b LIMIT %s"""',
        '_NEAR = "SELECT 1 FROM chunks ORDER BY embedding <=> %(vector)s::halfvec LIMIT 8"',
        'SELECT_A_PLAN = "Selecteer een plan"',
        'NOTICE = "With kind regards: SELECT is a word here, FROM too"',
        'HINT = "SELECT"',
        'connection.execute("SELECT 1")',
        "connection.execute(FIND, {})",
        "connection.execute(write.sql, write.parameters)",
        'ALTER = "ALTER ROLE {} SET {} = {}"\nconnection.execute(sql.SQL(ALTER).format(sql.Identifier(name)))',
        'class Store:\n    EMPTY = "DELETE FROM ai_jobs"',
        'pool.submit(f"{name}")',
    ],
)
def test_what_is_right_is_left_alone(source: str) -> None:
    assert list(sql.of_python(source)) == []


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ('FIND = "SELECT id FORM people WHERE"', 1, "Postgres cannot read FIND: syntax error"),
        ('\nFIND = """\nSELECT id\nFROM people\nWHERE AND x"""', 5, "Postgres cannot read FIND: syntax error"),
        ('class Store:\n    FIND = "INSERT INTO people"', 2, "Postgres cannot read FIND: syntax error"),
        ('ALTER = "ALTER ROLE {} SETS {}"', 1, "Postgres cannot read ALTER: syntax error"),
        ('FIND = f"SELECT {column} FROM people"', 1, "FIND is built from pieces"),
        ('FIND = "SELECT * FROM people " + WHERE', 1, "FIND is built from pieces"),
        ('FIND = "SELECT * FROM {}".format(table)', 1, "FIND is built from pieces"),
        ('FIND = "SELECT * FROM %s" % table', 1, "FIND is built from pieces"),
        ('connection.execute(f"SELECT {x}")', 1, BUILT),
        ("connection.execute(FIND + WHERE)", 1, BUILT),
        ("cursor.executemany(FIND % table, rows)", 1, BUILT.replace("execute", "executemany")),
        ("\nconnection.execute(FIND.format(table))", 2, BUILT),
        ("connection.execute(sql.SQL('ALTER ROLE {}').format(name))", 1, BUILT),
        ("connection.execute(' '.join(parts))", 1, BUILT),
        ('c.execute("SELECT id FROM people WHERE phone = %(phone)s")', 1, "execute() is handed 45 characters of SQL"),
        ('c.execute("SELECT FROM WHERE")', 1, "Postgres cannot read this: syntax error"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(source: str, line: int, reason: str) -> None:
    ((where, text),) = sql.of_python(source)
    assert where == line
    assert text.startswith(reason)


def test_a_migration_is_read_with_the_bodies_of_its_functions() -> None:
    good = (
        "CREATE TABLE people (id uuid PRIMARY KEY); -- é\n"
        "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;\n"
        "CREATE FUNCTION two() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 2; END $$;\n"
    )
    assert list(sql.of_migration(good)) == []
    assert list(sql.of_migration(good + "CREATE TABEL x ();")) == [
        (4, 'Postgres cannot read it: syntax error at or near "TABEL"')
    ]
    assert list(sql.of_migration(good.replace("SELECT 1", "SELECT 1 FROM WHERE"))) == [
        (2, 'Postgres cannot read the body of one: syntax error at or near "WHERE"')
    ]
    ((line, text),) = sql.of_migration(good.replace("RETURN 2;", "RETRUN 2;"))
    assert line == 3
    assert text.startswith("Postgres cannot read the body of two: ")


def test_every_place_is_looked_at(tmp_path: Path) -> None:
    for name in ("shared/a.py", "cli/b.py", "local/deep/c.py", "function_app.py", "tests/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("connection.execute(FIND + WHERE)")
    (tmp_path / "shared/migrations").mkdir()
    (tmp_path / "shared/migrations/0001_x.sql").write_text("SELECT 1;\nSELCT 2;")
    assert [f"{found.path}:{found.line}" for found in sql.violations(tmp_path)] == [
        "cli/b.py:1",
        "function_app.py:1",
        "local/deep/c.py:1",
        "shared/a.py:1",
        "shared/migrations/0001_x.sql:2",
    ]
