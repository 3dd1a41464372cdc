"""The SQL rule: SQL is text in a constant with a name, never built, and Postgres' own parser accepts it.

Four things are looked at:
- a constant in CAPITALS, at the top of a module or a class, whose text begins with a word of SQL: it must parse, and it may
  not be an f-string or a sum (of anything but literals);
- what is handed to `.execute`, `.executemany` and `.copy`: no f-string, sum, `%` or `.format()`; where Postgres takes no
  parameters (ALTER ROLE, CREATE DATABASE) `sql.SQL(CONSTANT).format(sql.Identifier(…))` of psycopg is the way;
- a literal handed to them directly: at most 40 characters, and it must parse;
- migrations (*.sql under shared/): they must parse, with the bodies of their SQL and PL/pgSQL functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pglast
from pglast import ast as sql_ast
from pglast.parser import ParseError

from cli.rules import Violation

LITERAL_LIMIT = 40
CALLS = frozenset({"execute", "executemany", "copy"})
PLACES = ("function_app.py", "shared", "cli", "local")

_BEGINS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|CREATE|ALTER|DROP|SET|LOCK|TRUNCATE|COPY|DO|CALL|NOTIFY|LISTEN)\s",
    re.DOTALL,
)
_COMPOSED = re.compile(r"\{\w*\}")
_PLACEHOLDER = re.compile(r"%%|%\((\w+)\)[sbt]|%[sbt]")


def violations(root: Path) -> list[Violation]:
    """Everything under `root` that breaks the rule, in the order of path and line."""
    found: list[Violation] = []
    for path in _python_files(root):
        shown = path.relative_to(root).as_posix()
        found += [Violation(shown, line, text) for line, text in of_python(path.read_text(encoding="utf-8"))]
    for path in sorted((root / "shared").rglob("*.sql")):
        shown = path.relative_to(root).as_posix()
        found += [Violation(shown, line, text) for line, text in of_migration(path.read_text(encoding="utf-8"))]
    return sorted(found)


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """What is wrong in one module, as pairs of line and sentence."""
    tree = ast.parse(source)
    for name, value in _constants(tree):
        beginning = _beginning(value)
        if beginning is None or not _BEGINS.match(beginning + " "):
            continue
        if isinstance(value, ast.Constant):
            yield from _parsed(beginning, value.lineno, name)
        else:
            yield value.lineno, f"{name} is built from pieces: SQL is one literal, with placeholders"
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CALLS
            and node.args
        ):
            yield from _handed_over(node.func.attr, node.args[0])


def of_migration(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong in one migration, as pairs of line and sentence."""
    try:
        statements = pglast.parse_sql(text)
    except ParseError as error:
        yield _where(text, error, 1), f"Postgres cannot read it: {error.args[0]}"
        return
    for statement in statements:
        if isinstance(statement.stmt, sql_ast.CreateFunctionStmt):
            start = statement.stmt_location or 0
            source = text[start : start + statement.stmt_len if statement.stmt_len else len(text)]
            line = text.count("\n", 0, start + len(source) - len(source.lstrip())) + 1
            yield from _function(statement.stmt, source, line)


def _function(statement: Any, source: str, line: int) -> Iterator[tuple[int, str]]:
    """The body of a function is a string to the parser of statements."""
    options = {option.defname: option.arg for option in statement.options or ()}
    language = getattr(options.get("language"), "sval", "sql").lower()
    body = options.get("as")
    try:
        if language == "plpgsql":
            pglast.parse_plpgsql(source)
        elif language == "sql" and body:
            pglast.parse_sql(body[0].sval)
    except ParseError as error:
        yield line, f"Postgres cannot read the body of {statement.funcname[-1].sval}: {error.args[0]}"


def _handed_over(call: str, given: ast.expr) -> Iterator[tuple[int, str]]:
    if _is_built(given):
        yield given.lineno, f"{call}() is handed SQL that is built here: use a constant with placeholders"
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        if len(given.value) > LITERAL_LIMIT:
            yield (
                given.lineno,
                f"{call}() is handed {len(given.value)} characters of SQL: give them a name, as a constant",
            )
        elif _BEGINS.match(given.value + " "):
            yield from _parsed(given.value, given.lineno, "this")


def _is_built(given: ast.expr) -> bool:
    if isinstance(given, ast.BinOp):
        return isinstance(given.op, ast.Add | ast.Mod)
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
        return given.func.attr in ("format", "join") and not _is_composed(given.func.value)
    return isinstance(given, ast.JoinedStr)


def _is_composed(template: ast.expr) -> bool:
    """psycopg's own composing of a constant, which quotes every name and value that it puts in."""
    return (
        isinstance(template, ast.Call)
        and ast.unparse(template.func) in ("sql.SQL", "SQL")
        and isinstance(template.args[0], ast.Name)
        and template.args[0].id.isupper()
    )


def _parsed(text: str, line: int, name: str) -> Iterator[tuple[int, str]]:
    statement = _numbered(text)
    try:
        pglast.parse_sql(statement)
    except ParseError as error:
        if not _COMPOSED.search(text) or not _is_readable(_COMPOSED.sub("x", statement)):
            yield _where(statement, error, line), f"Postgres cannot read {name}: {error.args[0]}"


def _is_readable(statement: str) -> bool:
    try:
        pglast.parse_sql(statement)
    except ParseError:
        return False
    return True


def _numbered(text: str) -> str:
    """The statement as Postgres gets it: psycopg's placeholders as $1, $2, …, the same name the same number."""
    numbers: dict[str, int] = {}

    def replace(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        key = found[1] or f"#{len(numbers)}"
        return f"${numbers.setdefault(key, len(numbers) + 1)}"

    return _PLACEHOLDER.sub(replace, text)


def _where(text: str, error: ParseError, first_line: int) -> int:
    place = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], int) else len(text.rstrip())
    return first_line + text.count("\n", 0, place)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names in CAPITALS with their values, of the module and of the classes at its top."""
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for node in (node for body in bodies for node in body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper() and value is not None:
                yield target.id, value


def _beginning(value: ast.expr) -> str | None:
    """The text of a string, or of the first piece of one that is built."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else None
    if isinstance(value, ast.JoinedStr) and value.values:
        return _beginning(value.values[0])
    if isinstance(value, ast.BinOp):
        return _beginning(value.left)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return _beginning(value.func.value)
    return None


def _python_files(root: Path) -> Iterator[Path]:
    for place in PLACES:
        path = root / place
        if path.is_file():
            yield path
        yield from sorted(path.rglob("*.py"))
