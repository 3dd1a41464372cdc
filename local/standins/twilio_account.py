"""The account behind the Twilio stand-in, and its WhatsApp senders, as somebody who checks a set-up asks for them.

GET /2010-04-01/Accounts/{sid}.json       GET /v2/Channels/Senders?Channel=whatsapp       GET /v2/Channels/Senders/{sid}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SENDER_SID = "XE" + "57a9d1" * 5 + "00"


@dataclass(slots=True)
class Sender:
    """One WhatsApp sender; may be changed at any time. Addresses as they stand in Twilio's console, overrides included."""

    sender_id: str
    status: str = "ONLINE"
    callback_url: str | None = None
    callback_method: str = "POST"
    fallback_url: str | None = None
    status_callback_url: str | None = None
    sid: str = SENDER_SID

    def as_json(self, base: str) -> dict[str, Any]:
        """The resource as Twilio's API shows it."""
        webhook = {
            "callback_url": self.callback_url,
            "callback_method": self.callback_method,
            "fallback_url": self.fallback_url,
            "fallback_method": "POST",
            "status_callback_url": self.status_callback_url,
            "status_callback_method": "POST",
        }
        return {
            "sid": self.sid,
            "status": self.status,
            "sender_id": self.sender_id,
            "configuration": None,
            "webhook": webhook,
            "profile": {"name": "Antwoord"},
            "properties": None,
            "offline_reasons": None,
            "url": f"{base}/v2/Channels/Senders/{self.sid}",
        }


@dataclass(slots=True)
class Account:
    """The account: `status` is active, suspended or closed, `kind` Full or Trial."""

    sid: str
    status: str = "active"
    kind: str = "Full"

    def as_json(self) -> dict[str, Any]:
        """The resource as Twilio's API shows it; of what nobody here reads, nothing."""
        uri = f"/2010-04-01/Accounts/{self.sid}.json"
        return {"sid": self.sid, "friendly_name": "Antwoord", "status": self.status, "type": self.kind, "uri": uri}


def page_of(senders: Sequence[Sender], base: str) -> dict[str, Any]:
    """All senders on one page of the list."""
    address = f"{base}/v2/Channels/Senders?PageSize=50&Page=0"
    meta = {
        "page": 0, "page_size": 50, "key": "senders", "first_page_url": address, "url": address,
        "next_page_url": None, "previous_page_url": None,
    }  # fmt: skip
    return {"senders": [sender.as_json(base) for sender in senders], "meta": meta}
