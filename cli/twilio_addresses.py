"""What is pasted at Twilio: where it posts messages and statuses, and how often it tries.

Twilio gives all tries of a webhook 15 seconds together, so each of them is short. It cuts off what follows `#` before it signs
and sends (https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides).
"""

from __future__ import annotations

RETRIES = "#rc=5&rp=all&ct=2000&rt=5000"  # five more tries, after any failure; 2 s to connect, 5 s for an answer


def webhook_url(base: str) -> str:
    """Where Twilio posts what comes in; `base` is PUBLIC_BASE_URL."""
    return f"{base}/api/twilio/inbound"


def status_url(base: str) -> str:
    """Where Twilio posts what became of a message."""
    return f"{base}/api/twilio/status"
