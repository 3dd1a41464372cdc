"""Messages in and out: the joining insert, the send saga, status callbacks, consent, and the words."""
