"""The console: what happens in conversations and jobs, in words for people who are not engineers, and how to put it right."""
