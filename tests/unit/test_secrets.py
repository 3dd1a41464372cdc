"""Secrets at rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.secrets import SecretUnreadable, Vault

OLD, NEW = b"o" * 32, b"n" * 32


@given(st.text(st.characters(codec="utf-8"), max_size=100))
def test_what_is_sealed_opens_in_its_place_alone(secret: str) -> None:
    vault = Vault([NEW])
    sealed = vault.seal(secret, "source:1")
    assert vault.open(sealed, "source:1") == secret
    with pytest.raises(SecretUnreadable, match="endpoint:1"):
        vault.open(sealed, "endpoint:1")


def test_while_rotating_both_keys_open_and_the_new_one_seals() -> None:
    sealed = Vault([OLD]).seal("s", "source:1")
    assert Vault([NEW, OLD]).open(sealed, "source:1") == "s"
    again = Vault([NEW, OLD]).seal("s", "source:1")
    assert Vault([NEW]).open(again, "source:1") == "s"
    with pytest.raises(SecretUnreadable):
        Vault([OLD]).open(again, "source:1")


@pytest.mark.parametrize("broken", [b"", b"\x01", b"\x02" + b"x" * 40, b"\x01" + b"x" * 40, b"\x01" + b"x" * 12])
def test_what_was_never_sealed_is_unreadable(broken: bytes) -> None:
    with pytest.raises(SecretUnreadable):
        Vault([NEW]).open(broken, "source:1")


def test_the_same_secret_is_sealed_differently_each_time() -> None:
    vault = Vault([NEW])
    assert vault.seal("s", "p") != vault.seal("s", "p")
