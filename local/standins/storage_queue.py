"""A stand-in for Azure's storage queue: the calls that `azure-storage-queue` makes, on loopback.

    http://127.0.0.1:PORT/devstoreaccount1/{queue}[/messages[/{id}]]

Signatures are accepted unverified. Queues live in memory and are gone with the process.
"""

from __future__ import annotations

import base64
import re
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from email.utils import formatdate

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from local.standins.faults import FaultPlan
from local.standins.queue_messages import SECONDS_OF_LIFE, QueuedMessage, QueueError, Queues
from local.standins.server import Call, StandIn

ACCOUNT = "devstoreaccount1"
MESSAGE_BYTES_AT_MOST = 64 * 1024
MESSAGES_AT_MOST = 32
SECONDS_HIDDEN_AT_MOST = 7 * 24 * 3600
SECONDS_HIDDEN = 30


class QueueStandIn(StandIn):
    """Serves storage queues; `on_put(queue_name, visible_in_seconds)` is called after each put, in the server's thread.

    Usable as a context manager. Raises UserError when the port is in use.
    """

    def __init__(
        self,
        on_put: Callable[[str, float], None] | None = None,
        port: int = 0,
        *,
        faults: FaultPlan | None = None,
    ) -> None:
        super().__init__(port=port, faults=faults)
        self.queues = Queues()
        self._on_put = on_put

    @property
    def connection_string(self) -> str:
        """What AzureWebJobsStorage is set to; the key is a placeholder that nobody checks."""
        key = base64.b64encode(b"the stand-in checks no key").decode()
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};QueueEndpoint={self.url}/{ACCOUNT};"
        )

    def routes(self) -> list[BaseRoute]:
        """The account, its queues, their messages."""
        queue, messages = f"/{ACCOUNT}/{{queue}}", f"/{ACCOUNT}/{{queue}}/messages"
        return [
            self._route(f"/{ACCOUNT}", "GET", "list", self._list),
            self._route(f"/{ACCOUNT}/", "GET", "list", self._list),
            self._route(queue, "PUT", "create", self._create),
            self._route(queue, "GET", "fetch", self._describe),
            self._route(queue, "DELETE", "create", self._delete_queue),
            self._route(messages, "POST", "put", self._put),
            self._route(messages, "GET", "get", self._get),
            self._route(messages, "DELETE", "get", self._clear),
            self._route(messages + "/{message}", "PUT", "put", self._update),
            self._route(messages + "/{message}", "DELETE", "get", self._remove),
        ]

    def failure(self, status: int, code: int | str | None) -> Response:
        """The service's XML for an error."""
        name = str(code or ("ServerBusy" if status == 503 else "InternalError"))
        return _error(QueueError(status, name, "The stand-in was told to fail."))

    def _route(self, path: str, method: str, where: str, act: Callable[[Call], Response]) -> Route:
        def answer(call: Call) -> Response:
            try:
                if "queue" in call.request.path_params:
                    _check_name(call.request.path_params["queue"])
                return act(call)
            except QueueError as wrong:
                return _error(wrong)

        return Route(path, self.operation(where, answer), methods=[method])

    def _list(self, call: Call) -> Response:
        query = call.request.query_params
        prefix, marker = query.get("prefix", ""), query.get("marker", "")
        size = _whole(call, "maxresults", 5000, 1, 5000)
        found = [item for item in self.queues.names() if item[0].startswith(prefix) and item[0] >= marker]
        root = ET.Element("EnumerationResults", ServiceEndpoint=f"{self.url}/{ACCOUNT}")
        ET.SubElement(root, "Prefix").text = prefix
        ET.SubElement(root, "MaxResults").text = str(size)
        queues = ET.SubElement(root, "Queues")
        for name, metadata in found[:size]:
            queue = ET.SubElement(queues, "Queue")
            ET.SubElement(queue, "Name").text = name
            if "metadata" in query.get("include", ""):
                described = ET.SubElement(queue, "Metadata")
                for key, value in metadata.items():
                    ET.SubElement(described, key).text = value
        ET.SubElement(root, "NextMarker").text = found[size][0] if len(found) > size else ""
        return _xml(root)

    def _create(self, call: Call) -> Response:
        name = call.request.path_params["queue"]
        if call.request.query_params.get("comp") == "metadata":
            self.queues.set_metadata(name, _metadata(call))
            return _empty(204)
        return _empty(201 if self.queues.create(name, _metadata(call)) else 204)

    def _describe(self, call: Call) -> Response:
        metadata, count = self.queues.describe(call.request.path_params["queue"])
        headers = {f"x-ms-meta-{key}": value for key, value in metadata.items()}
        return _empty(200, headers | {"x-ms-approximate-messages-count": str(count)})

    def _delete_queue(self, call: Call) -> Response:
        self.queues.delete(call.request.path_params["queue"])
        return _empty(204)

    def _put(self, call: Call) -> Response:
        name = call.request.path_params["queue"]
        visible_in = _whole(call, "visibilitytimeout", 0, 0, SECONDS_HIDDEN_AT_MOST)
        lives = _whole(call, "messagettl", int(SECONDS_OF_LIFE), -1, 2**31 - 1)
        if lives == 0 or (lives > 0 and visible_in >= lives):
            raise _out_of_range("messagettl")
        message = self.queues.put(name, _text(call.body), visible_in, None if lives < 0 else lives)
        if self._on_put is not None:
            self._on_put(name, float(visible_in))
        return _messages([message], 201, text=False)

    def _get(self, call: Call) -> Response:
        name = call.request.path_params["queue"]
        count = _whole(call, "numofmessages", 1, 1, MESSAGES_AT_MOST)
        if call.request.query_params.get("peekonly") == "true":
            return _messages(self.queues.peek(name, count), 200, receipt=False)
        hidden = _whole(call, "visibilitytimeout", SECONDS_HIDDEN, 1, SECONDS_HIDDEN_AT_MOST)
        return _messages(self.queues.get(name, count, hidden), 200, count=True)

    def _clear(self, call: Call) -> Response:
        self.queues.clear(call.request.path_params["queue"])
        return _empty(204)

    def _update(self, call: Call) -> Response:
        where = call.request.path_params
        hidden = _whole(call, "visibilitytimeout", None, 0, SECONDS_HIDDEN_AT_MOST)
        text = _text(call.body) if call.body else None
        message = self.queues.update(where["queue"], where["message"], _pop_receipt(call), hidden, text)
        visible = formatdate(message.visible_at, usegmt=True)
        return _empty(204, {"x-ms-popreceipt": message.pop_receipt, "x-ms-time-next-visible": visible})

    def _remove(self, call: Call) -> Response:
        where = call.request.path_params
        self.queues.remove(where["queue"], where["message"], _pop_receipt(call))
        return _empty(204)


def _check_name(name: str) -> None:
    if not 3 <= len(name) <= 63:
        raise QueueError(400, "OutOfRangeInput", "One of the request inputs is out of range.")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise QueueError(400, "InvalidResourceName", "The specified resource name contains invalid characters.")


def _whole(call: Call, name: str, default: int | None, low: int, high: int) -> int:
    given = call.request.query_params.get(name)
    if given is None:
        if default is None:
            raise QueueError(400, "MissingRequiredQueryParameter", f"The query parameter {name} is missing.")
        return default
    if not re.fullmatch(r"-?\d+", given):
        raise QueueError(400, "InvalidQueryParameterValue", f"The query parameter {name} is not a number.")
    if not low <= int(given) <= high:
        raise _out_of_range(name)
    return int(given)


def _out_of_range(name: str) -> QueueError:
    return QueueError(400, "OutOfRangeQueryParameterValue", f"The query parameter {name} is out of range.")


def _pop_receipt(call: Call) -> str:
    receipt = call.request.query_params.get("popreceipt")
    if not receipt:
        raise QueueError(400, "MissingRequiredQueryParameter", "The query parameter popreceipt is missing.")
    return receipt


def _metadata(call: Call) -> dict[str, str]:
    return {
        name.removeprefix("x-ms-meta-"): value
        for name, value in call.request.headers.items()
        if name.startswith("x-ms-meta-")
    }


def _text(body: bytes) -> str:
    try:
        root = ET.fromstring(body)  # noqa: S314 - loopback only, and expat limits what entities may grow to
        text = root.findtext("MessageText")
    except ET.ParseError as wrong:
        raise QueueError(400, "InvalidXmlDocument", "XML specified is not syntactically valid.") from wrong
    if root.tag != "QueueMessage" or text is None:
        raise QueueError(400, "MissingRequiredXmlNode", "MessageText is missing.")
    if len(text.encode()) > MESSAGE_BYTES_AT_MOST:
        raise QueueError(413, "RequestBodyTooLarge", "The request body is too large and exceeds 64 KiB.")
    return text


def _messages(
    messages: list[QueuedMessage], status: int, *, text: bool = True, receipt: bool = True, count: bool = False
) -> Response:
    root = ET.Element("QueueMessagesList")
    for message in messages:
        item = ET.SubElement(root, "QueueMessage")
        ET.SubElement(item, "MessageId").text = message.id
        ET.SubElement(item, "InsertionTime").text = formatdate(message.inserted, usegmt=True)
        ET.SubElement(item, "ExpirationTime").text = formatdate(message.expires, usegmt=True)
        if receipt:
            ET.SubElement(item, "PopReceipt").text = message.pop_receipt
            ET.SubElement(item, "TimeNextVisible").text = formatdate(message.visible_at, usegmt=True)
        if count or not receipt:
            ET.SubElement(item, "DequeueCount").text = str(message.dequeue_count)
        if text:
            ET.SubElement(item, "MessageText").text = message.text
    return _xml(root, status)


def _xml(root: ET.Element, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return Response(body, status, (headers or {}) | _common(), "application/xml")


def _empty(status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(None, status, (headers or {}) | _common())


def _error(wrong: QueueError) -> Response:
    root = ET.Element("Error")
    ET.SubElement(root, "Code").text = wrong.code
    ET.SubElement(root, "Message").text = f"{wrong.sentence}\nTime:{formatdate(time.time(), usegmt=True)}"
    return _xml(root, wrong.status, {"x-ms-error-code": wrong.code})


def _common() -> dict[str, str]:
    return {"x-ms-version": "2026-04-06", "x-ms-request-id": str(uuid.uuid4())}
