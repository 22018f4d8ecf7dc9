"""The sentences on what is protected follow from figures and configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrec_unlearn.report import read_run
from fedrec_unlearn.report.figures import figures_of
from fedrec_unlearn.report.protection import statements
from fedrec_unlearn.report.summary import compare, summarise
from fedrec_unlearn.report.wording import SURFACES

MakeRun = Callable[..., Path]
Attacked = Callable[..., dict[str, Any]]


def _told(folder: Path) -> list[tuple[str, str]]:
    (run,) = figures_of([read_run(folder)])
    assert run.unlearning is not None
    found = statements(run.unlearning, run.options, run.attack_settings)
    return [(s.kind, s.text.replace("\u00a0", " ")) for s in found]


def _of(kind: str, folder: Path) -> list[str]:
    return [text for found, text in _told(folder) if found == kind]


def test_what_can_no_longer_be_told_is_told_with_its_figures(make_unlearned: MakeRun, attacked: Attacked) -> None:
    folder = make_unlearned(
        results=[attacked("gender", 0.51, half=0.02)], before=[attacked("gender", 0.684, half=0.01)]
    )
    assert _of("protected", folder) == [
        "From the user embeddings, gender can no longer be told beyond luck (MLP: 51 %, 95 % interval 49 to 53 %; "
        "before 68.4 %; 50 % by chance)."
    ]
    again = make_unlearned("again", results=[attacked("gender", 0.51)], before=[attacked("gender", 0.49)])
    assert "gender cannot be told beyond luck" in _of("protected", again)[0]


@pytest.mark.parametrize(
    ("after", "words"),
    [(0.60, "can still be told, if less well than before"), (0.68, "can still be told, as well as before")],
)
def test_what_can_still_be_told_is_told_with_a_remedy(
    make_unlearned: MakeRun, attacked: Attacked, after: float, words: str
) -> None:
    folder = make_unlearned(results=[attacked("gender", after)], before=[attacked("gender", 0.684)])
    text = _of("exposed", folder)[0]
    assert words in text
    assert "unlearn.moment_share" in text


def test_overshoot_is_warned_of(make_unlearned: MakeRun, attacked: Attacked) -> None:
    unlearn = {"method": "fedau2", "epsilon": 1.0, "source": None}
    folder = make_unlearned(results=[attacked("gender", 0.85)], before=[attacked("gender", 0.68)], unlearn=unlearn)
    (text,) = _of("overshoot", folder)
    assert "better than before unlearning" in text
    assert "smaller unlearn.epsilon" in text
    (run,) = figures_of([read_run(folder)])
    assert any(sentence.endswith("over-shoot.") for sentence in summarise(run))


def test_an_attacker_that_is_reliably_wrong_is_turned_round(make_unlearned: MakeRun, attacked: Attacked) -> None:
    folder = make_unlearned(results=[attacked("gender", 0.41)], before=[attacked("gender", 0.68)])
    assert "MLP: 41 %, turned round 59 %" in _of("exposed", folder)[0]


def test_uploads_are_told_with_the_transport(make_unlearned: MakeRun, attacked: Attacked) -> None:
    folder = make_unlearned(results=[attacked("gender", 0.71, surface="update_support")])
    text = next(t for t in _of("exposed", folder) if t.startswith("From the ids"))
    assert "under the plain transport the server sees it" in text
    assert "secure transport" in text


def test_a_secure_transport_leaves_no_upload_to_attack(make_unlearned: MakeRun, attacked: Attacked) -> None:
    folder = make_unlearned(results=[attacked("gender", 0.5)], federation={"transport": "secagg", "snapshot_every": 60})
    (text,) = _of("unmeasured", folder)
    assert "--surfaces trajectory,directions." in text
    assert any("Under the secagg transport" in text for text in _of("setting", folder))


def test_surfaces_that_were_not_attacked_are_named(make_unlearned: MakeRun, attacked: Attacked) -> None:
    folder = make_unlearned(results=[attacked("gender", 0.5)])
    (text,) = _of("unmeasured", folder)
    missing = [name for name in SURFACES if name != "user_embedding"]
    assert f"--surfaces {','.join(missing)}" in text
    assert "federation.snapshot_every, which was 0" in text
    everything = [attacked("gender", 0.5, surface=name) for name in SURFACES]
    assert _of("unmeasured", make_unlearned("all", results=everything)) == []


def test_a_trajectory_is_explained_by_how_the_method_works(make_unlearned: MakeRun, attacked: Attacked) -> None:
    results = [attacked("gender", 0.86, surface="trajectory")]
    adversarial = make_unlearned("a", results=results, unlearn={"method": "fedau2", "epsilon": 0.1})
    assert any("reversed gradient pushes" in text for text in _of("exposed", adversarial))
    afterwards = make_unlearned("b", results=results)
    assert any("never unlearned" in text for text in _of("exposed", afterwards))


@pytest.mark.parametrize(("secure", "kind"), [(True, "setting"), (False, "exposed")])
@pytest.mark.parametrize(("method", "reveals"), [("fedau2", "its label can be solved for"), ("moments", "not zero")])
def test_sums_in_the_clear_give_the_label_away(
    make_unlearned: MakeRun, secure: bool, kind: str, method: str, reveals: str
) -> None:
    folder = make_unlearned(unlearn={"method": method, "secure_sums": secure})
    (text,) = [t for k, t in _told(folder) if "unlearn.secure_sums" in t and k == kind]
    assert (reveals in text) is not secure
    assert ("two servers" in text) is secure


def test_pooled_rows_unknown_users_and_old_copies_are_not_protected(
    make_unlearned: MakeRun, attacked: Attacked
) -> None:
    folder = make_unlearned(
        results=[attacked("gender", 0.5)],
        before=[attacked("gender", 0.68)],
        unlearn={"method": "u2u", "pooled_rows": True, "known": {"gender": 940}, "missing": {"gender": 3}},
    )
    exposed = " ".join(_of("exposed", folder))
    assert "all users' embeddings and attributes in one place" in exposed
    assert "The gender of 3 users is not known (940 are known)" in exposed
    assert "Copies of the user embeddings from before still tell gender (68 %)" in exposed
    harmless = make_unlearned("harmless", results=[attacked("gender", 0.5)], before=[attacked("gender", 0.5)])
    assert not any("Copies" in text for text in _of("exposed", harmless))


@pytest.mark.parametrize(("users", "told"), [("all", True), ("audit", False)])
def test_a_strength_chosen_on_attacked_users_is_told(
    make_unlearned: MakeRun, attacked: Attacked, users: str, told: bool
) -> None:
    folder = make_unlearned(
        results=[attacked("gender", 0.5)],
        unlearn={"method": "grl", "epsilon": 0.1, "chosen": True},
        attack_config={"users": users},
    )
    assert any("attack.users: audit" in text for text in _of("setting", folder)) is told


def test_attributes_that_were_not_unlearned_are_told_apart(make_unlearned: MakeRun, attacked: Attacked) -> None:
    before = [attacked("gender", 0.68), attacked("age", 0.59)]
    for name, after, words in (
        ("same", 0.595, "is as readable as before (distance from chance +0.5 points)"),
        ("less", 0.45, "is less readable than before (distance from chance −14.0 points)"),
        ("more", 0.65, "is more readable than before (distance from chance +6.0 points)"),
    ):
        folder = make_unlearned(name, results=[attacked("gender", 0.5), attacked("age", after)], before=before)
        (text,) = _of("other", folder)
        assert text.startswith("Age was not to be unlearned")
        assert words in text


def test_the_findings_tell_it_in_one_sentence(make_run: MakeRun, make_unlearned: MakeRun, attacked: Attacked) -> None:
    after = make_unlearned(
        results=[attacked("gender", 0.51), attacked("gender", 0.71, surface="update_support")],
        before=[attacked("gender", 0.684)],
    )
    base = make_run("base", attack=False)
    runs = figures_of([read_run(base), read_run(after)])
    expected = (
        "After moment transport, gender (50 % by chance) cannot be told beyond luck from the user embeddings (51 %, "
        "before 68.4 %), but still from the ids of the rows a user uploads (71 %); not measured: update values, "
        "decoded items, trajectory and directions."
    )
    assert expected in [s.replace("\u00a0", " ") for s in summarise(runs[1])]
    assert f"after: {expected}" in [s.replace("\u00a0", " ") for s in compare(runs)]
    assert "Unlearning leaves a test NDCG@10 of 0.290 of 0.300 before (0.967 times)." in summarise(runs[1])


def test_a_run_that_was_not_attacked_says_so(make_unlearned: MakeRun) -> None:
    (run,) = figures_of([read_run(make_unlearned())])
    assert "After moment transport, gender has not been attacked yet: what the unlearning is worth is not known." in (
        summarise(run)
    )
