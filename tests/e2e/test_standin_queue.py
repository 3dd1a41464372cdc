"""The storage queue stand-in, through Azure's own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError, ServiceResponseError
from azure.storage.queue import QueueClient, QueueMessage, QueueServiceClient

from local.standins.storage_queue import QueueStandIn
from shared.errors import UserError
from tests.fakes.eventually import eventually

Puts = list[tuple[str, float]]


@pytest.fixture(scope="module")
def puts() -> Puts:
    return []


@pytest.fixture(scope="module")
def queues(puts: Puts) -> Iterator[QueueStandIn]:
    with QueueStandIn(on_put=lambda name, seconds: puts.append((name, seconds))) as standin:
        yield standin


@pytest.fixture(scope="module")
def service(queues: QueueStandIn) -> QueueServiceClient:
    return QueueServiceClient.from_connection_string(queues.connection_string, retry_total=0)


@pytest.fixture
def queue(service: QueueServiceClient, queues: QueueStandIn, puts: Puts) -> Iterator[QueueClient]:
    client = service.create_queue("wake")
    puts.clear()
    queues.faults.clear()
    yield client
    client.delete_queue()


def test_a_message_is_put_taken_and_deleted(queue: QueueClient, puts: Puts) -> None:
    queue.send_message("hé <wake> & co")
    taken = queue.receive_message(visibility_timeout=30)
    assert taken is not None
    assert (taken.content, taken.dequeue_count) == ("hé <wake> & co", 1)
    assert queue.receive_message() is None, "it is hidden while somebody has it"
    queue.delete_message(taken)
    assert queue.get_queue_properties().approximate_message_count == 0
    assert puts == [("wake", 0.0)]


def test_a_delayed_message_comes_when_it_is_due(queue: QueueClient, puts: Puts) -> None:
    queue.send_message("much later", visibility_timeout=600)
    assert queue.receive_message() is None
    queue.send_message("later", visibility_timeout=1)
    assert puts == [("wake", 600.0), ("wake", 1.0)]
    assert _next(queue).content == "later"
    assert queue.receive_message() is None


def test_an_untouched_message_comes_back_and_counts(queue: QueueClient) -> None:
    queue.send_message("again")
    assert queue.receive_message(visibility_timeout=1) is not None
    assert _next(queue).dequeue_count == 2


def test_an_update_changes_the_receipt(queue: QueueClient) -> None:
    queue.send_message("first")
    taken = queue.receive_message()
    assert taken is not None
    updated = queue.update_message(taken, visibility_timeout=0, content="second")
    with pytest.raises(HttpResponseError) as wrong:
        queue.delete_message(taken.id, taken.pop_receipt)
    assert (wrong.value.status_code, _code(wrong.value)) == (400, "PopReceiptMismatch")
    assert [message.content for message in queue.peek_messages(5)] == ["second"]
    queue.delete_message(updated.id, updated.pop_receipt)
    with pytest.raises(ResourceNotFoundError) as gone:
        queue.delete_message(updated.id, updated.pop_receipt)
    assert _code(gone.value) == "MessageNotFound"


def test_many_come_in_order_and_in_pages(queue: QueueClient) -> None:
    for number in range(40):
        queue.send_message(str(number))
    pages = [[item.content for item in page] for page in queue.receive_messages(messages_per_page=32).by_page()]
    assert [content for page in pages for content in page] == [str(number) for number in range(40)]
    assert len(pages[0]) == 32


def test_queues_are_listed_described_and_made_once(queue: QueueClient, service: QueueServiceClient) -> None:
    with pytest.raises(ResourceExistsError):
        service.create_queue("wake")
    service.create_queue("wake-poison", metadata={"why": "failed"})
    assert [item.name for item in service.list_queues()] == ["wake", "wake-poison"]
    poison = service.get_queue_client("wake-poison")
    assert poison.get_queue_properties().metadata == {"why": "failed"}
    with pytest.raises(ResourceExistsError):
        service.create_queue("wake-poison", metadata={"why": "other"})
    service.delete_queue("wake-poison")
    queue.clear_messages()


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("no-such", 404, "QueueNotFound"), ("No_Such", 400, "InvalidResourceName"), ("ab", 400, "OutOfRangeInput")],
)
def test_names_are_checked(service: QueueServiceClient, name: str, status: int, code: str) -> None:
    with pytest.raises(HttpResponseError) as wrong:
        service.get_queue_client(name).send_message("x")
    assert (wrong.value.status_code, _code(wrong.value)) == (status, code)


def test_a_message_may_have_64_kib(queue: QueueClient) -> None:
    queue.send_message("x" * 65536)
    with pytest.raises(HttpResponseError) as wrong:
        queue.send_message("x" * 65537)
    assert wrong.value.status_code == 413


def test_faults_strike_before_or_after(queue: QueueClient, queues: QueueStandIn) -> None:
    def count() -> Any:
        return queue.get_queue_properties().approximate_message_count

    queues.faults.add("put", "status", status=503, times=1)
    with pytest.raises(HttpResponseError) as busy:
        queue.send_message("x")
    assert (busy.value.status_code, _code(busy.value), count()) == (503, "ServerBusy", 0)
    queues.faults.add("put", "drop_before", times=1)
    with pytest.raises(ServiceResponseError):
        queue.send_message("x")
    assert count() == 0
    queues.faults.add("put", "drop_after", times=1)
    with pytest.raises(ServiceResponseError):
        queue.send_message("x")
    assert count() == 1
    queues.faults.add("get", "drop_after", times=1)
    with pytest.raises(ServiceResponseError):
        queue.receive_message()
    assert queue.receive_message() is None, "taken, though nobody knows"
    assert queues.faults.rules() == []


def test_a_port_in_use_is_one_sentence(queues: QueueStandIn) -> None:
    with pytest.raises(UserError, match=f"Port {queues.port} is in use"):
        QueueStandIn(port=queues.port).start()


def _next(queue: QueueClient) -> QueueMessage:
    found: list[QueueMessage | None] = []

    def came() -> bool:
        found.append(queue.receive_message())
        return found[-1] is not None

    eventually(came)
    message = found[-1]
    assert message is not None
    return message


def _code(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None)  # set by the client, not declared
    return str(getattr(code, "value", code))
