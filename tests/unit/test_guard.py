"""What may be called: sixty hostile spellings of what is ours, and the plain ones of what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clients.guard import Guard, NoSuchName, NotAllowed, is_public

# Refused by the text of the URL alone; names that must be looked up first are refused at the connection.
HOSTILE = [
    "http://example.org/",
    "ftp://example.org/",
    "file:///etc/passwd",
    "gopher://example.org/",
    "javascript:alert(1)",
    "//example.org/",
    "example.org",
    "",
    "https://",
    "https:///path",
    "https://user@example.org/",
    "https://user:word@example.org/",
    "https://@example.org/",
    "https://example.org@127.0.0.1/",
    "https://example.org:99999/",
    "https://example.org:port/",
    "https://exa mple.org/",
    "https://example.org/\r\nHost: other",
    "https://example.org\\@127.0.0.1/",
    "https://example.org/\x00",
    "https://[::1/",
    "https://127.0.0.1/",
    "https://127.0.0.1:8443/",
    "https://127.1.2.3/",
    "https://0.0.0.0/",
    "https://10.0.0.1/",
    "https://10.255.255.255/",
    "https://172.16.0.1/",
    "https://172.31.255.254/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://100.127.255.254/",
    "https://169.254.169.254/latest/meta-data/",
    "https://169.254.0.1/",
    "https://168.63.129.16/",
    "https://192.0.0.1/",
    "https://192.0.2.1/",
    "https://192.88.99.1/",
    "https://198.18.0.1/",
    "https://198.51.100.1/",
    "https://203.0.113.1/",
    "https://224.0.0.1/",
    "https://239.255.255.250/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    "https://[::]/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b:1::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:53aa:64c::1]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[2001:db8::1]/",
    "https://[100::1]/",
    "https://" + "a" * 2100,
]


@pytest.mark.parametrize("url", HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
def test_a_hostile_url_is_refused(url: str) -> None:
    with pytest.raises(NotAllowed):
        Guard().check_url(url)


@pytest.mark.parametrize(
    "url", ["https://example.org/", "https://example.org:8443/a?b=c#d", "https://8.8.8.8/", "https://[2606:4700::1]/"]
)
def test_a_public_url_is_fine(url: str) -> None:
    Guard().check_url(url)


NO_NAMES = {
    "a character": "💩.example",
    "a joiner": "a\u200db.example",
    "a wide letter": "ａ.example",
    "a long part": f"{'a' * 64}.example",
    "a part that gets long": f"{'ü' * 60}.example",
    "a long name": f"{'a.' * 130}example",
    "an empty part": "a..example",
    "an empty beginning": ".example",
    "two dots behind it": "example..",
    "a dot alone": ".",
    "no address": "999.1.1.1",
}


@pytest.mark.parametrize("case", NO_NAMES)
def test_a_host_name_that_cannot_be_looked_up_is_refused(case: str) -> None:
    for guard in (Guard(), Guard((NO_NAMES[case],))):
        with pytest.raises(NoSuchName, match=r"^The URL's host name .+ cannot exist: .+\.$") as refused:
            guard.check_url(f"https://{NO_NAMES[case]}/hook")
        assert refused.value.error_class == "bad_host_name"
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize("host", [
    "bücher.example", "例え.example", "a_b.example", "example.org.", f"{'a' * 63}.example", "xn--bcher-kva.example", "8.8.8.8",
], ids=str)  # fmt: skip
def test_a_host_name_that_can_be_looked_up_is_fine(host: str) -> None:
    Guard().check_url(f"https://{host}/hook")


@pytest.mark.parametrize("url", ["http://hr.internal/", "http://HR.internal./hook", "https://hr.internal:444/"])
def test_an_internal_host_is_named_by_a_setting(url: str) -> None:
    Guard(("hr.internal",)).check_url(url)
    Guard(("hr.internal",)).check_address("hr.internal", 80, "10.0.0.1")


def test_a_port_that_is_named_is_the_only_one() -> None:
    guard = Guard(("127.0.0.1:8080", "[::1]:8080"))
    guard.check_url("http://127.0.0.1:8080/")
    guard.check_url("http://[::1]:8080/")
    for url in ("http://127.0.0.1:8081/", "http://127.0.0.1/", "http://[::1]/", "http://localhost:8080/"):
        with pytest.raises(NotAllowed):
            guard.check_url(url)


@given(st.ip_addresses(v=4, network="10.0.0.0/8") | st.ip_addresses(v=4, network="127.0.0.0/8"))
def test_no_private_address_is_public_in_any_of_its_ipv6_dresses(address: object) -> None:
    assert not is_public(str(address))
    assert not is_public(f"::ffff:{address}")
    assert not is_public(f"64:ff9b::{address}")


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_in_ipv6_is_never_called(address: object) -> None:
    assert not is_public(f"::ffff:{address}")
