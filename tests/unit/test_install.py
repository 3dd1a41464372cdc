"""Making `.venv`: exactly what is pinned, again only when the pins change, and anew after one that was cut off."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli import bootstrap, install
from cli.pythons import NoPython, Verdict

REPOSITORY = Path(__file__).resolve().parents[2]
BASE = "/some/python3.13"

Step = Callable[[Sequence[str]], None]


class Machine:
    """A project with two pins, and the programs of an installation as recorded calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: list[str] = []
        self.during: dict[str, Step] = {}  # what else happens in a step, by a word of its command
        self.works = True  # whether the interpreter in .venv, once there, can be run
        self.pin("alpha==1.0", "beta==2.0")
        (root / "requirements-dev.txt").write_text("gamma==3.0\n")

    def pin(self, *pins: str) -> None:
        (self.root / "requirements.txt").write_text("\n".join(pins) + "\n")

    def ensure(self) -> list[str]:
        """Install and return the commands that ran."""
        self.commands = []
        install.ensure(str(self.root), find=lambda _root: BASE, probe=self._probe, run=self._run)
        return self.commands

    def _probe(self, python: str, _modules: Sequence[str]) -> Verdict:
        return Verdict.USABLE if self.works and Path(python).exists() else Verdict.OTHER

    def _run(self, command: Sequence[str], _lock: int) -> None:
        self.commands.append(" ".join(command[2:]).replace(str(self.root), "ROOT"))
        for word, step in self.during.items():
            if word in command:
                step(command)
        if "venv" in command:
            (self.root / ".venv/bin").mkdir(parents=True, exist_ok=True)
            (self.root / ".venv/bin/python").touch()
            (self.root / ".venv/lib/python3.13/site-packages").mkdir(parents=True, exist_ok=True)
            Path(bootstrap.stamp_file(str(self.root))).unlink(missing_ok=True)


MAKE = "-m venv --clear ROOT/.venv"
FETCH = "-m pip install --no-deps --progress-bar off -r ROOT/requirements.txt -r ROOT/requirements-dev.txt"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def fails(output: str) -> Step:
    def step(_command: Sequence[str]) -> None:
        raise install.StepFailed(output)

    return step


def is_interrupted(_command: Sequence[str]) -> None:
    raise KeyboardInterrupt


def test_installs_once(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.ensure() == [MAKE, FETCH]
    assert capsys.readouterr().err.splitlines() == [
        "Installing Antwoord's packages into .venv (once, about a minute) …"
    ]
    assert bootstrap.is_current(str(machine.root))
    assert machine.ensure() == []
    assert capsys.readouterr().err == ""


def test_the_projects_packages_come_last_on_the_path(machine: Machine) -> None:
    machine.ensure()
    packages = machine.root / ".venv/lib/python3.13/site-packages"
    line = (packages / "antwoord.pth").read_text().strip()
    assert (packages / line).resolve() == machine.root.resolve()


def test_a_changed_pin_is_installed_and_a_dropped_one_removed(machine: Machine) -> None:
    machine.ensure()
    machine.pin("alpha==1.1")
    assert machine.ensure() == [FETCH, "-m pip uninstall --yes beta"]
    assert machine.ensure() == []


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.ensure()
    (machine.root / ".venv/bin/python").unlink()
    assert not bootstrap.is_current(str(machine.root))
    assert machine.ensure() == [MAKE, FETCH]


def test_an_environment_of_another_python_is_made_anew(machine: Machine) -> None:
    machine.ensure()
    machine.pin("alpha==1.1")
    machine.works = False
    assert machine.ensure() == [MAKE, FETCH]


@pytest.mark.parametrize("word", ["venv", "install"])
def test_an_interrupted_installation_begins_again_from_nothing(machine: Machine, word: str) -> None:
    machine.during = {word: is_interrupted}
    with pytest.raises(KeyboardInterrupt):
        machine.ensure()
    assert not bootstrap.is_current(str(machine.root))
    machine.during = {}
    assert machine.ensure() == [MAKE, FETCH]
    assert machine.ensure() == []


def test_a_failed_step_shows_what_was_said_and_is_tried_again(machine: Machine) -> None:
    machine.during = {"install": fails("ERROR: no space left\n")}
    with pytest.raises(install.Impossible, match=r"could not be installed.*\nERROR: no space left") as refused:
        machine.ensure()
    assert refused.value.status == 1
    machine.during = {}
    assert machine.ensure() == [FETCH]


def test_without_python_it_is_a_matter_of_the_machine(machine: Machine) -> None:
    def find(_root: str) -> str:
        raise NoPython("Python 3.13 is needed.")

    with pytest.raises(install.Impossible, match=r"Python 3\.13 is needed\.") as refused:
        install.ensure(str(machine.root), find=find)
    assert refused.value.status == 2


def test_a_folder_that_cannot_be_written_to_is_one_sentence(machine: Machine) -> None:
    (machine.root / ".antwoord").write_text("a file where a folder should be")
    with pytest.raises(install.Impossible, match=r"\.venv could not be made: .*exists"):
        machine.ensure()


def test_pip_without_a_network_becomes_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the real pip, whose words may change with its version."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    machine = Machine(tmp_path)

    def fetch(_command: Sequence[str]) -> None:
        pip = [sys.executable, "-I", "-m", "pip", "install", "--no-deps", "--target", str(tmp_path / "x"), "alpha==1.0"]
        install.run_step(pip, 0)

    machine.during = {"install": fetch}
    with pytest.raises(install.Impossible) as refused:
        machine.ensure()
    assert str(refused.value) == (
        "the packages could not be fetched because the package index cannot be reached; "
        "connect to the network (or set your proxy) and run ./antwoord again."
    )


OTHER = """
import sys
from pathlib import Path
from cli import install
from cli.pythons import Verdict
root = Path(sys.argv[1])
def run(command, lock):
    print(command[3], flush=True)
    if "pip" in command:
        sys.stdin.readline()
    else:
        (root / ".venv/bin").mkdir(parents=True)
        (root / ".venv/bin/python").touch()
install.ensure(str(root), find=lambda _: "python3.13", probe=lambda *_: Verdict.OTHER, run=run)
"""


def other(root: Path) -> subprocess.Popen[str]:
    """Another process that installs into the same place and stops in pip until a line comes on its stdin."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OTHER, str(root)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_killed_installation_begins_again_from_nothing(machine: Machine) -> None:
    with other(machine.root) as process:
        assert (line_of(process), line_of(process)) == ("venv", "pip")
        process.send_signal(signal.SIGKILL)
    assert machine.ensure() == [MAKE, FETCH]


def test_two_at_once_take_turns(machine: Machine) -> None:
    with other(machine.root) as first:
        assert (line_of(first), line_of(first)) == ("venv", "pip")
        with other(machine.root) as second:
            assert second.stderr
            assert second.stderr.readline() == "Another ./antwoord is installing; waiting for it …\n"
            assert second.poll() is None
            first.communicate("go on\n", timeout=30)
            said, complained = second.communicate(timeout=30)
    assert (said, complained, second.returncode) == ("", "", 0)
    assert bootstrap.is_current(str(machine.root))


PARENT = """
import sys
from cli import install
wait = "import sys; open(sys.argv[1]).read()"
with install._lock(sys.argv[1]) as lock:
    install.run_step([sys.executable, "-c", wait, sys.argv[2]], lock)
"""


def test_a_running_pip_keeps_the_lock_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    """Else a second pip would write into the same folder."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(gate)]
    # the gate opens when the program that stands for pip has opened its end
    with subprocess.Popen(command, cwd=REPOSITORY) as parent, gate.open("w"):
        parent.kill()
        parent.wait()
        assert not is_free(tmp_path)
    deadline = time.monotonic() + 30
    while not is_free(tmp_path):
        assert time.monotonic() < deadline


def is_free(root: Path) -> bool:
    with (root / ".antwoord/install.lock").open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
