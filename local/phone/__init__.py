"""The phone page: a chat on a phone in the browser, which writes to the Twilio stand-in as an employee."""
