"""What people ask, write and upload in the browser tests of the console, in each screen's language; and rows of a whole day."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import requests

from shared.signature import sign_standard
from tests.e2e.phone_page import DESKTOP, PHONE


@dataclass(frozen=True)
class Asked:
    """A question in the screen's language, and words of its answer."""

    question: str
    answer: str


HOLIDAY = {
    PHONE: Asked("Hoeveel vakantie-uren heb ik?", "200 vakantie-uren"),
    DESKTOP: Asked("How does the bike plan work?", "bicycle"),
}
SICK = {
    PHONE: Asked("Hoe laat moet ik bellen als ik ziek ben?", "ziek"),
    DESKTOP: Asked("When is my holiday allowance paid?", "May"),
}
PERSON_PLEASE = {PHONE: "medewerker", DESKTOP: "help"}
OWN_WORDS = {PHONE: "Ik zoek het voor je uit.", DESKTOP: "I will find out for you."}
DOCUMENT = {
    PHONE: ("stalling.md", "Fietsenstalling", "De fietsenstalling onder de toren is open van zeven tot tien uur."),
    DESKTOP: ("locker.md", "Lockers", "A locker in the basement of the tower is opened with your staff card."),
}
DOCUMENT_QUESTION = {PHONE: "Wanneer is de fietsenstalling open?", DESKTOP: "How is a locker opened?"}
TABLE = {
    PHONE: """Naam;Mobiel;Afdeling;Taal;Verlofuren
Proef Een;06-57000001;Zorg;nl;40
Proef Twee;06-57000002;Zorg;nl;8
Proef Drie;12;;;
""",
    DESKTOP: """name,phone,department,language,hours of leave
Trial One,+31 6 57000003,Care,en,40
Trial Two,0031657000004,Care,en,8
Trial Three,12,,,
""",
}
FIRST_OF_TABLE = {PHONE: ("Proef Een", "+31657000001"), DESKTOP: ("Trial One", "+31657000003")}
ADD_DEAD = """
    INSERT INTO ai_jobs (payload, status, error_class)
    SELECT jsonb_build_object('type', %(kind)s::text), 'failed', 'timeout' FROM generate_series(1, %(count)s)
"""
# An administrator's message that may have left so many minutes ago, or that never did (null), and the dead letter behind it.
ADD_STUCK = """
    WITH message AS (
        INSERT INTO messages (id, conversation_id, from_self, source, body, status, held_reason, reply_id, part, parts,
            send_attempt, send_started_at)
        SELECT id, %(talk)s::uuid, true, 'admin', %(body)s, 'held',
            CASE WHEN %(minutes)s::int IS NULL THEN 'earlier_part' ELSE 'it may have been sent' END, id, 1, 1, 1,
            now() - make_interval(mins => %(minutes)s)
        FROM gen_random_uuid() AS new (id)
        RETURNING id, conversation_id
    )
    INSERT INTO ai_jobs (payload, conversation_id, status, error_class, attempts)
    SELECT jsonb_build_object('type', 'send_message', 'message_id', id), conversation_id, 'failed', 'held', 1 FROM message
"""
# A day of an endpoint's deliveries, two a minute: one in fifty needed a second try, a few around its noon died.
ADD_DELIVERED = """
    WITH made AS MATERIALIZED (
        SELECT gen_random_uuid() AS id, gen_random_uuid() AS event, now() - n * interval '30 seconds' AS at,
            n %% 50 = 3 AS is_second, n BETWEEN 1400 AND 1500 AND n %% 9 = 0 AS died, 0.15 + (n * 7919 %% 100) / 400.0 AS seconds,
            (SELECT id FROM webhook_endpoints WHERE name = %(name)s) AS endpoint
        FROM generate_series(1, 2880) n
    ), event AS (
        INSERT INTO webhook_events (id, type, data, received_at) SELECT event, 'history', '{}', at FROM made
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, tries, delivered_at, died_at, latency_seconds)
        SELECT id, event, endpoint, gen_random_uuid(), CASE WHEN died THEN 'dead' ELSE 'delivered' END, 1 + is_second::int,
            CASE WHEN NOT died THEN at END, CASE WHEN died THEN at END, CASE WHEN NOT died THEN seconds + is_second::int * 9 END
        FROM made
    )
    INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at, ended, outcome)
    SELECT id, try, endpoint, 1, at, at, at, CASE WHEN died OR try < 1 + is_second::int THEN 'failed' ELSE 'delivered' END
    FROM made, generate_series(1, 1 + is_second::int) try
"""


def send_event(address: str, secret: str, event_type: str) -> None:
    """What the source's system would post."""
    event_id, now = f"evt-{event_type.replace('.', '-')}", int(time.time())
    body = json.dumps({"id": event_id, "type": event_type, "created_at": now, "data": {"id": "shift-7"}}).encode()
    headers = {"webhook-id": event_id, "webhook-timestamp": str(now), "Content-Type": "application/json",
               "webhook-signature": sign_standard(event_id, now, body, secret)}  # fmt: skip
    sent = requests.post(address, data=body, headers=headers, timeout=10)
    assert sent.status_code < 300, sent.text
