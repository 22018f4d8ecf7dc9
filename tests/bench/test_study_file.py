from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedrec_unlearn.bench import find_study, load_study, paper_studies
from fedrec_unlearn.bench.study import Study, tasks_of
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import ConfigError

Write = Callable[..., Path]


def test_arms_get_names_labels_and_the_options_of_the_base(study: Study) -> None:
    assert [arm.name for arm in study.arms] == [
        "none", "fedau2-gender", "leace-gender", "grl-gender-epsilon-0.1", "grl-gender-epsilon-1",
    ]  # fmt: skip
    fedau2 = study.arm("fedau2-gender")
    assert fedau2.label == "FedAU², ε 0.1"
    assert fedau2.config == load_config(
        None,
        {
            "data.name": "synthetic",
            "model.embedding_dim": 4,
            "federation": {
                "rounds": 12,
                "clients_per_round": 60,
                "server_learning_rate": 0.01,
                "checkpoint_every": 4,
                "snapshot_every": 2,
            },
            "evaluation": {"topk": [10], "metrics": ["ndcg", "hr"], "every": 3, "sampled_negatives": 30},
            "attack": {"attributes": ["gender", "age"], "attackers": ["logistic", "knn"]},
            "unlearn": {"method": "fedau2", "attributes": ["gender"], "epsilon": 0.1},
        },
    )
    assert study.arm("leace-gender").source == "none"
    assert [arm.group for arm in study.arms] == ["table"] * 3 + ["ablation"] * 2
    assert study.utility_keys == ("ndcg@10/full", "ndcg@10/30neg")


def test_an_arm_that_starts_from_another_keeps_its_options(study_file: Write) -> None:
    file = study_file(
        ("{name: none}", "{name: none, options: {federation: {rounds: 7}, unlearn.shrinkage: 0.5}}"),
    )
    arm = load_study(file).arm("leace-gender")
    assert arm.config.federation.rounds == 7
    assert arm.config.unlearn.shrinkage == load_config(None).unlearn.shrinkage


def test_surfaces_say_which_attributes_are_inferred(study: Study, tmp_path: Path) -> None:
    attacks = {task.arm.name: task.attacks() for task in tasks_of(study, tmp_path)}
    assert attacks["none"] == [(("user_embedding",), ("gender", "age"))]
    assert attacks["grl-gender-epsilon-1"] == [(("user_embedding",), ("gender",))]


def test_surfaces_with_the_same_attributes_are_attacked_together(study_file: Write, tmp_path: Path) -> None:
    wanted = "table: {user_embedding: all, trajectory: unlearned, directions: unlearned, update_support: all}"
    file = study_file(("table: {user_embedding: all}", wanted), (", from: none", ""))
    attacks = {task.arm.name: task.attacks() for task in tasks_of(load_study(file), tmp_path)}
    assert attacks["fedau2-gender"] == [
        (("trajectory", "directions"), ("gender",)),
        (("user_embedding", "update_support"), ("gender", "age")),
    ]
    # what unlearns nothing is compared on everything
    assert attacks["none"] == [
        (("user_embedding", "trajectory", "directions", "update_support"), ("gender", "age")),
    ]


def test_quick_takes_fewer_seeds_arms_and_rounds_and_keeps_the_targets_it_can_judge(study_file: Write) -> None:
    quick = load_study(study_file(), quick=True)
    assert quick.seeds == (1,)
    assert [arm.name for arm in quick.arms] == ["none", "fedau2-gender"]
    assert {arm.config.federation.rounds for arm in quick.arms} == {6}
    assert [target.aim for target in quick.targets] == ["gender hidden", "age left alone"]
    assert quick.folder_name == "tiny-quick"


def test_quick_options_win_over_those_of_an_arm(study_file: Write) -> None:
    file = study_file(("{name: none}", "{name: none, options: {federation.rounds: 99}}"))
    assert load_study(file).arm("none").config.federation.rounds == 99
    assert load_study(file, quick=True).arm("none").config.federation.rounds == 6


INVERSION = """\
inversion:
  - {attribute: gender, attacks: [gram, exact], defences: [none]}
targets:
  - {aim: shown, inversion: {classes: 2, adversary: dsvae/weight, defence: none, attacks: [exact], at_least: 0.9}}
  - {aim: hidden, inversion: {classes: 2, adversary: mlp, defence: none, attacks: [gram], within: 0.05}}
"""


def test_quick_leaves_out_targets_on_attacks_it_does_not_make(study_file: Write) -> None:
    file = study_file(("targets:\n", INVERSION), ("quick: {", "quick: {inversion: {attacks: [gram], n: 8}, "))
    aims = [target.aim for target in load_study(file).targets]
    assert aims == ["shown", "hidden", "gender hidden", "age left alone"]
    quick = load_study(file, quick=True)
    assert [target.aim for target in quick.targets] == aims[1:]
    assert (quick.inversion[0].attacks, quick.inversion[0].n) == (("gram",), 8)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("attacks: [exact], at", "attacks: [dlg], at", "no entry of section inversion carries this out"),
        ("adversary: mlp", "adversary: mpl", "did you mean mlp?"),
        ("attacks: [gram, exact]", "attacks: [gramm]", "did you mean gram?"),
        ("defences: [none]", "trained: [none]", "arm none trains no adversary for gender"),
        ("within: 0.05}}", "within: 0.05}, arm: none}", "a target of inversion has no other bound"),
        ("attribute: gender, attacks", "attacks", "attribute is missing"),
    ],
)
def test_mistakes_in_inversion_are_told(study_file: Write, old: str, new: str, told: str) -> None:
    assert INVERSION.count(old) == 1
    file = study_file(("targets:\n", INVERSION.replace(old, new)))
    with pytest.raises(ConfigError) as error:
        load_study(file)
    assert told in str(error.value)


def test_a_baseline_may_be_named(study_file: Write) -> None:
    file = study_file(
        ("seeds: [1, 2]", "seeds: [1, 2]\nbaseline: fedau2-gender"),
        ("arms: [none, fedau2-gender]", "arms: [none, fedau2-gender]"),
    )
    assert load_study(file).baseline == "fedau2-gender"


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("seeds: [1, 2]", "seed: [1, 2]", 3, "unknown key seed; did you mean seeds?"),
        ("title: A tiny study", "title: [A]", 2, "title: must be a text, not a list"),
        ("title: A tiny study\n", "", 1, "title is missing"),
        ("seeds: [1, 2]", "seeds: [1, 1]", 3, "seeds: names a seed twice"),
        ("seeds: [1, 2]", "seeds: [one]", 3, "seeds[1]: must be a whole number, not 'one'"),
        ("seeds: [1, 2]", "seeds: [1, 2]\nseeds: [3]", 4, "seeds is given twice, first in line 3"),
        ("embedding_dim: 4", "embeding_dim: 4", 6, "unknown option model.embeding_dim; did you mean model"),
        ("rounds: 12", "rounds: many", 7, "federation.rounds: expected an integer, not the text 'many'"),
        ("metrics: [ndcg, hr]", "metrics: [ndcg, hr], select_by: map@10", 8, "evaluation.select_by"),
        ("utility: [ndcg@10]", "utility: [ndgc@10]", 10, "unknown entry 'ndgc@10'; did you mean ndcg@10?"),
        ("table: {user_embedding: all}", "table: {user_embeding: all}", 12, "did you mean user_embedding?"),
        ("table: {user_embedding: all}", "table: {user_embedding: some}", 12, "known: all, unlearned"),
        ("{name: none}", "{name: none/2}", 15, "cannot name a folder"),
        ("{name: none}", "{name: none, method: nome}", 15, "arms[1].method: unknown entry 'nome'; did you mean none?"),
        ("{name: none}", "{name: none, metod: grl}", 15, "unknown key metod in arms[1]; did you mean method?"),
        ("epsilon: 0.1}\n", "epsilon: -1}\n", 16, "unlearn.epsilon: must be 0 (automatic) or more"),
        ("unlearns: [gender], epsilon: 0.1}", "unlearns: [gendr], epsilon: 0.1}", 16, "'gendr', which is not among"),
        ("from: none", "from: nome", 17, "no arm 'nome' stands above this one; did you mean none?"),
        ("from: none", "from: none, options: {federation.rounds: 3}", 17, "may change options of unlearn alone"),
        ("from: none", "from: none, name: fedau2-gender", 17, "there is an arm 'fedau2-gender' already"),
        ("from: none", "from: none, surfaces: {trajectory: all}", 17, "the snapshots of a training of its own"),
        ("from: none", "from: none, options: {unlearn.method: moments}", 17, "given twice, as method and in options"),
        ("epsilons: [0.1, 1e-0]", "epsilons: [0.1, 0]", 18, "epsilons[2]: must be a positive strength"),
        ("epsilons: [0.1, 1e-0]", "epsilons: [0.1, 0.1]", 18, "there is an arm 'grl-gender-epsilon-0.1' already"),
        ("methods: [grl]", "methods: [moments]", 18, "unknown entry 'moments'"),
        ("arm: fedau2-gender, attribute: gender", "arm: fedau-gender, attribute: gender", 20, "did you mean fedau2"),
        ("at_most: 0.6, ", "", 20, "a bound on what attackers find needs attribute"),
        ("ndcg@10/30neg: 0.9", "ndcg@10/99neg: 0.9", 20, "did you mean ndcg@10/30neg"),
        ("arm: fedau2-gender, attribute: age", "arm: grl-gender-epsilon-1, attribute: age", 21, "not inferred from"),
        ("within: 0.02", "within: 0.02, plus: 1", 21, "needs either plus"),
        ("arms: [none, fedau2-gender]", "arms: [fedau2-gender]", 22, "must hold none"),
        ("arms: [none, fedau2-gender]", "arms: [none, nome]", 22, "did you mean none?"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_line_and_the_nearest_name(
    study_file: Write, old: str, new: str, line: int, told: str
) -> None:
    file = study_file((old, new))
    with pytest.raises(ConfigError) as error:
        load_study(file)
    assert str(error.value).startswith(f"{file}:{line}: ")
    assert told in str(error.value)


def test_trajectories_need_snapshots(study_file: Write) -> None:
    file = study_file(
        ("table: {user_embedding: all}", "table: {trajectory: all}"), (", snapshot_every: 2", ""), (", from: none", "")
    )
    with pytest.raises(ConfigError, match=r":15: arms\[1\]: trajectory and directions need snapshots"):
        load_study(file)


def test_a_study_needs_attributes_and_a_ranking(study_file: Write) -> None:
    with pytest.raises(ConfigError, match=r"attack\.attributes must name the attributes"):
        load_study(study_file(("attributes: [gender, age], ", "")))
    with pytest.raises(ConfigError, match="which mse does not have"):
        load_study(study_file(("{rounds: 12", "{objective: mse, rounds: 12")))


def test_a_file_that_is_no_yaml_or_empty_is_told(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("paper: [\n")
    with pytest.raises(ConfigError, match=r"s\.yaml:2: not valid YAML"):
        load_study(file)
    file.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="the file is empty"):
        load_study(file)


def test_quick_of_a_study_without_one_is_told(study_file: Write) -> None:
    file = study_file(("quick: {seeds: [1], arms: [none, fedau2-gender], options: {federation.rounds: 6}}", ""))
    with pytest.raises(ConfigError, match="has no section quick"):
        load_study(file, quick=True)


def test_packaged_studies_are_found_by_full_and_short_name() -> None:
    known = paper_studies("fedau2")
    assert set(known) >= {"fedau2_ml-100k", "fedau2_ml-1m", "fedau2_taobao"}
    assert find_study("ml-1m", "fedau2") == find_study("fedau2_ml-1m") == known["fedau2_ml-1m"]
    with pytest.raises(ConfigError, match="did you mean ml-100k"):
        find_study("ml-100", "fedau2")
    with pytest.raises(ConfigError, match=r"no study file nowhere\.yaml"):
        find_study("nowhere.yaml")


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", sorted(paper_studies("fedau2")))
def test_packaged_studies_are_valid(name: str, quick: bool) -> None:
    study = load_study(paper_studies()[name], quick=quick)
    assert len(study.seeds) == 5 or quick
    assert study.arm(study.baseline).unlearns == ()
    assert len({task.folder for task in tasks_of(study, Path("x"))}) == len(study.arms) * len(study.seeds)
