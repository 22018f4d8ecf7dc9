"""`unlearn`: from a trained run to a run of its own without the attribute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedrec_unlearn.config import UnlearnConfig
from fedrec_unlearn.config_file import dump_config, load_config
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.checkpoint import Standing, save_state
from fedrec_unlearn.federation.run_folder import RunFolder, write_atomic, write_json
from fedrec_unlearn.pipeline.afterwards import without_term
from fedrec_unlearn.pipeline.assembly import Assembly, reopen, torch_threads, trained_state
from fedrec_unlearn.pipeline.terms import attributes_to_unlearn
from fedrec_unlearn.pipeline.training import describe, go_on, opening
from fedrec_unlearn.progress import Progress, SilentProgress


def unlearn(
    run: Path,
    config: UnlearnConfig,
    *,
    output: Path | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Remove user attributes from a trained run; the result is a run of its own.

    Adversarial methods train on from the run's best state for `config.further_rounds` rounds and keep the last; the
    others change its private rows once. The new folder also keeps the state before, so that both can be attacked.

    Args:
        run: a run folder with a checkpoint; it is not changed.
        config: method, attributes and their options.
        output: the new run folder; unset: beside `run`, named after it and the method.
        seed: of everything random in unlearning; unset: the run's.
        progress: told of every round.

    Returns:
        The new run folder.

    Raises:
        ConfigError: no method, or an attribute that cannot be unlearned.
        RunError: not a run folder, or its data has changed.
        FedRecError: as `train`.
    """
    progress = progress or SilentProgress()
    source = RunFolder(Path(run))
    before = load_config(source.config)
    if config.method == "none":
        raise ConfigError("unlearn.method: none changes nothing; name a method, for example moments or fedau2")
    with torch_threads(before):
        _, trained = reopen(source.path)
        state, standing = trained_state(source, trained)
        chosen = config.adversarial and config.epsilon == 0
        if chosen:
            from fedrec_unlearn.pipeline.selection import choose_epsilon

            trials = Path(f"{output or f'{source.path}-{config.method}'}-sweep")
            config = choose_epsilon(replace(before, unlearn=config), trials, source.path, progress)
        target = replace(
            before,
            seed=before.seed if seed is None else seed,
            output=None if output is None else str(output),
            unlearn=config,
        )
        if config.adversarial:
            target = replace(
                target,
                federation=replace(before.federation, rounds=config.further_rounds),
                evaluation=replace(before.evaluation, keep="last"),
            )
        assembly = Assembly.of(target)
        attributes_to_unlearn(target, assembly.dataset)
        folder = (
            RunFolder.create(Path(output))
            if output is not None
            else RunFolder.next_in(source.path.parent, f"{source.path.name}-{config.method}")
        )
        write_atomic(folder.config, dump_config(target).encode())
        start = without_term(state)
        save_state(folder.before, start, standing)
        if config.adversarial:
            start.server.rounds_done = 0
            assert assembly.workload.term is not None
            start.server.add_term(assembly.workload.term.initial(target.seed), target.federation)
        fresh = Standing()
        save_state(folder.latest, start, fresh)
        described = describe(folder, assembly)
        described["unlearn"] |= {"source": source.path.name, "chosen": chosen}
        write_json(folder.run, described)
        progress.message(f"{opening(assembly)}; unlearning {', '.join(config.attributes)} by {config.method}")
        return go_on(folder, assembly, start, fresh, progress)
