"""The local host's start and end: ports, broken apps, and what a signal does to what runs."""

from __future__ import annotations

import concurrent.futures
import signal
import socket
import subprocess
import sys
from http.client import HTTPException
from pathlib import Path

import psutil
import pytest

from local.host import GRACE_SECONDS
from tests.e2e.host_process import ROOT, HostProcess, running
from tests.fakes.eventually import eventually

HEAD = "import azure.functions as func\napp = func.FunctionApp()\n"
SETTINGS_BELOW = """
from shared.errors import SettingsError
try:
    raise SettingsError(['A is not set.'])
except SettingsError as error:
    raise RuntimeError('in between') from error
"""
QUEUE_OUTPUT = """
@app.queue_trigger(arg_name='m', queue_name='a', connection='C')
@app.queue_output(arg_name='o', queue_name='b', connection='C')
def f(m, o: func.Out[str]): pass
"""


def test_idle_host_stops_at_once_and_tells_the_app(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with running("--no-timer", "--no-wake", env={"STOPPING_FILE": str(told)}) as host:
        assert host.get("/api/ping").status == 200
        code, took = host.stop()
        assert code == 0
        assert took < GRACE_SECONDS
        assert told.read_text() == "told\n"
        assert host.log().splitlines()[-1].endswith("local.host: stopped")


def test_running_requests_are_finished_and_new_ones_refused() -> None:
    with running("--no-timer", "--no-wake") as host, concurrent.futures.ThreadPoolExecutor(2) as pool:
        works = pool.submit(host.request, "POST", "/api/wait?s=0.7")
        listens = pool.submit(host.request, "POST", "/api/wait?s=30&listen=1")
        eventually(lambda: host.log().count("root: waiting") == 2, what="two running requests")
        host.process.send_signal(signal.SIGTERM)
        # The app hears of it before the host has waited for anybody.
        assert listens.result(30).body == b"told"
        eventually(lambda: not accepts(host.port), what="a closed port")
        assert works.result(30).body == b"done"
        assert host.process.wait(30) == 0


@pytest.mark.parametrize("how", ["signal", "end of input"])
def test_a_host_that_watches_its_input_ends_without_a_complaint(how: str) -> None:
    with running("--no-timer", "--no-wake", "--stop-at-eof") as host:
        if how == "end of input":
            assert host.process.stdin is not None
            host.process.stdin.close()
            code = host.process.wait(30)
        else:
            code, _ = host.stop()
        assert code == 0
        assert host.log().splitlines()[-1].endswith("local.host: stopped")


def test_what_does_not_end_within_the_grace_is_left_behind() -> None:
    with running("--no-timer", "--no-wake", "--grace", "0") as host, concurrent.futures.ThreadPoolExecutor(1) as pool:
        works = pool.submit(host.request, "POST", "/api/wait?s=30")
        eventually(lambda: "root: waiting" in host.log(), what="a running request")
        code, took = host.stop()
        assert code == 1
        assert took < 15  # what runs takes thirty
        assert "left wait behind" in host.log()
        assert works.result(30).status == 500


def test_blocked_event_loop_does_not_keep_the_process() -> None:
    with running("--no-timer", "--no-wake", "--grace", "0") as host, concurrent.futures.ThreadPoolExecutor(1) as pool:
        blocks = pool.submit(host.request, "POST", "/api/block")
        eventually(lambda: "root: blocking" in host.log(), what="a blocked loop")
        code, took = host.stop()
        assert code == 1
        assert took < 15
        assert "did not stop within" in host.log()
        assert isinstance(blocks.exception(30), (OSError, HTTPException))


def test_second_signal_ends_at_once() -> None:
    with running("--no-timer", "--no-wake") as host, concurrent.futures.ThreadPoolExecutor(1) as pool:
        works = pool.submit(host.request, "POST", "/api/wait?s=30")
        eventually(lambda: "root: waiting" in host.log(), what="a running request")
        host.process.send_signal(signal.SIGINT)
        eventually(lambda: "stopping; 1 running" in host.log(), what="the first signal")
        code, took = host.stop(signal.SIGINT)
        assert code == 130
        assert took < GRACE_SECONDS
        assert isinstance(works.exception(30), (OSError, HTTPException))


def test_port_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with HostProcess(port=port) as host:
            assert host.process.wait(30) == 2
            assert host.log() == f"port {port} is taken; give another with --port\n"


@pytest.mark.parametrize(
    ("source", "status", "says", "whole"),
    [
        ("import nothing_here\n", 1, "ModuleNotFoundError: No module named 'nothing_here'", False),
        ("from shared.errors import SettingsError\nraise SettingsError(['PORT is wrong.'])\n", 2,
         "Antwoord cannot start:\n  - PORT is wrong.\n", True),
        (SETTINGS_BELOW, 2, "Antwoord cannot start:\n  - A is not set.\n", True),
        ("", 1, "there are no functions in", False),
        ("@app.route(route='x')\ndef f(other): pass\n", 1, "FunctionLoadError", False),
        (QUEUE_OUTPUT, 1, "the function f has the binding 'o' of type queue, which the local host does not know", False),
        ("@app.route(route='a/f.{ext}')\ndef f(req): return ''\n", 1, "it does not know 'f.{ext}'", False),
    ],
    ids=["import", "settings", "settings-below", "no-functions", "index", "binding", "route"],
)  # fmt: skip
def test_app_that_cannot_be_loaded_is_explained(
    tmp_path: Path, source: str, status: int, says: str, whole: bool
) -> None:
    (tmp_path / "function_app.py").write_text(HEAD + source)
    with HostProcess(app=tmp_path) as host:
        assert host.process.wait(30) == status
        assert (says == host.log()) if whole else (says in host.log())


def test_installed_package_wins_over_the_apps_folder_and_is_reported(tmp_path: Path) -> None:
    app, installed = tmp_path / "app", tmp_path / "installed"
    for folder, whose in ((app, "the app's"), (installed, "somebody else's")):
        (folder / "helper").mkdir(parents=True)
        (folder / "helper" / "__init__.py").write_text(f"WHOSE = {whose!r}\n")
    (app / "function_app.py").write_text(
        HEAD + "import helper\n@app.route(route='x')\ndef f(req) -> str: return helper.WHOSE\n"
    )
    with running("--no-timer", "--no-wake", env={"PYTHONPATH": str(installed)}, app=app) as host:
        assert host.get("/api/x").body == b"somebody else's"
        assert "the app's 'helper' was imported from" in host.log()


def test_starting_imports_nothing_heavy() -> None:
    heavy = "{'azure.functions', 'azure.storage.queue', 'starlette', 'openai', 'twilio', 'requests', 'httpx2'}"
    script = f"import local.host, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_folder_without_an_app_is_explained(tmp_path: Path) -> None:
    with HostProcess(app=tmp_path) as host:
        assert host.process.wait(30) == 2
        assert host.log() == f"there is no function_app.py in {tmp_path}\n"


def test_local_settings_fill_what_is_not_set_and_the_start_is_quick(tmp_path: Path) -> None:
    source = (
        "import os\n@app.route(route='x', auth_level='anonymous')\n"
        "def f(req) -> str: return os.environ['ONE'] + os.environ['TWO']\n"
    )
    (tmp_path / "function_app.py").write_text(HEAD + source)
    (tmp_path / "local.settings.json").write_text('{"Values": {"ONE": "from the file", "TWO": "from the file"}}')
    with running("--no-timer", "--no-wake", env={"ONE": "from outside, "}, app=tmp_path) as host:
        assert host.get("/api/x").body == b"from outside, from the file"
        used = psutil.Process(host.process.pid).cpu_times()
        assert used.user + used.system < 3


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
