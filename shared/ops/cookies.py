"""The console's cookies: sent to it alone, by its own pages alone, and out of reach of scripts."""

from __future__ import annotations

from starlette.responses import Response

from shared.ops.routes import PREFIX
from shared.ops.visit import Services


def give_cookie(response: Response, services: Services, name: str, value: str, seconds: int) -> None:
    """Set a cookie. Values are unpadded base64url: Azure's host encodes anything else, and nobody decodes it."""
    is_secure = (services.settings.public_base_url or "").startswith("https://")
    response.set_cookie(name, value, max_age=seconds, path=PREFIX, httponly=True, samesite="strict", secure=is_secure)


def take_cookie(response: Response, services: Services, name: str) -> None:
    """Make the browser forget a cookie. No `expires`: the host's clock would be taken for local time."""
    give_cookie(response, services, name, "", 0)
