"""Employees of the demo who write to a running `up`, and the faults of the model that meet their questions."""

from __future__ import annotations

import requests

from local.phone.switches import MODEL
from local.standins.azure_openai import OpenAIStandIn
from local.standins.faults import read_rule
from tests.e2e.up_process import UpProcess
from tests.fakes.eventually import eventually

# The last figures of the demo's numbers.
NUMBERS = {
    "Bram de Wit": 2, "Chloe Walker": 3, "Daan Visser": 4, "Emeka Okafor": 5, "Fatma Yildiz": 6, "Grace Mensah": 7,
    "Ines Ferreira": 9, "Joris Bakker": 10, "Katarzyna Nowak": 11, "Lotte van den Berg": 12, "Milan Petrović": 13,
    "Noor Smit": 14, "Omar El Amrani": 15, "Priya Sharma": 16, "Ruben Meijer": 17, "Sanne Mulder": 18, "Tom O'Brien": 19,
    "Aisha Bennani": 1, "Hugo Janssen": 8, "Yara Pinas": 20,
}  # fmt: skip


class Employees:
    """Those who write, and the faults of the model that meet their questions."""

    def __init__(self, up: UpProcess, model: OpenAIStandIn) -> None:
        self._up, self._model = up, model

    def writes(self, name: str, text: str) -> None:
        """A message comes in; it is stored, so that somebody's newest job is not one of an earlier test."""
        given = {"from": self.phone(name), "body": text}
        answer = requests.post(f"{self._up.page_url}messages", json=given, timeout=30)
        answer.raise_for_status()
        sql, sid = "SELECT id FROM messages WHERE provider_sid = %(sid)s", answer.json()["sid"]
        eventually(lambda: self._up.database.value(sql, sid=sid), what=f"{name}'s message")

    def phone(self, name: str) -> str:
        """Somebody's number."""
        return f"+3197000000{NUMBERS[name]:02}"

    def meet(self, fault: str | None = None) -> None:
        """From now on the model has this fault alone, or none."""
        self._model.faults.clear()
        for rule in MODEL[fault].rules if fault else ():
            self._model.faults.put(read_rule(rule))

    def job_is(self, name: str, status: str, attempts: int) -> None:
        """Wait until somebody's newest job stands like this."""
        sql = """SELECT j.status, j.attempts FROM ai_jobs j JOIN conversations c ON c.id = j.conversation_id
            WHERE c.address = %(phone)s AND j.type = 'autoreply' ORDER BY j.seq DESC LIMIT 1"""
        wanted, phone = [(status, attempts)], self.phone(name)
        eventually(lambda: self._up.database.rows(sql, phone=phone) == wanted, what=f"{name}'s job that is {wanted}")

    def fail(self, question: str, *names: str) -> None:
        """Each of them asks what the model's content filter stops."""
        self.meet("content_filter")
        for name in names:
            self.writes(name, question)
        for name in names:
            self.job_is(name, "failed", 1)
        self.meet()

    def conversation(self, name: str) -> str:
        """The path of somebody's conversation."""
        sql = "SELECT id FROM conversations WHERE address = %(phone)s"
        return f"/conversations/{eventually(lambda: self._up.database.value(sql, phone=self.phone(name)))}"
