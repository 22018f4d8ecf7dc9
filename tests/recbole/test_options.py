"""RecBole's flat keys read as this package's options; mistakes are named by the key the user wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedrec_unlearn.config_options import options_by_name
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.recbole import defaults, make_config
from fedrec_unlearn.recbole.options import (
    OWN,
    attack_options,
    check_keys,
    check_sampling,
    check_valid_metric,
    default_of,
    fields_to_unlearn,
    option_keys,
    own_keys,
    sensitive_fields,
    to_config,
)
from tests.recbole.conftest import Opened

OpenModel = Callable[..., Opened]


def made(folder: Path, **values: Any) -> Any:
    return make_config("BPR", "tiny", {"gpu_id": "", "data_path": str(folder), **values})


def test_recboles_keys_keep_their_meaning(atomic_folder: Path) -> None:
    config = made(atomic_folder, learning_rate=0.02, weight_decay=0.003, learner="sgd", seed=9, clients_per_round=7)
    ours = to_config(config, num_negatives=3, objective="bpr", rounds=50)
    federation = ours.federation
    assert (federation.server_learning_rate, federation.l2, federation.server_optimizer) == (0.02, 0.003, "sgd")
    assert (ours.seed, federation.rounds, federation.num_negatives, federation.objective) == (9, 50, 3, "bpr")
    assert federation.clients_per_round == 7
    assert federation.user_learning_rate == options_by_name()["federation.user_learning_rate"].default


def test_sections_are_told_by_their_prefix(atomic_folder: Path) -> None:
    config = made(
        atomic_folder,
        sensitive_fields=["gender"],
        unlearn="age, occupation",
        unlearn_method="leace",
        attack_folds=4,
        attack_attackers="logistic,knn",
        attack_seeds=3,
        secemb_min_clients=5,
        transport="secemb",
    )
    ours = to_config(config, num_negatives=1, objective="bce")
    assert ours.unlearn.attributes == ("age", "occupation")
    assert (ours.unlearn.method, ours.secemb.min_clients, ours.federation.ring) == ("leace", 5, True)
    attack = attack_options(config)
    assert (attack.folds, attack.attackers, attack.seeds) == (4, ("logistic", "knn"), (3,))
    assert attack.attributes == sensitive_fields(config) == ("gender", "age", "occupation")
    assert fields_to_unlearn(made(atomic_folder)) == ()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"clients_per_round": -1}, "^clients_per_round: must be 0"),
        ({"transport": "post"}, "^transport: expected one of"),
        ({"learning_rate": -0.1}, "^learning_rate: must be positive"),
        ({"weight_decay": -1.0}, "^weight_decay: must be 0 or more"),
        ({"learner": "rmsprop"}, "^learner: 'rmsprop'; the server's optimiser is adam or sgd"),
        ({"unlearn": "gender", "unlearn_method": "wish"}, "^unlearn_method: expected one of"),
        ({"unlearn": ["gender", "gender"]}, "^unlearn: names an attribute twice"),
        ({"unlearn": 5}, "^unlearn: must be the name of a user attribute"),
        ({"attack_folds": 1}, "^attack_folds: must be at least 2"),
        ({"secemb_ring_bits": 3, "transport": "secemb"}, "^secemb_ring_bits: must be 32 or 64"),
    ],
)
def test_a_wrong_value_is_named_by_recboles_key(atomic_folder: Path, values: dict[str, Any], words: str) -> None:
    config = made(atomic_folder, **values)
    with pytest.raises(ConfigError, match=words):
        to_config(config, num_negatives=1, objective="bpr")


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("client_per_round", "clients_per_round"),
        ("sensitive_field", "sensitive_fields"),
        ("unlearn_methods", "unlearn_method"),
    ],
)
def test_a_misspelt_key_is_an_error(atomic_folder: Path, key: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {key}; did you mean .*{near}"):
        check_keys(made(atomic_folder, **{key: 3}))


def test_keys_of_recbole_of_the_model_and_of_ones_own_pass(atomic_folder: Path) -> None:
    check_keys(made(atomic_folder, mlp_hidden_size=[3], train_batch_size=5, my_own_note="x", ITEM_ID_FIELD="item_id"))


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"distribution": "popularity"}, "distribution: 'popularity': .*set distribution: uniform"),
        ({"distribution": "uniform", "dynamic": True}, "dynamic: .*set dynamic: False"),
    ],
)
def test_ways_of_sampling_clients_do_not_have_are_refused(
    atomic_folder: Path, sampling: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"train_neg_sample_args: {words}"):
        check_sampling(made(atomic_folder, train_neg_sample_args=sampling))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"valid_metric": "MRR@10", "metrics": ["NDCG"]}, r"^valid_metric: MRR@10 is not computed; metrics are NDCG"),
        ({"valid_metric": "NDCG@7", "metrics": ["NDCG"]}, r"^valid_metric: NDCG@7: topk is \[10\]; add 7 to it"),
    ],
)
def test_the_metric_that_decides_must_be_computed(atomic_folder: Path, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_valid_metric(made(atomic_folder, **values))
    check_valid_metric(made(atomic_folder, valid_metric="ndcg@10", metrics=["NDCG", "AttackAUC"]))
    check_valid_metric(made(atomic_folder, valid_metric="AttackAUC@gender", metrics=["NDCG", "AttackAUC"]))


def test_the_file_of_all_options_names_every_one_with_its_default() -> None:
    overall = defaults.model_defaults("a model without a file")
    assert set(overall) == set(own_keys())
    assert len(own_keys()) == len(set(own_keys()))
    for key, value in overall.items():
        expected = default_of(key)
        assert value == (list(expected) if isinstance(expected, tuple) else expected), key
    assert {name for name in option_keys().values() if name.startswith("federation.")} <= set(options_by_name())
    assert not set(OWN) & set(option_keys()) - {"unlearn_method"}


def test_every_key_of_every_file_has_a_comment() -> None:
    folder = Path(defaults.__file__).parent / "properties"
    files = sorted(folder.glob("*.yaml"))
    assert {file.stem for file in files} >= {
        "overall",
        "FedMF",
        "FedNCF",
        "FedFM",
        "FedDeepFM",
        "BPR",
        "NeuMF",
        "FM",
        "DeepFM",
    }
    for file in files:
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if line and not line.startswith("#"):
                before = lines[number - 1]
                assert before.startswith("# "), f"{file.name}:{number + 1}"
        assert isinstance(yaml.safe_load(file.read_text()), dict)


def test_files_of_models_give_options_there_are() -> None:
    from fedrec_unlearn.recbole.options import _keys_of_recbole

    for name in defaults.models_with_defaults():
        given = set(defaults.model_defaults(name))
        assert given <= _keys_of_recbole() | set(own_keys()), name


def test_defaults_lie_between_recboles_and_the_users(tmp_path: Path, atomic_folder: Path) -> None:
    (tmp_path / "a.yaml").write_text("user_learning_rate: 3.5\n")
    plain = make_config("BPR", "tiny", {"gpu_id": "", "data_path": str(atomic_folder)})
    own = {"gpu_id": "", "data_path": str(atomic_folder), "embedding_size": 5}
    ours = make_config("BPR", "tiny", own, [tmp_path / "a.yaml"], federated=True)
    assert plain["clients_per_round"] is None
    assert plain["weight_decay"] == 0.0
    assert ours["clients_per_round"] == 64
    assert ours["weight_decay"] == 0.01
    assert (ours["user_learning_rate"], ours["embedding_size"]) == (3.5, 5)
