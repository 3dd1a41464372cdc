"""A stand-in for Azure OpenAI's v1 API: chat completions, embeddings, and the list of models.

    POST /openai/v1/chat/completions     POST /openai/v1/embeddings     GET /openai/v1/models

Embeddings come from an offline sentence encoder, chat answers from the sources in the prompt: nothing is made up.
"""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, Self

import numpy as np
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from local.standins.answerer import Answerer, ExtractiveAnswerer
from local.standins.encoder import ENCODER, widen
from local.standins.faults import FaultPlan
from local.standins.openai_parameters import EMBEDDINGS, ParameterRefused, check_chat, check_names
from local.standins.prompt_reader import text_of
from local.standins.server import Call, StandIn

DIMENSIONS = 1536
INPUTS_AT_MOST = 2048
CHARACTERS_OF_AN_INPUT = 32_000  # about 8,192 tokens
CHARACTERS_OF_A_PROMPT = 400_000  # about 128,000 tokens with room for the answer
MODELS = ("standin-chat", "standin-embedding")
_BASE = "/openai/v1"
_TOKEN = re.compile(r"\w{1,5}|[^\w\s]")


class Refused(Exception):
    """An error of the API: HTTP status and the error object."""

    def __init__(self, http_status: int, code: str, sentence: str, **more: Any) -> None:
        self.status = http_status
        self.error = {"message": sentence, "type": None, "param": None, "code": code} | more
        super().__init__(sentence)


class OpenAIStandIn(StandIn):
    """Serves both models; as a context manager. Any deployment name will do.

    `api_key=None` accepts every key but an empty one. `model_seconds` delays each chat answer, `refuses` names the parameters
    that the model does not take, as reasoning models do not take temperature and seed (both settable later). What
    the API does not know is refused too (openai_parameters.py). Raises UserError when the port is in use.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        answerer: Answerer | None = None,
        model_seconds: float = 0.0,
        refuses: Collection[str] = (),
        port: int = 0,
        faults: FaultPlan | None = None,
    ) -> None:
        super().__init__(port=port, faults=faults)
        self.api_key, self.model_seconds, self.refuses = api_key, model_seconds, refuses
        self.answerer: Answerer = answerer or ExtractiveAnswerer()

    def start(self) -> Self:
        """Serve, and load the encoder in the background."""
        super().start()
        ENCODER.warm()
        return self

    def routes(self) -> list[BaseRoute]:
        """The API's."""
        return [
            self._api("/chat/completions", "POST", "chat", self._chat, delay=lambda: self.model_seconds),
            self._api("/embeddings", "POST", "embeddings", self._embed),
            self._api("/models", "GET", "models", self._models),
        ]

    def failure(self, status: int, code: int | str | None) -> Response:
        """Azure's JSON for an error."""
        return _refusal(Refused(status, str(code or status), "The stand-in was told to fail."))

    def _api(
        self,
        path: str,
        method: str,
        where: str,
        act: Callable[[Call], Response],
        delay: Callable[[], float] | None = None,
    ) -> Route:
        def answer(call: Call) -> Response:
            try:
                self._check_key(call)
                return act(call)
            except Refused as refused:
                return _refusal(refused)
            except ParameterRefused as odd:
                return _refusal(Refused(400, odd.code, odd.sentence, param=odd.name, type="invalid_request_error"))

        return Route(_BASE + path, self.operation(where, answer, delay=delay), methods=[method])

    def _check_key(self, call: Call) -> None:
        headers = call.request.headers
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        key = headers.get("api-key", "") or (bearer.strip() if scheme.lower() == "bearer" else "")
        if not key or (self.api_key is not None and key != self.api_key):
            sentence = "Access denied due to invalid subscription key or wrong API endpoint."
            raise Refused(401, "401", sentence)

    def _chat(self, call: Call) -> Response:
        given = _object(call)
        check_chat(given)
        messages = given.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
            raise Refused(400, "invalid_value", "messages must be a list of messages", param="messages")
        if given.get("stream"):
            raise Refused(400, "unsupported_value", "the stand-in does not stream", param="stream")
        if (length := sum(len(text_of(item)) for item in messages)) > CHARACTERS_OF_A_PROMPT:
            sentence = f"This model's maximum context length was exceeded by a prompt of {length} characters."
            raise Refused(400, "context_length_exceeded", sentence, param="messages")
        for name in self.refuses:
            if name in given:
                sentence = f"Unsupported parameter: '{name}' is not supported with this model."
                raise Refused(400, "unsupported_parameter", sentence, param=name, type="invalid_request_error")
        fault = call.fault.do if call.fault else ""
        if fault == "content_filter_400":
            raise _filtered()
        text, most = None, given.get("max_completion_tokens")
        if fault not in ("content_filter", "no_text"):
            text = self.answerer.answer(messages)
        cut = _cut(text, 3 if fault == "length" else most)
        if fault == "length" or cut != text:
            return JSONResponse(_completion(str(given.get("model", "")), cut, "length", length))
        return JSONResponse(_completion(str(given.get("model", "")), text, fault, length))

    def _embed(self, call: Call) -> Response:
        given = _object(call)
        check_names(given, EMBEDDINGS)
        texts = given.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise Refused(400, "invalid_value", "input must be a string or a list of strings", param="input")
        if len(texts) > INPUTS_AT_MOST:
            raise Refused(400, "invalid_value", f"input has more than {INPUTS_AT_MOST} texts", param="input")
        if not all(texts) or max(map(len, texts)) > CHARACTERS_OF_AN_INPUT:
            raise Refused(400, "invalid_value", "an input is empty or longer than 8,192 tokens", param="input")
        dimensions = given.get("dimensions", DIMENSIONS)
        if not isinstance(dimensions, int) or not 1 <= dimensions <= DIMENSIONS:
            raise Refused(400, "invalid_value", f"dimensions must be 1 to {DIMENSIONS}", param="dimensions")
        vectors = widen(ENCODER.encode(texts), dimensions).astype("<f4")
        as_text = given.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector.tobytes()).decode() if as_text else np.asarray(vector).tolist(),
            }
            for index, vector in enumerate(vectors)
        ]
        tokens = sum(map(_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": str(given.get("model", "")), "usage": usage})

    def _models(self, _: Call) -> Response:
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "standin"} for name in MODELS]
        return JSONResponse({"object": "list", "data": data})


def _object(call: Call) -> dict[str, Any]:
    if not isinstance(call.json, dict):
        raise Refused(400, "invalid_json", "the body must be a JSON object")
    if not call.json.get("model"):
        raise Refused(404, "DeploymentNotFound", "The API deployment for this resource does not exist.")
    return call.json


def _completion(model: str, text: str | None, fault: str, prompt_characters: int) -> dict[str, Any]:
    finish = fault if fault in ("content_filter", "length") else "stop"
    used, written = prompt_characters // 4 + 1, _tokens(text or "")
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex[:24]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "logprobs": None,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "content_filter_results": _categories(filtered=finish == "content_filter"),
            }
        ],
        "usage": {
            "prompt_tokens": used,
            "completion_tokens": written,
            "total_tokens": used + written,
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _filtered() -> Refused:
    sentence = (
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. "
        "Please modify your prompt and retry."
    )
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": _categories(filtered=True)}
    return Refused(400, "content_filter", sentence, param="prompt", status=400, innererror=inner)


def _categories(*, filtered: bool) -> dict[str, Any]:
    safe = {"filtered": False, "severity": "safe"}
    return {
        "hate": safe,
        "self_harm": safe,
        "sexual": safe,
        "violence": {"filtered": True, "severity": "medium"} if filtered else safe,
    }


def _tokens(text: str) -> int:
    return len(_TOKEN.findall(text))


def _cut(text: str | None, most: int | None) -> str | None:
    """The text up to so many tokens; all of it without a limit."""
    if text is None or most is None:
        return text
    ends = [found.end() for found in _TOKEN.finditer(text)]
    return text if len(ends) <= most else text[: ends[most - 1]]


def _refusal(refused: Refused) -> Response:
    return JSONResponse({"error": refused.error}, refused.status)
