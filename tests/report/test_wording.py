from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.report import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1.00 kB"), (430592, "431 kB"), (999_499, "999 kB"), (999_500, "1.00 MB"),
     (27557888, "27.6 MB"), (99_960_000, "100 MB"), (8.28e9, "8.28 GB"), (5e17, "500 PB")],
)  # fmt: skip
def test_byte_size(value: float, text: str) -> None:
    assert wording.byte_size(value) == text.replace(" ", "\u00a0")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.0013, "1.3 ms"), (0.0113, "11 ms"), (0.0996, "0.10 s"), (12.34, "12.3 s"), (99.96, "1 min 40 s"),
     (754, "12 min 34 s"), (3599.6, "1 h 0 min"), (7262, "2 h 1 min"), (7199.9, "2 h 0 min")],
)  # fmt: skip
def test_duration(value: float, text: str) -> None:
    assert wording.duration(value).replace("\u00a0", " ") == text


@given(st.floats(0, 1e7))
def test_no_duration_shows_sixty_seconds_or_minutes(seconds: float) -> None:
    assert not re.search(r"\b60\u00a0(s|min)$", wording.duration(seconds)) or seconds < 99.95


@pytest.mark.parametrize(
    ("share", "text"), [(0.5, "50"), (0.684, "68.4"), (1 / 3, "33.3"), (0.55003, "55.0"), (0.29, "29"), (1.0, "100")]
)
def test_percent_drops_the_decimal_only_of_whole_numbers(share: float, text: str) -> None:
    assert wording.percent(share) == f"{text}\u00a0%"


@pytest.mark.parametrize(
    ("value", "text"), [(0.18, "+0.180"), (-0.18, "\u22120.180"), (-0.0001, "0.000"), (0.0001, "0.000"), (0.0, "0.000")]
)
def test_signed_has_a_true_minus_and_no_signed_zero(value: float, text: str) -> None:
    assert wording.signed(value) == text


def test_metric_names_and_protocols() -> None:
    assert wording.metric_name("ndcg@10/full") == "NDCG@10"
    assert wording.metric_name("hr@20/99neg") == "Hit rate@20"
    assert wording.metric_name("rmse") == "RMSE"
    assert wording.metric_name("novelty@5/full") == "novelty@5"
    assert "all items" in str(wording.protocol_meaning("ndcg@10/full"))
    assert "99 random items" in str(wording.protocol_meaning("ndcg@10/99neg"))
    assert wording.protocol_meaning("rmse") is None
    assert wording.smaller_is_better("rmse")
    assert not wording.smaller_is_better("ndcg@10/full")


@given(st.text(st.characters(exclude_categories=[])))
def test_printable_text_is_one_line_that_utf8_and_xml_can_hold(text: str) -> None:
    from xml.etree import ElementTree

    shown = wording.printable(text)
    assert shown
    assert len(shown.splitlines()) == 1
    element = ElementTree.Element("t")
    element.text = shown
    parsed = ElementTree.fromstring(ElementTree.tostring(element, encoding="utf-8"))
    assert parsed.text == shown
