"""What the bytes of a file look like, before anybody decodes them."""

from __future__ import annotations


def looks_like_utf16(data: bytes) -> bool:
    """By its byte order mark, or because every second byte of its beginning is mostly zero."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    beginning = data[:2000]
    halves = (beginning[::2], beginning[1::2])
    return len(beginning) > 3 and sum(half.count(0) * 2 > len(half) for half in halves) == 1
