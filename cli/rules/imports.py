"""The import rule: imports in shared/ point down only, and nothing there imports what is not deployed.

LEVELS is the arrow diagram of the design: a unit may import itself and every unit on a lower line. Those on the floor are
small and may import each other, but not in a circle. What is imported for a type checker only counts too: it is the same
knowledge. An import that a string names (`importlib.import_module("…")`) counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.rules import Violation

LEVELS: tuple[tuple[str, ...], ...] = (
    ("function_app",),
    ("shared.app",),
    ("shared.ops",),
    ("shared.jobs",),
    ("shared.conversation", "shared.knowledge", "shared.webhooks"),
    ("shared.idempotency", "shared.queue", "shared.clients"),
    (
        "shared.db",
        "shared.errors",
        "shared.audit",
        "shared.backoff",
        "shared.boundary",
        "shared.request",
        "shared.secrets",
        "shared.signature",
        "shared.settings",
        "shared.telemetry",
    ),
)
NOT_DEPLOYED = ("cli", "local", "tests", "bench")

_LEVEL_OF = {unit: number for number, units in enumerate(LEVELS) for unit in units}
_FLOOR = len(LEVELS) - 1


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; `at_start` means that it is loaded when the importing module is."""

    line: int
    module: str
    at_start: bool


def violations(root: Path) -> list[Violation]:
    """Everything under `root` that breaks the rule, in the order of path and line."""
    found: list[Violation] = []
    sideways: dict[str, dict[str, Violation]] = {}
    for path in deployed_files(root):
        shown, module = path.relative_to(root).as_posix(), module_name(path, root)
        unit = _unit(module)
        if unit not in _LEVEL_OF and module != "shared":
            found.append(Violation(shown, 1, f"{unit} has no level yet: give it one in LEVELS of cli/rules/imports.py"))
            continue
        for item in imports_of(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py"):
            reason = _refusal(unit, item.module)
            if reason:
                found.append(Violation(shown, item.line, f"{module} imports {item.module}: {reason}"))
            target = _unit(item.module)
            if _LEVEL_OF.get(unit) == _LEVEL_OF.get(target) == _FLOOR and unit != target:
                text = f"{module} imports {item.module}: these two import each other in a circle"
                sideways.setdefault(unit, {}).setdefault(target, Violation(shown, item.line, text))
    return sorted([*found, *_circles(sideways)])


def imports_of(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """Every import in a module, relative ones resolved; `from a import b` gives `a.b`, which may be a name of `a`."""
    tree = ast.parse(source)
    later = set(_inside_functions(tree)) | set(_for_type_checkers(tree))
    for node in ast.walk(tree):
        for target in _targets(node, module, is_package):
            yield Import(getattr(node, "lineno", 1), target, node not in later)


def _refusal(unit: str, module: str) -> str | None:
    """Why a unit may not import this module, if so."""
    top, target = module.split(".")[0], _unit(module)
    if top in NOT_DEPLOYED:
        return f"{top}/ is not deployed"
    if target not in _LEVEL_OF or unit == target or unit not in _LEVEL_OF:
        return None
    if _LEVEL_OF[target] < _LEVEL_OF[unit]:
        return f"imports point down only, and {target} is above {unit}"
    if _LEVEL_OF[target] == _LEVEL_OF[unit] != _FLOOR:
        return f"{unit} and {target} are on one level and must not know each other"
    return None


def _circles(sideways: dict[str, dict[str, Violation]]) -> Iterator[Violation]:
    """The imports between units of the floor that lead back to where they began."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for following in sideways.get(waiting.pop(), {}):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return seen

    for unit, targets in sideways.items():
        for target, violation in targets.items():
            if unit in reachable(target):
                yield violation


def deployed_files(root: Path) -> Iterator[Path]:
    """The Python files that are deployed."""
    entry = root / "function_app.py"
    if entry.exists():
        yield entry
    yield from sorted((root / "shared").rglob("*.py"))


def module_name(path: Path, root: Path) -> str:
    """`shared/db/pool.py` is `shared.db.pool`, `shared/db/__init__.py` is `shared.db`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _unit(module: str) -> str:
    """The unit that has a level: `shared.queue.worker` belongs to `shared.queue`."""
    return ".".join(module.split(".")[: 2 if module.startswith("shared.") else 1])


def _targets(node: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, module, is_package)
        yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "importlib.import_module",
        "import_module",
        "__import__",
    ):
        name = node.args[0] if node.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*kept, node.module] if node.module else kept)


def _inside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from ast.walk(node)


def _for_type_checkers(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.body:
                yield from ast.walk(child)
