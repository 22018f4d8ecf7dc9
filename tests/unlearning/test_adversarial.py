"""The adversarial term: reversed gradients, masks, triggers, several attributes, clients alone and in company."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data import MISSING, Attribute
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.term import TermStep, UserTerm
from fedrec_unlearn.seeds import Purpose, stream_key
from fedrec_unlearn.unlearning.adversarial import AdversarialTerm, balanced_class_weights
from fedrec_unlearn.unlearning.draws import draw_normals

N_USERS, WIDTH, SEED = 40, 6, 11
EPSILON = 0.7


def gender(missing: float = 0.3) -> Attribute:
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(N_USERS) < 0.7, 0, 1)
    labels[rng.random(N_USERS) < missing] = MISSING
    return Attribute("gender", ("F", "M"), labels)


def age(missing: float = 0.2) -> Attribute:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, N_USERS)
    labels[rng.random(N_USERS) < missing] = MISSING
    return Attribute("age", ("young", "middle", "old"), labels)


def term_of(*attributes: Attribute, dtype: torch.dtype = torch.float64, **options: object) -> AdversarialTerm:
    config = UnlearnConfig(
        **{  # type: ignore[arg-type]
            "attributes": tuple(a.name for a in attributes),
            "method": "fedau2",
            "epsilon": EPSILON,
            "hidden_size": 5,
            "latent_size": 4,
            **options,
        }
    )
    return AdversarialTerm.of(config, attributes, WIDTH, SEED, torch.device("cpu"), dtype)


def rows_of(users: Tensor) -> Tensor:
    table = torch.randn((N_USERS, WIDTH), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return table[users] * 2


def step(term: AdversarialTerm, users: Tensor, summed: bool = True, round_number: int = 4, epoch: int = 1) -> TermStep:
    parameters = term.initial(SEED)
    if not summed:
        parameters = {name: value.expand(len(users), *value.shape).clone() for name, value in parameters.items()}
    return term.step(rows_of(users), parameters, users, round_number, epoch, summed=summed)


USERS = torch.tensor([3, 17, 0, 39, 8, 21, 22, 30, 5, 11, 12, 13, 27])


def by_autograd(
    term: AdversarialTerm, attribute: Attribute, index: int, users: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Gradients of the weighted losses of the users who know their class, one attribute, trigger left out."""
    adversary = term.adversaries[index]
    prefix = f"{attribute.name}."
    leaves = {n.removeprefix(prefix): v.requires_grad_() for n, v in term.initial(SEED).items() if n.startswith(prefix)}
    rows = rows_of(users).requires_grad_()
    draws = draw_normals(stream_key(SEED, Purpose.TERM_DRAWS, 4, 1, index), users, adversary.n_draws)
    labels = torch.from_numpy(attribute.labels)[users]
    known = torch.from_numpy(attribute.labels[attribute.labels != MISSING])
    counts = torch.bincount(known, minlength=len(attribute.classes)).double()
    weights = len(known) / (len(attribute.classes) * counts)
    total = torch.zeros((), dtype=torch.float64)
    for c in (labels != MISSING).nonzero().flatten().tolist():
        loss = adversary.loss(leaves, rows[c : c + 1], labels[c : c + 1], draws[c : c + 1]).sum()
        total = total + weights[labels[c]] * loss
    into, *others = torch.autograd.grad(total, [rows, *leaves.values()])
    return into, dict(zip(leaves, others, strict=True))


@pytest.mark.parametrize("adversary", ["mlp", "vae", "dsvae"])
def test_parameters_go_downhill_and_rows_uphill(adversary: str) -> None:
    attribute = gender()
    term = term_of(attribute, adversary=adversary, trigger="always")
    done = step(term, USERS)
    into, gradients = by_autograd(term, attribute, 0, USERS)
    torch.testing.assert_close(done.row_gradient, -EPSILON * into, rtol=0, atol=1e-10)
    assert set(done.gradients) == set(term.shapes)
    for name, value in gradients.items():
        torch.testing.assert_close(done.gradients[f"gender.{name}"], value, rtol=0, atol=1e-10)


def test_binary_trigger_gates_the_reversed_gradient_alone() -> None:
    always, binary = (step(term_of(gender(), trigger=kind), USERS) for kind in ("always", "binary"))
    right = binary.correct[:, 0] > 0
    assert 0 < int(right.sum()) < int(binary.known.sum())
    assert torch.equal(binary.row_gradient[right], always.row_gradient[right])
    assert not binary.row_gradient[~right].any()
    assert always.row_gradient[~right].any()
    for name, value in always.gradients.items():
        assert torch.equal(binary.gradients[name], value)
    assert torch.equal(binary.weight, always.weight)


def test_continuous_trigger_scales_within_epsilon() -> None:
    always = step(term_of(gender(), trigger="always"), USERS)
    known = (always.known[:, 0] > 0) & (always.row_gradient.abs().sum(1) > 0)
    shares = []
    for scale in (1e-3, 2e-3, 1e6):
        gradient = step(term_of(gender(), trigger="continuous", trigger_scale=scale), USERS).row_gradient
        share = (gradient / always.row_gradient)[known]
        torch.testing.assert_close(share, share[:, :1].expand_as(share))
        shares.append(share[:, 0])
    right = always.correct[known, 0] > 0
    for share in shares:
        assert not share[~right].any()
    assert (shares[0][right] > 0).all()
    torch.testing.assert_close(shares[1], 2 * shares[0])
    torch.testing.assert_close(shares[2][right], torch.ones(int(right.sum()), dtype=torch.float64))


@pytest.mark.parametrize("summed", [True, False])
def test_users_without_a_label_take_no_part(summed: bool) -> None:
    attribute = gender()
    term = term_of(attribute, trigger="always")
    done = step(term, USERS, summed)
    unknown = torch.from_numpy(attribute.labels == MISSING)[USERS]
    assert 0 < int(unknown.sum()) < len(USERS)
    assert torch.equal(done.known[:, 0] > 0, ~unknown)
    assert torch.equal(done.weight, done.known)
    for value in (done.row_gradient, done.loss, done.correct):
        assert not value[unknown].any()
    assert (done.loss[~unknown] > 0).all()
    if not summed:
        for value in done.gradients.values():
            assert not value[unknown].any()
    others = step(term, USERS[~unknown], summed)
    torch.testing.assert_close(others.row_gradient, done.row_gradient[~unknown], rtol=1e-10, atol=1e-13)
    for name, value in done.gradients.items():
        torch.testing.assert_close(others.gradients[name], value if summed else value[~unknown])


@pytest.mark.parametrize("adversary", ["mlp", "dsvae"])
def test_one_copy_a_client_adds_up_to_the_sum(adversary: str) -> None:
    term = term_of(gender(), age(), adversary=adversary)
    together, apart = step(term, USERS, summed=True), step(term, USERS, summed=False)
    torch.testing.assert_close(apart.row_gradient, together.row_gradient)
    for name, shape in term.shapes.items():
        assert apart.gradients[name].shape == (len(USERS), *shape)
        torch.testing.assert_close(apart.gradients[name].sum(0), together.gradients[name])


@pytest.mark.parametrize("trigger", ["always", "binary", "continuous"])
def test_rows_feel_the_sum_over_attributes(trigger: str) -> None:
    # the same index in the list, since it is part of the key of an attribute's draws
    both = term_of(gender(), age(), trigger=trigger, head="none", adversary="mlp")
    one, other = (term_of(a, trigger=trigger, head="none", adversary="mlp") for a in (gender(), age()))
    parameters = both.initial(SEED)
    done = both.step(rows_of(USERS), parameters, USERS, 4, 1, summed=True)
    parts = []
    for term in (one, other):
        own = {name: value for name, value in parameters.items() if name in term.shapes}
        parts.append(term.step(rows_of(USERS), own, USERS, 4, 1, summed=True))
    torch.testing.assert_close(done.row_gradient, parts[0].row_gradient + parts[1].row_gradient)
    assert both.groups == ("gender", "age")
    assert both.shapes == {**one.shapes, **other.shapes}
    for field in ("loss", "correct", "known", "weight"):
        expected = torch.cat([getattr(part, field) for part in parts], dim=1)
        torch.testing.assert_close(getattr(done, field), expected)
    for part in parts:
        for name, value in part.gradients.items():
            torch.testing.assert_close(done.gradients[name], value)


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("trigger", ["always", "binary"])
def test_silent_clients_send_nothing_while_misjudged(summed: bool, trigger: str) -> None:
    loud = step(term_of(gender(), age(), trigger=trigger), USERS, summed=False)
    silent = step(term_of(gender(), age(), trigger=trigger, silent_when_wrong=True), USERS, summed)
    torch.testing.assert_close(silent.row_gradient, loud.row_gradient, rtol=1e-10, atol=1e-13)
    assert torch.equal(silent.weight, loud.correct)
    assert (silent.weight < loud.weight).any()
    for index, group in enumerate(("gender", "age")):
        for name, value in loud.gradients.items():
            if name.startswith(f"{group}."):
                expected = value * loud.correct[:, index].view(-1, *(1 for _ in value.shape[1:]))
                torch.testing.assert_close(silent.gradients[name], expected.sum(0) if summed else expected)


@pytest.mark.parametrize("summed", [True, False])
def test_a_client_is_treated_the_same_in_any_company(summed: bool) -> None:
    term = term_of(gender(), age())
    done = step(term, USERS, summed)
    total = {name: torch.zeros_like(value) for name, value in term.initial(SEED).items()}
    for c in range(len(USERS)):
        alone = step(term, USERS[c : c + 1], summed)
        for field in ("row_gradient", "loss", "correct", "known", "weight"):
            torch.testing.assert_close(getattr(alone, field)[0], getattr(done, field)[c], rtol=1e-12, atol=1e-13)
        for name, value in alone.gradients.items():
            total[name] += value if summed else value[0]
    for name, value in done.gradients.items():
        torch.testing.assert_close(value if summed else value.sum(0), total[name])


def test_draws_change_with_round_epoch_and_attribute() -> None:
    # two attributes that are the same but for their place in the list
    labels = gender().labels
    term = term_of(Attribute("a", ("F", "M"), labels), Attribute("b", ("F", "M"), labels))
    parameters = term.initial(SEED)
    for name in list(parameters):
        if name.startswith("b."):
            parameters[name] = parameters["a." + name[2:]]

    def losses(round_number: int, epoch: int) -> Tensor:
        return term.step(rows_of(USERS), parameters, USERS, round_number, epoch, summed=True).loss

    first = losses(0, 0)
    assert torch.equal(first, losses(0, 0))
    assert not torch.isclose(first[:, 0], first[:, 1])[first[:, 0] > 0].any()
    assert not torch.isclose(first, losses(1, 0))[first > 0].any()
    assert not torch.isclose(first, losses(0, 1))[first > 0].any()


def test_balanced_classes_weigh_the_same() -> None:
    weights = balanced_class_weights(np.array([30, 10, 0, 60]))
    np.testing.assert_allclose(weights * [30, 10, 0, 60], [100 / 3, 100 / 3, 0, 100 / 3])


def test_class_weighting_none_counts_every_client_once() -> None:
    attribute = gender(missing=0)
    plain = step(term_of(attribute, class_weighting="none", trigger="always"), USERS)
    balanced = step(term_of(attribute, trigger="always"), USERS)
    counts = np.bincount(attribute.labels)
    weight = torch.from_numpy(N_USERS / (2 * counts))[torch.from_numpy(attribute.labels)[USERS]]
    torch.testing.assert_close(balanced.row_gradient, plain.row_gradient * weight.unsqueeze(1))
    torch.testing.assert_close(balanced.loss, plain.loss)  # reported as it is, so that ln K stays its yardstick


def test_strength_zero_trains_the_adversary_and_leaves_rows_alone() -> None:
    done = step(term_of(gender(), epsilon=0.0, trigger="always"), USERS)
    assert not done.row_gradient.any()
    assert any(value.any() for value in done.gradients.values())


def test_single_precision_stays_single() -> None:
    term = term_of(gender(), age(), dtype=torch.float32)
    parameters = {name: value.float() for name, value in term.initial(SEED).items()}
    done = term.step(rows_of(USERS).float(), parameters, USERS, 0, 0, summed=True)
    for value in (done.row_gradient, done.loss, done.correct, done.known, done.weight, *done.gradients.values()):
        assert value.dtype == torch.float32


def test_the_term_fits_its_protocol() -> None:
    term: UserTerm = term_of(gender(), client_learning_rate=0.3, server_learning_rate=0.02, secure_sums=False)
    assert (term.client_learning_rate, term.server_learning_rate, term.secure) == (0.3, 0.02, False)
    assert {name: tuple(v.shape) for name, v in term.initial(1).items()} == term.shapes


def test_the_adversary_reads_a_planted_attribute_and_reversal_hides_it() -> None:
    """The game itself: rows that tell the class are read at once; with reversal they end where they tell less."""
    labels = np.tile([0, 1], N_USERS // 2)
    attribute = Attribute("planted", ("a", "b"), labels)
    start = rows_of(torch.arange(N_USERS)) / 4
    start[:, 0] += torch.from_numpy(2.0 * labels - 1.0)
    users = torch.arange(N_USERS)
    distance = {}
    for epsilon in (0.0, 0.5):
        term = term_of(attribute, epsilon=epsilon, method="grl_sut", hidden_size=8)
        parameters, rows = term.initial(SEED), start.clone()
        accuracies = []
        for round_number in range(300):
            done = term.step(rows, parameters, users, round_number, 0, summed=True)
            rows = rows - 0.1 * done.row_gradient
            for name, value in done.gradients.items():
                parameters[name] = parameters[name] - 0.3 * value / N_USERS
            accuracies.append(float(done.correct.mean()))
        means = torch.stack([rows[labels == y].mean(0) for y in (0, 1)])
        distance[epsilon] = float((means[0] - means[1]).norm())
        if epsilon == 0:
            assert np.mean(accuracies[-50:]) > 0.95
    assert distance[0.5] < 0.5 * distance[0.0]


def test_one_class_is_refused() -> None:
    attribute = Attribute("gender", ("F", "M"), np.array([1, 1, MISSING]))
    with pytest.raises(ConfigError, match=r"gender needs users of at least 2 classes.*those of M"):
        term_of(attribute)


def test_no_known_label_is_refused() -> None:
    with pytest.raises(ConfigError, match="none"):
        term_of(Attribute("gender", ("F", "M"), np.full(3, MISSING)))


def test_a_name_with_a_dot_is_refused() -> None:
    with pytest.raises(ConfigError, match="dot"):
        term_of(Attribute("user.gender", ("F", "M"), np.array([0, 1])))


def test_no_attribute_is_refused() -> None:
    config = UnlearnConfig()
    with pytest.raises(ConfigError, match="at least one"):
        AdversarialTerm.of(config, [], WIDTH, SEED, torch.device("cpu"), torch.float32)
