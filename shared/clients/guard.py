"""The outbound guard: what we are told to call may not be ours, nor the platform's.

Deliveries and imports go to addresses that people typed. Only https to public addresses is called; the address that was
checked is the one that is connected to, so that a name which changes its mind between two look-ups gains nothing. Hosts in
OUTBOUND_ALLOW_HOSTS are internal services on purpose: any address of theirs, http too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from shared.errors import PermanentError

URL_LENGTH_AT_MOST = 2048
NAME_LENGTH_AT_MOST, LABEL_LENGTH_AT_MOST = 253, 63  # of a host's name and of each of its parts, as DNS has them

# Not for the public, although `is_global` says so, or reached through a gateway that leads to any IPv4 address.
_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",  # Azure's own services, seen from every machine there
        "192.88.99.0/24",  # 6to4 relays
        "::/96",  # IPv4-compatible, obsolete
        "::ffff:0:0/96",  # IPv4-mapped
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "fec0::/10",  # site-local, obsolete
    )
)


class NotAllowed(PermanentError):
    """An address that may not be called, or cannot be; the text says why."""

    def __init__(self, text: str, error_class: str = "address_refused") -> None:
        super().__init__(error_class, text)


class NoSuchName(NotAllowed):
    """A host's name that DNS cannot be asked for: whoever it was told to has mistyped it."""

    def __init__(self, host: str, why: str) -> None:
        shown = host if len(host) <= 60 else f"{host[:59]}…"
        super().__init__(f"The URL's host name {shown} cannot exist: {why}.", "bad_host_name")


def is_public(address: str) -> bool:
    """Whether an IP address (with or without a zone) is one that everybody can reach."""
    parsed = ipaddress.ip_address(address.split("%")[0])
    if any(parsed.version == network.version and parsed in network for network in _REFUSED):
        return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved and not parsed.is_unspecified


@dataclass(frozen=True, slots=True)
class Guard:
    """Says what may be called. `allowed` are names of hosts in lower case, each with a port or for all ports."""

    allowed: Collection[str] = ()

    def is_internal(self, host: str, port: int) -> bool:
        """Whether the host was allowed by name."""
        name = host.rstrip(".").lower()
        shown = f"[{name}]" if ":" in name else name
        return shown in self.allowed or f"{shown}:{port}" in self.allowed

    def check_url(self, url: str) -> None:
        """Raise NotAllowed when the URL can never be called, whatever its name resolves to."""
        if len(url) > URL_LENGTH_AT_MOST:
            raise NotAllowed(f"The URL is longer than {URL_LENGTH_AT_MOST} characters.")
        if re.search(r"[\x00-\x20\x7f\\]", url):
            raise NotAllowed("The URL has a space, a backslash or a control character in it.")
        parts, port = _parts(url)
        host = parts.hostname or ""
        internal = self.is_internal(host, port)
        if parts.scheme not in ("https", "http") or not host:
            raise NotAllowed("The URL must be https://HOST/….")
        if parts.scheme == "http" and not internal:
            raise NotAllowed("The URL must be https; http is for hosts in OUTBOUND_ALLOW_HOSTS.")
        if parts.username is not None or parts.password is not None:
            raise NotAllowed("The URL must not have a name or password in it.")
        _check_name(host)
        if not internal:
            self.check_address(host, port, host)

    def check_address(self, host: str, port: int, address: str) -> None:
        """Raise NotAllowed when `address`, which `host` resolved to, may not be connected to."""
        if self.is_internal(host, port):
            return
        try:
            public = is_public(address)
        except ValueError:  # a name, which is checked when it has been looked up
            return
        if not public:
            raise NotAllowed(f"{host} is not a public address; name it in OUTBOUND_ALLOW_HOSTS if it is one of yours.")


def _check_name(host: str) -> None:
    """Raise NoSuchName for a host that the resolver, or what asks it (httpx2), would refuse unasked."""
    if ":" in host:  # an IPv6 address
        return
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise NoSuchName(host, "it is no IP address, and no name is four numbers") from None
    labels = _encoded(host).removesuffix(".").split(".")
    if not all(labels):
        raise NoSuchName(host, "it begins with a dot, or two of its dots have nothing between them")
    if max(map(len, labels)) > LABEL_LENGTH_AT_MOST:
        raise NoSuchName(host, f"one of its parts has more than {LABEL_LENGTH_AT_MOST} characters")
    if len(".".join(labels)) > NAME_LENGTH_AT_MOST:
        raise NoSuchName(host, f"it has more than {NAME_LENGTH_AT_MOST} characters")


def _encoded(host: str) -> str:
    if host.isascii():
        return host
    import idna  # comes with httpx2, and takes 15 ms, for the few names that need it

    try:
        return idna.encode(host).decode()
    except idna.IDNAError:
        raise NoSuchName(host, "it has a character that no name can have, or one of its parts is too long") from None


def _parts(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError as wrong:
        raise NotAllowed("The URL cannot be read.") from wrong
    return parts, port
