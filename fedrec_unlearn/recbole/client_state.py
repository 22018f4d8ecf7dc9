"""What `FederatedTrainer` holds between calls: clients made of RecBole's data, and their state in files.

`load` and `resume` may come before there is any data; what they read then waits until `prepare` has made the clients.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.trainer import Trainer

from fedrec_unlearn.errors import ConfigError, ModelError, RunError
from fedrec_unlearn.pipeline.secemb import privacy_spent
from fedrec_unlearn.privacy.accounting import PrivacySpent
from fedrec_unlearn.progress import Progress, SilentProgress
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

TEMPORARY = "fedrec-recbole-"
"""How folders begin that nobody asked for."""


class ClientsTrainer(Trainer):  # type: ignore[misc]
    """A RecBole trainer that has clients, and keeps their state in checkpoints of plain data.

    Args:
        config: RecBole's configuration.
        model: a model built with it.

    Raises:
        ConfigError: a misspelt option, or one no client could follow.
        ModelError: several processes, which rounds do not have.
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
        self.checkpoint_dir: str = asked or tempfile.mkdtemp(prefix=TEMPORARY)
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
        with named_for_recbole():
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

    def _build_optimizer(self, **options: Any) -> None:
        """None: clients take plain gradient steps, and the server's optimiser is the federation's."""

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


def _asked_folder(config: Any) -> str | None:
    """The folder for checkpoints that was asked for; RecBole's own default, `./saved`, was not."""
    folder: str | None = config["checkpoint_dir"]
    given = getattr(config, "external_config_dict", {})
    return None if folder == "saved" and "checkpoint_dir" not in given else folder


@contextmanager
def named_for_recbole() -> Iterator[None]:
    """Inside, errors about options name the keys of RecBole's configuration."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(in_recboles_names(str(error))) from error


@contextmanager
def _no_folder(config: Any) -> Iterator[None]:
    """Let RecBole's trainer make its folder somewhere it does no harm; the real one is made by the first write."""
    asked = config["checkpoint_dir"]
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as elsewhere:
        config["checkpoint_dir"] = elsewhere
        try:
            yield
        finally:
            config["checkpoint_dir"] = asked


def _plain_result(result: Any) -> dict[str, float] | None:
    return None if result is None else {str(key): float(np.asarray(value)) for key, value in result.items()}
