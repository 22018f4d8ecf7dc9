"""The findings in sentences, each computed from the figures."""

from __future__ import annotations

from collections.abc import Sequence

from fedrec_unlearn.report.figures import RunFigures
from fedrec_unlearn.report.inference import AttackResult, Estimate, worst_result
from fedrec_unlearn.report.protection import protection_sentence
from fedrec_unlearn.report.unlearning import Kept
from fedrec_unlearn.report.wording import (
    CONTROLS,
    attacker_name,
    byte_size,
    count,
    decimal,
    duration,
    listed,
    metric_name,
    percent,
    plural,
    smaller_is_better,
    surface_seen,
)


def summarise(run: RunFigures) -> list[str]:
    """Sentences on one run: how far it is, how well it recommends, what it leaks, what it costs."""
    unlearned = run.unlearning.attributes if run.unlearning is not None else ()
    attack = [
        leak_sentence(result, _rivals(run, result))
        for result in run.attack
        if result.worst and result.surface not in CONTROLS and result.attribute not in unlearned
    ]
    sentences = [_progress(run), _ranking(run), *_unlearning(run), *attack, _traffic(run)]
    return [sentence for sentence in sentences if sentence]


def kept_metric(run: RunFigures) -> Kept | None:
    """The metric by which to tell how well recommendation has survived unlearning: the one that chose the round."""
    kept = run.unlearning.kept if run.unlearning is not None else ()
    preferred = [pair for pair in kept if pair.metric == run.selected_by]
    return next(iter([*preferred, *kept]), None)


def _unlearning(run: RunFigures) -> list[str]:
    found = run.unlearning
    if found is None:
        return []
    sentences = [protection_sentence(found, attribute, run.options) for attribute in found.attributes]
    pair = kept_metric(run)
    if pair is not None and pair.before is not None and pair.after is not None and pair.ratio is not None:
        sentences.append(
            f"Unlearning leaves a test {metric_name(pair.metric)} of {decimal(pair.after)} of {decimal(pair.before)} "
            f"before ({decimal(pair.ratio, 3)} times)."
        )
    return sentences


def leak_sentence(result: AttackResult, rivals: int = 1) -> str:
    """How well one attacker infers an attribute, against guessing."""
    accuracy, chance = result.balanced_accuracy, percent(result.chance)
    if accuracy.value is None:
        return f"The attack on {result.attribute} gave no figure."
    strongest = f", the strongest of {rivals}" if rivals > 1 else ""
    start = (
        f"An attacker who sees {surface_seen(result.surface)} ({attacker_name(result.attacker)}{strongest}) "
        f"names the {result.attribute} of a user right in {percent(accuracy.value)} of cases "
        f"(balanced accuracy{_interval(accuracy)}), against {chance} by chance"
    )
    turned = f"; turned round, its answers are right in {percent(1.0 - accuracy.value)}"
    end = {
        "open": ".",
        "none": ", which lies within the interval: no leak is shown.",
        "luck": "; guessing comes as far by luck with so few users: no leak is shown.",
        "leaks": f": {result.attribute} leaks.",
        "inverted": f": it is reliably wrong{turned if len(result.classes) == 2 else ''}: {result.attribute} leaks.",
    }
    return start + end[result.verdict]


def compare(runs: Sequence[RunFigures]) -> list[str]:
    """Sentences on several runs: what can be compared, which recommends best, what was unlearned, which leaks least."""
    sentences = []
    data = list(dict.fromkeys(str(run.facts["data"]) for run in runs if run.facts["data"]))
    if len(data) > 1:
        sentences.append(f"The runs use different data sets ({listed(data)}): their figures cannot be compared.")
        return sentences
    if metric := shared_metric(runs):
        values = {run.label: run.ranking[metric]["test"] for run in runs if metric in run.ranking}
        known = {label: value for label, value in values.items() if value is not None}
        best = (min if smaller_is_better(metric) else max)(known, key=lambda label: known[label])
        others = [f"{decimal(value)} for {label}" for label, value in known.items() if label != best]
        sentences.append(
            f"{best} recommends best: test {metric_name(metric)} {decimal(known[best])}, against {listed(others)}."
        )
    sentences += [f"{run.label}: {sentence}" for run in runs for sentence in _unlearning(run)]
    return sentences + [sentence for target in targets(runs) if (sentence := _least_leak(runs, *target))]


def _least_leak(runs: Sequence[RunFigures], attribute: str, surface: str) -> str | None:
    worst = {run.label: result for run in runs if (result := worst_of(run, attribute, surface)) is not None}
    known = {label: value for label, r in worst.items() if (value := r.distance.value) is not None}
    if len(known) < 2:
        return None
    least = min(known, key=lambda label: known[label])
    reached = {label: percent(worst[label].balanced_accuracy.value or 0.0) for label in known}
    high = worst[least].distance.high
    others = [f"{value} for {label}" for label, value in reached.items() if label != least]
    lows = [worst[label].distance.low for label in known if label != least]
    overlap = high is not None and any(low is not None and low <= high for low in lows)
    return (
        f"{least} gives away least of {attribute} to an attacker who sees {surface_seen(surface)}: "
        f"balanced accuracy {reached[least]}, against {listed(others)} ({percent(worst[least].chance)} by chance)"
        + ("; the 95\u00a0% intervals overlap, so the order is uncertain." if overlap else ".")
    )


def targets(runs: Sequence[RunFigures]) -> list[tuple[str, str]]:
    """(attribute, surface) of all attacks, in order of appearance."""
    return list(dict.fromkeys(result.target for run in runs for result in run.attack))


def worst_of(run: RunFigures, attribute: str, surface: str) -> AttackResult | None:
    """The attack of a run on an attribute that is furthest from chance, None if there was none."""
    return worst_result(run.attack, attribute, surface)


def shared_metric(runs: Sequence[RunFigures]) -> str | None:
    """The test metric to compare runs by: an NDCG if at least two runs have one, else another they share."""

    def holders(metric: str) -> int:
        return sum(run.ranking.get(metric, {}).get("test") is not None for run in runs)

    names = dict.fromkeys(name for run in runs for name in run.ranking)
    shared = [name for name in names if holders(name) > 1]
    chosen = [run.selected_by for run in runs if run.selected_by in shared]
    ndcg = [name for name in shared if name.startswith("ndcg@")]
    preferred = [name for name in chosen if name in ndcg] or ndcg or [name for name in chosen if name] or shared
    return preferred[0] if preferred else None


def _rivals(run: RunFigures, result: AttackResult) -> int:
    return sum(other.target == result.target for other in run.attack)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = percent(estimate.low).removesuffix("\u00a0%"), percent(estimate.high)
    return f", 95\u00a0% interval {low} to {high}"


def _progress(run: RunFigures) -> str | None:
    status, done, planned = run.facts["status"], run.facts["rounds_done"], run.facts["rounds_planned"]
    seen = int(run.rounds.round[-1]) if len(run.rounds.round) else 0
    done = max(done, seen) if isinstance(done, int) else seen
    of = f"{count(done)} of {plural(planned, 'round')}" if isinstance(planned, int) else plural(done, "round")
    return {
        "running": f"The run is still in progress, {of} so far: figures will change.",
        "interrupted": f"The run was interrupted after {of}.",
        "failed": f"The run failed after {of}: figures describe the rounds before.",
    }.get(str(status))


def _ranking(run: RunFigures) -> str | None:
    metric = run.selected_by if run.selected_by in run.ranking else next(iter(run.ranking), None)
    if metric is None:
        return None
    values = run.ranking[metric]
    test, popularity = values["test"], values["popularity"]
    if test is None:
        return None
    name = metric_name(metric)
    best = f" (round {count(run.best_round)})" if run.best_round is not None else ""
    if popularity is None:
        return f"The best model{best} reaches a test {name} of {decimal(test)}."
    if smaller_is_better(metric):
        relation = f"against {decimal(popularity)} for the popularity baseline"
    elif popularity > 0:
        relation = (
            f"{decimal(test / popularity, 2)} times the {decimal(popularity)} of recommending the most popular items"
        )
    else:
        relation = f"against {decimal(popularity)} for recommending the most popular items"
    return f"The best model{best} reaches a test {name} of {decimal(test)}, {relation}."


def _traffic(run: RunFigures) -> str | None:
    up, down = run.traffic["up_per_user_and_round"], run.traffic["down_per_user_and_round"]
    if up is None or down is None:
        return None
    sentence = f"A user who takes part in a round sends {byte_size(up)} and receives {byte_size(down)}"
    seconds = run.time["round_median"]
    return f"{sentence}; a round takes {duration(seconds)}." if seconds is not None else f"{sentence}."
