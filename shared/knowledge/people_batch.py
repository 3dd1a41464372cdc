"""One batch of an import, written as a whole: people, the jobs that embed their records, the report and the progress.

Who a row is about: the person with its employee number, or else the one with its phone number. A row whose number belongs to
an active colleague with another employee number and another name is rejected, for a slip of the finger must not hand
one person's record to another. A number whose holder has left was handed on: the row takes over, with nothing of the old record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared.db.pool import Conn, one
from shared.errors import LeaseLost, PermanentError
from shared.knowledge.people_file import Table, reopened
from shared.knowledge.people_record import RECORDS_A_SECOND
from shared.knowledge.people_rows import PersonRow, fields_of
from shared.queue.job import Write

RECORDS_AT_ONCE = 100  # of an import: their jobs are due together, the others follow at RECORDS_A_SECOND
REASON_CHARACTERS = 500

# Batches of two imports never interleave: what one has judged must still be so when it is written.
LOCK_IMPORTS = "SELECT pg_advisory_xact_lock(7247002)"
READ_IMPORT = """
    SELECT id, source, content, column_map, delimiter, encoding, dry_run, state, rows_total, next_line
    FROM imports WHERE id = %(id)s
"""
# The conversations whose person changes with a number that moves, locked before anything is written.
MOVING = """
    SELECT p.phone, g.phone
    FROM jsonb_to_recordset(%(rows)s) AS g (phone text, external_id text) JOIN people p ON p.external_id = g.external_id
    WHERE p.phone <> g.phone
"""
LOCK_CONVERSATIONS = """
    SELECT FROM conversations WHERE address = ANY (%(addresses)s) ORDER BY id FOR NO KEY UPDATE
"""
# A conversation belongs to whoever has its number now: the next holder of the old one must not be taken for this person.
RELINK = """
    UPDATE conversations c SET person_id = (SELECT p.id FROM people p WHERE p.phone = c.address)
    WHERE c.address = ANY (%(addresses)s)
"""
# `fields` are those that the file has a column for, `attributes` its other columns. A pending job of a person reads what is
# written here, for its row is locked until the commit; if it cannot be locked it is being claimed, and another job is made.
# The jobs fall due one after another: they are claimed in the order of their due times, and answers must not wait behind all.
WRITE = """
    WITH given AS MATERIALIZED (
        SELECT g.line, g.reason, g.phone, g.name, g.language, g.department, g.external_id, g.attributes, g.has_left,
            g.last_day, known.id AS known_id, holder.id AS holder_id,
            coalesce(holder.external_id, holder.name) AS holder_shown,
            coalesce(lower(g.name) <> lower(holder.name), false) AS is_renamed,
            coalesce(g.external_id <> holder.external_id, false) AS is_renumbered,
            coalesce(holder.left_at <= now(), false) AS holder_has_left
        FROM jsonb_to_recordset(%(rows)s) AS g (line int, reason text, phone text, name text, language text,
            department text, external_id text, attributes jsonb, has_left boolean, last_day date)
        LEFT JOIN LATERAL (
            SELECT id FROM people WHERE external_id = g.external_id ORDER BY phone = g.phone DESC, id LIMIT 1) known ON true
        LEFT JOIN people holder ON holder.phone = g.phone
    ), matched AS MATERIALIZED (
        SELECT g.*, CASE
            WHEN known_id <> holder_id THEN NULL
            WHEN known_id IS NULL AND is_renamed AND is_renumbered AND NOT holder_has_left THEN NULL
            ELSE coalesce(known_id, holder_id) END AS person_id,
            known_id IS NULL AND is_renamed AND holder_has_left AND (is_renumbered OR NOT has_left) AS handed_on
        FROM given g
    ), judged AS MATERIALIZED (
        SELECT m.*, coalesce(reason, CASE
            WHEN holder_id IS NOT NULL AND (person_id IS NULL
                OR row_number() OVER (PARTITION BY person_id ORDER BY known_id IS NULL, line) > 1)
            THEN 'phone_taken: ' || left(holder_shown, 100) END) AS refusal
        FROM matched m
    ), wanted AS MATERIALIZED (
        SELECT j.line, j.refusal, j.handed_on, p.id AS person_id, j.phone, j.name,
            CASE WHEN handed_on THEN j.external_id ELSE coalesce(j.external_id, p.external_id) END AS external_id,
            CASE WHEN handed_on OR 'language' = ANY (%(fields)s) THEN j.language ELSE p.language END AS language,
            CASE WHEN handed_on OR 'department' = ANY (%(fields)s) THEN j.department ELSE p.department END AS department,
            CASE WHEN handed_on THEN '{}' ELSE coalesce(p.attributes, '{}') - %(attributes)s::text[] END || j.attributes
                AS attributes,
            CASE
                WHEN j.last_day IS NOT NULL THEN (j.last_day + time '23:59:59') AT TIME ZONE 'Europe/Amsterdam'
                WHEN j.has_left THEN coalesce(p.left_at, now())
                WHEN NOT handed_on AND NOT 'left_at' = ANY (%(fields)s) THEN p.left_at
            END AS left_at,
            (p.phone, p.name, p.external_id, p.language, p.department, p.attributes, p.left_at) AS present
        FROM judged j LEFT JOIN people p ON p.id = j.person_id AND j.refusal IS NULL
    ), outcomes AS MATERIALIZED (
        SELECT w.*, CASE
            WHEN refusal IS NOT NULL THEN 'rejected'
            WHEN person_id IS NULL THEN 'added'
            WHEN (phone, name, external_id, language, department, attributes, left_at) IS DISTINCT FROM present THEN 'changed'
            ELSE 'unchanged' END AS outcome
        FROM wanted w
    ), added AS (
        INSERT INTO people (phone, name, language, department, attributes, external_id, left_at)
        SELECT phone, name, language, department, attributes, external_id, left_at FROM outcomes
        WHERE outcome = 'added' AND NOT %(dry_run)s ORDER BY line
        RETURNING id
    ), changed AS (
        UPDATE people p SET phone = o.phone, name = o.name, language = o.language, department = o.department,
            attributes = o.attributes, external_id = o.external_id, left_at = o.left_at, updated_at = now()
        FROM outcomes o WHERE o.outcome = 'changed' AND p.id = o.person_id AND NOT %(dry_run)s
        RETURNING p.id
    ), forgotten AS (
        DELETE FROM chunks c USING outcomes o WHERE o.handed_on AND c.person_id = o.person_id AND NOT %(dry_run)s
    ), pending AS MATERIALIZED (
        SELECT j.payload ->> 'id' AS id FROM ai_jobs j
        WHERE j.type = 'embed_record' AND j.status = 'pending' AND j.payload ->> 'record' = 'person'
            AND (j.payload ->> 'id' IN (SELECT person_id::text FROM outcomes WHERE outcome = 'changed' AND NOT %(dry_run)s))
                IS TRUE  -- a hash of the few that changed; as a join it would be a loop over both
        FOR KEY SHARE OF j SKIP LOCKED
    ), jobs AS (
        INSERT INTO ai_jobs (payload, next_run_at)
        SELECT jsonb_build_object('type', 'embed_record', 'record', 'person', 'id', id),
            now() + make_interval(secs => greatest(0, (SELECT i.added + i.changed FROM imports i WHERE i.id = %(import_id)s)
                + row_number() OVER () - %(at_once)s) / %(a_second)s)
        FROM (SELECT id FROM added
              UNION ALL SELECT id FROM changed WHERE id::text NOT IN (SELECT id FROM pending)) AS due
    ), reported AS (
        INSERT INTO import_rows (import_id, line, outcome, reason)
        SELECT %(import_id)s, line, outcome, refusal FROM outcomes
    )
    UPDATE imports i SET state = 'running', reason = NULL, ended_at = NULL, next_line = %(next_line)s,
        rows_done = i.rows_done + n.done, added = i.added + n.added, changed = i.changed + n.changed,
        unchanged = i.unchanged + n.unchanged, rejected = i.rejected + n.rejected
    FROM (SELECT count(*) AS done, count(*) FILTER (WHERE outcome = 'added') AS added,
              count(*) FILTER (WHERE outcome = 'changed') AS changed,
              count(*) FILTER (WHERE outcome = 'unchanged') AS unchanged,
              count(*) FILTER (WHERE outcome = 'rejected') AS rejected
          FROM outcomes) n
    WHERE i.id = %(import_id)s AND i.next_line = %(this_line)s AND i.state <> 'done'
    RETURNING i.id
"""
FINISH = """
    UPDATE imports SET state = 'done', content = NULL, reason = NULL, ended_at = now() WHERE id = %(id)s AND state <> 'done'
"""
FAIL = """
    UPDATE imports SET state = 'failed', reason = %(reason)s, ended_at = now()
    WHERE id = %(id)s AND state IN ('waiting', 'running')
"""


@dataclass(frozen=True, slots=True)
class Import:
    """A row of imports, as its job reads it; `next_line` is where the next batch begins."""

    id: UUID
    source: str
    content: bytes | None
    column_map: dict[str, str]
    delimiter: str
    encoding: str
    dry_run: bool
    state: str
    rows_total: int
    next_line: int


def read_import(connection: Conn, import_id: UUID) -> Import | None:
    """An import with its file, or None when it has been removed."""
    with connection.cursor(row_factory=class_row(Import)) as cursor:
        return cursor.execute(READ_IMPORT, {"id": import_id}).fetchone()


def table_of(found: Import) -> Table:
    """The file of an import, read as it was when the import was started. Raises PermanentError when it is gone."""
    if found.content is None:
        raise PermanentError("no_content", "the file of this import is gone: import it once more")
    return reopened(
        found.source, found.content, encoding=found.encoding, delimiter=found.delimiter, mapped=found.column_map
    )


def write_batch(
    connection: Conn, table: Table, rows: Sequence[PersonRow], *, import_id: UUID, this_line: int, dry_run: bool
) -> int:
    """Write a batch in the caller's transaction; where the next one begins.

    `this_line` is where this one was to begin: raises LeaseLost when the import has moved on since. A dry run writes the report
    and the progress alone.
    """
    given = Jsonb([row.as_json() for row in rows])
    next_line = rows[-1].line + 1
    connection.execute(LOCK_IMPORTS)
    moving = connection.execute(MOVING, {"rows": given}).fetchall() if not dry_run else []
    addresses = {"addresses": [address for pair in moving for address in pair]}
    if moving:
        connection.execute(LOCK_CONVERSATIONS, addresses)
    parameters = {
        "rows": given,
        "fields": fields_of(table),
        "attributes": list(table.attributes),
        "dry_run": dry_run,
        "import_id": import_id,
        "at_once": RECORDS_AT_ONCE,
        "a_second": RECORDS_A_SECOND,
        "this_line": this_line,
        "next_line": next_line,
    }
    if one(connection, WRITE, parameters) is None:
        raise LeaseLost(f"import {import_id} has moved on")
    if moving:
        connection.execute(RELINK, addresses)
    return next_line


def finish(import_id: UUID) -> Write:
    """The import is done and its file is dropped."""
    return Write(FINISH, {"id": import_id})


def fail(import_id: UUID, reason: str) -> Write:
    """The import has died; its file is kept, so that a restart of the job goes on where it stopped."""
    return Write(FAIL, {"id": import_id, "reason": reason[:REASON_CHARACTERS]})
