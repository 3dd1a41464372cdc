"""Set-Cookie as the cloud's host writes it.

The SDK takes each Set-Cookie header apart and the host puts it together again, so what a browser gets is not what the
app wrote: the value is percent-encoded, and `domain=` and `path=` are always there. Doing the same here shows a cookie
that would not survive it before it is deployed.
"""

from __future__ import annotations

from email.utils import formatdate
from urllib.parse import quote

from local.functions.protos import RpcHttpCookie


def set_cookie(cookie: RpcHttpCookie) -> str:
    """The header's value, attributes in ASP.NET's order."""
    parts = [f"{cookie.name}={quote(cookie.value or '', safe='')}"]
    if cookie.expires is not None:
        parts.append(f"expires={formatdate(cookie.expires.value.seconds, usegmt=True)}")
    if cookie.max_age is not None:
        parts.append(f"max-age={int(cookie.max_age.value)}")
    if cookie.domain is not None:
        parts.append(f"domain={cookie.domain.value}")
    if cookie.path is not None:
        parts.append(f"path={cookie.path.value}")
    if cookie.secure is not None and cookie.secure.value:
        parts.append("secure")
    if cookie.same_site:
        parts.append(f"samesite={cookie.same_site}")
    if cookie.http_only is not None and cookie.http_only.value:
        parts.append("httponly")
    return "; ".join(parts)
