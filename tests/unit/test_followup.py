"""What is a follow-up, and what is searched for then."""

from __future__ import annotations

import pytest

from shared.knowledge.followup import is_follow_up, with_earlier

FOLLOW_UPS = [
    "En voor mijn man?", "And in December?", "geldt dat ook voor stagiairs", "hoeveel dan?", "how long does that take",
    "waarom niet", "wie regelt dat?", "ja, en hoe vraag ik het aan?", "what about interns", "tot wanneer?", "", "👍",
    "en hoe draai ik dat terug?", "and how do i undo that?", "moet ik dan iets betalen?",
]  # fmt: skip
QUESTIONS = [
    "Hoeveel vakantie-uren heb ik als ik fulltime werk?", "How many days off do I get for my wedding?",
    "Entertainment with customers, who pays for it and how much?", "Ofwel ik ben ziek, hoe meld ik me ziek bij HR?",
    "enquetes over werkdruk waar vind ik de uitslagen", "I clicked on a link in a strange e-mail, what should I do about that?",
]  # fmt: skip


@pytest.mark.parametrize("text", FOLLOW_UPS)
def test_a_follow_up_takes_the_earlier_question_along(text: str) -> None:
    assert is_follow_up(text)
    assert with_earlier(text, "Krijg ik zorgverlof?") == f"Krijg ik zorgverlof?\n{text}"
    assert with_earlier(text, None) == text


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_of_its_own_does_not(text: str) -> None:
    assert with_earlier(text, "Krijg ik zorgverlof?") == text
