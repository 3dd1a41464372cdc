"""What is deployed: exactly the application, and enough of it to serve where only requirements.txt is installed.

The package is built as `.funcignore` says. The bare environment is a folder with the files of the packages that
requirements.txt pins, as they are installed here, and an interpreter that sees only its own library, that folder and the
package: nothing is downloaded, and nothing else can be imported.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from shared.signature import parse_form, sign_twilio
from tests.e2e.running import Rows
from tests.fakes.world import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).parent / "bare_host.py"
FILES = {"function_app.py", "host.json", "requirements.txt"}
KINDS = {".py", ".sql", ".md", ".html", ".css", ".js", ".svg", ".ico", ".png", ".woff2", ".toml", ".json", ".txt"}
STARTS_WITHIN = 60.0  # the end of a hang


def ignored() -> list[tuple[str, bool]]:
    """The names of .funcignore, and whether a name means folders alone. It has no patterns: tools differ in them."""
    lines = [line.strip() for line in (ROOT / ".funcignore").read_text("utf-8").splitlines()]
    names = [line for line in lines if line and not line.startswith("#")]
    assert not [name for name in names if re.search(r"[*?!\[\\]|/.", name)]
    return [(name.rstrip("/"), name.endswith("/")) for name in names]


def packaged(folder: Path, names: list[tuple[str, bool]]) -> Iterator[Path]:
    """The files that are packed; a name is left out at whatever depth, as in every reading of such a file."""
    for path in sorted(folder.iterdir()):
        if any(path.name == name and (path.is_dir() or not folders) for name, folders in names):
            continue
        if path.is_dir():
            yield from packaged(path, names)
        else:
            yield path.relative_to(ROOT)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package: zipped, as it is uploaded, and unpacked, as it is mounted."""
    folder = tmp_path_factory.mktemp("package")
    with zipfile.ZipFile(folder / "app.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in packaged(ROOT, ignored()):
            archive.write(ROOT / path, path.as_posix())
    with zipfile.ZipFile(folder / "app.zip") as archive:
        archive.extractall(folder / "app")
    return folder / "app"


@pytest.fixture(scope="module")
def bare_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that requirements.txt pins, in the versions that it pins, and no others."""
    site = tmp_path_factory.mktemp("site")
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE))
    assert len(pins) > 20
    for name, version in pins.items():
        found = metadata.distribution(name)
        assert found.version == version, (
            f"{name} {found.version} is installed, {version} is pinned: ./antwoord installs it"
        )
        for file in found.files or []:
            if ".." in file.parts:  # a program beside the packages
                continue
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.locate())
    return site


class Bare:
    """The package behind the least of a host, in the bare environment."""

    def __init__(self, site: Path, package: Path, database_url: str) -> None:
        given = ENVIRONMENT | {"DATABASE_URL": database_url}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(DRIVER), str(site), str(package)],
            env=given, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise AssertionError(self.process.stderr.read())
        self.port = int(line.split()[1])

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STARTS_WITHIN)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def bare(package: Path, bare_site: Path, database_url: str) -> Iterator[Bare]:
    found = Bare(bare_site, package, database_url)
    yield found
    found.close()


def test_the_package_holds_what_is_deployed_and_nothing_else(package: Path) -> None:
    inside = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    shared = {path.relative_to(ROOT).as_posix() for path in (ROOT / "shared").rglob("*") if path.is_file()}
    assert inside == FILES | {path for path in shared if "__pycache__" not in path}
    assert {Path(path).suffix for path in inside} <= KINDS
    assert "shared/knowledge/prompts/answer.md" in inside
    assert "shared/db/migrations/0001_main_job.sql" in inside


def test_the_app_serves_a_webhook_where_only_its_requirements_are_installed(bare: Bare, database_url: str) -> None:
    path, sid = "/api/twilio/inbound", f"SM{uuid4().hex}"
    form = {
        "MessageSid": sid,
        "From": "whatsapp:+31600000001",
        "To": "whatsapp:+31201234567",
        "Body": "hoi",
        "NumMedia": "0",
    }
    body = urlencode(form).encode()
    signature = sign_twilio(ENVIRONMENT["PUBLIC_BASE_URL"] + path, parse_form(body), ENVIRONMENT["TWILIO_AUTH_TOKEN"])
    headers = {"Content_Type": "application/x-www-form-urlencoded", "X_Twilio_Signature": signature}
    assert bare.request("POST", path, body, **headers) == (
        200,
        '<?xml version="1.0" encoding="UTF-8"?><Response></Response>',
    )
    assert bare.request("POST", path, body, **headers | {"X_Twilio_Signature": "AAAA"})[0] == 403
    rows = Rows(database_url)
    assert rows.rows("SELECT body, status FROM messages WHERE provider_sid = %(sid)s", sid=sid) == [("hoi", "received")]
    assert rows.value("SELECT count(*) FROM ai_jobs WHERE type = 'autoreply'") == 1
    rows.close()


def test_its_other_addresses_answer_too(bare: Bare) -> None:
    status, text = bare.request("GET", "/api/health")
    assert (status, json.loads(text)["status"]) == (200, "ok")
    status, text = bare.request("GET", "/api/ops/")
    assert status == 403
    assert "<html" in text  # templates and words are in the package


def test_every_module_loads_from_the_package_and_needs_nothing_else(bare: Bare, package: Path) -> None:
    status, text = bare.request("GET", "/modules")
    assert status == 200
    told: dict[str, Any] = json.loads(text)
    assert told["elsewhere"] == {}
    assert told["modules"] > 100
    assert all(file.startswith(str(package)) for file in told["ours"]), told["ours"]
