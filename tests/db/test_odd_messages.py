"""What people send besides questions in plain text: stored as Twilio sent it, answered honestly, and never twice or for ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.db.pool import Database
from tests.fakes.world import World, run_all

ADDRESS = "+31600000001"
SEEN = "Je hebt 200 uur verlof. [1]"
UNSEEN = "Wat je hebt meegestuurd kan ik niet bekijken; ik antwoord op je tekst.\n\n" + SEEN
MEDIA = "Foto’s, spraakberichten, bestanden, locaties en contacten kan ik niet bekijken."
UNCLEAR = "Dat begrijp ik niet."
NOTHING = None
URL = "https://api.twilio.com/2010-04-01/Accounts/AC1/Messages/MM1/Media/ME1"


@dataclass(frozen=True)
class Odd:
    """A message as Twilio posts it, what is kept of it beside the raw form, and how its answer begins (None: no answer)."""

    name: str
    fields: dict[str, str]
    answer: str | None
    media: list[dict[str, str]] = field(default_factory=list)
    body: str | None = None  # where it is not Twilio's Body
    flag: str | None = None


def attached(kind: str, content_type: str, body: str = "") -> dict[str, str]:
    return {"Body": body, "MessageType": kind, "NumMedia": "1", "MediaUrl0": URL, "MediaContentType0": content_type}


def kept(content_type: str) -> list[dict[str, str]]:
    return [{"url": URL, "type": content_type}]


ODD = [
    Odd("an image", attached("image", "image/jpeg"), MEDIA, kept("image/jpeg"), flag="media"),
    Odd("a voice message", attached("audio", "audio/ogg"), MEDIA, kept("audio/ogg"), flag="media"),
    Odd("a video", attached("video", "video/mp4"), MEDIA, kept("video/mp4"), flag="media"),
    Odd("a document", attached("document", "application/pdf"), MEDIA, kept("application/pdf"), flag="media"),
    Odd("a sticker", attached("sticker", "image/webp"), MEDIA, kept("image/webp"), flag="media"),
    Odd("an image with a question", attached("image", "image/png", "Hoeveel verlof is dit?"), UNSEEN, kept("image/png")),
    Odd("an image that is gone", {"MessageType": "image", "Body": ""}, MEDIA, [{"type": "image"}], flag="media"),
    Odd("a location", {"MessageType": "location", "Body": "", "Latitude": "52.37", "Longitude": "4.89", "Label": "Kantoor"},
        MEDIA, [{"type": "location"}], flag="media"),
    Odd("a location with a text", {"MessageType": "location", "Body": "Is hier parkeerplaats?", "Latitude": "52.37"},
        UNSEEN, [{"type": "location"}]),
    Odd("a contact card", {"MessageType": "contacts", "Body": "", "Contacts": "[{}]"}, MEDIA, [{"type": "contacts"}],
        flag="media"),
    Odd("an order", {"MessageType": "order", "Body": ""}, MEDIA, [{"type": "order"}], flag="media"),
    Odd("what WhatsApp cannot pass on", {"MessageType": "unsupported", "Body": ""}, MEDIA, [{"type": "unsupported"}],
        flag="media"),
    Odd("nothing at all", {"Body": ""}, MEDIA, [{"type": "unknown"}], flag="media"),
    Odd("white space", {"Body": " \n\t "}, MEDIA, flag="media"),
    Odd("a reaction", {"MessageType": "reaction", "Body": "😡"}, NOTHING, [{"type": "reaction"}]),
    Odd("a reaction taken back", {"MessageType": "reaction", "Body": ""}, NOTHING, [{"type": "reaction"}]),
    Odd("a deleted message", {"MessageType": "deleted", "Body": ""}, NOTHING, [{"type": "deleted"}]),
    Odd("an edited message", {"MessageType": "edited", "Body": "Hoeveel verlof heb ik?"}, SEEN),
    Odd("thanks", {"Body": "Dank je wel!"}, NOTHING),
    Odd("a thumb", {"Body": "👍🏽"}, NOTHING),
    Odd("another emoji", {"Body": "🤔"}, UNCLEAR),
    Odd("only a flag", {"Body": "🇳🇱🇧🇪"}, UNCLEAR),
    Odd("only question marks", {"Body": "??"}, UNCLEAR),
    Odd("4,096 characters", {"Body": "verlof " * 585 + "?"}, SEEN),
    Odd("4,096 astral characters", {"Body": "Verlof? " + "𝔳" * 4088}, SEEN),
    Odd("right to left", {"Body": "كم عدد أيام الإجازة؟"}, SEEN),
    Odd("right to left with marks", {"Body": "\u202everlof\u202c \u200fכמה ימי חופשה?"}, SEEN),
    Odd("two languages", {"Body": "Hi, hoeveel leave days heb ik dit year?"}, SEEN),
    Odd("NUL and a lone surrogate", {"Body": "verlof\0\ud83d?"}, SEEN, body="verlof\ufffd\ufffd?"),
    Odd("a button", {"MessageType": "button", "Body": "Mijn verlof", "ButtonText": "Mijn verlof", "ButtonPayload": "leave"},
        SEEN),
    Odd("a button without a body", {"MessageType": "button", "Body": "", "ButtonText": "Mijn verlof", "ButtonPayload": "x"},
        SEEN, body="Mijn verlof"),
    Odd("a choice from a list", {"MessageType": "interactive", "Body": "", "ListTitle": "Ziek melden", "ListId": "sick"},
        SEEN, body="Ziek melden"),
    Odd("a reply to a message", {"Body": "en deeltijd?", "OriginalRepliedMessageSid": "SM1"}, SEEN),
    Odd("a forwarded message", {"Body": "Hoeveel verlof?", "Forwarded": "true", "FrequentlyForwarded": "true"}, SEEN),
    Odd("a card that leads here", {"Body": "Hoeveel verlof?", "ReferralNumMedia": "1", "ReferralBody": "x"}, SEEN),
    Odd("a kind that nobody knows", {"MessageType": "hologram", "Body": "Wat is dit verlof?"}, UNSEEN, [{"type": "hologram"}]),
]  # fmt: skip


@pytest.fixture
def world(database: Database) -> World:
    world = World(database, AI_NOTICE="off")
    world.execute("TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people, documents CASCADE")
    world.add_handbook()
    return world


def says(world: World, fields: dict[str, str]) -> None:
    world.says(ADDRESS, fields.get("Body", ""), **{name: value for name, value in fields.items() if name != "Body"})


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_it_is_stored_as_it_came_and_answered_honestly(world: World, odd: Odd) -> None:
    body = odd.fields.get("Body", "") if odd.body is None else odd.body
    says(world, odd.fields)
    [(stored, media, raw)] = world.rows("SELECT body, media, raw FROM messages")
    assert (stored, media) == (body, odd.media)
    sent = {name: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
            for name, value in odd.fields.items()}  # fmt: skip
    assert raw | sent == raw
    run_all(world)
    answers = world.sent_to(ADDRESS)
    assert [answer[: len(odd.answer or "")] for answer in answers] == ([odd.answer] if odd.answer else [])
    assert len(world.model.asked) == (odd.answer in (SEEN, UNSEEN))
    assert world.value("SELECT needs_person_reason FROM conversations") == odd.flag
    assert_nothing_goes_on(world)


def assert_nothing_goes_on(world: World) -> None:
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0
    assert world.rows("SELECT DISTINCT status FROM ai_jobs") == [("done",)]
    assert world.value("SELECT count(*) FROM job_attempts WHERE outcome NOT IN ('done')") == 0


def test_the_answers_are_in_english_to_who_writes_it(world: World) -> None:
    world.execute("INSERT INTO people (phone, name, language) VALUES (%(phone)s, 'Someone', 'en')", phone=ADDRESS)
    says(world, attached("image", "image/jpeg"))
    run_all(world)
    world.says(ADDRESS, "🤔")
    run_all(world)
    world.says(ADDRESS, "start")
    run_all(world)
    assert [answer[:18] for answer in world.sent_to(ADDRESS)] == [
        "I cannot look at p", "I do not understan", "You can ask your q",
    ]  # fmt: skip


def test_a_burst_of_a_photo_and_its_question_gets_one_answer(world: World) -> None:
    says(world, attached("image", "image/jpeg"))
    world.says(ADDRESS, "Hoeveel verlof staat hier?")
    world.says(ADDRESS, "bedankt alvast")
    run_all(world)
    assert [answer[: len(UNSEEN)] for answer in world.sent_to(ADDRESS)] == [UNSEEN]
    assert_nothing_goes_on(world)


def test_thanks_after_an_answer_cost_nothing(world: World) -> None:
    world.says(ADDRESS, "Hoeveel verlof heb ik?")
    run_all(world)
    for thanks in ("Dank!", "👍", "ok top"):
        world.says(ADDRESS, thanks)
        run_all(world)
    assert len(world.sent_to(ADDRESS)) == len(world.model.asked) == 1
    assert world.value("SELECT needs_person_since FROM conversations") is None


def test_what_an_answer_was_made_with_is_kept(world: World) -> None:
    world.says(ADDRESS, "Hoeveel verlof heb ik?")
    run_all(world)
    [row] = world.rows("SELECT model, prompt_version, parameters, length(sources_hash) FROM messages WHERE from_self")
    expected: tuple[Any, ...] = ("fake-chat", {"temperature": 0, "seed": 1}, 64)
    assert (row[0], row[2], row[3]) == expected
    assert row[1].startswith("answer-")
