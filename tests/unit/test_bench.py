"""The pure parts of the bench: percentiles, spreads, goals, the table; and that its list and its scripts agree."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.catalogue import BENCHES
from bench.figures import COLUMNS, Figure, Goal, Spread, as_json, percentile, ratios, row, show
from bench.load import INBOUND, webhook
from bench.peer_environments import install
from cli.__main__ import main
from cli.output import Status
from local.standins.twilio import AUTH_TOKEN
from shared.signature import parse_form, verify_twilio

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.01, 1.0), (0.5, 5.0), (0.51, 6.0), (0.95, 10.0), (0.99, 10.0), (1.0, 10.0)]
)
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(share: float, expected: float) -> None:
    assert percentile([3, 1, 2, 10, 9, 8, 7, 6, 5, 4], share) == expected


def test_a_share_that_binary_fractions_miss_takes_the_right_rank() -> None:
    assert percentile([float(value) for value in range(1, 101)], 0.07) == 7.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_one_of_the_values_and_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values) + 1e-6


def test_nothing_has_no_percentile_and_no_spread() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="at least one round"):
        Spread.of([])


def test_a_spread_is_the_median_and_the_range_of_the_rounds() -> None:
    assert Spread.of([4.0, 1.0, 2.0]) == Spread(2.0, 1.0, 4.0)
    assert Spread.of(iter([1.0, 2.0])) == Spread(1.5, 1.0, 2.0)


def test_small_rounds_give_their_percentile_together() -> None:
    assert Spread.pooled([[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]], 0.95) == Spread(9.0, 5.0, 9.0)
    assert Spread.pooled([[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]], 0.5) == Spread(3.0, 2.0, 4.0)


def test_a_ratio_is_taken_within_each_round() -> None:
    assert ratios([2.0, 8.0, 3.0], [1.0, 4.0, 1.0]) == Spread(2.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("spread", "unit", "text"),
    [
        (Spread(4.126, 3.9, 4.6), "ms", "4.13 ms (3.9–4.6)"),
        (Spread(0.81234, 0.5, 12.0), "s", "0.812 s (0.5–12)"),
        (Spread(12345.6, 9999.0, 1e6), "/s", "12,346 /s (9,999–1,000,000)"),
        (Spread(0.0, 0.0, 0.0), "ms", "0 ms"),
        (Spread(1.0, 1.0, 1.0), "×", "1 ×"),
        (Spread(0.00012, 0.0001, 100.0), "s", "0.00012 s (0.0001–100)"),
    ],
)
def test_a_spread_is_shown_with_three_figures(spread: Spread, unit: str, text: str) -> None:
    assert show(spread, unit) == text


SLOW = Figure("claimed", "p50", Spread(21.0, 15.0, 30.0), "ms", goal=Goal(20.0))
RATIO = Figure(
    "drain", "beside", Spread(90.0, 80.0, 95.0), "/s", Spread(100.0, 99.0, 101.0), Spread(0.9, 0.8, 0.95),
    Goal(0.9, "ratio", at_least=True),
)  # fmt: skip


def test_a_goal_is_met_or_not_and_a_figure_may_have_none() -> None:
    assert SLOW.met is False
    assert RATIO.met is True
    assert Figure("drain", "alone", Spread(1.0, 1.0, 1.0), "/s").met is None
    assert Figure("x", "no ratio", Spread(1.0, 1.0, 1.0), "ms", goal=Goal(1.3, "ratio")).met is False
    assert Goal(25.0).is_met(25.0)
    assert not Goal(0.9, at_least=True).is_met(0.89)


def test_the_table_has_a_cell_under_each_column() -> None:
    assert dict(zip(COLUMNS, row(RATIO), strict=True)) == {
        "bench": "drain",
        "what": "beside",
        "figure": "90 /s (80–95)",
        "baseline": "100 /s (99–101)",
        "ratio": "0.9 × (0.8–0.95)",
        "goal": "≥ 0.9 ×",
        "met": "yes",
    }
    assert row(SLOW) == ("claimed", "p50", "21 ms (15–30)", "", "", "≤ 20 ms", "NO, by 5 %")


def test_scripts_get_the_numbers() -> None:
    assert as_json(SLOW) == {
        "bench": "claimed",
        "what": "p50",
        "unit": "ms",
        "figure": {"middle": 21.0, "low": 15.0, "high": 30.0},
        "baseline": None,
        "ratio": None,
        "goal": "≤ 20 ms",
        "met": False,
        "missed_by": pytest.approx(0.05),
    }


def test_every_script_is_listed_and_every_listed_one_can_be_run() -> None:
    scripts = {path.stem for path in BENCH.glob("*.py") if "def measure(note" in path.read_text("utf-8")}
    assert scripts - {"catalogue"} == set(BENCHES)
    for name in BENCHES:
        module = importlib.import_module(f"bench.{name}")
        assert list(inspect.signature(module.measure).parameters) == ["note"]
        assert callable(module.main)


def test_an_unknown_figure_is_a_usage_error_that_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "speed"]) == Status.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"There is no figure called 'speed': choose from {', '.join(BENCHES)}.\n"


def test_a_missed_goal_says_by_how_much() -> None:
    assert Goal(0.9, at_least=True).missed_by(0.45) == pytest.approx(0.5)
    assert Goal(20.0).missed_by(30.0) == pytest.approx(0.5)
    assert Goal(20.0).missed_by(20.0) == 0.0
    assert SLOW.missed_by == pytest.approx(0.05)
    assert RATIO.missed_by is None


def test_what_cannot_be_installed_is_told_in_a_sentence(tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "peers"
    fails = [sys.executable, "-c", "import sys; sys.exit('no such package')"]
    assert not install(folder, [fails], said.append, "The peers")
    assert said[-1] == "The peers are not measured: they could not be installed (no such package)."
    assert not folder.exists()
    assert not install(folder, [["a-program-that-nobody-has"]], said.append, "The peers")
    assert "a-program-that-nobody-has" in said[-1]


def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    said: list[str] = []
    step = [sys.executable, "-c", "open('steps', 'a').write('x')"]
    for _ in range(2):
        assert install(tmp_path / "peers", [step], said.append, "The peers")
    assert (tmp_path / "peers" / "steps").read_text() == "x"
    assert len(said) == 1


def test_the_load_is_signed_as_twilio_signs() -> None:
    url = "http://127.0.0.1:7071"
    head, _, body = webhook(url, "+31600000001", "Hoe laat? €").partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert lines[0] == f"POST {INBOUND} HTTP/1.1"
    assert int(headers["Content-Length"]) == len(body)
    verify_twilio(
        url_base=url, path_and_query=INBOUND, form=parse_form(body), signature=headers["X-Twilio-Signature"],
        settings_header=None, auth_tokens=[AUTH_TOKEN], shared_key=None,
    )  # fmt: skip
