"""The console: what happens in conversations and jobs, in words for people who are not engineers, and the means to put it right."""
