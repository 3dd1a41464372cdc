"""The console's pure parts: a job's story, the day's plot, times, what people wrote, and what came in a form."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import RequestRefused, UserError
from shared.ops.chart import draw, scale
from shared.ops.fields import Fields, read_form, read_query
from shared.ops.figures import Hour
from shared.ops.jobs_query import Attempt, Filter
from shared.ops.render import url
from shared.ops.story import by_run, tell
from shared.ops.text import clip, plain, said
from shared.ops.times import Times, start_of
from shared.ops.words import Words

START = datetime(2026, 3, 3, 12, 0, tzinfo=UTC)


def attempt(seconds: float, outcome: str, error_class: str | None = None, *, run: int = 1, error: str = "") -> Attempt:
    started = START + timedelta(seconds=seconds)
    return Attempt(run, 1, started, started + timedelta(seconds=1), outcome, error_class, None, error)


def test_a_story_counts_tries_and_the_time_between_them() -> None:
    steps = tell("autoreply", [
        attempt(0, "retry", "throttled", error="RateLimitError: busy"),
        attempt(11, "snoozed", "waiting"), attempt(14, "snoozed", "waiting"), attempt(17, "snoozed", "waiting"),
        attempt(20, "crashed", "crashed"),
        attempt(30, "failed", "rejected", error="TwilioRestException: HTTP 400 (Twilio 63016): no"),
        attempt(500, "done", run=2),
    ])  # fmt: skip
    assert [(step.run, step.number, step.outcome, step.times) for step in steps] == [
        (1, 1, "retry", 1), (1, None, "snoozed", 3), (1, 2, "crashed", 1), (1, 3, "failed", 1), (2, 1, "done", 1),
    ]  # fmt: skip
    assert [step.after for step in steps] == [None, 10.0, 2.0, 9.0, None]
    assert [step.service for step in steps] == ["model", "model", "model", "line", "model"]
    assert [step.tone for step in steps] == ["wait", "calm", "bad", "bad", "good"]
    assert tell("send_message", [attempt(0, "retry", "timeout")])[0].service == "line"
    assert tell("import_people", []) == []


def test_a_story_is_parted_by_run_and_the_present_one_is_there_before_anything_happens() -> None:
    steps = tell("suggest", [attempt(0, "failed"), attempt(100, "retry", run=2), attempt(120, "failed", run=2)])
    assert [(run.number, len(run.steps)) for run in by_run(steps, 3)] == [(1, 1), (2, 2), (3, 0)]
    assert [(run.number, len(run.steps)) for run in by_run(steps, 2)] == [(1, 1), (2, 2)]
    assert [(run.number, run.steps) for run in by_run([], 1)] == [(1, [])]


def test_what_is_soon_is_said_to_the_second() -> None:
    times = Times(Words("nl"), START)
    for seconds, words in (
        (-5, "zodra er plaats is"),
        (0.2, "over 1 s"),
        (40, "over 40 s"),
        (119, "over 119 s"),
        (180, "over 3 min"),
    ):
        assert f">{words}</time>" in times.until(START + timedelta(seconds=seconds))


@given(st.integers(0, 10**9))
def test_an_axis_has_whole_steps_and_room_for_the_highest(highest: int) -> None:
    top, step = scale(highest)
    assert top >= highest
    assert top % step == 0
    assert 2 <= top // step <= 4
    assert re.fullmatch(r"[125]0*", str(step))


def test_a_plot_draws_what_there_is() -> None:
    hours = [Hour(START + timedelta(hours=n), n, n // 2) for n in range(24)]
    chart = draw(hours)
    assert len(chart.bars) == 23 + 22
    assert all(0 <= bar.x <= chart.width and 0 <= bar.y <= chart.height and bar.height > 0 for bar in chart.bars)
    assert [label.text for label in chart.hours][:3] == ["15:00", "18:00", "21:00"]
    assert draw([]).bars == []


@pytest.mark.parametrize(
    ("seconds", "dutch", "english"),
    [
        (0, "zojuist", "just now"),
        (59, "zojuist", "just now"),
        (61, "1 min geleden", "1 min ago"),
        (3599, "59 min geleden", "59 min ago"),
        (7300, "2 uur geleden", "2 h ago"),
        (-5, "zo meteen", "in a moment"),
        (-130, "over 2 min", "in 2 min"),
        (86_400, "2 mrt 13:00", "2 Mar 13:00"),
        (400 * 86_400, "27 jan 2025 13:00", "27 Jan 2025 13:00"),
    ],
)
def test_how_long_ago(seconds: int, dutch: str, english: str) -> None:
    for language, words in (("nl", dutch), ("en", english)):
        shown = Times(Words(language), START).ago(START - timedelta(seconds=seconds))  # type: ignore[arg-type]
        assert re.sub("<[^>]*>", "", str(shown)) == words
        assert 'datetime="' in shown


def test_lengths_of_time() -> None:
    times = Times(Words("nl"), START)
    shown = [str(times.lasting(seconds)) for seconds in (0.2, 1.44, 10, 119, 120, 7199, 7200, 172_800)]
    assert shown == ["minder dan 1 s", "1,4 s", "10 s", "119 s", "2 min", "120 min", "2 uur", "2 dagen"]
    assert times.ago(None) == times.moment(None) == "–"


def test_a_day_begins_at_midnight_in_the_netherlands() -> None:
    assert start_of(date(2026, 3, 29)).astimezone(UTC) == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert start_of(date(2026, 3, 30)).astimezone(UTC) == datetime(2026, 3, 29, 22, tzinfo=UTC)  # summer time


def test_what_people_wrote_is_isolated_clipped_and_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    assert str(said(hostile)) == "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;\u202e</bdi>"
    assert len(said("x" * 50_000, 60)) < 80
    assert clip("twaalf tekens", 8) == "twaalf…"
    assert plain("a\u202eb\u0000c\u200fd\u2066") == "abcd"
    assert str(said(None)) == "<bdi></bdi>"


def test_addresses_leave_out_what_is_empty() -> None:
    assert url("/jobs", state="failed", phone=None, sid="", n=0) == "/api/ops/jobs?state=failed&n=0"
    assert url("/jobs", phone="+31 6&x=1") == "/api/ops/jobs?phone=%2B31+6%26x%3D1"


@pytest.mark.parametrize(
    ("query", "method", "arguments"),
    [
        ("n=-1", "number", ()),
        ("n=1e5", "number", ()),
        ("n=" + "9" * 19, "number", ()),
        ("n=٣", "number", ()),
        ("n=2026-13-01", "day", ()),
        ("n=gisteren", "day", ()),
        ("n=x", "choice", (("a", "b"),)),
        ("n=x", "uuid", ()),
    ],
)
def test_a_value_of_another_kind_is_refused(query: str, method: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(UserError):
        getattr(read_query(query), method)("n", *arguments)


def test_fields_are_read_by_kind() -> None:
    fields = read_query("text=+a+&n=12&day=2026-03-31&id=00000000-0000-0000-0000-000000000001&nul=%00%ff&text=b")
    assert (fields.text("text"), fields.number("n"), fields.day("day")) == ("a", 12, date(2026, 3, 31))
    assert str(fields.uuid("id")).endswith("1")
    assert "\x00" not in fields.raw("nul")
    assert (fields.text("none"), fields.number("none"), fields.day("none"), fields.uuid("none")) == (None,) * 4
    assert len(Fields([("x", "y" * 9000)]).text("x") or "") == 200


def test_a_form_is_read_as_browsers_send_it() -> None:
    form = read_form("application/x-www-form-urlencoded; charset=utf-8", b"a=%C3%A9+%26&b=")
    assert (form.raw("a"), form.raw("b")) == ("é &", "")
    body = (
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xc3\xa9 \r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="..\\..\\/etc/pass\xe2\x80\xaewd"\r\n\r\n\x00\xff\r\n'
        b'--x\r\nContent-Disposition: form-data; name="none"; filename=""\r\n\r\n\r\n--x--\r\n'
    )
    form = read_form("multipart/form-data; boundary=x", body)
    upload = form.file("file")
    assert form.raw("a") == "é "
    assert upload is not None
    assert (upload.name, upload.data) == ("passwd", b"\x00\xff")
    assert form.file("none") is None


@given(st.binary(max_size=300))
def test_no_body_breaks_the_reader(body: bytes) -> None:
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        with contextlib.suppress(RequestRefused):
            read_form(kind, body)


@pytest.mark.parametrize(
    ("typed", "address"),
    [("06-12345678", "+31612345678"), ("+31 6 1234 5678", "+31612345678"), ("NL.1234567890abc", "NL.1234567890abc")],
)
def test_a_phone_number_is_found_however_it_is_typed(typed: str, address: str) -> None:
    assert Filter(phone=typed).address == address


def test_a_filter_covers_the_whole_last_day() -> None:
    since, until = Filter.read(read_query("since=2026-03-01&until=2026-03-01")).period
    assert since is not None
    assert until is not None
    assert until - since == timedelta(days=1)
    with pytest.raises(UserError):
        _ = Filter(until=date.max).period
    with pytest.raises(UserError):
        Filter.read(read_query("state=broken"))
