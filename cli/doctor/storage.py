"""The wake queue. Only its properties are read: a message of ours would wake a worker, and hide nothing that they don't show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from cli.doctor import sign_in
from cli.doctor.finding import Finding, left_out, ok, wrong
from cli.doctor.setup import Setup
from shared.clients.wake import QUEUE_NAME, StorageWake, open_wake
from shared.errors import FailureKind, classify, shorten

NEEDED: tuple[str, ...] = ()
CHECK = "storage queue"
SECONDS = 15.0


def check(setup: Setup) -> Iterator[Finding]:
    """Read how many messages wait."""
    wake = open_wake(setup.settings)
    if not isinstance(wake, StorageWake):
        yield left_out(CHECK, "AzureWebJobsStorage is not set here; without it the timer alone finds the jobs.")
        return
    try:
        yield ok(CHECK, f"Reached; about {_within(SECONDS, wake.count)} messages wait in {QUEUE_NAME!r}.")
    except Exception as error:  # noqa: BLE001 - whatever the library raises is a finding
        yield _failed(error, by_key=bool(setup.settings.azurewebjobsstorage))


def _within(seconds: float, ask: Callable[[], int]) -> int:
    """The answer. The library limits each read, not the whole call: one that drips is left to itself."""
    answered: Future[int] = Future()

    def run() -> None:
        try:
            answered.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - handed to who waits
            answered.set_exception(error)

    threading.Thread(target=run, name="storage", daemon=True).start()
    try:
        return answered.result(seconds)
    except TimeoutError as late:
        raise TimeoutError(f"no answer within {seconds:g} s") from late


def _failed(error: Exception, *, by_key: bool) -> Finding:
    text, status = shorten(error), getattr(error, "status_code", None)
    if getattr(error, "error_code", None) == "QueueNotFound":
        if by_key:
            return ok(CHECK, f"Reached; {QUEUE_NAME!r} is made with the first message.")
        return wrong(
            CHECK,
            f"There is no queue {QUEUE_NAME!r}: run `azd provision`, or `az storage queue create -n {QUEUE_NAME}`.",
        )
    if status in (401, 403) or classify(error).kind is FailureKind.CREDENTIAL:
        if by_key:
            return wrong(CHECK, f"The key in AzureWebJobsStorage is refused: take the account's present one. {text}")
        return sign_in.refused(CHECK, status, "Storage Queue Data Reader", text)
    if isinstance(error, ValueError):
        return wrong(CHECK, "AzureWebJobsStorage is not a connection string: copy it from the account's access keys.")
    return wrong(CHECK, f"It cannot be reached: check the storage account's name, and its firewall. {text}")
