"""AzureOpenAI, through the real `openai` library, against servers that answer well, badly or not at all."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from local.standins.azure_openai import OpenAIStandIn
from shared.clients.azure_openai import Answer, AzureOpenAI, ChatMessage
from shared.errors import Failure, FailureKind, PermanentError, TransientError, classify
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import (
    Plan,
    Seen,
    answer,
    close_after_reading,
    close_at_once,
    closed_port,
    drips,
    faulty,
    replies,
    silent,
)
from tests.fakes.settings import settings

BOUND = {"max_completion_tokens": 1000}
SHORT = 0.5  # seconds; only where the time has to run out
PROMPT: list[ChatMessage] = [
    {"role": "system", "content": "Answer from the sources."},
    {"role": "user", "content": "Hoeveel vakantiedagen heb ik? ‹ünï›"},
]


def model(url: str, seconds: float = 10.0) -> AzureOpenAI:
    return AzureOpenAI(settings(AZURE_OPENAI_ENDPOINT=url), chat_seconds=seconds, embedding_seconds=seconds)


def completion(content: object = "Vijfentwintig [1].", reason: str = "stop", **message: object) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [{"index": 0, "finish_reason": reason, "message": said}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def fails(plan: Plan, seconds: float = 10.0) -> Failure:
    """What a chat call against one such server becomes, on the one try that is made."""
    with faulty(plan) as server:
        began = time.monotonic()
        with pytest.raises((openai.OpenAIError, TransientError, PermanentError)) as caught:
            model(server.url, seconds).answer(PROMPT)
        assert time.monotonic() - began < seconds + 9
        assert eventually(lambda: server.connections) == 1
        assert len(server.seen) <= 1
    return classify(caught.value)


def test_an_answer() -> None:
    with faulty(replies(answer(200, completion()))) as server:
        said = model(server.url).answer(PROMPT)
        [seen] = server.seen
    assert (seen.method, seen.path) == ("POST", "/openai/v1/chat/completions")
    assert seen.headers["authorization"] == "Bearer model-key-0123456789"
    assert seen.json["model"] == "chat-deployment"
    assert seen.json["messages"] == PROMPT
    assert seen.json["temperature"] == 0
    assert isinstance(seen.json["seed"], int)
    assert seen.json["max_completion_tokens"] == 1000  # for without a bound Azure reserves the whole context
    assert "reasoning_effort" not in seen.json
    asked_with = {"temperature": 0, "seed": seen.json["seed"], "max_completion_tokens": 1000}
    assert said == Answer("Vijfentwintig [1].", "gpt-4o-mini-2024-07-18", asked_with)


def test_the_connection_is_kept_between_calls() -> None:
    with faulty(replies(answer(200, completion()))) as server:
        client = model(server.url)
        for _ in range(3):
            client.answer(PROMPT)
        assert server.connections == 1
        client.close()
        client.answer(PROMPT)
        assert server.connections == 2


@pytest.mark.parametrize("text", ["Vijfen", "", None])
def test_an_answer_that_was_cut_off_says_so(text: str | None, caplog: pytest.LogCaptureFixture) -> None:
    cut = completion(text, "length")
    cut["usage"] |= {"completion_tokens": 1000, "completion_tokens_details": {"reasoning_tokens": 640}}
    with faulty(replies(answer(200, cut))) as server:
        said = model(server.url).answer(PROMPT)
    assert (said.text, said.is_whole) == (text or "", False)
    [line] = [json.loads(one) for one in caplog.messages if "answer_cut_off" in one]
    assert (line["tokens"], line["reasoning_tokens"]) == (1000, 640)
    assert [record.levelname for record in caplog.records if "answer_cut_off" in record.message] == ["ERROR"]


def test_a_cut_answer_without_figures_is_one_too() -> None:
    bare = completion("Vijfen", "length")
    del bare["usage"]
    with faulty(replies(answer(200, bare))) as server:
        assert not model(server.url).answer(PROMPT).is_whole


def test_the_bound_and_the_effort_are_settings() -> None:
    with faulty(replies(answer(200, completion()))) as server:
        given = settings(
            AZURE_OPENAI_ENDPOINT=server.url, AZURE_OPENAI_ANSWER_LIMIT="640", AZURE_OPENAI_REASONING_EFFORT="none"
        )
        AzureOpenAI(given).answer(PROMPT)
        [seen] = server.seen
    assert (seen.json["max_completion_tokens"], seen.json["reasoning_effort"]) == (640, "none")


def test_content_filter_on_the_answer() -> None:
    failure = fails(replies(answer(200, completion("Het", "content_filter"))))
    assert (failure.kind, failure.error_class) == (FailureKind.PERMANENT, "content_filter")


def test_content_filter_on_the_prompt() -> None:
    error = {
        "message": "The response was filtered due to the prompt triggering the content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
        },
    }
    failure = fails(replies(answer(400, {"error": error})))
    assert (failure.kind, failure.error_class, failure.http_status) == (FailureKind.PERMANENT, "content_filter", 400)


def test_context_too_long_is_permanent() -> None:
    error = {"message": "too many tokens", "type": "invalid_request_error", "param": "messages",
             "code": "context_length_exceeded"}  # fmt: skip
    failure = fails(replies(answer(400, {"error": error})))
    assert (failure.kind, failure.error_class) == (FailureKind.PERMANENT, "rejected")


@pytest.mark.parametrize("body", [completion(None), completion(""), completion(" \n"), completion(None, refusal="No.")])
def test_no_text(body: dict[str, Any]) -> None:
    failure = fails(replies(answer(200, body)))
    assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "empty_answer")


@pytest.mark.parametrize(
    "data",
    [
        answer(200, {}),
        answer(200, {"choices": []}),
        answer(200, {"choices": [{"finish_reason": "stop"}]}),
        answer(200, [1, 2]),
        answer(200, b"<html>sign in</html>", Content_Type="text/html"),
        answer(200, b'{"choices": [', Content_Type="application/json"),
        answer(200, b"\xff\xfe\x00", Content_Type="application/json"),
        answer(200, b"", Content_Type="application/json"),
        answer(200, b" " * 5_000_000, Content_Type="application/json"),
    ],
    ids=lambda data: repr(data[-30:]),
)
def test_a_success_that_cannot_be_read(data: bytes) -> None:
    failure = fails(replies(data))
    assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "broken_answer")


@pytest.mark.parametrize(
    ("data", "kind", "error_class", "retry_after"),
    [
        (answer(429, {}, Retry_After="7"), FailureKind.THROTTLED, "throttled", 7),
        (answer(429, {}, retry_after_ms="1500", Retry_After="2"), FailureKind.THROTTLED, "throttled", 1.5),
        (answer(429, {}, Retry_After="99999999"), FailureKind.THROTTLED, "throttled", 900),
        (answer(429, {}, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT"), FailureKind.THROTTLED, "throttled", 900),
        (answer(429, {}, Retry_After="Thu, 01 Jan 1970 00:00:00 GMT"), FailureKind.THROTTLED, "throttled", 0),
        (answer(429, {}, Retry_After="soon"), FailureKind.TRANSIENT, "throttled", None),
        (answer(429, {}), FailureKind.TRANSIENT, "throttled", None),
        (answer(503, {}, Retry_After="3"), FailureKind.THROTTLED, "throttled", 3),
        (answer(503, b"<html>"), FailureKind.TRANSIENT, "unavailable", None),
        (answer(500, {}), FailureKind.TRANSIENT, "unavailable", None),
        (answer(408, {}), FailureKind.TRANSIENT, "unavailable", None),
        (answer(409, {}), FailureKind.TRANSIENT, "unavailable", None),
        (answer(401, {"error": {"message": "bad key"}}), FailureKind.CREDENTIAL, "credential", None),
        (answer(403, b"no"), FailureKind.CREDENTIAL, "credential", None),
        (answer(404, {"error": {"code": "DeploymentNotFound"}}), FailureKind.PERMANENT, "rejected", None),
        (answer(307, b"", Location="http://127.0.0.1:1/"), FailureKind.PERMANENT, "rejected", None),
    ],
)
def test_refusals(data: bytes, kind: FailureKind, error_class: str, retry_after: float | None) -> None:
    failure = fails(replies(data))
    assert (failure.kind, failure.error_class, failure.retry_after) == (kind, error_class, retry_after)
    assert failure.http_status == int(data[9:12])
    assert failure.service == "model"


@pytest.mark.parametrize(
    ("plan", "error_class"),
    [
        (close_at_once, "dropped"),
        (close_after_reading, "dropped"),
        (silent, "timeout"),
        (drips(b"x", 0.02, at_once=b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"), "timeout"),
    ],
)
def test_a_connection_that_breaks_or_goes_silent(plan: Plan, error_class: str) -> None:
    failure = fails(plan, SHORT if error_class == "timeout" else 10.0)
    assert (failure.kind, failure.error_class, failure.service) == (FailureKind.TRANSIENT, error_class, "model")


def test_nobody_there() -> None:
    with pytest.raises(openai.APIConnectionError) as caught:
        model(f"http://127.0.0.1:{closed_port()}").answer(PROMPT)
    failure = classify(caught.value)
    assert (failure.kind, failure.error_class, failure.service) == (FailureKind.TRANSIENT, "connect", "model")
    assert "refused" in failure.text


def test_the_key_is_in_no_error_text() -> None:
    body = {"error": {"message": "Incorrect API key provided: model-key-0123456789. Find yours.", "code": "401"}}
    failure = fails(replies(answer(401, body)))
    assert "model-key" not in failure.text
    assert "Incorrect API key" in failure.text


def refuses(*names: str) -> Plan:
    def judge(seen: Seen) -> bytes:
        for name in names:
            if name in seen.json:
                code = "unsupported_value" if name == "temperature" else "unsupported_parameter"
                return answer(400, {"error": {"message": "not with this model", "param": name, "code": code}})
        return answer(200, completion())

    return replies(judge)


def test_what_the_model_does_not_take_is_left_out_from_then_on() -> None:
    with faulty(refuses("temperature", "seed")) as server:
        client = model(server.url)
        assert client.answer(PROMPT).parameters == BOUND
        assert len(server.seen) == 3
        assert client.answer(PROMPT).parameters == BOUND
        assert len(server.seen) == 4
    failure = fails(
        replies(answer(400, {"error": {"message": "no", "param": "messages", "code": "unsupported_value"}}))
    )
    assert failure.kind is FailureKind.PERMANENT


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Unrecognized request argument supplied: seed", "param": None, "code": None},
        {"message": "Unsupported parameter: 'seed' is not supported with this model.", "param": "seed", "code": None},
        {
            "message": "'seed' does not support 20250101 with this model.",
            "param": None,
            "code": "invalid_request_error",
        },
    ],
    ids=["unrecognized", "no code", "no name"],
)
def test_one_is_left_out_and_the_other_kept(error: dict[str, Any]) -> None:
    def judge(seen: Seen) -> bytes:
        return answer(400, {"error": error}) if "seed" in seen.json else answer(200, completion())

    with faulty(replies(judge)) as server:
        client = model(server.url)
        assert client.answer(PROMPT).parameters == {"temperature": 0} | BOUND
        assert client.answer(PROMPT).parameters == {"temperature": 0} | BOUND
        assert len(server.seen) == 3


def test_calls_that_learn_it_at_once_forget_nothing_of_it() -> None:
    with faulty(refuses("temperature", "seed")) as server, ThreadPoolExecutor(8) as pool:
        client = model(server.url)
        assert all(said.parameters == BOUND for said in pool.map(lambda _: client.answer(PROMPT), range(16)))
        known = len(server.seen)
        client.answer(PROMPT)
        assert len(server.seen) == known + 1


def test_a_model_that_reasons_answers_at_the_first_try_of_a_job() -> None:
    question: list[ChatMessage] = [{"role": "user", "content": '<question language="nl">\nHoe?\n</question>'}]
    with OpenAIStandIn(refuses=("temperature", "seed")) as standin:
        client = model(standin.url)
        for _ in range(3):
            assert client.answer(question).parameters == BOUND
        assert len(standin.requests) == 3 + 1 + 1


@pytest.mark.parametrize(
    ("effort", "left"),
    [("none", ["max_completion_tokens", "reasoning_effort", "seed", "temperature"]),
     ("low", ["max_completion_tokens", "reasoning_effort", "seed"]),
     ("minimal", ["max_completion_tokens", "seed", "temperature"])],
)  # fmt: skip
def test_what_the_deployed_model_takes_with_each_effort(effort: str, left: list[str]) -> None:
    """gpt-5.4 takes temperature without reasoning alone, and `minimal` not at all: no job fails of either."""
    question: list[ChatMessage] = [{"role": "user", "content": '<question language="nl">\nHoe?\n</question>'}]
    with OpenAIStandIn() as standin:
        given = settings(AZURE_OPENAI_ENDPOINT=standin.url, AZURE_OPENAI_REASONING_EFFORT=effort)
        assert sorted(AzureOpenAI(given).answer(question).parameters) == left


def test_text_that_cannot_be_sent_is_permanent() -> None:
    with faulty(replies(answer(200, completion()))) as server:
        with pytest.raises(PermanentError) as caught:
            model(server.url).answer([{"role": "user", "content": "\ud800"}])
        assert not server.seen
    assert caught.value.error_class == "bad_payload"


def test_no_text_reaches_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with faulty(replies(answer(200, completion("geheim antwoord")), answer(500, {}))) as server:
        client = model(server.url)
        client.answer(PROMPT)
        with pytest.raises(openai.InternalServerError):
            client.answer(PROMPT)
    assert caplog.records
    for secret in ("vakantiedagen", "geheim antwoord", "model-key"):
        assert secret not in caplog.text


def test_managed_identity_where_there_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    token = {
        "access_token": "a-token",
        "expires_on": str(int(time.time()) + 86400),
        "resource": "x",
        "token_type": "Bearer",
    }
    with faulty(replies(answer(200, token))) as identity, faulty(replies(answer(200, completion()))) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
        client = AzureOpenAI(settings(AZURE_OPENAI_ENDPOINT=server.url, AZURE_OPENAI_API_KEY=""))
        client.answer(PROMPT)
        client.answer(PROMPT)
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer a-token"] * 2
        [asked] = identity.seen
        assert "resource=https://cognitiveservices.azure.com" in asked.path


def test_managed_identity_that_gives_no_token_is_our_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(replies(answer(400, {"error": "invalid_request"}))) as identity, faulty(silent) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
        client = AzureOpenAI(settings(AZURE_OPENAI_ENDPOINT=server.url, AZURE_OPENAI_API_KEY=""))
        with pytest.raises(Exception, match=r"invalid_request|anaged identity") as caught:
            client.answer(PROMPT)
        assert server.connections == 0
    failure = classify(caught.value)
    assert (failure.kind, failure.error_class) == (FailureKind.CREDENTIAL, "credential")
