"""`./antwoord` itself, run by every interpreter of this machine: quick when nothing is to be done, clear when it cannot go on."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import bootstrap

REPOSITORY = Path(__file__).resolve().parents[2]
OWN = ("antwoord", "cli/__init__.py", "cli/bootstrap.py", "cli/install.py", "cli/pythons.py")
NAMES = ("python2", "python3", "python3.9")


def interpreters() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every Python that runs here, behind its shims, with its version; the one of these tests is always among them."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    known = set()
    for path in (
        sys.executable,
        *filter(None, map(shutil.which, NAMES)),
        *map(str, home.glob("versions/*/bin/python")),
    ):
        code = "import sys; print('%d %d %s' % (sys.version_info[0], sys.version_info[1], sys.executable))"
        answer = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=20, check=False)
        if answer.returncode == 0 and answer.stdout not in known:
            known.add(answer.stdout)
            major, minor, real = answer.stdout.split(maxsplit=2)
            yield real.strip(), (int(major), int(minor))


@pytest.fixture(scope="module")
def pythons() -> list[tuple[str, tuple[int, ...]]]:
    return list(interpreters())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what starts the command, with pins of its own and no `.venv`."""
    root = tmp_path / "project"
    for name in OWN:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    (root / "requirements.txt").write_text("alpha==1.0\n")
    (root / "requirements-dev.txt").write_text("")
    return root


@pytest.fixture
def installed(project: Path) -> Path:
    """The same with everything installed; its interpreter prints where it is and what it was asked."""
    python = Path(bootstrap.venv_python(str(project)))
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\npwd -P\necho "$@"\nexit 7\n')
    python.chmod(0o755)
    Path(bootstrap.stamp_file(str(project))).write_text(bootstrap.stamp_text(str(project)))
    return project


def launch(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_every_python_from_3_9_on_runs_it(installed: Path, pythons: list[tuple[str, tuple[int, ...]]]) -> None:
    able = [path for path, version in pythons if version >= (3, 9)]
    assert able
    for path in able:
        done = launch(path, installed / "antwoord", "jobs", "list", cwd=installed)
        assert (done.stdout, done.stderr, done.returncode) == (f"{installed}\n-P -m cli jobs list\n", "", 7), path


def test_an_older_python_says_so(installed: Path, pythons: list[tuple[str, tuple[int, ...]]]) -> None:
    for path, version in pythons:
        if version < (3, 9):
            done = launch(path, "antwoord", "up", cwd=installed)
            assert done.returncode == 2
            assert done.stderr == (
                f"antwoord: Python {version[0]}.{version[1]} is too old to start this command: install Python 3.13 "
                "and run 'python3.13 antwoord' instead.\n"
            )
    # whichever there are: nothing in the file may be a syntax error to the oldest
    ast.parse((REPOSITORY / "antwoord").read_text(), feature_version=(3, 4))


def test_what_runs_before_there_is_a_venv_is_python_3_9() -> None:
    for name in OWN:
        ast.parse((REPOSITORY / name).read_text(), feature_version=(3, 9))


def test_without_python_3_13_it_says_what_to_install(
    project: Path, tmp_path: Path, pythons: list[tuple[str, tuple[int, ...]]]
) -> None:
    shim = tmp_path / "bin/python3.13"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho 'version 3.13 is not installed' >&2\nexit 127\n")
    shim.chmod(0o755)
    for path, version in pythons:
        if version >= (3, 9) and version != (3, 13):
            done = launch(
                path, project / "antwoord", "up", cwd=tmp_path, PATH=str(shim.parent), HOME="/", PYENV_ROOT="/"
            )
            assert (done.stdout, done.returncode) == ("", 2)
            assert done.stderr.startswith(
                "antwoord: Python 3.13 is needed and was not found on PATH, in pyenv or in uv"
            )
            assert done.stderr.count("\n") == 1


def test_it_may_be_called_from_anywhere(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(installed / "antwoord")
    (tmp_path / "elsewhere/cli").mkdir()  # a folder of the caller's that happens to have our name
    for way in ("../project/antwoord", "../link"):
        done = launch(way, "docs", "add", "verlof.md", cwd=tmp_path / "elsewhere")
        assert done.stdout == f"{tmp_path / 'elsewhere'}\n-P -m cli docs add verlof.md\n"


def test_nothing_is_loaded_when_there_is_nothing_to_do(installed: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "from cli import bootstrap; assert bootstrap.is_current(sys.argv[1])\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = launch(sys.executable, "-I", "-c", code, installed, cwd=installed)
    assert done.stdout.strip() == "['__future__', 'cli', 'cli.bootstrap']"


def wheel(folder: Path, name: str, version: str) -> None:
    """A package with one module, as pip takes it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def test_a_real_installation(project: Path, tmp_path: Path) -> None:
    """With venv and pip themselves: install and run; then change one pin, drop the other, and run."""
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", "alpha", version)
    wheel(tmp_path / "wheels", "beta", "1.0")
    (project / "requirements.txt").write_text("alpha==1.0\nbeta==1.0\n")
    (project / "cli/__main__.py").write_text(
        "import sys, importlib.util, alpha\n"
        "beta = importlib.util.find_spec('beta') is not None\n"
        "print(sys.version_info[:2], alpha.VERSION, beta, sys.path[-1], sys.argv[1:])\n"
    )
    pip = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_USER": "1",
    }
    first = launch(sys.executable, project / "antwoord", "a b", cwd=tmp_path, **pip)
    assert first.stdout == f"(3, 13) 1.0 True {project} ['a b']\n", first.stderr
    assert first.stderr == "Installing Antwoord's packages into .venv (once, about a minute) …\n"
    (project / "requirements.txt").write_text("alpha==2.0\n")
    second = launch(sys.executable, project / "antwoord", cwd=tmp_path, **pip)
    assert second.stdout == f"(3, 13) 2.0 False {project} []\n", second.stderr
