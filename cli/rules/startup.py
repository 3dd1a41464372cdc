"""The start-up rule: nothing that loads slowly is loaded before the first webhook can be answered.

Follows the imports that run when `function_app` is loaded, through this project's own modules, and refuses the heavy
packages on the way. A module that is only imported inside a function may use them freely.
"""

from __future__ import annotations

from pathlib import Path

from cli.rules import Violation
from cli.rules.imports import deployed_files, imports_of, module_name

ENTRY = "function_app"
# Together more than a second.
HEAVY = ("openai", "azure", "twilio.rest", "numpy", "starlette", "jinja2", "phonenumbers")
ALLOWED = ("azure.functions",)  # the worker has it already when it loads function_app


def violations(root: Path) -> list[Violation]:
    """Heavy imports that run at the start, each with the way that leads there."""
    files = {module_name(path, root): path for path in deployed_files(root)}
    found: list[Violation] = []
    waiting: list[tuple[str, ...]] = [(ENTRY,)] if ENTRY in files else []
    reached = {ENTRY}
    while waiting:
        way = waiting.pop(0)
        path = files[way[-1]]
        source = path.read_text(encoding="utf-8")
        for item in imports_of(source, way[-1], is_package=path.name == "__init__.py"):
            heavy = _heavy(item.module)
            if item.at_start and heavy:
                text = f"{heavy} takes long to load and is imported at the start ({' → '.join(way)}): import it inside a function"
                found.append(Violation(path.relative_to(root).as_posix(), item.line, text))
            for module in _own(item.module, files) if item.at_start else ():
                if module not in reached:
                    reached.add(module)
                    waiting.append((*way, module))
    return sorted(found)


def _heavy(module: str) -> str | None:
    if any(f"{module}.".startswith(f"{name}.") for name in ALLOWED):
        return None
    return next((name for name in HEAVY if f"{module}.".startswith(f"{name}.")), None)


def _own(module: str, files: dict[str, Path]) -> list[str]:
    """The project's modules that run when `module` is imported: each package on the way too."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return [name for name in names if name in files]
