"""Settings for tests of the clients: everything that is asked for, and what a test changes."""

from __future__ import annotations

from shared.settings import Settings, load

ENVIRONMENT = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    "AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:1",
    "AZURE_OPENAI_API_KEY": "model-key-0123456789",
    "AZURE_OPENAI_CHAT_DEPLOYMENT": "chat-deployment",
    "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": "embedding-deployment",
    "TWILIO_ACCOUNT_SID": "AC" + "0" * 32,
    "TWILIO_AUTH_TOKEN": "twilio-token-0123456789",
    "TWILIO_WHATSAPP_FROM": "+31201234567",
    "PUBLIC_BASE_URL": "https://antwoord.example.org",
}


def settings(**changed: str) -> Settings:
    """`changed` names settings as the environment does; an empty text takes one away."""
    return load(ENVIRONMENT | changed)
