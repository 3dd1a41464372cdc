"""Migrations: applied once, checked, serialised, and explained when they cannot be."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.migrate import MIGRATIONS, available, migrate, version
from shared.errors import UserError
from tests.fakes.eventually import eventually

WAITING = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'ai_jobs'::regclass"


def fresh(postgres: EmbeddedPostgres, name: str) -> psycopg.Connection:
    return psycopg.connect(postgres.create(name), autocommit=True)


def test_migrates_a_new_database_once(postgres: EmbeddedPostgres) -> None:
    with fresh(postgres, "migrate_once") as connection:
        assert version(connection) == 0
        assert migrate(connection) == [migration.name for migration in available()]
        assert migrate(connection) == []
        assert version(connection) == len(available())


def test_two_at_once_apply_each_file_once(postgres: EmbeddedPostgres) -> None:
    url = postgres.create("migrate_race")
    applied: list[str] = []

    def run() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            applied.extend(migrate(connection))

    # The extension is made before, as an administrator does; only the files are raced for.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [migration.name for migration in available()]


def test_a_changed_file_is_refused(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "0001_one.sql").write_text("CREATE TABLE one ()")
    with fresh(postgres, "migrate_changed") as connection:
        migrate(connection, tmp_path)
        (tmp_path / "0001_one.sql").write_text("CREATE TABLE one (two int)")
        with pytest.raises(UserError, match=r"0001_one\.sql has changed"):
            migrate(connection, tmp_path)


def test_a_broken_file_leaves_nothing_half_done(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "0001_one.sql").write_text("CREATE TABLE one (); SELECT 1 / 0")
    with fresh(postgres, "migrate_broken") as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(connection, tmp_path)
        assert connection.execute("SELECT to_regclass('one')").fetchone() == (None,)
        assert version(connection) == 0


def test_a_newer_database_is_refused(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "0001_one.sql").write_text("CREATE TABLE one ()")
    (tmp_path / "0002_two.sql").write_text("CREATE TABLE two ()")
    with fresh(postgres, "migrate_newer") as connection:
        migrate(connection, tmp_path)
        (tmp_path / "0002_two.sql").unlink()
        with pytest.raises(UserError, match="at version 2, this code knows 1"):
            migrate(connection, tmp_path)


def test_a_gap_in_the_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0002_two.sql").write_text("CREATE TABLE two ()")
    with pytest.raises(UserError, match="without a gap"):
        available(tmp_path)


def test_without_the_right_to_make_pgvector_it_says_what_an_administrator_runs(postgres: EmbeddedPostgres) -> None:
    postgres.run(["CREATE ROLE plain LOGIN", "CREATE DATABASE migrate_plain OWNER plain"])
    url = postgres.url("migrate_plain").replace("postgres:@", "plain:@")
    with (
        psycopg.connect(url, autocommit=True, user="plain") as connection,
        pytest.raises(UserError, match="CREATE EXTENSION vector;"),
    ):
        migrate(connection)


def test_an_ordinary_role_migrates_once_pgvector_is_there(postgres: EmbeddedPostgres) -> None:
    postgres.run(["CREATE ROLE owner_only LOGIN", "CREATE DATABASE migrate_owner OWNER owner_only"])
    with psycopg.connect(postgres.url("migrate_owner"), autocommit=True) as administrator:
        administrator.execute("CREATE EXTENSION vector")
    with psycopg.connect(postgres.url("migrate_owner"), autocommit=True, user="owner_only") as connection:
        assert migrate(connection)
    with psycopg.connect(postgres.url("migrate_owner"), autocommit=True, user="owner_only") as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("3s",)


def test_beside_live_traffic_a_migration_gives_way_and_tries_again(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    """A job holds its row, and comes to its type's row when the migration has begun to wait: neither fails."""
    for path in sorted(MIGRATIONS.glob("000[1-4]_*.sql")):
        shutil.copy(path, tmp_path)
    url = postgres.create("migrate_live")
    applied: list[str] = []

    def newest() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            applied.extend(migrate(connection))

    with psycopg.connect(url, autocommit=True) as connection:
        migrate(connection, tmp_path)
        connection.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "autoreply"}\')')
        thread = threading.Thread(target=newest)
        with psycopg.connect(url) as job:
            # The migration gives way before the server looks for a deadlock: also where it gets no processor meanwhile.
            job.execute("SET LOCAL deadlock_timeout = '60s'")
            job.execute("SELECT FROM ai_jobs FOR NO KEY UPDATE")
            thread.start()
            eventually(lambda: connection.execute(WAITING).fetchall())
            job.execute("UPDATE job_types SET failures_in_row = 0")
            job.execute("INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)"
                        " SELECT id, run, 1, now(), now(), 'done' FROM ai_jobs")  # fmt: skip
            eventually(lambda: not connection.execute(WAITING).fetchall())  # it has given way
            job.commit()
        thread.join()
    assert applied == [migration.name for migration in available()][4:]


def test_a_migration_whose_tables_stay_in_use_says_so_and_changes_nothing(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    (tmp_path / "0001_one.sql").write_text("CREATE TABLE one ()")
    url = postgres.create("migrate_in_use")
    with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url) as holder:
        migrate(connection, tmp_path)
        holder.execute("SELECT FROM one")
        (tmp_path / "0002_two.sql").write_text("CREATE TABLE two (); ALTER TABLE one ADD COLUMN three int")
        with pytest.raises(UserError, match=r"0002_two is not applied: its tables were in use at each of 2 tries"):
            migrate(connection, tmp_path, tries=2)
        assert version(connection) == 1
        holder.rollback()
        assert migrate(connection, tmp_path) == ["0002_two"]
