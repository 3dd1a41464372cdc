"""Dutch or English, or nobody can tell: chat messages as people type them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.conversation.language import _DUTCH, _ENGLISH, _OTHER, detect

DUTCH = """
hoi | bedankt! | dank je wel | ja graag | nee | goedemorgen | top, bedankt | fijne dag | tot morgen | klopt dat
hoeveel vakantiedagen heb ik? | Hoe meld ik me ziek? | verlof | ziek | declaratie | reiskosten | thuiswerken | ouderschapsverlof?
wifi wachtwoord | laptop kapot | wanneer krijg ik mijn salaris | en voor mijn man? | dat snap ik niet | feestdagen 2026
ff vraagje: hoe zit het met overwerk | hoe check ik mijn payslip | moet ik mijn leave request opnieuw submitten
HOEVEEL VRIJE DAGEN HEB IK | mn dochter is jarig | opzegtermijn | waar staat mijn loonstrookje | brandalarm gaat af
""".replace("\n", " | ").split(" | ")
ENGLISH = """
hello | thanks | thank you! | yes please | no | good morning | great, thanks | have a nice day | see you tomorrow | why not
how many vacation days do i have? | How do I call in sick? | expenses | travel costs | working from home | parental leave?
my laptop is broken | when do i get paid | and for my husband? | i dont get it | public holidays 2026 | lost my badge
quick question: what about overtime | where do i find the verlofformulier | HOW MANY DAYS OFF DO I HAVE
it’s my daughter’s birthday | notice period | where is my payslip | fire alarm went off
""".replace("\n", " | ").split(" | ")
NEITHER = """
12345 | 06-12345678 | +31 6 1234 5678 | € 250 | 17-03-2026 | 9:30 | ? | 👍 | 😂😂 | ok | HR | STOP | help | contract
weekend | cao | Jan de Vries | Fatima | Sanne Bakker | John Smith | jan@example.org | hr@bedrijf.nl | https://example.org/verlof-aanvragen
www.example.com/leave-policy | Wie lange habe ich noch Urlaub | Bonjour, combien de jours de congé | ¿cuántos días de vacaciones?
merhaba | مرحبا كيف حالك | Ile mam dni urlopu | спасибо | gracias | Guten Morgen
""".replace("\n", " | ").split(" | ")


@pytest.mark.parametrize("text", [text for text in DUTCH if text])
def test_dutch(text: str) -> None:
    assert detect(text) == "nl"


@pytest.mark.parametrize("text", [text for text in ENGLISH if text])
def test_english(text: str) -> None:
    assert detect(text) == "en"


@pytest.mark.parametrize("text", [*NEITHER, "", "   ", "\n", "\0", "\ud800", "a" * 100_000])
def test_unsure(text: str) -> None:
    assert detect(text) is None


def test_a_document_is_its_language_even_with_words_of_the_other() -> None:
    dutch = (
        "Het formulier heet Leave Request. "
        + "Je vraagt verlof aan bij je leidinggevende, uiterlijk twee weken van tevoren. " * 20
    )
    assert detect(dutch) == "nl"
    assert (
        detect("See the Dutch page 'Verlof aanvragen'. " + "You ask your manager for leave two weeks before. " * 20)
        == "en"
    )


def test_a_message_half_in_each_is_not_guessed() -> None:
    assert detect("bedankt / thanks") is None


def test_the_lists_do_not_overlap() -> None:
    assert not _DUTCH & _ENGLISH
    assert not _OTHER & (_DUTCH | _ENGLISH)


def test_the_import_is_cheap() -> None:
    program = (
        "import re, sys, time, typing\n"
        "start = time.process_time()\n"
        "import shared.conversation.language\n"
        "print((time.process_time() - start) * 1000, *[name for name in sys.modules if name in ('numpy', 'psycopg', 'openai')])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
        for _ in range(4)
    ]
    assert all(len(run) == 1 for run in runs)
    assert min(float(run[0]) for run in runs) < 10


def test_a_long_text_is_read_in_part() -> None:
    assert detect("verlof en ziekte van de medewerkers " * 1_000_000) == "nl"
