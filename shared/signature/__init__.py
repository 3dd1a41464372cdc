"""Signatures of webhooks, over the bytes that were sent: sign and verify.

One module a scheme: `twilio` (our own two webhooks), `standard` (Standard Webhooks), `timestamped` (`t=…,v1=…`) and
`hub` (`X-Hub-Signature-256`). A receiver of our deliveries may import this package: it needs nothing but the standard
library and `shared/errors.py`. All of them raise RequestRefused: 403 for a signature that does not match, 400 for headers
that no signature can be read from.
"""

from __future__ import annotations

from shared.signature.hub import sign_hub, verify_hub
from shared.signature.standard import new_secret, sign_standard, verify_standard
from shared.signature.timestamped import sign_timestamped, verify_timestamped
from shared.signature.twilio import (
    FIELDS_AT_MOST,
    HMAC_SHA1,
    HMAC_SHA256,
    Form,
    parse_form,
    sign_twilio,
    verify_twilio,
)

__all__ = [
    "FIELDS_AT_MOST",
    "HMAC_SHA1",
    "HMAC_SHA256",
    "Form",
    "new_secret",
    "parse_form",
    "sign_hub",
    "sign_standard",
    "sign_timestamped",
    "sign_twilio",
    "verify_hub",
    "verify_standard",
    "verify_timestamped",
    "verify_twilio",
]
