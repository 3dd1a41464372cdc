"""What is shipped besides code: the sizes that go together, what is deployed, and the pins."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from shared import settings
from shared.queue.outcome import OUTAGE_SECONDS

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOYED = {"function_app.py", "host.json", "requirements.txt", "shared"}
PLATFORM = {"FUNCTIONS_WORKER_RUNTIME", "PYTHON_THREADPOOL_THREAD_COUNT"}
OUR_PACKAGES = {"shared", "cli", "local", "tests", "bench", "function_app"}
WAKE_DRAIN_SECONDS = 120  # how long one wake message takes jobs


def host() -> dict[str, Any]:
    return dict(json.loads((REPOSITORY / "host.json").read_text()))


def values() -> dict[str, str]:
    return dict(json.loads((REPOSITORY / "local.settings.sample.json").read_text())["Values"])


def defaults() -> dict[str, Any]:
    return {item.name: item.default for item in dataclasses.fields(settings.Settings)}


def seconds(text: str) -> int:
    hours, minutes, rest = map(int, text.split(":"))
    return hours * 3600 + minutes * 60 + rest


def read(name: str) -> str:
    return (REPOSITORY / name).read_text()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(name: str) -> dict[str, str]:
    return {normal(found[1]): found[2] for found in re.finditer(r"^([\w.-]+)==(\S+)", read(name), re.MULTILINE)}


def wanted(name: str) -> set[str]:
    """The packages that are asked for; `psycopg[pool]` also asks for psycopg-pool."""
    found = set()
    for package, extras in re.findall(r"^([a-z][\w.-]*)(?:\[(.*)\])?", read(name), re.MULTILINE):
        found |= {normal(package), *(f"{package}-{extra}" for extra in extras.split(",") if extra)}
    return found


def test_no_part_can_take_all_threads_of_the_worker() -> None:
    http, queues = host()["extensions"]["http"], host()["extensions"]["queues"]
    threads = int(values()["PYTHON_THREADPOOL_THREAD_COUNT"])
    assert threads >= http["maxConcurrentRequests"] + queues["batchSize"] + queues["newBatchThreshold"] + 2
    assert http["maxOutstandingRequests"] >= http["maxConcurrentRequests"]


def test_one_wake_message_is_one_slot_of_the_worker() -> None:
    queues = host()["extensions"]["queues"]
    assert queues["batchSize"] == defaults()["job_concurrency"] == int(values()["JOB_CONCURRENCY"])
    assert queues["newBatchThreshold"] == queues["batchSize"] - 1  # docs/decisions/0005
    assert queues["messageEncoding"] == "base64"
    assert seconds(queues["maxPollingInterval"]) == 2
    assert seconds(queues["visibilityTimeout"]) == defaults()["job_lease_seconds"]


def test_a_function_ends_before_the_platform_ends_it() -> None:
    limit = seconds(host()["functionTimeout"])
    assert limit == 600
    drain = max(WAKE_DRAIN_SECONDS, defaults()["drain_seconds"])
    assert limit > drain + defaults()["job_max_seconds"] + OUTAGE_SECONDS


def test_jobs_and_requests_share_the_connections() -> None:
    pool = defaults()["db_pool_max"]
    assert pool == int(values()["DB_POOL_MAX"])
    # a job holds a connection only while a statement runs; one stays for requests, one for renewing leases
    assert 2 < pool <= defaults()["job_concurrency"]


def test_the_sample_names_every_setting_that_is_needed_and_no_other() -> None:
    items = {settings.setting_name(item): item for item in dataclasses.fields(settings.Settings)}
    needed = {name for name, item in items.items() if not item.metadata["optional"]}
    assert needed <= set(values())
    assert set(values()) - PLATFORM <= set(items)
    settings.load(values(), only=())


def test_only_the_application_is_deployed() -> None:
    ignored = {line.rstrip("/") for line in read(".funcignore").splitlines() if line and not line.startswith("#")}
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout
    there = {path.split("/")[0] for path in listed.splitlines()} or {path.name for path in REPOSITORY.iterdir()}
    assert there - ignored <= DEPLOYED
    assert not ignored & DEPLOYED
    for path in (REPOSITORY / "shared").rglob("*"):
        assert path.name == "__pycache__" or path.name not in ignored, path


def test_every_package_that_is_asked_for_is_pinned() -> None:
    assert wanted("requirements.in") <= set(pinned("requirements.txt"))
    assert wanted("requirements-dev.in") <= set(pinned("requirements-dev.txt"))
    settled = read("requirements.txt") + read("requirements-dev.txt")
    assert not re.search(r"^-|^[^#]*(https?|file):", settled, re.MULTILINE)  # no index, no address


def test_both_files_agree() -> None:
    deployed, beside = pinned("requirements.txt"), pinned("requirements-dev.txt")
    assert {name: version for name, version in beside.items() if deployed.get(name, version) != version} == {}


def test_no_pinned_package_takes_the_name_of_one_of_ours() -> None:
    """The deployed application's folder is the last on the path, so an installed `shared` would win."""
    theirs = metadata.packages_distributions()
    assert {name: theirs[name] for name in OUR_PACKAGES if name in theirs} == {}


def test_what_is_deployed_imports_only_what_is_asked_for() -> None:
    assert unasked(wanted("requirements.in"), "function_app.py", "shared") == {}


def test_the_rest_imports_only_what_is_asked_for() -> None:
    asked = wanted("requirements.in") | wanted("requirements-dev.in")
    assert unasked(asked, "cli", "local", "tests", "bench/*.py") == {}
    assert unasked(asked | set(pinned("bench/requirements-peers.txt")), "bench") == {}


def test_the_peers_of_the_bench_are_pinned_and_name_no_registry() -> None:
    python = [line for line in read("bench/requirements-peers.txt").splitlines() if not line.startswith("#")]
    assert python
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in python)
    lock = json.loads(read("bench/peers/package-lock.json"))["packages"]
    assert set(json.loads(read("bench/peers/package.json"))["dependencies"]) == {"graphile-worker", "pg-boss"}
    assert all("integrity" in package and "resolved" not in package for path, package in lock.items() if path)


def unasked(asked: set[str], *places: str) -> dict[str, str]:
    """Imported names that no asked-for package gives, each with a file that imports it."""
    distributions = metadata.packages_distributions()
    found = {}
    for place in places:
        for path in [*REPOSITORY.glob(place), *(REPOSITORY / place).rglob("*.py")]:
            names = imported(path.read_text()) if path.is_file() else set()
            for name in names - OUR_PACKAGES - set(sys.stdlib_module_names):
                if not asked & {normal(distribution) for distribution in distributions.get(name, [name])}:
                    found[name] = str(path.relative_to(REPOSITORY))
    return found


def imported(source: str) -> set[str]:
    """The first names of all absolute imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found
