"""The vault's secrets. What seals other secrets is made once and never again: a new key would make all of them unreadable."""

from __future__ import annotations

import base64
import os
import time
from dataclasses import dataclass

from cli.azure.programs import ProgramFailed, Programs, secret_file
from shared.errors import UserError
from shared.settings import KEY_BYTES

TRIES, PAUSE_SECONDS = 20, 15.0  # a role that was assigned just now counts after up to five minutes
_ABSENT = ("SecretNotFound", "was not found in this key vault")
_REFUSED = ("Forbidden", "ForbiddenByRbac", "not authorized")
_DELETED = ("deleted but recoverable", "ObjectIsDeletedButRecoverable")


@dataclass(frozen=True, slots=True)
class Vault:
    """One vault, reached through `az` with the deployer's sign-in. A secret is never an argument, nor printed."""

    programs: Programs
    name: str
    tries: int = TRIES
    pause_seconds: float = PAUSE_SECONDS

    def has(self, secret: str) -> bool:
        """Whether there is such a secret."""
        try:
            self._patiently("secret", "show", "--vault-name", self.name, "--name", secret, "--query", "id")
        except ProgramFailed as failed:
            if _is(failed, _ABSENT):
                return False
            raise
        return True

    def read(self, secret: str) -> str | None:
        """The secret; None when there is none."""
        try:
            return str(
                self._patiently("secret", "show", "--vault-name", self.name, "--name", secret, "--query", "value")
            )
        except ProgramFailed as failed:
            if _is(failed, _ABSENT):
                return None
            raise

    def write(self, secret: str, value: str) -> None:
        """Set a secret."""
        with secret_file(value) as path:
            self._put(secret, path)

    def ensure_key(self, secret: str) -> bool:
        """Make a key of 32 bytes if there is none; whether it was made. One that was deleted comes back as it was."""
        if self.has(secret):
            return False
        try:
            self.write(secret, base64.b64encode(os.urandom(KEY_BYTES)).decode())
        except ProgramFailed as failed:
            if not _is(failed, _DELETED):
                raise
            self.programs.az_quietly("keyvault", "secret", "recover", "--vault-name", self.name, "--name", secret)
            return False
        return True

    def ensure_value(self, secret: str, value: str) -> bool:
        """Set a secret if it has another value, or none; whether it was set."""
        if self.read(secret) == value:
            return False
        self.write(secret, value)
        return True

    def _put(self, secret: str, path: str) -> None:
        arguments = ("keyvault", "secret", "set", "--vault-name", self.name, "--name", secret)
        self.programs.az_quietly(*arguments, "--file", path, "--encoding", "utf-8")

    def _patiently(self, *arguments: str) -> object:
        """Ask again while the role that was given to the deployer does not count yet."""
        for left in reversed(range(self.tries)):
            try:
                return self.programs.az("keyvault", *arguments)
            except ProgramFailed as failed:
                if not _is(failed, _REFUSED):
                    raise
                if not left:
                    raise UserError(
                        f"The vault {self.name} refuses you: you need the role Key Vault Secrets Officer on it. It was "
                        f"asked for {self.tries * self.pause_seconds / 60:.0f} minutes. {failed.said}"
                    ) from failed
                time.sleep(self.pause_seconds)
        raise AssertionError("unreachable")


def _is(failed: ProgramFailed, words: tuple[str, ...]) -> bool:
    return any(word in failed.said for word in words)
