"""AzureOpenAI's embeddings, through the real `openai` library: the order, the number and the width of the vectors."""

from __future__ import annotations

import base64
import struct
from typing import Any

import openai
import pytest

from shared.clients.azure_openai import TEXTS_PER_CALL, AzureOpenAI
from shared.errors import PermanentError, TransientError, classify
from tests.fakes.faulty_server import Seen, answer, closed_port, faulty, replies, silent
from tests.fakes.settings import settings


def model(url: str, seconds: float = 10.0) -> AzureOpenAI:
    return AzureOpenAI(settings(AZURE_OPENAI_ENDPOINT=url), embedding_seconds=seconds)


def vectors(seen: Seen, width: int = 1536) -> list[dict[str, Any]]:
    """For each text a vector that begins with its number, in base64 as the library asks for it."""
    return [
        {"object": "embedding", "index": index, "embedding": base64.b64encode(
            struct.pack(f"<{width}f", float(text.split()[-1]), *[0.5] * (width - 1))).decode()}
        for index, text in enumerate(seen.json["input"])
    ]  # fmt: skip


def embedded(data: list[dict[str, Any]]) -> bytes:
    return answer(200, {"object": "list", "model": "text-embedding-3-small", "data": data, "usage": {}})


def test_embeddings_come_in_the_order_of_the_texts_and_in_batches() -> None:
    texts = [f"text {number}" for number in range(TEXTS_PER_CALL * 2 + 3)]
    with faulty(replies(lambda seen: embedded(vectors(seen)[::-1]))) as server:
        client = model(server.url)
        result = client.embed(texts)
        assert [len(seen.json["input"]) for seen in server.seen] == [64, 64, 3]
        assert {(seen.path, seen.json["dimensions"], seen.json["model"]) for seen in server.seen} == {
            ("/openai/v1/embeddings", 1536, "embedding-deployment")
        }
    assert [vector[0] for vector in result] == [float(number) for number in range(len(texts))]
    assert {len(vector) for vector in result} == {1536}
    assert client.model == "embedding-deployment"


def test_no_texts_need_no_call() -> None:
    assert model(f"http://127.0.0.1:{closed_port()}").embed([]) == []


def test_embeddings_as_plain_numbers() -> None:
    item = {"object": "embedding", "index": 0, "embedding": [0.25] * 1536}
    with faulty(replies(embedded([item]))) as server:
        assert model(server.url).embed(["text 1"]) == [[0.25] * 1536]


@pytest.mark.parametrize("change", ["missing", "doubled", "beyond", "nothing", "broken", "no numbers"])
def test_embeddings_that_are_not_those_of_the_texts(change: str) -> None:
    def spoil(seen: Seen) -> bytes:
        data = vectors(seen)
        match change:
            case "missing":
                data = data[:-1]
            case "doubled":
                data[1]["index"] = 0
            case "beyond":
                data[1]["index"] = 2
            case "nothing":
                data = []
            case "broken":
                data[1]["embedding"] = "AAA"
            case "no numbers":
                data[1]["embedding"] = None
        return embedded(data)

    with faulty(replies(spoil)) as server, pytest.raises(TransientError) as caught:
        model(server.url).embed(["text 1", "text 2"])
    assert caught.value.error_class == "broken_answer"


def test_embeddings_that_do_not_fit_the_database() -> None:
    with faulty(replies(lambda seen: embedded(vectors(seen, 3072)))) as server, pytest.raises(PermanentError) as caught:
        model(server.url).embed(["text 1"])
    assert caught.value.error_class == "embedding_width"
    assert "3072" in str(caught.value)


def test_embedding_has_a_deadline_and_no_retries() -> None:
    with faulty(silent) as server, pytest.raises(openai.APITimeoutError) as caught:
        model(server.url, 0.5).embed(["text 1"])
    assert server.connections == 1
    assert classify(caught.value).error_class == "timeout"
