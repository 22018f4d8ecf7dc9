"""How strong the reversed gradient should be: trained with each strength, judged by fresh attackers.

An adversary that is beaten in training proves nothing: it is the one the embedding was trained against. So each
strength is judged by attackers that start afresh, on users set aside for this. What is measured on them decides; what
is reported afterwards should be measured on the others (``attack.users: audit``).
"""

from __future__ import annotations

import datetime
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec_unlearn.attacks import infer_attribute
from fedrec_unlearn.config import Config, UnlearnConfig
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.errors import ConfigError, RunError
from fedrec_unlearn.federation.run_folder import read_json, write_json
from fedrec_unlearn.pipeline.assembly import reopen, torch_threads, trained_state
from fedrec_unlearn.progress import Progress, SilentProgress
from fedrec_unlearn.seeds import Purpose, generator

_SELECTION = 1
"""Coordinate of the draw of users within Purpose.UNLEARN."""


def selection_users(n_users: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Users on whom strengths are judged, bool (n_users,); the others are for the final attack.

    Args:
        n_users: all users.
        share: how many of them.
        seed: of the split, so that runs that share a split share this too.
    """
    draws = generator(seed, Purpose.UNLEARN, _SELECTION).random(n_users)
    chosen: NDArray[np.bool_] = draws < share
    return chosen


def sweep(
    config: Config, output: Path, *, source: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Train without unlearning and with each strength, attack each, and choose.

    Runs that are finished already are taken as they are, so an interrupted sweep goes on where it stopped.

    Args:
        config: an adversarial method and its attributes; `unlearn.epsilons` are tried.
        output: folder for one run folder a strength (`none`, `epsilon-0.1`, ...) and sweep.json.
        source: a trained run to start each from; unset: each is trained from scratch.
        progress: told of every round and fold.

    Returns:
        The content of sweep.json, as docs/run-folder.md describes it.

    Raises:
        ConfigError: the method has no strength to choose.
        RunError: `output` holds runs of another configuration.
        FedRecError: as `train` and `attack`.
    """
    progress = progress or SilentProgress()
    options = config.unlearn
    if not options.adversarial:
        raise ConfigError(
            f"unlearn.method: {options.method} has no strength to sweep; use grl, grl_sut, fedau2 or fedau2_moments"
        )
    output = Path(output)
    points = []
    for epsilon in (0.0, *sorted(set(options.epsilons))):
        folder = output / (f"epsilon-{epsilon:g}" if epsilon else "none")
        run = _trained(config, epsilon, folder, source, progress)
        points.append({"epsilon": epsilon, "run": folder.name, **_judge(run, config, progress)})
    content = {
        "format": 1,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "method": options.method,
        "attributes": list(options.attributes),
        "selection_share": options.selection_share,
        "tolerance": options.tolerance,
        **_choose(points, options),
        "points": points,
    }
    write_json(output / "sweep.json", content)
    return content


def choose_epsilon(config: Config, output: Path, source: Path | None, progress: Progress) -> UnlearnConfig:
    """The unlearning options with the strength a sweep chooses.

    Raises:
        RunError: no strength is eligible, or `output` holds the runs of another sweep.
    """
    progress.message(f"choosing unlearn.epsilon among {', '.join(f'{e:g}' for e in config.unlearn.epsilons)}")
    found = sweep(config, output, source=source, progress=progress)
    if found["chosen"] is None:
        raise RunError(f"unlearn.epsilon: {found['reason']}; see {output / 'sweep.json'}")
    progress.message(found["reason"])
    return replace(config.unlearn, epsilon=float(found["chosen"]))


def _trained(config: Config, epsilon: float, folder: Path, source: Path | None, progress: Progress) -> Path:
    from fedrec_unlearn.pipeline.training import resume, train
    from fedrec_unlearn.pipeline.unlearning import unlearn

    if epsilon == 0 and source is not None:
        return source
    options = replace(config.unlearn, epsilon=epsilon)
    if options.method == "fedau2_moments":
        options = replace(options, method="fedau2")  # the step afterwards does not depend on the strength
    if epsilon == 0:
        options = replace(options, method="none", attributes=())
    wanted = replace(config, output=str(folder), unlearn=options)
    if (folder / "run.json").exists():
        _need_same(folder, wanted, source)
        status = read_json(folder / "run.json").get("status")
        return folder if status == "finished" else resume(folder, progress=progress)
    if source is not None:
        return unlearn(source, options, output=folder, progress=progress)
    return train(wanted, progress=progress)


def _need_same(folder: Path, wanted: Config, source: Path | None) -> None:
    """Raise `RunError` where a run from an earlier sweep is not the one this sweep would make.

    How it is attacked does not matter; a run that starts from another has that one's options.
    """
    found = load_config(folder / "config.yaml")
    told = read_json(folder / "run.json").get("unlearn") or {}
    same = found.unlearn == wanted.unlearn and told.get("source") == (None if source is None else source.name)
    if source is None:
        same = same and replace(found, attack=wanted.attack, output=wanted.output) == wanted
    if not same:
        raise RunError(
            f"{folder} holds a run of another configuration than this sweep's; choose another folder for the sweep, "
            f"or remove {folder.parent}"
        )


def _judge(run: Path, config: Config, progress: Progress) -> dict[str, Any]:
    """Validation metric of a run, and what fresh attackers find on the selection users."""
    with torch_threads(config):
        folder, assembly = reopen(run)
        state, _ = trained_state(folder, assembly)
        rows = assembly.workload.model.user_representation(state.private).cpu().double().numpy()
        chosen = selection_users(assembly.dataset.n_users, config.unlearn.selection_share, config.split.seed)
        users = np.flatnonzero(chosen & np.isin(np.arange(len(chosen)), assembly.workload.eligible()))
        attack, worst = [], {}
        for name in config.unlearn.attributes:
            attribute = assembly.dataset.attributes[name]
            progress.start(f"attack on {name} of {folder.path.name}", 0, "fold")
            try:
                results = infer_attribute(
                    rows[users],
                    attribute.labels[users],
                    attribute=name,
                    classes=attribute.classes,
                    attackers=config.attack.attackers,
                    folds=config.attack.folds,
                    inner_folds=config.attack.inner_folds,
                    seeds=config.attack.seeds,
                    jobs=config.attack.jobs,
                    progress=lambda done, total, attacker: progress.advance(done, {"attacker": attacker}),
                )
            finally:
                progress.finish()
            worst[name] = max(result.distance_from_chance for result in results)
            attack += [
                {
                    "attribute": name,
                    "attacker": result.attacker,
                    "balanced_accuracy": result.balanced_accuracy.mean,
                    "chance": result.chance,
                }
                for result in results
            ]
        metric = assembly.evaluator.select_by
        valid = assembly.evaluator.evaluate(state, "valid")[metric]
    return {"select_by": metric, "valid": valid, "n_selection": len(users), "attack": attack, "worst": worst}


def _choose(points: list[dict[str, Any]], options: UnlearnConfig) -> dict[str, Any]:
    """The strength whose worst attack is closest to guessing among those that still recommend well."""
    none, tried = points[0], points[1:]

    def leak(point: dict[str, Any]) -> float:
        return float(max(point["worst"].values()))

    overshoot = [p["epsilon"] for p in tried if any(p["worst"][a] > none["worst"][a] for a in options.attributes)]
    if overshoot:
        warnings.warn(
            f"unlearn.epsilon {', '.join(f'{e:g}' for e in overshoot)}: fresh attackers read "
            f"{' or '.join(options.attributes)} better than without unlearning (over-shoot)",
            UnlearnWarning,
            stacklevel=3,
        )
    least = (1.0 - options.tolerance) * none["valid"]
    eligible = [p for p in tried if p["valid"] >= least]
    better = [p for p in eligible if leak(p) < leak(none)]
    if not better:
        reason = (
            f"no strength keeps {none['select_by']} at {least:.4f} or more on validation data and is read less than "
            f"without unlearning; try smaller ones in unlearn.epsilons, or a larger unlearn.tolerance"
        )
        return {"chosen": None, "overshoot": overshoot, "reason": reason, "select_by": none["select_by"]}
    best = min(better, key=lambda p: (leak(p), p["epsilon"]))
    reason = (
        f"unlearn.epsilon {best['epsilon']:g}: the worst of {len(best['attack']) // len(options.attributes)} fresh "
        f"attackers is {leak(best):.3f} from guessing on {best['n_selection']} users set aside, against "
        f"{leak(none):.3f} without unlearning, at {best['valid'] / none['valid']:.3f} of the "
        f"validation {none['select_by']}"
    )
    return {"chosen": best["epsilon"], "overshoot": overshoot, "reason": reason, "select_by": none["select_by"]}
