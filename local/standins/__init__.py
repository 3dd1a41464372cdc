"""Stand-ins for Twilio, Azure OpenAI and Azure's storage queue: real HTTP servers on loopback.

The application reaches them through the same client libraries as the real services; only an address differs.
"""
