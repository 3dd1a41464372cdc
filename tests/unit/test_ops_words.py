"""The console's catalogues: both languages whole, and every line that pages ask for is there with what it needs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import nodes
from markupsafe import Markup

from shared.ops.render import FOLDER as TEMPLATES
from shared.ops.render import environment
from shared.ops.words import FOLDER, LANGUAGES, Language, Words, catalogue

OPS = TEMPLATES.parent
DUTCH, ENGLISH = catalogue("nl"), catalogue("en")
GIVEN = {"count": {"n"}}  # what a method puts in by itself


def placeholders(line: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", line))


def test_both_languages_have_the_same_lines_with_the_same_placeholders() -> None:
    assert DUTCH.keys() ^ ENGLISH.keys() == set()
    assert {
        key: (DUTCH[key], ENGLISH[key]) for key in DUTCH if placeholders(DUTCH[key]) != placeholders(ENGLISH[key])
    } == {}
    assert [
        key for lines in (DUTCH, ENGLISH) for key, line in lines.items() if not line.strip() or line != line.strip()
    ] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_line_is_in_one_file_once(language: Language) -> None:
    keys: list[str] = []
    for path in (FOLDER / language).glob("*.json"):
        keys += [key for key, _ in json.loads(path.read_text("utf-8"), object_pairs_hook=list)]
        assert path.name in {other.name for other in (FOLDER / "nl").glob("*.json")}
    assert sorted(keys) == sorted(set(keys))


def test_templates_ask_for_known_lines_only_and_give_what_they_need() -> None:
    problems = []
    for path in sorted(TEMPLATES.rglob("*.html")):
        tree = environment().parse(path.read_text("utf-8"))
        for call in tree.find_all(nodes.Call):
            for asked in _template_calls(call):
                problems += [f"{path.relative_to(TEMPLATES)}:{call.lineno}: {problem}" for problem in _wrong(*asked)]
    assert problems == []


def test_python_asks_for_known_lines_only() -> None:
    problems = []
    for path in sorted(OPS.glob("*.py")):
        for line, asked in _python_calls(ast.parse(path.read_text("utf-8"))):
            problems += [f"{path.name}:{line}: {problem}" for problem in _wrong(*asked)]
    assert problems == []


def test_what_is_put_into_a_line_is_escaped_unless_it_is_markup() -> None:
    words = Words("en")
    assert str(words("overview.resting", type="<b>", when=Markup("<time>x</time>"))).startswith("&lt;b&gt; is")
    assert "<time>x</time>" in words("overview.resting", type="{when}", when=Markup("<time>x</time>"))
    assert str(words.of("class", "<script>")) == "&lt;script&gt;"
    assert str(words.of("class", "{0}")) == "{0}"
    assert words.number(1234567) == "1,234,567"
    assert Words("nl").number(1234567) == "1\u00a0234\u00a0567"
    with pytest.raises(KeyError):
        words("no.such.line")


def _template_calls(call: nodes.Call) -> Iterator[tuple[str, str | None, set[str]]]:
    """Method, key and names of the values of a call of `t`; the key is None when it is put together."""
    match call.node:
        case nodes.Name(name="t"):
            method = ""
        case nodes.Getattr(node=nodes.Name(name="t"), attr=method):
            pass
        case _:
            return
    names = {item.key for item in call.kwargs} | ({"*"} if call.dyn_kwargs is not None else set())
    for key in _keys(call.args[0]) if call.args else ():
        yield method, key, names


def _keys(given: nodes.Expr) -> Iterator[str | None]:
    if isinstance(given, nodes.CondExpr) and given.expr2 is not None:
        yield from (*_keys(given.expr1), *_keys(given.expr2))
    else:
        yield str(given.value) if isinstance(given, nodes.Const) else None


def _python_calls(tree: ast.Module) -> Iterator[tuple[int, tuple[str, str | None, set[str]]]]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        names = {item.arg or "*" for item in call.keywords}
        for item in call.keywords:
            if item.arg == "notice" and isinstance(item.value, ast.Constant) and item.value.value:
                yield call.lineno, ("notice", str(item.value.value), set())
        said = ast.unparse(call.func)
        found = re.fullmatch(r"(?:visit\.|self\.)?_?words(?:\.(text|count|of|has|names))?", said)
        if found and call.args and isinstance(call.args[0], ast.Constant):
            yield call.lineno, (found[1] or "", str(call.args[0].value), names)


def _wrong(method: str, key: str | None, names: set[str]) -> Iterator[str]:
    match method:
        case "number" | "language":
            return
        case "of" | "has" | "names" if key is not None:
            if not any(known.startswith(f"{key}.") for known in DUTCH):
                yield f"there are no lines {key}.…"
            return
        case "of" | "has" | "names":
            return  # the group itself comes from the caller
        case "notice":
            if f"notice.{key}" not in DUTCH and f"notice.{key}.other" not in DUTCH:
                yield f"there is no line notice.{key}"
            return
    if key is None:
        yield "its key is put together: use t.of(group, name), which shows an unknown name as it is"
        return
    for known in (f"{key}.one", f"{key}.other") if method == "count" else (key,):
        if known not in DUTCH:
            yield f"there is no line {known}"
        elif "*" not in names and placeholders(DUTCH[known]) - names - GIVEN.get(method, set()):
            yield f"{known} needs {placeholders(DUTCH[known])}"


def test_the_htmx_that_is_shipped_is_the_one_that_its_licence_names() -> None:
    licence = Path(OPS / "static" / "licences" / "htmx.txt").read_text("utf-8")
    version = re.search(r"version (\d+\.\d+\.\d+)", licence)
    assert version
    assert f"'{version[1]}'" in (OPS / "static" / "htmx.min.js").read_text("utf-8").replace('"', "'")
