"""Secrets at rest: AES-256-GCM under SECRETS_KEY, bound to the row that they belong to.

SECRETS_KEY is one key, or two while rotating (`new,old`): the first seals, either opens. A key is 32 bytes as base64;
`python -c "import base64, os; print(base64.b64encode(os.urandom(32)).decode())"` makes one.

A sealed secret is a version byte, a nonce of 12 bytes, and the ciphertext with its tag. The place (`source:ID`) is its
associated data, so that a ciphertext that was copied to another row does not open there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from shared.errors import AntwoordError, UserError

VERSION = b"\x01"
NONCE_BYTES = 12


class SecretUnreadable(AntwoordError):
    """No key of SECRETS_KEY opens it: the key was lost or changed without the old one beside it."""


class Vault:
    """Seals and opens. The library is loaded when first used (25 ms)."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: 32 bytes each, the first one seals. Raises ValueError when there is none."""
        if not keys:
            raise ValueError("a vault needs a key")
        self._keys = list(keys)

    def seal(self, secret: str, place: str) -> bytes:
        """Encrypt a secret for one place."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(NONCE_BYTES)
        return VERSION + nonce + AESGCM(self._keys[0]).encrypt(nonce, secret.encode("utf-8"), place.encode("utf-8"))

    def open(self, sealed: bytes, place: str) -> str:
        """Decrypt what `seal` made for this place. Raises SecretUnreadable."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        if sealed[:1] == VERSION and len(nonce) == NONCE_BYTES:
            for key in self._keys:
                try:
                    return AESGCM(key).decrypt(nonce, body, place.encode("utf-8")).decode("utf-8")
                except InvalidTag:
                    continue
        raise SecretUnreadable(
            f"The secret of {place} cannot be read with SECRETS_KEY: put the key back that sealed it, behind the new one."
        )


def open_vault(keys: Sequence[bytes] | None) -> Vault:
    """The vault of SECRETS_KEY (`Settings.secrets_key`). Raises UserError when it is not set."""
    if not keys:
        raise UserError(
            "SECRETS_KEY is not set: it seals the secrets of webhooks. `./antwoord secrets new-key` makes one.",
            name="no_secrets_key",
        )
    return Vault(keys)
