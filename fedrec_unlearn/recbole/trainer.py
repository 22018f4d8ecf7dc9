"""`FederatedTrainer`: RecBole's trainer with the users as clients.

RecBole keeps its part: the loop over epochs, validation, early stopping, evaluation and their log. What happens in an
epoch is a federation's: every client takes part once, in rounds.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.trainer import Trainer

from fedrec_unlearn.attacks import AttackResult
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.errors import ConfigError, ModelError, RunError
from fedrec_unlearn.federation.training import finish_round_first
from fedrec_unlearn.pipeline.secemb import privacy_spent
from fedrec_unlearn.privacy.accounting import PrivacySpent
from fedrec_unlearn.progress import Interrupted, Progress, SilentProgress
from fedrec_unlearn.recbole import checkpoint
from fedrec_unlearn.recbole.attributes import read_attributes, warn_if_input
from fedrec_unlearn.recbole.binding import bind
from fedrec_unlearn.recbole.clients import Clients, Standing
from fedrec_unlearn.recbole.configuration import without_tensorboard
from fedrec_unlearn.recbole.interactions import as_dataset, fingerprint, training_items
from fedrec_unlearn.recbole.options import (
    attack_options,
    check_keys,
    check_sampling,
    check_valid_metric,
    fields_to_unlearn,
    in_recboles_names,
    own_keys,
    sensitive_fields,
    to_config,
)

_TEMPORARY = "fedrec-recbole-"
"""How folders begin that nobody asked for."""

ATTACK_METRICS = frozenset({"attackauc", "attackbacc"})
"""Metrics that train attackers; left out of validation unless one of them decides."""


class FederatedTrainer(Trainer):  # type: ignore[misc]
    """Trains a RecBole model, stock or of this package, with every user as a client.

    `fit`, `evaluate` and the log are RecBole's; an epoch is a pass over the clients. `unlearn` removes user attributes
    from the private rows, `attack` infers them. `save`, `load` and `resume` are what RecBole does with checkpoints, in
    files of plain data.

    Guarantee: the server part of a round works on item rows and dense parameters alone; a user's rows, interactions and
    attributes stay with its client, under the transport's own terms (docs: federation, SecEmb). This process plays all
    clients and the server, so its memory and its checkpoints hold everybody's rows: a checkpoint is the union of what
    would lie on the users' devices and on the server. It holds no optimiser state of users, no labels of attributes,
    and after `unlearn` no rows from before.

    Args:
        config: RecBole's configuration, from `make_config` or RecBole's own `Config`.
        model: a model built with it.

    Raises:
        ConfigError: a misspelt option, or one no client could follow.
        ModelError: mixed precision or several processes, which rounds do not have.
    """

    def __init__(self, config: Any, model: Any) -> None:
        check_keys(config)
        check_sampling(config)
        check_valid_metric(config)
        for key in ("enable_amp", "enable_scaler", "clip_grad_norm"):
            if config[key]:
                raise ConfigError(f"{key}: clients take plain gradient steps in full precision; leave it out")
        if not config["single_spec"]:
            raise ModelError("a federated run is one process; leave out nproc and world_size")
        fields_to_unlearn(config)
        attack_options(config)
        to_config(config, num_negatives=1, objective="bpr")
        asked = _asked_folder(config)
        with without_tensorboard(), _no_folder(config):
            super().__init__(config, model)
        self.checkpoint_dir: str = asked or tempfile.mkdtemp(prefix=_TEMPORARY)
        if asked is None:
            weakref.finalize(self, shutil.rmtree, self.checkpoint_dir, ignore_errors=True)
        # RecBole's name for the file, in the folder that was asked for
        self.saved_model_file: str = str(Path(self.checkpoint_dir) / Path(vars(self)["saved_model_file"]).name)
        self.clients: Clients | None = None
        """Set by `prepare`."""
        self.unlearned: list[str] = []
        """Attributes that were unlearned."""
        self.progress: Progress = SilentProgress()
        """Told of passes, of rounds of unlearning and of attacks, beside RecBole's log."""
        self._dataset: Any = None
        self._pending: tuple[dict[str, Any], str, bool] | None = None
        self._stop = threading.Event()
        self.privacy: PrivacySpent | None = None
        """What all passes of `fit` spend under the secemb transport with noise, by `prepare`."""
        self._epoch = -1
        self._valid_result: Any = None
        self._validated, self._loss = False, float("nan")
        self._written: set[Path] = set()

    def prepare(self, train_data: Any) -> Clients:
        """Make clients of the training data's users; `fit` does it by itself.

        Args:
            train_data: RecBole's training loader.

        Raises:
            FedRecError: whatever does not go together: model, data, options, attributes; nothing was trained yet.
        """
        data = train_data.dataset
        if self.clients is not None and data is self._dataset:
            return self.clients
        binding = bind(self.model, self.config, data)
        label = self.config["LABEL_FIELD"] if binding.objective.needs_ratings else None
        items = training_items(data, label)
        config = to_config(self.config, num_negatives=binding.num_negatives, objective=binding.objective.name)
        attributes = read_attributes(self.config, data, sensitive_fields(self.config))
        warn_if_input(self.model, [attribute.name for attribute in attributes])
        dataset = as_dataset(self.config["dataset"], data, items, attributes)
        with _named_for_recbole():
            self.clients = Clients(binding, config, dataset, items, torch.device(self.device))
        self._dataset = data
        self._tell_privacy(self.clients)
        if self._pending is not None:
            content, path, exactly = self._pending
            self._take_over(content, path, exactly)
        return self.clients

    def _tell_privacy(self, clients: Clients) -> None:
        rounds = max(1, self.epochs) * clients.cohorts.rounds_per_pass
        whole = replace(clients.config, federation=replace(clients.config.federation, rounds=rounds))
        self.privacy = privacy_spent(whole, len(clients.cohorts.eligible))
        if self.privacy is not None:
            self.logger.info(self.privacy.statement())
            self.progress.message(self.privacy.statement())

    def _prepared(self) -> Clients:
        if self.clients is None:
            raise RunError("there are no clients yet: call fit(train_data, valid_data) or prepare(train_data) first")
        return self.clients

    def fit(
        self,
        train_data: Any,
        valid_data: Any = None,
        verbose: bool = True,
        saved: bool = True,
        show_progress: bool = False,
        callback_fn: Any = None,
    ) -> Any:
        """Train with early stopping on validation data, as RecBole's trainers do.

        With `saved` the best pass by `valid_metric` is what the trainer holds afterwards, in memory and on disk.

        Args:
            train_data, valid_data: RecBole's loaders.
            verbose: log a line for each pass.
            saved: keep the best pass in a checkpoint, `saved_model_file`.
            show_progress: a bar over the rounds of each pass.
            callback_fn: called with epoch and validation score.

        Returns:
            best validation score, best validation result.

        Warns:
            UnlearnWarning: attributes were unlearned before; training on brings them back.

        Raises:
            Interrupted: Ctrl-C; the round was finished, and `resume(stop.run)` goes on from it.
            FedRecError: see `prepare`; training that diverges.
        """
        self.prepare(train_data)
        if self.unlearned:
            warnings.warn(
                f"{', '.join(self.unlearned)}: training on brings back what was unlearned; unlearn again afterwards",
                UnlearnWarning,
                stacklevel=2,
            )
            self.unlearned = []

        def after_validation(epoch_idx: int, valid_score: float) -> None:
            self.progress.advance(epoch_idx + 1, {"loss": self._loss, self.valid_metric: float(valid_score)})
            if callback_fn is not None:
                callback_fn(epoch_idx, valid_score)
            if self._stop.is_set() and epoch_idx + 1 < self.epochs and self.cur_step <= self.stopping_step:
                raise self._interrupted(epoch_idx + 1)

        self._validated = bool(valid_data) and self.eval_step > 0
        self.progress.start(f"{self.config['dataset']}-{self.config['model']}", self.epochs, "epoch")
        try:
            with finish_round_first() as self._stop:
                best = super().fit(train_data, valid_data, verbose, saved, show_progress, after_validation)
        finally:
            self.progress.finish()
        if saved and Path(self.saved_model_file).is_file():
            self._take_over(checkpoint.read(self.saved_model_file, self.device), self.saved_model_file, False)
        return best

    def _build_optimizer(self, **options: Any) -> None:
        """None: clients take plain gradient steps, and the server's optimiser is the federation's."""

    def _train_epoch(
        self, train_data: Any, epoch_idx: int, loss_func: Any = None, show_progress: bool = False
    ) -> float:
        clients = self._prepared()
        self.model.train()
        with _bar(show_progress, epoch_idx) as told:
            loss = clients.train_pass(self._stop, told)
        clients.publish()
        if loss is None:
            raise self._interrupted(epoch_idx)
        self._loss, self._epoch = loss, epoch_idx
        judged = self._validated and (epoch_idx + 1) % self.eval_step == 0  # a pass is judged before it is left
        if not judged:
            self.progress.advance(epoch_idx + 1, {"loss": loss})
        if self._stop.is_set() and not judged and epoch_idx + 1 < self.epochs:
            raise self._interrupted(epoch_idx + 1)
        return loss

    def _interrupted(self, epoch_idx: int) -> Interrupted:
        """Keep where training stands, in a file of its own beside the best pass."""
        best = Path(self.saved_model_file)
        if best.parent.name.startswith(_TEMPORARY):  # that folder goes away with the process
            kept = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}interrupted-"))
            if best.is_file():
                shutil.copyfile(best, kept / best.name)
                self._written.add(kept / best.name)
            best = kept / best.name
        path = best.with_name(f"{best.stem}-interrupted.pth")
        self._write(path, epoch_idx - 1, best.name)
        self.logger.info(f"interrupted; go on with trainer.resume({str(path)!r}) and fit")
        return Interrupted(path)

    def _valid_epoch(self, valid_data: Any, show_progress: bool = False) -> Any:
        deciding = self.valid_metric.split("@")[0]
        whole = self.evaluator.metrics
        if deciding not in ATTACK_METRICS:
            self.evaluator.metrics = [metric for metric in whole if metric not in ATTACK_METRICS]
        try:
            score, self._valid_result = super()._valid_epoch(valid_data, show_progress)
            return score, self._valid_result
        finally:
            self.evaluator.metrics = whole

    def _save_checkpoint(self, epoch: int, verbose: bool = True, **options: Any) -> None:
        path = Path(options.pop("saved_model_file", self.saved_model_file))
        self.best_valid_result = self._valid_result
        self._write(path, epoch, path.name)
        if verbose:
            self.logger.info(f"Saved the current state: {path}")

    def _write(self, path: Path, epoch: int, best_file: str) -> None:
        clients = self._prepared()
        clients.publish()
        content = {
            "format": checkpoint.FORMAT,
            "config": checkpoint.config_values(self.config),
            "epoch": epoch,
            "cur_step": self.cur_step,
            "best_valid_score": float(self.best_valid_score),
            "best_valid_result": _plain_result(self.best_valid_result),
            "best_file": best_file,
            "state_dict": {name: value.detach().clone() for name, value in self.model.state_dict().items()},
            "other_parameter": self.model.other_parameter(),
            "server": checkpoint.server_values(clients.state, clients.config.federation.ring),
            "pass": vars(clients.standing),
            "data": fingerprint(clients.items),
            "unlearned": list(self.unlearned),
        }
        checkpoint.write(path, content)
        self._written.add(path)

    def save(self, path: str | Path) -> Path:
        """Write the current state to a file; it can be loaded, evaluated and trained on.

        Raises:
            RunError: no clients yet, or the file cannot be written.
        """
        self._write(Path(path), self._epoch, Path(path).name)
        return Path(path)

    def load(self, path: str | Path) -> None:
        """Read a state that was saved: for evaluation at once, for everything else after `prepare` or in `fit`.

        Raises:
            RunError: missing, damaged, or of another model.
        """
        content = checkpoint.read(path, self.device)
        self._load_model(content, path)
        self._pending = (content, str(path), False)
        if self.clients is not None:
            self._take_over(content, str(path), False)

    def resume(self, path: str | Path) -> None:
        """Read a state and go on from it: the next `fit` gives the bits an uninterrupted one would have given.

        Raises:
            RunError: missing, damaged, of another model, or written under other options.
        """
        content = checkpoint.read(path, self.device)
        differing = self._differing(content["config"])
        if differing:
            raise RunError(
                f"{path} was written under other options: {', '.join(differing)}; go on with those it was written "
                "with, or load it to start from its state"
            )
        self._load_model(content, path)
        self.start_epoch = int(content["epoch"]) + 1
        self.cur_step = int(content["cur_step"])
        self.best_valid_score = float(content["best_valid_score"])
        self.best_valid_result = content["best_valid_result"]
        self.saved_model_file = str(Path(path).with_name(content["best_file"]))
        self._written |= {Path(path), Path(self.saved_model_file)}  # this run's, for `unlearn` to replace
        self._pending = (content, str(path), True)
        if self.clients is not None:
            self._take_over(content, str(path), True)
        self.logger.info(f"Checkpoint loaded. Resume training from epoch {self.start_epoch}")

    def resume_checkpoint(self, resume_file: str | Path) -> None:
        """RecBole's name for `resume`."""
        self.resume(resume_file)

    def _load_model(self, content: dict[str, Any], path: str | Path) -> None:
        was = content["config"].get("model")
        if was != self.config["model"]:
            raise RunError(f"{path} holds a {was}, this trainer's model is a {self.config['model']}")
        try:
            self.model.load_state_dict(content["state_dict"])
        except RuntimeError as error:
            raise RunError(f"{path} does not fit this model: {' '.join(str(error).split())}") from error
        self.model.load_other_parameter(content["other_parameter"])
        self.unlearned = list(content["unlearned"])

    def _take_over(self, content: dict[str, Any], path: str, exactly: bool) -> None:
        """Put a checkpoint's state in the place of the clients' own; the model has its tables already or gets them."""
        clients = self._prepared()
        if exactly and content["data"] != fingerprint(clients.items):
            raise RunError(f"{path}: the training data have changed since it was written; go on with the same split")
        self._load_model(content, path)
        private, items, dense = clients.binding.read(clients.dtype)
        start = clients.state
        start.private, start.server.items, start.server.dense = private, items, dense
        clients.state = checkpoint.restored(content["server"], start, path)
        clients.standing = Standing(**content["pass"])
        self._epoch, self.cur_step = int(content["epoch"]), int(content["cur_step"])
        self._pending = None

    def _differing(self, then: dict[str, Any]) -> list[str]:
        now = checkpoint.config_values(self.config)
        free = {"sensitive_fields", "unlearn", "engine", "block_mib"}
        keys = [key for key in own_keys() if key not in free and not key.startswith(("attack_", "unlearn_"))]
        keys += ["seed", "learning_rate", "learner", "weight_decay", "train_neg_sample_args", "valid_metric"]
        return [f"{key} {then.get(key)!r}, now {now.get(key)!r}" for key in keys if then.get(key) != now.get(key)]

    def unlearn(self, attributes: str | Sequence[str] | None = None, method: str | None = None) -> dict[str, Any]:
        """Remove user attributes from what the trainer holds (after `fit` the best pass), in memory and on disk.

        Checkpoints this trainer wrote or resumed from are replaced, so that no row from before is left in them; those
        of interrupted runs are removed. Copies, and files that were only loaded, are not touched: remove them.

        Args:
            attributes: names of user attributes; unset: `unlearn` of the configuration.
            method: how; unset: `unlearn_method` (moments unless the configuration says otherwise).

        Returns:
            what was done: attributes, method, and seconds, bytes or rounds where they are known.

        Raises:
            ConfigError: no attribute is named, an attribute all users share, a method that needs a strength.
            DataError: the data have no such attribute; told which they have.
            RunError: no clients yet.

        Warns:
            UnlearnWarning: users without a value, or an attribute the model is also given as an input.
        """
        clients = self._prepared()
        names = [attributes] if isinstance(attributes, str) else list(attributes or fields_to_unlearn(self.config))
        if not names:
            raise ConfigError("unlearn: name a user attribute, for example trainer.unlearn('gender')")
        before = {key: self.config[key] for key in ("unlearn", "unlearn_method")}
        self.config["unlearn"] = names
        self.config["unlearn_method"] = method or before["unlearn_method"]
        try:
            objective = clients.binding.objective.name
            config = to_config(self.config, num_negatives=clients.binding.num_negatives, objective=objective)
        finally:
            for key, value in before.items():
                self.config[key] = value
        labels = self._attributes(names)
        warn_if_input(self.model, names)
        with _named_for_recbole():
            done = clients.unlearn(config, labels, self.progress)
        clients.publish()
        self.unlearned = [*self.unlearned, *(name for name in names if name not in self.unlearned)]
        for path in sorted(self._written):
            if path.is_file() and path.name.endswith("-interrupted.pth"):
                path.unlink()
            elif path.is_file():
                self._write(path, self._epoch, path.name)
        self._pending = None
        self.logger.info(f"unlearned {', '.join(names)} by {config.unlearn.method}")
        return done

    def attack(self, attributes: str | Sequence[str] | None = None) -> list[AttackResult]:
        """Infer user attributes from the private rows of the users that train.

        Args:
            attributes: which; unset: `sensitive_fields` (and `unlearn`) of the configuration.

        Returns:
            one result for each attribute and attacker, with chance and majority beside each figure.

        Raises:
            AttackError, ConfigError, DataError: nothing to attack, or no such attribute.
            RunError: no clients yet.
        """
        clients = self._prepared()
        names = [attributes] if isinstance(attributes, str) else list(attributes or sensitive_fields(self.config))
        if not names:
            raise ConfigError(
                "sensitive_fields: name user attributes to attack, for example sensitive_fields: [gender]"
            )
        return clients.attack(self._attributes(names), attack_options(self.config), self.progress)

    def _attributes(self, names: Sequence[str]) -> list[Attribute]:
        known = self._prepared().dataset.attributes
        if set(names) <= known.keys():
            return [known[name] for name in names]
        return read_attributes(self.config, self._dataset, names)

    @torch.no_grad()
    def evaluate(
        self,
        eval_data: Any,
        load_best_model: bool = True,
        model_file: str | Path | None = None,
        show_progress: bool = False,
    ) -> Any:
        """RecBole's evaluation.

        Args:
            eval_data: a RecBole loader.
            load_best_model: evaluate `model_file`, if one is given. Without one there is nothing to load: after `fit`
                the trainer holds the best state already, and after `unlearn` the unlearned one.
            model_file: a checkpoint; the trainer's own state comes back afterwards.
            show_progress: a bar over the batches.

        Returns:
            metric -> value.

        Raises:
            RunError: `model_file` is missing, damaged or of another model.
        """
        if load_best_model and model_file is not None:
            own, unlearned = copy.deepcopy(self.model.state_dict()), self.unlearned
            self._load_model(checkpoint.read(model_file, self.device), model_file)
            try:
                return super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)
            finally:
                self.model.load_state_dict(own)
                self.unlearned = unlearned
        return super().evaluate(eval_data, load_best_model=False, show_progress=show_progress)


def _asked_folder(config: Any) -> str | None:
    """The folder for checkpoints that was asked for; RecBole's own default, `./saved`, was not."""
    folder: str | None = config["checkpoint_dir"]
    given = getattr(config, "external_config_dict", {})
    return None if folder == "saved" and "checkpoint_dir" not in given else folder


@contextmanager
def _named_for_recbole() -> Iterator[None]:
    """Inside, errors about options name the keys of RecBole's configuration."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(in_recboles_names(str(error))) from error


@contextmanager
def _no_folder(config: Any) -> Iterator[None]:
    """Let RecBole's trainer make its folder somewhere it does no harm; the real one is made by the first write."""
    asked = config["checkpoint_dir"]
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as elsewhere:
        config["checkpoint_dir"] = elsewhere
        try:
            yield
        finally:
            config["checkpoint_dir"] = asked


@contextmanager
def _bar(shown: bool, epoch_idx: int) -> Iterator[Any]:
    """A bar over the rounds of a pass, as RecBole shows one over batches."""
    if not shown:
        yield lambda done, total: None
        return
    from tqdm import tqdm

    with tqdm(total=0, ncols=100, desc=f"Train {epoch_idx:>5}", unit="round") as bar:

        def told(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield told


def _plain_result(result: Any) -> dict[str, float] | None:
    return None if result is None else {str(key): float(np.asarray(value)) for key, value in result.items()}
