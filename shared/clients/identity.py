"""The app's own identity towards Azure: tokens instead of keys. Loads azure.identity where first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azure.identity import DefaultAzureCredential


def own_identity() -> DefaultAzureCredential:
    """The managed identity on Azure (AZURE_CLIENT_ID names a user-assigned one), the developer's sign-in elsewhere.

    A token is kept until shortly before it ends, so that hardly any call waits for one. The limits below are per
    request to the local endpoint that gives tokens; the one retry is the library's.
    """
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(connection_timeout=2, read_timeout=5, retry_total=1, process_timeout=5)


def token_provider(scope: str) -> Callable[[], str]:
    """A function that gives a valid token for `scope`, as an SDK asks for it before each request."""
    from azure.identity import get_bearer_token_provider

    return get_bearer_token_provider(own_identity(), scope)
