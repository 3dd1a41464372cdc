"""Documents in, answers with their sources out: chunks, search, prompt and grounding."""

from typing import Literal

type Language = Literal["nl", "en"]
