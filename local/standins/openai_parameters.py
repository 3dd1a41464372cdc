"""What Azure OpenAI takes beside the prompt, checked as a model of the GPT-5.4 family does: all else is refused with 400.

An unknown name and a name that the model does not take are refused in different words; so is a value of the wrong type, and
one that goes with no reasoning alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

EFFORTS = ("none", "low", "medium", "high", "xhigh")  # gpt-5.4; the first is its default. `minimal` is of gpt-5 alone.
CHAT = frozenset({
    "model", "messages", "audio", "data_sources", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "n", "parallel_tool_calls", "prediction",
    "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "response_format",
    "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice",
    "tools", "top_logprobs", "top_p", "user", "user_security_context", "verbosity", "web_search_options",
})  # fmt: skip
EMBEDDINGS = frozenset({"model", "input", "dimensions", "encoding_format", "user"})
_SAMPLING = ("temperature", "top_p")  # a model that reasons takes their defaults alone
_DEFAULT = 1


class ParameterRefused(Exception):
    """400 for one parameter: the error object's code, name and sentence."""

    def __init__(self, code: str, name: str, sentence: str) -> None:
        self.code, self.name, self.sentence = code, name, sentence
        super().__init__(sentence)


def check_names(given: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise ParameterRefused for the first name that the API does not have."""
    for name in given:
        if name not in known:
            raise ParameterRefused("unknown_parameter", name, f"Unknown parameter: '{name}'.")


def check_chat(given: Mapping[str, Any]) -> None:
    """Raise ParameterRefused for what a chat call may not hold."""
    check_names(given, CHAT)
    if "max_tokens" in given:
        sentence = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        raise ParameterRefused("unsupported_parameter", "max_tokens", sentence)
    _check_type(given, "max_completion_tokens", "an integer", _is_whole)
    if (most := given.get("max_completion_tokens")) is not None and most < 1:
        sentence = f"Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1, but got {most} instead."
        raise ParameterRefused("integer_below_min_value", "max_completion_tokens", sentence)
    _check_type(given, "seed", "an integer", _is_whole)
    for name in _SAMPLING:
        _check_type(given, name, "a decimal", _is_number)
    if (heat := given.get("temperature")) is not None and not 0 <= heat <= 2:
        sentence = f"Invalid 'temperature': expected a value between 0 and 2, but got {heat} instead."
        raise ParameterRefused("decimal_out_of_range", "temperature", sentence)
    _check_reasoning(given)


def _check_reasoning(given: Mapping[str, Any]) -> None:
    effort = given.get("reasoning_effort") or EFFORTS[0]
    if effort not in EFFORTS:
        values = ", ".join(map(repr, EFFORTS))
        sentence = f"Unsupported value: '{effort}' is not supported with this model. Supported values are: {values}."
        raise ParameterRefused("unsupported_value", "reasoning_effort", sentence)
    for name in _SAMPLING:
        if effort != EFFORTS[0] and given.get(name, _DEFAULT) != _DEFAULT:
            sentence = (
                f"Unsupported value: '{name}' does not support {given[name]} with this model. Only the default ({_DEFAULT}) "
                "value is supported."
            )
            raise ParameterRefused("unsupported_value", name, sentence)


def _check_type(given: Mapping[str, Any], name: str, kind: str, is_right: Callable[[Any], bool]) -> None:
    value = given.get(name)
    if value is not None and not is_right(value):
        sentence = f"Invalid type for '{name}': expected {kind}, but got {type(value).__name__} instead."
        raise ParameterRefused("invalid_type", name, sentence)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
