"""The import and start-up rules: on small trees that break them, and on this project."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.rules import imports, startup

REPOSITORY = Path(__file__).resolve().parents[2]


def tree(root: Path, **files: str) -> Path:
    """A project of these modules: `shared__queue__worker="…"` is shared/queue/worker.py."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def told(root: Path) -> list[str]:
    return list(map(str, imports.violations(root)))


def test_this_project_keeps_the_rule() -> None:
    assert imports.violations(REPOSITORY) == []


def test_this_project_starts_light() -> None:
    assert startup.violations(REPOSITORY) == []


def test_pointing_down_and_inside_is_fine(tmp_path: Path) -> None:
    tree(
        tmp_path,
        function_app="import azure.functions as func\nfrom shared import app",
        shared__app="from shared.jobs import TABLE\nfrom shared.settings import Settings\nimport shared.queue.worker",
        shared__jobs__table="from shared.conversation.reply import send\nfrom . import autoreply\nfrom ..db import pool",
        shared__jobs__autoreply="import json",
        shared__conversation__reply="from shared.clients import twilio",
        shared__queue__worker="from .store import claim\nfrom shared.db.pool import Database",
        shared__queue__store="",
        shared__clients__twilio="",
        shared__db__pool="from shared.errors import DatabaseAway",
        shared__settings="",
        shared__errors="",
    )
    assert told(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("from shared.jobs import autoreply", "imports point down only, and shared.jobs is above shared.queue"),
        ("import shared.jobs.autoreply", "imports point down only, and shared.jobs is above shared.queue"),
        ("from shared import app", "imports point down only, and shared.app is above shared.queue"),
        ("from .. import app", "imports point down only, and shared.app is above shared.queue"),
        ("from ..jobs import autoreply", "imports point down only, and shared.jobs is above shared.queue"),
        ("import function_app", "imports point down only, and function_app is above shared.queue"),
        (
            "from shared.clients import wake",
            "shared.queue and shared.clients are on one level and must not know each other",
        ),
        (
            "if TYPE_CHECKING:\n    from shared import app",
            "imports point down only, and shared.app is above shared.queue",
        ),
        ("def f():\n    from shared import app", "imports point down only, and shared.app is above shared.queue"),
        ("importlib.import_module('shared.app')", "imports point down only, and shared.app is above shared.queue"),
        ("import cli.output", "cli/ is not deployed"),
        ("from local.host import serve", "local/ is not deployed"),
        ("from tests import fakes", "tests/ is not deployed"),
        ("import bench", "bench/ is not deployed"),
    ],
)
def test_what_points_up_or_out_is_told_with_its_place(tmp_path: Path, line: str, reason: str) -> None:
    tree(tmp_path, shared__queue__worker=f'"""A worker."""\n\n{line}\n', shared__app="", shared__jobs__autoreply="")
    (violation,) = told(tmp_path)
    where = 3 + line.count("\n")
    assert violation.startswith(f"shared/queue/worker.py:{where}: shared.queue.worker imports ")
    assert violation.endswith(f": {reason}")


def test_the_floor_may_know_itself_but_not_in_a_circle(tmp_path: Path) -> None:
    tree(
        tmp_path,
        shared__settings="import shared.errors",
        shared__errors="from shared.db import pool",
        shared__db__pool="",
    )
    assert told(tmp_path) == []
    tree(tmp_path, shared__db__pool="\nfrom shared.settings import Settings")
    assert told(tmp_path) == [
        "shared/db/pool.py:2: shared.db.pool imports shared.settings.Settings: these two import each other in a circle",
        "shared/errors.py:1: shared.errors imports shared.db.pool: these two import each other in a circle",
        "shared/settings.py:1: shared.settings imports shared.errors: these two import each other in a circle",
    ]


def test_a_new_part_needs_a_level(tmp_path: Path) -> None:
    tree(tmp_path, shared__payments="")
    assert told(tmp_path) == [
        "shared/payments.py:1: shared.payments has no level yet: give it one in LEVELS of cli/rules/imports.py"
    ]


def test_heavy_packages_are_found_through_the_projects_own_imports(tmp_path: Path) -> None:
    tree(
        tmp_path,
        function_app="import azure.functions\nfrom shared.app import build",
        shared__app="from shared.clients.model import Model",
        shared__clients____init__="",
        shared__clients__model="import json\nfrom openai import OpenAI",
    )
    (violation,) = startup.violations(tmp_path)
    assert str(violation) == (
        "shared/clients/model.py:2: openai takes long to load and is imported at the start "
        "(function_app → shared.app → shared.clients.model): import it inside a function"
    )


@pytest.mark.parametrize(
    "text",
    [
        "def model():\n    from openai import OpenAI",
        "if TYPE_CHECKING:\n    from openai import OpenAI",
        "def model():\n    from shared.clients import heavy",
        "from twilio.base.exceptions import TwilioRestException",
    ],
)
def test_what_is_loaded_later_may_be_heavy(tmp_path: Path, text: str) -> None:
    tree(
        tmp_path,
        function_app="import shared.clients.model",
        shared__clients__model=text,
        shared__clients__heavy="import azure.core",
    )
    assert startup.violations(tmp_path) == []
