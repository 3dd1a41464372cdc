"""The model's two deployments, with one small call each."""

from __future__ import annotations

from collections.abc import Iterator

from cli.doctor import sign_in
from cli.doctor.finding import Finding, advice, left_out, ok, wrong
from cli.doctor.setup import Setup
from shared.clients.azure_openai import AzureOpenAI
from shared.errors import FailureKind, classify

NEEDED = ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_CHAT_DEPLOYMENT", "AZURE_OPENAI_EMBEDDING_DEPLOYMENT")
CHAT, EMBEDDING = "model: chat", "model: embedding"
SECONDS = 20.0


def check(setup: Setup) -> Iterator[Finding]:
    """Ask the one for a word, and the other for a vector."""
    settings = setup.settings
    model = AzureOpenAI(settings, chat_seconds=SECONDS, embedding_seconds=SECONDS)
    try:
        if missing := setup.lacks(NEEDED[0], NEEDED[1]):
            yield left_out(CHAT, missing)
        else:
            yield _chat(model, setup)
        if missing := setup.lacks(NEEDED[0], NEEDED[2]):
            yield left_out(EMBEDDING, missing)
        else:
            yield _embedding(model, setup)
    finally:
        model.close()


def _chat(model: AzureOpenAI, setup: Setup) -> Finding:
    deployment = setup.settings.azure_openai_chat_deployment
    try:
        answer = model.answer([{"role": "user", "content": "Answer with the word yes."}])
    except Exception as error:  # noqa: BLE001 - whatever the library raises is a finding
        return _failed(CHAT, "AZURE_OPENAI_CHAT_DEPLOYMENT", deployment, error, setup)
    if not answer.is_whole:
        tokens = setup.settings.azure_openai_answer_limit
        return wrong(
            CHAT,
            f"{deployment} ({answer.model}) needs more than {tokens:,} tokens for one word, since it reasons: set "
            "AZURE_OPENAI_REASONING_EFFORT to the least that it knows (none, minimal or low), or raise "
            "AZURE_OPENAI_ANSWER_LIMIT.",
        )
    asked = setup.settings.azure_openai_reasoning_effort
    if asked and "reasoning_effort" not in answer.parameters:
        return advice(
            CHAT,
            f"{deployment} answers ({answer.model}), but does not take AZURE_OPENAI_REASONING_EFFORT={asked}, which is left "
            "out: set one that it knows, or none at all.",
        )
    return ok(CHAT, f"{deployment} answers ({answer.model}).")


def _embedding(model: AzureOpenAI, setup: Setup) -> Finding:
    deployment = setup.settings.azure_openai_embedding_deployment
    try:
        [vector] = model.embed(["yes"])
    except Exception as error:  # noqa: BLE001 - as above
        return _failed(EMBEDDING, "AZURE_OPENAI_EMBEDDING_DEPLOYMENT", deployment, error, setup)
    return ok(EMBEDDING, f"{deployment} gives vectors of {len(vector):,} numbers.")


def _failed(check: str, setting: str, deployment: str, error: Exception, setup: Setup) -> Finding:
    failure, endpoint = classify(error), setup.settings.azure_openai_endpoint
    if failure.kind is FailureKind.CREDENTIAL:
        if setup.settings.azure_openai_api_key:
            return wrong(check, f"AZURE_OPENAI_API_KEY is refused: take the present key of {endpoint}. {failure.text}")
        return sign_in.refused(check, failure.http_status, "Cognitive Services OpenAI User", failure.text)
    if failure.error_class == "embedding_width":
        return wrong(check, f"{failure.text} Deploy a model that takes `dimensions`, such as text-embedding-3-small.")
    if failure.http_status == 404:
        return wrong(
            check, f"There is no deployment {deployment!r} at {endpoint}: make it, or correct {setting}. {failure.text}"
        )
    if failure.http_status == 429:
        return wrong(check, f"{deployment} has no tokens left this minute: raise its capacity, or wait. {failure.text}")
    if failure.error_class == "connect":
        return wrong(
            check, f"{endpoint} cannot be reached: check AZURE_OPENAI_ENDPOINT, and its firewall. {failure.text}"
        )
    return wrong(check, f"{deployment} gives no usable answer: see its state in the portal. {failure.text}")
