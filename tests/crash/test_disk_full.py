"""The disk is full, for real: the jobs' own table lies on a file system of a few megabytes, and somebody else fills it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.crash.instances import MAKE_EFFECTS, Instances
from tests.fakes.eventually import eventually
from tests.fakes.pgbouncer import SYSTEM_USER

SIZE = "4M"
FILL = b"INSERT INTO filler SELECT repeat('x', 1900) FROM generate_series(1, %d)"


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of 4 MB in memory. Mounting takes root; `./antwoord test` says so where it cannot be done."""
    folder = Path(tempfile.mkdtemp(prefix="antwoord-small-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.fail(f"This test mounts a small file system, which takes root: {mounted.stderr.strip()}", pytrace=False)
    shutil.chown(folder, SYSTEM_USER)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture
def site(database_url: str, small: Path) -> Iterator[Instances]:
    with psycopg.connect(database_url, autocommit=True) as administrator:
        administrator.execute(f"CREATE TABLESPACE small LOCATION '{small}'".encode())
        administrator.execute(MAKE_EFFECTS)
        for change in (
            "SET TABLESPACE small",
            "ALTER weight SET STORAGE PLAIN",
            "ALTER weight SET DEFAULT repeat('x', 3000)",
        ):
            administrator.execute(f"ALTER TABLE effects {change}".encode())
        administrator.execute("CREATE TABLE filler (x text) TABLESPACE small")
        administrator.execute("ALTER TABLE filler ALTER x SET STORAGE PLAIN")
        found = Instances(database_url)
        yield found
        found.close()
        administrator.execute("DROP TABLE effects, filler")
        administrator.execute("DROP TABLESPACE small")


def test_disk_full(site: Instances, small: Path, caplog: pytest.LogCaptureFixture) -> None:
    def strike() -> None:
        with site.administrator() as connection:
            for rows in (400, 40, 4):
                with suppress(psycopg.errors.DiskFull):
                    while True:
                        connection.execute(FILL % rows)
        try:
            eventually(lambda: len([record for record in caplog.records if "DiskFull" in record.getMessage()]) >= 5)
        finally:  # somebody gives the server a larger disk
            subprocess.run(["mount", "-o", "remount,size=64M", str(small)], check=True)

    site.run(strike)
