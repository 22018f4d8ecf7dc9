"""`FederatedTrainer`: RecBole's trainer with the users as clients.

RecBole keeps its part: the loop over epochs, validation, early stopping, evaluation and their log. What happens in an
epoch is a federation's: every client takes part once, in rounds.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedrec_unlearn.attacks import AttackResult
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.training import finish_round_first
from fedrec_unlearn.progress import Interrupted
from fedrec_unlearn.recbole import checkpoint
from fedrec_unlearn.recbole.attributes import read_attributes, warn_if_input
from fedrec_unlearn.recbole.client_state import TEMPORARY, ClientsTrainer, named_for_recbole
from fedrec_unlearn.recbole.options import attack_options, fields_to_unlearn, sensitive_fields, to_config

ATTACK_METRICS = frozenset({"attackauc", "attackbacc"})
"""Metrics that train attackers; left out of validation unless one of them decides."""


class FederatedTrainer(ClientsTrainer):
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
        if best.parent.name.startswith(TEMPORARY):  # that folder goes away with the process
            kept = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}interrupted-"))
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
        with named_for_recbole():
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
