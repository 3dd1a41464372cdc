"""What is said when no connection can be had: why, once, in our own words."""

from __future__ import annotations

import pytest

from shared.db.pool import Database
from shared.errors import DatabaseAway


def test_the_reason_is_in_the_error_and_the_pool_adds_no_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = Database("postgresql://nobody:hunter2hunter2@127.0.0.1:1/none", 1)
    with (
        pytest.raises(DatabaseAway, match=r"within 0\.5 s: OperationalError: .*refused") as away,
        nowhere.connection(wait=0.5),
    ):
        pass
    nowhere.close()
    assert "hunter2" not in str(away.value)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []
