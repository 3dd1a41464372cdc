"""The model: chat answers and embeddings from Azure OpenAI's v1 API, through the `openai` library.

The library is loaded at the first call. Its own retries are off: the queue is the retry.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from shared import telemetry
from shared.clients.deadline import deadline
from shared.errors import PermanentError, TransientError
from shared.settings import EMBEDDING_DIMENSIONS, Settings

if TYPE_CHECKING:
    import openai

CHAT_SECONDS = 30.0
EMBEDDING_SECONDS = 30.0
TEXTS_PER_CALL = 64
_CONNECT_SECONDS = 5.0
_SEED = 20250101  # any fixed number: the same prompt should give the same answer
_TOKEN_SCOPE = "https://cognitiveservices.azure.com/.default"  # noqa: S105  # a scope, not a secret


class ChatMessage(TypedDict):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote, which model it says that it is, and what it was asked with beside the prompt.

    Not `is_whole`: it came to its last token before the end, and the text is a part, or empty. Nobody should be sent it.
    """

    text: str
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_whole: bool = True


class ChatModel(Protocol):
    """Writes answers. Raises what `errors.classify` knows; may simply be called again."""

    def answer(self, messages: Sequence[ChatMessage]) -> Answer: ...


class Embedder(Protocol):
    """Turns texts into vectors of EMBEDDING_DIMENSIONS numbers."""

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


class AzureOpenAI:
    """ChatModel and Embedder. With AZURE_OPENAI_API_KEY the key, without it the app's managed identity."""

    def __init__(
        self, settings: Settings, *, chat_seconds: float = CHAT_SECONDS, embedding_seconds: float = EMBEDDING_SECONDS
    ) -> None:
        self._settings = settings
        self._chat_seconds = chat_seconds
        self._embedding_seconds = embedding_seconds
        self._lock = threading.Lock()
        self._opened: openai.OpenAI | None = None
        # Without a bound Azure reserves the model's whole context of the tokens a minute for each call. Reasoning counts in it.
        self._sampling: dict[str, Any] = {
            "temperature": 0,
            "seed": _SEED,
            "max_completion_tokens": settings.azure_openai_answer_limit,
        }
        if settings.azure_openai_reasoning_effort:
            self._sampling["reasoning_effort"] = settings.azure_openai_reasoning_effort

    def prepare(self) -> None:
        """Load the library now (half a second), so that the first answer need not wait for it."""
        client = self._client()
        _ = client.chat.completions, client.embeddings  # these are loaded when first asked for

    @property
    def model(self) -> str:
        """The deployment that embeds: what a chunk records, known without a call."""
        return self._settings.azure_openai_embedding_deployment

    def answer(self, messages: Sequence[ChatMessage]) -> Answer:
        """The model's answer of at most AZURE_OPENAI_ANSWER_LIMIT tokens, whole or cut off there, within 30 s.

        Raises PermanentError("content_filter") if the answer was filtered, TransientError("empty_answer") if there is
        no text, TransientError("broken_answer") if the answer cannot be read, and what the library raises.
        """
        client = self._client()
        with deadline(self._chat_seconds), _broken_answers():
            completion, sampling = self._complete(client, messages)
            choice = completion.choices[0]
            reason, text = choice.finish_reason, choice.message.content
            model = str(completion.model or self._settings.azure_openai_chat_deployment)
        if reason == "content_filter":
            raise PermanentError("content_filter", "The model's content filter stopped the answer.")
        if reason == "length":
            telemetry.error("answer_cut_off", model=model, **_spent(completion))
            return Answer(text if isinstance(text, str) else "", model, sampling, is_whole=False)
        if not isinstance(text, str) or not text.strip():
            raise TransientError("empty_answer", f"The model gave no text (finish_reason {reason}).")
        return Answer(text, model, sampling)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, in the order of the texts; calls of at most 64 texts, within 30 s each.

        Raises TransientError("broken_answer") if vectors are missing, PermanentError("embedding_width") if they don't
        fit the database, and what the library raises.
        """
        client = self._client()
        vectors: list[list[float]] = []
        for start in range(0, len(texts), TEXTS_PER_CALL):
            vectors += self._embed_batch(client, list(texts[start : start + TEXTS_PER_CALL]))
        return vectors

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _complete(self, client: openai.OpenAI, messages: Sequence[ChatMessage]) -> tuple[Any, Mapping[str, Any]]:
        """Call the model; what it says not to take of the parameters is left out at once, and from then on."""
        import openai

        while True:
            sampling, conversation = self._sampling, [dict(message) for message in messages]
            try:
                completion = client.chat.completions.create(
                    model=self._settings.azure_openai_chat_deployment,
                    messages=conversation,  # type: ignore[arg-type]
                    **sampling,
                )
            except openai.BadRequestError as error:
                refused = _not_taken(error, sampling)
                if refused is None:
                    raise
                with self._lock:  # another call may have learnt something else meanwhile
                    self._sampling = {name: value for name, value in self._sampling.items() if name != refused}
                telemetry.event("model_parameter_left_out", parameter=refused)
            else:
                return completion, sampling

    def _embed_batch(self, client: openai.OpenAI, texts: list[str]) -> list[list[float]]:
        with deadline(self._embedding_seconds), _broken_answers():
            answer = client.embeddings.create(
                model=self.model, input=texts, dimensions=self._settings.embedding_dimensions
            )
            vectors = {item.index: list(item.embedding) for item in answer.data}
            if sorted(vectors) != list(range(len(texts))) or len(answer.data) != len(texts):
                raise TransientError(
                    "broken_answer", f"The model gave {len(answer.data)} vectors for {len(texts)} texts, or not theirs."
                )
        widths = {len(vector) for vector in vectors.values()}
        if widths - {EMBEDDING_DIMENSIONS}:
            raise PermanentError(
                "embedding_width",
                f"The deployment {self.model} gives vectors of {max(widths)} numbers; {EMBEDDING_DIMENSIONS} fit.",
            )
        return [vectors[index] for index in range(len(texts))]

    def _client(self) -> openai.OpenAI:
        """The library's client, made once."""
        with self._lock:
            if self._opened is None:
                self._opened = _open(self._settings)
            return self._opened


def _not_taken(error: openai.BadRequestError, sampling: Mapping[str, Any]) -> str | None:
    """Which of the parameters the model refuses, as reasoning models do; None when the refusal is about something else.

    Not every gateway says the parameter's name where it belongs, so that it is looked for in the message too.
    """
    if error.param in sampling and error.code in ("unsupported_value", "unsupported_parameter"):
        return str(error.param)
    said = error.message.lower()
    is_refusal = any(word in said for word in ("unsupported", "not support", "unrecognized", "unknown parameter"))
    return next((name for name in sampling if is_refusal and error.param in (None, name) and name in said), None)


def _spent(completion: Any) -> dict[str, int | None]:
    """The tokens of an answer, and how many of them nobody sees."""
    usage = getattr(completion, "usage", None)
    details = getattr(usage, "completion_tokens_details", None)
    return {
        "tokens": getattr(usage, "completion_tokens", None),
        "reasoning_tokens": getattr(details, "reasoning_tokens", None),
    }


def _open(settings: Settings) -> openai.OpenAI:
    import httpx2
    import openai

    from shared.clients.http import DeadlineTransport
    from shared.clients.identity import token_provider

    timeout = httpx2.Timeout(max(CHAT_SECONDS, EMBEDDING_SECONDS), connect=_CONNECT_SECONDS)
    return openai.OpenAI(
        base_url=f"{settings.azure_openai_endpoint}/openai/v1/",
        api_key=settings.azure_openai_api_key or token_provider(_TOKEN_SCOPE),
        max_retries=0,
        timeout=timeout,
        http_client=httpx2.Client(transport=DeadlineTransport(), timeout=timeout),
    )


@contextmanager
def _broken_answers() -> Iterator[None]:
    """What a 200 with a broken body makes the library, or us, stumble over."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise PermanentError("bad_payload", "The text holds characters that cannot be sent.") from error
    except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise TransientError(
            "broken_answer", f"The model's answer could not be read ({type(error).__name__})."
        ) from error
