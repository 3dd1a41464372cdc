"""The fault matrix: what becomes of message, job and employee, by what happens to the request and what a look-up finds.

The table is the specification: a test a cell checks it with the real client against the stand-in (test_fault_matrix_*.py),
and docs/reply.md shows it. After a change: `python -m tests.e2e.matrix` writes it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reply.md"
BEGIN, END = "<!-- matrix: written by python -m tests.e2e.matrix -->", "<!-- end of the matrix -->"

# What is in the table's cells. `-` stands for what the row's first cell says: the look-up is never asked.
TABLE = """
| request                              | shows it | empty | after 30 s | fails | redacted | foreign | clock 20 s | clock 90 s | empty, hold |
| ------------------------------------ | -------- | ----- | ---------- | ----- | -------- | ------- | ---------- | ---------- | ----------- |
| the name is not found (DNS)          | retried  | -     | -          | -     | -        | -       | -          | -          | -           |
| connection refused                   | retried  | -     | -          | -     | -        | -       | -          | -          | -           |
| certificate not trusted (TLS)        | retried  | -     | -          | -     | -        | -       | -          | -          | -           |
| connection never opens               | retried  | -     | -          | -     | -        | -       | -          | -          | -           |
| 400 refused                          | refused  | -     | -          | -     | -        | -       | -          | -          | -           |
| 401 key refused                      | rests    | -     | -          | -     | -        | -       | -          | -          | -           |
| 403 not allowed                      | rests    | -     | -          | -     | -        | -       | -          | -          | -           |
| 404 not found                        | refused  | -     | -          | -     | -        | -       | -          | -          | -           |
| 429 too many, Retry-After: 7         | retried  | -     | -          | -     | -        | -       | -          | -          | -           |
| 429 too many                         | retried  | -     | -          | -     | -        | -       | -          | -          | -           |
| no answer in time, not accepted yet  | found    | again | found      | held 0 | again    | held 0  | again      | held 0     | held 0      |
| no answer in time, accepted          | found    | twice | found      | held 1 | held 1   | held 1  | found      | held 1     | held 1      |
| connection lost, not accepted yet    | found    | again | found      | held 0 | again    | held 0  | again      | held 0     | held 0      |
| connection lost, accepted            | found    | twice | found      | held 1 | held 1   | held 1  | found      | held 1     | held 1      |
| 409 conflict                         | found    | again | found      | held 0 | again    | held 0  | again      | held 0     | held 0      |
| 500, not accepted yet                | found    | again | found      | held 0 | again    | held 0  | again      | held 0     | held 0      |
| 502 from a gateway, accepted         | found    | twice | found      | held 1 | held 1   | held 1  | found      | held 1     | held 1      |
| 503, not accepted yet                | found    | again | found      | held 0 | again    | held 0  | again      | held 0     | held 0      |
| 201 with a broken body, accepted     | found    | twice | found      | held 1 | held 1   | held 1  | found      | held 1     | held 1      |
| 201, one byte at a time, accepted    | found    | twice | found      | held 1 | held 1   | held 1  | found      | held 1     | held 1      |
"""  # noqa: E501

# What a look-up meets.
COLUMNS = {
    "shows it": "Twilio's list shows our message (where it was not accepted yet: it was, just after the connection ended)",
    "empty": "the list shows the message before it and never ours",
    "after 30 s": "the list shows ours 30 seconds later",
    "fails": "no look-up succeeds",
    "redacted": "the account keeps no bodies: the list shows that there are messages, and no text",
    "foreign": "somebody else who uses the account has written to the same employee meanwhile",
    "clock 20 s": "Twilio's clock is 20 seconds ahead; the list shows what there is",
    "clock 90 s": "Twilio's clock is 90 seconds ahead; the list shows what there is",
    "empty, hold": "as empty, with `AMBIGUOUS_SEND=hold`",
}


@dataclass(frozen=True)
class End:
    """What there is at the end, and `at_first` just after the request: message, job.

    `employee` counts the answers that Twilio accepted for the employee; `asked` is why a person is asked.
    """

    at_first: str
    message: str
    job: str
    employee: int
    error_class: str | None = None
    evidence: str | None = "answer"
    attempts: int = 2
    apologies: int = 0
    asked: str | None = None
    looks: bool = False
    drafts: int = 1  # paid for


@dataclass(frozen=True)
class Outcome:
    """What a word in the table's cells stands for."""

    words: str
    end: End


_HELD = "the message is held, the job is in the dead letters, a person is asked; the employee has "
_DOUBT, _DRAFT = "sending, pending", "draft, pending"
OUTCOMES = {
    "retried": Outcome(
        "surely not sent: the draft waits and goes out at the next try; Twilio's list is not asked",
        End(_DRAFT, "sent", "done", 1),
    ),
    "rests": Outcome(
        "surely not sent, and our key is at fault: all sending rests and an alarm is logged; when the key is right again "
        "the draft goes out",
        End(_DRAFT, "sent", "done", 1),
    ),
    "refused": Outcome(
        "surely not sent, and never will be: the job is in the dead letters, a person is asked, the employee gets one "
        "line of apology",
        End("failed, failed", "failed", "failed", 0, error_class="rejected", evidence=None, attempts=1, apologies=1,
            asked="rejected"),
    ),
    "found": Outcome(
        "the list proves that it was accepted: sent, done",
        End(_DOUBT, "sent", "done", 1, evidence="list", attempts=1, looks=True),
    ),
    "again": Outcome(
        "two empty look-ups in a row, the last after the window: it is sent again, done",
        End(_DOUBT, "sent", "done", 1, looks=True),
    ),
    "held 0": Outcome(
        _HELD + "nothing yet",
        End(_DOUBT, "held", "failed", 0, error_class="held", evidence=None, attempts=1, asked="held", looks=True),
    ),
    "held 1": Outcome(
        _HELD + "the answer",
        End(_DOUBT, "held", "failed", 1, error_class="held", evidence=None, attempts=1, asked="held", looks=True),
    ),
    "twice": Outcome(
        "**the assumption about the list is broken**: it was accepted, and for the whole window no list and no callback "
        "said so; it is sent again and the employee has it twice",
        End(_DOUBT, "sent", "done", 2, looks=True),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One cell: the row's and the column's names, and the name of what is to come of it."""

    request: str
    lookup: str
    outcome: str

    @property
    def end(self) -> End:
        """What is to come of it."""
        return OUTCOMES[self.outcome].end

    def __str__(self) -> str:
        return f"{self.request}-{self.lookup}".replace(" ", "_")


def _cells() -> list[Cell]:
    head, _, *lines = [[part.strip() for part in line.split("|")[1:-1]] for line in TABLE.strip().splitlines()]
    assert head[1:] == list(COLUMNS), "the columns of the table are those that are explained"
    found: list[Cell] = []
    for request, *outcomes in lines:
        assert len(outcomes) == len(COLUMNS), request
        for lookup, outcome in zip(COLUMNS, outcomes, strict=True):
            found.append(Cell(request, lookup, outcomes[0] if outcome == "-" else outcome))
            assert found[-1].outcome in OUTCOMES, found[-1]
    return found


CELLS = _cells()
ROWS = list(dict.fromkeys(cell.request for cell in CELLS))
SURE = [row for row in ROWS if all(not cell.end.looks for cell in CELLS if cell.request == row)]


def as_markdown() -> str:
    """The table with its legends, as docs/reply.md has it."""
    legend = [f"| {name} | {outcome.words} |" for name, outcome in OUTCOMES.items()]
    columns = [f"| {name} | {words} |" for name, words in COLUMNS.items()]
    return "\n".join(
        [
            BEGIN,
            "*What happens to the request* (rows) and *what a look-up then meets* (columns); `-`: as the row's first cell.",
            "",
            *TABLE.strip().splitlines(),
            "",
            "| in a cell | what it means for message, job and employee |",
            "|---|---|",
            *legend,
            "",
            "| column | what a look-up meets |",
            "|---|---|",
            *columns,
            END,
        ]
    )


def main() -> None:
    """Put the table into the document."""
    text = DOCUMENT.read_text("utf-8")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(before + as_markdown() + rest.split(END)[1], "utf-8")


if __name__ == "__main__":
    main()
