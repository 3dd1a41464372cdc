"""Plain objects in place of the protobuf messages between the Functions host and its Python worker.

`azure_functions_runtime` imports no protobuf: it is handed a namespace (this module) and only makes messages with
keyword arguments, reads their attributes, and calls `WhichOneof` on two of them. The names are those that version 1.3
asks for when it serves an app of the v2 programming model without HTTP streaming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class Message:
    """A bag of named fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class WorkerInitResponse(Message):
    """Says whether the app could be loaded."""


class WorkerMetadata(Message):
    """The worker's versions."""


class FunctionMetadataResponse(Message):
    """Lists the app's functions."""


class FunctionLoadResponse(Message):
    """Echoes a function's id."""


class InvocationResponse(Message):
    """How one run ended; on success with `return_value` and `output_data`."""


class RpcException(Message):
    """What a run raised: `message` and `stack_trace`."""


class RpcFunctionMetadata(Message):
    """One function: `name`, `function_id`, `raw_bindings` (JSON texts), `retry_options`."""


class RpcRetryOptions(Message):
    """A function's retry policy."""


class StatusResult(Message):
    """`status`, and the exception of a failure."""

    Failure, Success = 0, 1
    exception: RpcException | None = None

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return bool(self.status == self.Success)


class BindingInfo(Message):
    """One binding; the directions are compared with the numbers of the SDK's enum."""

    out, inout = 1, 2
    undefined = 0


setattr(BindingInfo, "in", 0)  # a keyword, so it cannot be an ordinary class attribute


class TypedData:
    """One value of one kind: string, bytes, json, int, double, http, or none at all."""

    __slots__ = ("kind", "value")

    def __init__(self, **one_of: Any) -> None:
        self.kind: str | None = None
        self.value: Any = None
        for self.kind, self.value in one_of.items():
            break

    def WhichOneof(self, _group: str) -> str | None:
        """The kind, as protobuf's method of that name gives it."""
        return self.kind

    def __getattr__(self, name: str) -> Any:
        if name == self.kind:
            return self.value
        raise AttributeError(name)


class ParameterBinding(Message):
    """A named value, in or out."""

    def WhichOneof(self, _group: str) -> str:
        """Always a value: the alternative, shared memory, is not offered."""
        return "data"


class RpcHttp(Message):
    """A request to the worker, or a response from it."""

    cookies: list[RpcHttpCookie] | None = None

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        for name, value in (fields.get("headers") or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):  # protobuf refuses it too
                raise TypeError(f"header {name!r} has a value that is not a string")


class NullableString(Message):
    """A string that may be absent."""


class NullableBool(Message):
    """A truth value that may be absent."""


class NullableDouble(Message):
    """A number that may be absent."""


class NullableTimestamp(Message):
    """A moment that may be absent."""


class Timestamp(Message):
    """Unix `seconds`. Without this class the library wants google.protobuf."""


class RpcHttpCookie(Message):
    """One Set-Cookie header, taken apart."""

    # "None" is a keyword, so the library looks it up with getattr
    SameSite = type("SameSite", (), {"None": "", "Lax": "lax", "Strict": "strict", "ExplicitNone": "none"})
