"""The local host over HTTP: what a function is given, and what becomes of its answer."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import hmac
import json
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.host_process import APP, HostProcess, running
from tests.fakes.eventually import eventually

THREADS = "4"


@pytest.fixture(scope="module")
def host() -> Iterator[HostProcess]:
    """One host without timers and queues; its local time would be New York's."""
    env = {"PYTHON_THREADPOOL_THREAD_COUNT": THREADS, "TZ": "America/New_York", "AzureWebJobsStorage": "anything"}
    with running("--no-timer", "--no-wake", env=env) as process:
        yield process


def hook(host: HostProcess, target: str, *headers: tuple[str, str], body: bytes = b"") -> Any:
    reply = host.request("POST", target, headers, body)
    assert reply.status == 200
    return reply.json()


def test_body_headers_and_parameters_reach_the_function(host: HostProcess) -> None:
    body = bytes(range(256)) + b"\xff\xfe\x00"
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    said = hook(
        host, "/api/hook/abc?x=1&x=2&X=3&empty=&q=a%20b%2Fc+d",
        ("X-Dup", "1"), ("x-dup", "2"), ("Cookie", "a=1"), ("Cookie", "b=2"), ("X-Utf8", "grüß".encode().decode("latin-1")),
        ("traceparent", trace), body=body,
    )  # fmt: skip
    assert said["body_hex"] == body.hex()
    assert said["headers"]["x-dup"] == "1,2"
    assert said["headers"]["cookie"] == "a=1; b=2"
    assert said["headers"]["x-utf8"] == "grüß"
    assert said["params"] == {"x": "1,2,3", "q": "a b/c d"}
    assert said["route_params"] == {"source": "abc"}
    assert said["function"] == "hook"
    assert said["trace_parent"] == trace
    assert said["ids_match"] is True
    assert said["cwd"] == str(APP)


def test_url_keeps_the_query_as_sent_and_normalises_the_path(host: HostProcess) -> None:
    base, query = f"127.0.0.1:{host.port}", "From=%2B15551234&Body=a%20b+c%7e%C3%BC&x=1&x=2&e="
    assert hook(host, f"/api/hook?{query}")["url"] == f"http://{base}/api/hook?{query}"
    assert hook(host, "/%61pi/h%6Fok?x=%41")["url"] == f"http://{base}/api/hook?x=%41"
    assert hook(host, "/api/hook", ("X-Forwarded-Proto", "https"))["url"] == f"https://{base}/api/hook"


def test_twilio_signature_over_url_and_form_matches(host: HostProcess) -> None:
    form = {"CallSid": "CA1", "From": "+15551234", "To": "+1 555", "Body": "één & twee"}
    target = "/api/hook?foo=1&name=%C3%BC%20x"

    def sign(url: str, fields: dict[str, str]) -> bytes:
        text = url + "".join(name + fields[name] for name in sorted(fields))
        return base64.b64encode(hmac.digest(b"12345", text.encode(), hashlib.sha1))

    said = hook(
        host, target, ("X-Forwarded-Proto", "https"), ("Content-Type", "application/x-www-form-urlencoded"),
        body=urllib.parse.urlencode(form).encode(),
    )  # fmt: skip
    assert sign(said["url"], said["form"]) == sign(f"https://127.0.0.1:{host.port}{target}", form)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/api/hook", 404),  # another method
        ("POST", "/api/hook/123", 404),  # not alpha
        ("POST", "/API/Hook/abc/", 200),  # case and a slash at the end do not matter
        ("POST", "/api/hook/abc/more", 404),
        ("GET", "/hook", 404),
        ("GET", "/", 404),
        ("HEAD", "/api/ops/echo", 200),
    ],
)
def test_routing(host: HostProcess, method: str, target: str, status: int) -> None:
    reply = host.request(method, target)
    assert reply.status == status
    assert method == "POST" or reply.body == b""


def test_failures_are_500_without_a_body_and_explained_in_the_log(host: HostProcess) -> None:
    for target in ("/api/boom", "/api/nothing", "/api/leave"):
        reply = host.get(target)
        assert (reply.status, reply.body) == (500, b"")
    assert host.get("/api/ping").body == b"pong"
    boom = next(line for line in host.log().splitlines() if "boom with" in line)
    assert "ERROR" in boom
    assert "[boom " in boom
    assert "RuntimeError: boom with\\na secret" in boom
    assert 'unsupported type "http" for Python type "NoneType"' in host.log()


def test_other_answers(host: HostProcess) -> None:
    text = host.get("/api/text")
    assert (text.status, text.body, text.all("content-type")) == (200, b"just text", ["text/plain; charset=utf-8"])
    empty = host.get("/api/empty")
    assert (empty.status, empty.body, empty.all("content-length")) == (204, b"", [])


def test_set_cookie_is_rewritten_as_in_the_cloud(host: HostProcess) -> None:
    assert host.get("/api/cookies").all("set-cookie") == [
        "a=1; expires=Wed, 01 Jan 2031 00:00:00 GMT; domain=; path=; httponly",
        "b=x%2Fy%3D%3D; domain=; path=/p; secure; samesite=none",
    ]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_asgi_app_gets_the_request_as_sent(host: HostProcess, method: str) -> None:
    body = b"" if method == "GET" else b"\x00\xff\r\n"
    headers = [("Cookie", "p=1; q=2"), ("X-One", "1"), ("X-One", "2")]
    said = host.request(method, "/api/ops/echo?a=1&a=2&b=%20x", headers, body or None).json()
    assert (said["method"], said["path"], said["query"]) == (method, "/api/ops/echo", "a=1&a=2&b=%20x")
    assert said["cookies"] == {"p": "1", "q": "2"}
    assert ["x-one", "1,2"] in said["headers"]
    assert said["body_hex"] == body.hex()


def test_asgi_app_answers_with_bytes_and_cookies(host: HostProcess) -> None:
    data = bytes(range(256)) * 1200
    reply = host.request("POST", "/api/ops/reverse", body=data)
    assert reply.body == data[::-1]
    assert reply.all("content-type") == ["application/octet-stream"]
    reply = host.get("/api/ops/cookies")
    assert reply.status == 201
    assert reply.all("set-cookie") == [
        "a=1; max-age=60; domain=; path=/; samesite=lax; httponly",
        "b=two; domain=; path=/api/ops; secure; samesite=strict",
    ]


def test_announced_body_over_100_mb_is_refused_unread(host: HostProcess) -> None:
    with socket.create_connection(("127.0.0.1", host.port), 5) as client:
        client.sendall(b"POST /api/hook HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (100 * 1024 * 1024 + 1))
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_chunked_body_is_passed_on(host: HostProcess) -> None:
    with socket.create_connection(("127.0.0.1", host.port), 5) as client:
        head = b"POST /api/hook HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert json.loads(received.partition(b"\r\n\r\n")[2])["body_hex"] == b"abc".hex()
    assert "without Content-Length" in host.log()


def test_kept_connection_is_not_delayed_by_nagle(host: HostProcess) -> None:
    with socket.create_connection(("127.0.0.1", host.port), 5) as client:
        took = []
        for _ in range(40):
            started = time.perf_counter()
            client.sendall(b"GET /api/ping HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b""
            while not received.endswith(b"pong"):
                received += client.recv(65536)
            took.append(time.perf_counter() - started)
    assert min(took[20:]) < 0.03, took  # it would be 40 ms, each time


def test_sync_functions_run_in_as_many_threads_as_set(host: HostProcess) -> None:
    names: set[bytes] = set()

    def all_have_run() -> bool:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            names.update(reply.body for reply in pool.map(lambda _: host.get("/api/thread"), range(8)))
        return len(names) >= int(THREADS)

    eventually(all_have_run)
    assert len(names) == int(THREADS)


def test_log_lines(host: HostProcess) -> None:
    host.request("POST", "/api/logs")
    lines = host.log().splitlines()
    assert '{"event": "job.done"}' in lines
    assert any("INFO [logs " in line and line.endswith("antwoordx: not the app's") for line in lines)
    assert not any("too much" in line or "a debug line" in line for line in lines)


def test_without_wake_the_app_sees_no_storage(host: HostProcess) -> None:
    assert host.get("/api/setting?name=AzureWebJobsStorage").json() is None
