"""FederatedTrainer: RecBole's loop and evaluation, exact resuming, checkpoints without traces, unlearning."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.errors import ConfigError, DataError, ModelError, RunError
from fedrec_unlearn.progress import Interrupted
from fedrec_unlearn.recbole import FederatedTrainer, FedMF, FedNCF
from tests.recbole.conftest import FEATURES, N_ITEMS, N_USERS, Opened

OpenModel = Callable[..., Opened]

QUICK: dict[str, Any] = {
    "epochs": 6,
    "clients_per_round": 10,
    "learning_rate": 0.02,
    "user_learning_rate": 2.0,
    "stopping_step": 50,
    "eval_step": 1,
    "sensitive_fields": ["gender"],
    "attack_attackers": ["logistic"],
    "attack_seeds": [0],
    "attack_folds": 3,
}


def trainer_of(open_model: OpenModel, kind: Any = FedMF, **options: Any) -> tuple[FederatedTrainer, Opened]:
    opened = open_model(kind, **{**QUICK, **options})
    return FederatedTrainer(opened.config, opened.model), opened


def fitted(open_model: OpenModel, kind: Any = FedMF, **options: Any) -> tuple[FederatedTrainer, Opened]:
    trainer, opened = trainer_of(open_model, kind, **options)
    trainer.fit(opened.train, opened.valid, verbose=False)
    return trainer, opened


def state_of(trainer: FederatedTrainer) -> dict[str, torch.Tensor]:
    clients = trainer.clients
    assert clients is not None
    server = clients.state.server
    return {"private": clients.state.private, **server.parameters(), **server.moments}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("kind", [FedMF, FedNCF, "BPR", "NeuMF", "FM", "DeepFM", "WideDeep", "AutoInt"])
def test_it_trains_evaluates_saves_and_loads(open_model: OpenModel, tmp_path: Path, kind: Any) -> None:
    options: dict[str, Any] = {"epochs": 3, "attention_size": 4, "num_heads": 2, "user_learning_rate": 5.0}
    if kind in ("DeepFM", "WideDeep", "AutoInt"):
        options |= FEATURES
    trainer, opened = trainer_of(open_model, kind, **options)
    before = {name: value.clone() for name, value in opened.model.state_dict().items()}
    score, result = trainer.fit(opened.train, opened.valid, verbose=False)
    assert result["ndcg@10"] == score
    assert any(not torch.equal(value, before[name]) for name, value in opened.model.state_dict().items())
    tested = trainer.evaluate(opened.test)
    path = trainer.save(tmp_path / "kept" / "model.pth")

    other, again = trainer_of(open_model, kind, **options)
    other.load(path)
    assert other.evaluate(again.test) == tested
    other.prepare(again.train)
    assert_same_bits(state_of(trainer), state_of(other))


def test_padding_rows_never_train(open_model: OpenModel) -> None:
    for kind, names in ((FedMF, ("user_rows", "item_rows")), ("NeuMF", ("user_mf_embedding.weight",))):
        trainer, opened = trainer_of(open_model, kind)
        before = {name: dict(opened.model.named_parameters())[name][0].clone() for name in names}
        trainer.fit(opened.train, opened.valid, verbose=False)
        for name in names:
            assert torch.equal(dict(opened.model.named_parameters())[name][0], before[name])


def test_the_best_pass_is_what_the_trainer_holds(open_model: OpenModel) -> None:
    scores: list[float] = []
    trainer, opened = trainer_of(open_model, epochs=8, user_learning_rate=20.0)
    best, _ = trainer.fit(opened.train, opened.valid, verbose=False, callback_fn=lambda _, score: scores.append(score))
    assert len(scores) == 8
    assert best == max(scores)
    assert trainer.evaluate(opened.valid)["ndcg@10"] == best


@pytest.mark.parametrize("options", [{}, {"ring": True}, {"learner": "sgd", "learning_rate": 0.5}, {"eval_step": 2}])
@pytest.mark.parametrize("kind", [FedNCF, "NeuMF"])
def test_resuming_the_best_pass_gives_the_bits_of_not_stopping(
    open_model: OpenModel, tmp_path: Path, kind: Any, options: dict[str, Any]
) -> None:
    whole, opened = trainer_of(open_model, kind, **options)
    first = whole.fit(opened.train, opened.valid, verbose=False)
    short, again = trainer_of(open_model, kind, **{**options, "epochs": 4, "checkpoint_dir": str(tmp_path)})
    short.fit(again.train, again.valid, verbose=False)

    resumed, third = trainer_of(open_model, kind, **options)
    resumed.resume(short.saved_model_file)
    second = resumed.fit(third.train, third.valid, verbose=False)
    assert first == second
    assert_same_bits(state_of(whole), state_of(resumed))


class _CtrlC:
    """Presses Ctrl-C when so many rounds are done."""

    def __init__(self, trainer: FederatedTrainer, after: int) -> None:
        self.left = after
        clients = trainer.clients
        assert clients is not None
        self.stock = clients._round
        clients._round = self  # type: ignore[method-assign]

    def __call__(self, *args: Any) -> None:
        self.stock(*args)
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("after", [1, 7, 10, 13, 15])
@pytest.mark.parametrize("folder", [True, False])
def test_ctrl_c_can_be_resumed_to_the_same_bits(
    open_model: OpenModel, tmp_path: Path, after: int, folder: bool
) -> None:
    # a pass has five rounds: 10 and 15 are at the end of one, and 10 before a validation
    options: dict[str, Any] = {"eval_step": 2}
    whole, opened = trainer_of(open_model, **options)
    first = whole.fit(opened.train, opened.valid, verbose=False)
    if folder:
        options["checkpoint_dir"] = str(tmp_path / "kept")
    stopped, again = trainer_of(open_model, **options)
    stopped.prepare(again.train)
    _CtrlC(stopped, after)
    with pytest.raises(Interrupted) as told:
        stopped.fit(again.train, again.valid, verbose=False)
    assert told.value.run.is_file()
    assert (told.value.run.parent == tmp_path / "kept") is folder
    del stopped, again

    resumed, third = trainer_of(open_model, **options)
    resumed.resume(told.value.run)
    second = resumed.fit(third.train, third.valid, verbose=False)
    assert first == second
    assert_same_bits(state_of(whole), state_of(resumed))
    if not folder:
        for file in told.value.run.parent.iterdir():
            file.unlink()
        told.value.run.parent.rmdir()


def test_a_checkpoint_is_plain_and_holds_no_trace_of_users_but_their_rows(open_model: OpenModel) -> None:
    for kind in (FedMF, "NeuMF", "DeepFM"):
        trainer, _ = fitted(open_model, kind)
        content = torch.load(trainer.saved_model_file, weights_only=True)
        private = {"user_rows", "user_mf_embedding.weight", "user_mlp_embedding.weight"}
        shared = {n for n in content["state_dict"] if "token_embedding_table" in n}
        found = {}
        for path, value in _tensors(content):
            if value.dim() and len(value) in (N_USERS, N_USERS + 1):
                found[path] = value
        assert {path.removeprefix("state_dict/") for path in found} <= private | shared, kind
        assert not any("optim" in path for path, _ in _tensors(content))
        labels = [value for path, value in _tensors(content) if not value.is_floating_point()]
        assert labels == []


def _tensors(content: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    if isinstance(content, torch.Tensor):
        return [(path, content)]
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [found for key, value in items for found in _tensors(value, f"{path}/{key}".strip("/"))]


@pytest.mark.parametrize("method", ["moments", "leace", "fedau2"])
def test_unlearning_changes_the_rows_and_leaves_none_from_before(
    open_model: OpenModel, tmp_path: Path, method: str
) -> None:
    trainer, opened = fitted(open_model, checkpoint_dir=str(tmp_path), unlearn_epsilon=0.1, unlearn_further_rounds=6)
    clients = trainer.clients
    assert clients is not None
    before = clients.state.private.clone()
    items = clients.state.server.items.clone()
    copy = trainer.save(tmp_path / "mine.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlearnWarning)
        done = trainer.unlearn("gender", method)
    assert (done["attributes"], done["method"], trainer.unlearned) == (["gender"], method, ["gender"])
    after = clients.state.private
    assert not torch.equal(after, before)
    assert torch.equal(clients.state.server.items, items) is (method != "fedau2")
    if method == "moments":  # users without a value keep their rows
        unknown = clients.dataset.attributes["gender"].labels < 0
        assert torch.equal(after[unknown], before[unknown])
    known = torch.from_numpy(clients.dataset.attributes["gender"].labels >= 0)
    changed = known & ~(after == before).all(1)
    assert int(changed.sum()) > 0
    for file in tmp_path.iterdir():
        content = torch.load(file, weights_only=True)
        assert content["unlearned"] == ["gender"]
        for _, value in _tensors(content):
            if value.dim() == 2 and len(value) == N_USERS + 1:
                assert not (value[1:][changed] == before[changed]).all(1).any()
    assert copy.is_file()
    assert not clients.state.server.term
    # what is evaluated is the state after, also through RecBole's own argument
    assert trainer.evaluate(opened.test) == trainer.evaluate(opened.test, load_best_model=True)
    assert torch.equal(opened.model.user_rows[1:], after)


def test_files_a_run_was_resumed_from_are_replaced_too(open_model: OpenModel, tmp_path: Path) -> None:
    first, opened = trainer_of(open_model, checkpoint_dir=str(tmp_path), epochs=3)
    first.fit(opened.train, opened.valid, verbose=False)
    resumed, again = trainer_of(open_model, checkpoint_dir=str(tmp_path), epochs=3)
    resumed.resume(first.saved_model_file)
    resumed.fit(again.train, again.valid, verbose=False)
    resumed.unlearn("gender", "leace")
    assert torch.load(first.saved_model_file, weights_only=True)["unlearned"] == ["gender"]


def test_training_on_after_unlearning_is_warned_of(open_model: OpenModel) -> None:
    trainer, opened = fitted(open_model, epochs=2)
    trainer.unlearn("gender", "leace")
    with pytest.warns(UnlearnWarning, match="gender: training on brings back what was unlearned"):
        trainer.fit(opened.train, opened.valid, verbose=False)
    assert trainer.unlearned == []


def test_gender_is_harder_to_read_after_unlearning(open_model: OpenModel) -> None:
    trainer, _ = fitted(open_model, epochs=60, user_learning_rate=10.0, attack_seeds=[0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlearnWarning)
        (before,) = trainer.attack()
        trainer.unlearn("gender")
        (after,) = trainer.attack()
    assert before.balanced_accuracy.mean > 0.65  # gender is the sign of a direction that decides what users like
    assert after.distance_from_chance < before.distance_from_chance
    assert after.n_missing == 3


def test_an_interrupted_file_from_before_goes_away_with_unlearning(open_model: OpenModel, tmp_path: Path) -> None:
    trainer, opened = trainer_of(open_model, checkpoint_dir=str(tmp_path))
    trainer.prepare(opened.train)
    _CtrlC(trainer, 7)
    with pytest.raises(Interrupted) as told:
        trainer.fit(opened.train, opened.valid, verbose=False)
    trainer.unlearn("gender", "leace")
    assert not told.value.run.exists()


def test_without_validation_the_last_pass_is_kept(open_model: OpenModel) -> None:
    trainer, opened = trainer_of(open_model)
    assert trainer.fit(opened.train, None, verbose=False)[1] is None
    assert torch.load(trainer.saved_model_file, weights_only=True)["epoch"] == QUICK["epochs"] - 1


def test_no_file_is_written_unless_saved(open_model: OpenModel, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    trainer, opened = trainer_of(open_model, checkpoint_dir=str(tmp_path / "asked"))
    trainer.fit(opened.train, opened.valid, verbose=False, saved=False)
    trainer.evaluate(opened.test, load_best_model=False)
    assert list(tmp_path.iterdir()) == []
    trainer.fit(opened.train, opened.valid, verbose=False)
    assert [path.name for path in tmp_path.iterdir()] == ["asked"]


def test_users_of_no_round_keep_their_rows(open_model: OpenModel) -> None:
    trainer, opened = trainer_of(open_model, clients_per_round=4, client_sampling="uniform")
    clients = trainer.prepare(opened.train)
    before = clients.state.private.clone()
    clients._round(_engine(clients), 0.0)
    chosen = clients.cohorts.of(0)
    others = np.setdiff1d(np.arange(N_USERS), chosen)
    assert torch.equal(clients.state.private[others], before[others])
    assert not torch.equal(clients.state.private[chosen], before[chosen])


def _engine(clients: Any) -> Any:
    from fedrec_unlearn.federation.engine import make_engine

    return make_engine(clients.work)


def test_transports_train_alike_and_are_checked_first(open_model: OpenModel) -> None:
    states = {}
    for transport in ("plain", "sparse", "secagg", "secemb"):
        trainer, _ = fitted(open_model, epochs=2, transport=transport, ring=True, clients_per_round=14)
        states[transport] = state_of(trainer)
    for transport in ("sparse", "secagg", "secemb"):
        assert_same_bits(states["plain"], states[transport])
    trainer, opened = trainer_of(open_model, transport="secemb", clients_per_round=1)
    with pytest.raises(ConfigError, match=r"secemb_min_clients is 2, .*raise clients_per_round"):
        trainer.prepare(opened.train)


def test_saving_after_a_fit_and_resuming_goes_on_from_there(open_model: OpenModel, tmp_path: Path) -> None:
    trainer, _ = fitted(open_model, epochs=3)
    path = trainer.save(tmp_path / "mine.pth")
    told = torch.load(path, weights_only=True)
    best = torch.load(trainer.saved_model_file, weights_only=True)
    assert told["epoch"] == best["epoch"]
    assert told["server"]["rounds_done"] == (best["epoch"] + 1) * 5
    other, opened = trainer_of(open_model, epochs=6)
    other.resume(path)
    other.fit(opened.train, opened.valid, verbose=False)
    whole, again = trainer_of(open_model, epochs=6)
    whole.fit(again.train, again.valid, verbose=False)
    assert_same_bits(state_of(whole), state_of(other))


def test_another_checkpoint_can_be_evaluated_between(open_model: OpenModel, tmp_path: Path) -> None:
    trainer, opened = fitted(open_model, epochs=2)
    path = trainer.save(tmp_path / "early.pth")
    early = trainer.evaluate(opened.test)
    longer, again = fitted(open_model, epochs=8)
    own = longer.evaluate(again.test)
    assert longer.evaluate(again.test, model_file=path) == early
    assert longer.evaluate(again.test) == own


def test_noise_is_accounted_for(open_model: OpenModel) -> None:
    pytest.importorskip("dp_accounting", reason="the extra dp is not installed")
    trainer, opened = trainer_of(
        open_model,
        transport="secemb",
        clients_per_round=14,
        client_weighting="uniform",
        secemb_noise_multiplier=1.0,
        secemb_clip_norm=0.5,
        epochs=4,
    )
    trainer.prepare(opened.train)
    assert trainer.privacy is not None
    assert trainer.privacy.schedule.rounds == 12
    assert trainer.privacy.epsilon > 0
    assert fitted(open_model, epochs=1)[0].privacy is None


def test_what_does_not_go_together_is_told_before_training(open_model: OpenModel) -> None:
    for options, error, words in (
        ({"learner": "adagrad"}, ConfigError, "learner: 'adagrad'"),
        ({"clip_grad_norm": {"max_norm": 1}}, ConfigError, "clip_grad_norm"),
        ({"client_per_round": 3}, ConfigError, "did you mean .*clients_per_round"),
        ({"attack_folds": 1}, ConfigError, "attack_folds"),
    ):
        with pytest.raises(error, match=words):
            trainer_of(open_model, **options)
    for kind, options, error, words in (
        (FedMF, {"sensitive_fields": ["sex"]}, DataError, "no column 'sex'"),
        ("LightGCN", {}, ModelError, "LightGCN cannot be trained by clients"),
        ("NFM", {}, ModelError, "batch normalisation"),
    ):
        trainer, opened = trainer_of(open_model, kind, **options)
        with pytest.raises(error, match=words):
            trainer.fit(opened.train, opened.valid)


def test_methods_need_what_they_need(open_model: OpenModel) -> None:
    trainer, opened = trainer_of(open_model, sensitive_fields=None)
    with pytest.raises(RunError, match="call fit"):
        trainer.unlearn("gender")
    trainer.prepare(opened.train)
    with pytest.raises(ConfigError, match="unlearn: name a user attribute"):
        trainer.unlearn()
    with pytest.raises(ConfigError, match="sensitive_fields: name user attributes"):
        trainer.attack()
    with pytest.raises(ConfigError, match=r"unlearn_epsilon: fedau2 needs a strength, for example"):
        trainer.unlearn("gender", "fedau2")
    with pytest.raises(ConfigError, match="unlearn_method: expected one of"):
        trainer.unlearn("gender", "forget")
    with pytest.raises(DataError, match="no column 'sex'"):
        trainer.unlearn("sex")


def test_checkpoints_of_others_are_refused(open_model: OpenModel, tmp_path: Path) -> None:
    trainer, opened = fitted(open_model, checkpoint_dir=str(tmp_path))
    file = Path(trainer.saved_model_file)
    with pytest.raises(RunError, match=r"nowhere\.pth does not exist"):
        trainer.load(tmp_path / "nowhere.pth")
    (tmp_path / "junk.pth").write_bytes(file.read_bytes()[:500])
    with pytest.raises(RunError, match="is damaged or no checkpoint of plain data"):
        trainer.load(tmp_path / "junk.pth")
    torch.save({"a": 1}, tmp_path / "other.pth")
    with pytest.raises(RunError, match="is no checkpoint of a federated run"):
        trainer.load(tmp_path / "other.pth")
    for kind, options, words in (
        (FedNCF, {}, "holds a FedMF, this trainer's model is a FedNCF"),
        (FedMF, {"embedding_size": 5}, "does not fit this model"),
    ):
        with pytest.raises(RunError, match=words):
            trainer_of(open_model, kind, **options)[0].load(file)
    changed, _ = trainer_of(open_model, user_learning_rate=9.0)
    with pytest.raises(RunError, match=r"user_learning_rate 2\.0, now 9\.0"):
        changed.resume(file)
    fewer, again = trainer_of(open_model, eval_args={"split": {"RS": [0.6, 0.2, 0.2]}, "mode": "full"})
    fewer.resume(file)
    with pytest.raises(RunError, match="the training data have changed"):
        fewer.fit(again.train, again.valid)
    assert opened.train.dataset.item_num - 1 == N_ITEMS
