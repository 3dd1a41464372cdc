"""Documents in, answers with their sources out: chunks, search, prompt and grounding."""
