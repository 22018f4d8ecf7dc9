"""Attacks on the adversary's gradients as a part of a study: on real rows, with adversaries new and trained."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedrec_unlearn.bench.study import InversionPlan, Study, Task, plain
from fedrec_unlearn.config_file import load_config
from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.run_folder import RunFolder, read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

_FORMAT = 1


@dataclass(frozen=True)
class InversionTask:
    """One entry of a study's section `inversion`."""

    number: int
    plan: InversionPlan
    seed: int
    """Of the run whose rows are attacked, and of untrained adversaries."""
    rows: Path
    """A run folder."""
    trained: Mapping[str, Path]
    """Run folders by arm."""
    needs: tuple[tuple[str, int], ...]
    """Tasks that must be finished first, as arm and seed."""
    result: Path
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """For progress."""
        return f"gradients, {self.plan.attribute}"


def inversion_tasks(study: Study, tasks: list[Task], folder: Path) -> list[InversionTask]:
    """A task for each of the study's plans, on runs of its first seed."""
    seed = study.seeds[0]
    of_arm = {task.arm.name: task for task in tasks if task.seed == seed}
    made = []
    for number, plan in enumerate(study.inversion, 1):
        needed = [plan.rows, *plan.trained]
        settings = plain({"plan": asdict(plan), "runs": [of_arm[name].settings for name in needed]})
        made.append(
            InversionTask(
                number,
                plan,
                seed,
                of_arm[plan.rows].folder,
                {name: of_arm[name].folder for name in plan.trained},
                tuple((name, seed) for name in dict.fromkeys(needed)),
                folder / "results" / f"inversion-{number}.json",
                settings,
            )
        )
    return made


def finished_inversion(task: InversionTask) -> list[dict[str, Any]] | None:
    """What was measured before with the same settings, None otherwise."""
    try:
        content = read_json(task.result)
    except RunError:
        return None
    if content.get("format") != _FORMAT or content.get("settings") != task.settings:
        return None
    results: list[dict[str, Any]] = content["results"]
    return results


def invert(task: InversionTask) -> list[dict[str, Any]]:
    """Carry out the attacks.

    Returns:
        `attacks.gradient_inversion.InversionResult.to_json` of each, with `attribute`.

    Raises:
        AttackError: a class without users, or too few clients to attack.
        RunError: a run is missing or its data has changed.
    """
    from fedrec_unlearn.attacks.gradient_inversion import ATTACKS, DEFENCES, Target, invert_gradients
    from fedrec_unlearn.data import load_dataset
    from fedrec_unlearn.models.adversary import Adversary, Head, Kind
    from fedrec_unlearn.pipeline.assembly import reopen, torch_threads, trained_state
    from fedrec_unlearn.seeds import Purpose, stream_key
    from fedrec_unlearn.unlearning.adversarial import balanced_class_weights

    before = finished_inversion(task)
    if before is not None:
        return before
    plan = task.plan
    with torch_threads(load_config(RunFolder(task.rows).config)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told when the runs were made
        folder, assembly = reopen(task.rows)
        state, _ = trained_state(folder, assembly)
        rows = assembly.workload.model.user_representation(state.private).cpu().double().numpy()
        data, options = assembly.config.data, assembly.config.unlearn
        if plan.age_bounds is not None:
            data = replace(data, age_bounds=plan.age_bounds)
        attribute = load_dataset(data, (plan.attribute,)).attributes[plan.attribute]
        labels, n_classes = attribute.labels, len(attribute.classes)
        counts = np.bincount(labels[labels >= 0], minlength=n_classes)
        targets = []
        for name in plan.adversaries:
            kind, _, head = name.partition("/")
            adversary = Adversary(
                cast(Kind, kind), rows.shape[1], n_classes, options.hidden_size, options.latent_size,
                cast(Head, head or "none"), options.beta_latent, options.beta_weight,
            )  # fmt: skip
            targets.append(Target(adversary, adversary.initial(stream_key(task.seed, Purpose.INIT_TERM, 0))))
        for name, run in task.trained.items():
            adversary, parameters = _trained_adversary(run, plan.attribute)
            targets.append(Target(adversary, parameters, f"trained, {name}"))
        results = invert_gradients(
            rows,
            labels,
            targets,
            defences=[d for d in DEFENCES if not plan.defences or d.name in plan.defences],
            attacks=plan.attacks or tuple(ATTACKS),
            n=plan.n,
            seeds=plan.seeds,
            class_weights=balanced_class_weights(counts) if options.class_weighting == "balanced" else None,
        )
    found = [{"attribute": plan.attribute, **result.to_json()} for result in results]
    write_json(task.result, {"format": _FORMAT, "settings": task.settings, "results": found})
    return found


def _trained_adversary(run: Path, attribute: str) -> tuple[Any, dict[str, Tensor]]:
    from fedrec_unlearn.pipeline.assembly import reopen, trained_state
    from fedrec_unlearn.unlearning.adversarial import AdversarialTerm

    folder, assembly = reopen(run)
    term = assembly.workload.term
    if not isinstance(term, AdversarialTerm) or attribute not in term.groups:
        raise RunError(f"{run}: the run has no adversary for {attribute}")
    # the state before a step after training still has the adversary's parameters
    state, _ = trained_state(folder, assembly, "latest")
    prefix = f"{attribute}."
    parameters = {
        name.removeprefix(prefix): value.double().cpu()
        for name, value in state.server.term.items()
        if name.startswith(prefix)
    }
    return term.adversaries[term.groups.index(attribute)], parameters
