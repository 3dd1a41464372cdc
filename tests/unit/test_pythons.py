"""Finding Python 3.13: only what was run and answered counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cli import pythons
from cli.pythons import Verdict

GOOD = "echo 3 13 -"
SHIM = "echo 'python3.13: command not found' >&2; exit 127"
NOWHERE = "/nonexistent/python"


def program(path: Path, script: str) -> Path:
    """A small shell program that stands for an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def machine(home: Path, *folders: Path) -> dict[str, str]:
    """The environment of a machine with these folders on PATH and nothing else."""
    return {"HOME": str(home), "PATH": os.pathsep.join(map(str, folders))}


def test_a_shim_that_only_prints_an_error_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "shims/python3.13", SHIM)
    real = program(tmp_path / "bin/python3.13", GOOD)
    found = pythons.find(str(tmp_path), machine(tmp_path, tmp_path / "shims", tmp_path / "bin"), NOWHERE)
    assert found == str(real)


@pytest.mark.parametrize("script", [SHIM, "echo 3 12 -", "echo 3 13 t", "exit 0", "echo 3.13"])
def test_what_does_not_answer_as_3_13_does_not_count(tmp_path: Path, script: str) -> None:
    program(tmp_path / "bin/python3.13", script)
    with pytest.raises(pythons.NoPython, match=r"Python 3\.13 is needed .*uv python install 3\.13.*python3\.13-venv"):
        pythons.find(str(tmp_path), machine(tmp_path, tmp_path / "bin"), NOWHERE)


def test_a_candidate_that_hangs_is_given_up(tmp_path: Path) -> None:
    stuck = program(tmp_path / "python3.13", "exec sleep 60")
    assert pythons.probe(str(stuck), ["venv"], seconds=0.2) is Verdict.OTHER


def test_a_python_without_venv_is_named_with_its_remedy(tmp_path: Path) -> None:
    program(tmp_path / "bin/python3.13", "echo 3 13 -; echo 'No module named ensurepip' >&2; exit 1")
    with pytest.raises(pythons.NoPython, match=r"bin/python3\.13 is Python 3\.13 without .*python3\.13-venv"):
        pythons.find(str(tmp_path), machine(tmp_path, tmp_path / "bin"), NOWHERE)


def test_the_newest_of_pyenv_comes_first(tmp_path: Path) -> None:
    for version in ("3.13.9", "3.13.10", "3.13.0", "3.12.4", "3.130.1"):
        program(tmp_path / f".pyenv/versions/{version}/bin/python", GOOD)
    found = list(pythons.candidates(machine(tmp_path, tmp_path / "bin"), NOWHERE))
    assert [Path(path).parts[-3] for path in found] == ["3.13.10", "3.13.9", "3.13.0"]


def test_pyenv_may_live_elsewhere(tmp_path: Path) -> None:
    real = program(tmp_path / "elsewhere/versions/3.13.2/bin/python", GOOD)
    environment = machine(tmp_path, tmp_path / "bin") | {"PYENV_ROOT": str(tmp_path / "elsewhere")}
    assert pythons.find(str(tmp_path), environment, NOWHERE) == str(real)


def test_uv_is_asked(tmp_path: Path) -> None:
    real = program(tmp_path / "managed/python3.13", GOOD)
    program(tmp_path / "bin/uv", f'[ "$*" = "python find 3.13" ] && echo {real}')
    assert pythons.find(str(tmp_path), machine(tmp_path, tmp_path / "bin"), NOWHERE) == str(real)


def test_uv_without_a_3_13_is_no_answer(tmp_path: Path) -> None:
    program(tmp_path / "bin/uv", "echo 'error: no interpreter found' >&2; exit 2")
    with pytest.raises(pythons.NoPython):
        pythons.find(str(tmp_path), machine(tmp_path, tmp_path / "bin"), NOWHERE)


def test_the_one_that_asks_is_the_last_candidate(tmp_path: Path) -> None:
    assert pythons.find(str(tmp_path), machine(tmp_path, tmp_path / "bin"), sys.executable) == sys.executable


def test_the_environment_that_is_to_be_made_is_no_candidate(tmp_path: Path) -> None:
    program(tmp_path / ".venv/bin/python3.13", GOOD)
    with pytest.raises(pythons.NoPython):
        pythons.find(str(tmp_path), machine(tmp_path, tmp_path / ".venv/bin"), NOWHERE)


def test_a_module_that_is_missing_makes_it_incomplete() -> None:
    assert pythons.probe(sys.executable, ["venv"]) is Verdict.USABLE
    assert pythons.probe(sys.executable, ["no_such_module"]) is Verdict.INCOMPLETE
