"""Adversaries: closed-form gradients against autograd, divergences against torch.distributions, Eq. 7 of FedAU²."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models.adversary import SMALLEST_DEVIATION, Adversary

KINDS = [("mlp", "weight"), ("vae", "weight"), ("dsvae", "weight"), ("dsvae", "logit"), ("dsvae", "none")]
C, WIDTH, CLASSES = 6, 7, 3


def adversary(kind: str, head: str, n_classes: int = CLASSES) -> Adversary:
    return Adversary(kind, WIDTH, n_classes, 5, 4, head, beta_latent=0.3, beta_weight=0.2)  # type: ignore[arg-type]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parameters_of(model: Adversary, copies: bool) -> dict[str, Tensor]:
    return {
        name: randn(*((C, *shape) if copies else shape), seed=10 + i)
        for i, (name, shape) in enumerate(model.shapes.items())
    }


def block(model: Adversary, soft: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, targets, draws and weights; one client has weight 0."""
    target = torch.tensor([0, 2, 1, 1, 0, 2]) % model.n_classes
    weight = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.25, 0.75], dtype=torch.float64)
    labels = randn(C, model.n_classes, seed=2).softmax(1) if soft else target
    return randn(C, WIDTH, seed=1), labels, randn(C, model.n_draws, seed=3), weight


@pytest.mark.parametrize(("kind", "head"), KINDS)
@pytest.mark.parametrize("soft", [False, True])
def test_summed_gradients_are_those_of_autograd(kind: str, head: str, soft: bool) -> None:
    model = adversary(kind, head)
    x, target, draws, weight = block(model, soft)
    parameters = parameters_of(model, copies=False)
    into, gradients, _, _ = model.gradients(parameters, x, target, draws, weight, summed=True)
    leaves = {name: value.requires_grad_() for name, value in {**parameters, "x": x}.items()}
    total = (weight * model.loss(parameters, x, target, draws)).sum()
    expected = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    assert gradients.keys() == model.shapes.keys()
    for name, value in {**gradients, "x": into}.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-10, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize(("kind", "head"), KINDS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("copies", [False, True])
def test_gradients_of_each_client_are_those_of_autograd(kind: str, head: str, soft: bool, copies: bool) -> None:
    model = adversary(kind, head)
    x, target, draws, weight = block(model, soft)
    parameters = parameters_of(model, copies)
    into, gradients, _, _ = model.gradients(parameters, x, target, draws, weight, summed=False)
    for c in range(C):
        own = {name: (value[c] if copies else value).clone().requires_grad_() for name, value in parameters.items()}
        row = x[c : c + 1].clone().requires_grad_()
        loss = weight[c] * model.loss(own, row, target[c : c + 1], draws[c : c + 1]).sum()
        expected = torch.autograd.grad(loss, [row, *own.values()])
        torch.testing.assert_close(into[c : c + 1], expected[0], rtol=0, atol=1e-10)
        for name, value in zip(own, expected[1:], strict=True):
            torch.testing.assert_close(gradients[name][c], value, rtol=0, atol=1e-10, msg=lambda t, name=name: name + t)


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_gradients_report_cross_entropy_and_who_is_read_rightly(kind: str, head: str) -> None:
    model = adversary(kind, head)
    x, target, draws, weight = block(model, soft=False)
    parameters = parameters_of(model, copies=False)
    logits = model.forward(parameters, x, draws).logits
    target = torch.cat([logits.argmax(1)[:3], logits.argmin(1)[3:]])
    _, _, entropy, correct = model.gradients(parameters, x, target, draws, weight, summed=True)
    torch.testing.assert_close(entropy, functional.cross_entropy(logits, target, reduction="none"))
    assert correct.dtype == x.dtype
    assert correct.tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_a_copy_a_client_gives_the_shared_parameters_results(kind: str, head: str) -> None:
    model = adversary(kind, head)
    x, target, draws, _ = block(model, soft=False)
    shared = parameters_of(model, copies=False)
    copies = {name: value.expand(C, *value.shape).clone() for name, value in shared.items()}
    torch.testing.assert_close(model.loss(copies, x, target, draws), model.loss(shared, x, target, draws))
    torch.testing.assert_close(model.forward(copies, x, draws).logits, model.forward(shared, x, draws).logits)
    for a, b in zip(model.margin(copies, x, target, draws), model.margin(shared, x, target, draws), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("kind", "head"), KINDS)
@pytest.mark.parametrize(("copies", "summed"), [(False, True), (False, False), (True, False)])
def test_a_descent_is_the_gradients_in_one_vector(kind: str, head: str, copies: bool, summed: bool) -> None:
    model = adversary(kind, head)
    x, target, draws, weight = block(model, soft=False)
    one_hot = functional.one_hot(target, CLASSES).double()
    one_hot[2] = 0.0  # of weight 0: a client without a class
    parameters = parameters_of(model, copies)
    into, gradients, entropy, correct = model.gradients(parameters, x, target, draws, weight, summed)
    flat = torch.cat([value.flatten(1 if copies else 0) for value in parameters.values()], -1)
    found = model.descent(model.layers(flat), x, one_hot, draws, weight.unsqueeze(1), summed)
    torch.testing.assert_close(found.into, into)
    expected = torch.cat([gradients[name].flatten(0 if summed else 1) for name in model.shapes], -1)
    torch.testing.assert_close(found.gradient, expected)
    takes_part = weight > 0
    torch.testing.assert_close(found.entropy[:, 0], entropy * takes_part)
    assert torch.equal(found.correct[:, 0], correct * takes_part)


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_layers_of_a_vector_are_the_parameters_by_name(kind: str, head: str) -> None:
    model = adversary(kind, head)
    for copies in (False, True):
        parameters = parameters_of(model, copies)
        layers = model.layers(torch.cat([value.flatten(int(copies)) for value in parameters.values()], -1))
        assert layers.named().keys() == parameters.keys()
        for name, value in layers.named().items():
            assert torch.equal(value, parameters[name])
        x, _, draws, _ = block(model, soft=False)
        expected = model.forward(parameters, x, draws).logits
        torch.testing.assert_close(model.forward(layers, x, draws).logits, expected)


def test_gradients_of_copies_are_not_summed() -> None:
    model = adversary("mlp", "weight")
    x, target, draws, weight = block(model, soft=False)
    with pytest.raises(ModelError, match="cannot be summed"):
        model.gradients(parameters_of(model, copies=True), x, target, draws, weight, summed=True)


def test_dsvae_draws_latent_and_weights_as_designed() -> None:
    model = adversary("dsvae", "weight")
    x, _, draws, _ = block(model, soft=False)
    p = parameters_of(model, copies=False)
    out = model.forward(p, x, draws)
    for c in range(C):
        hidden = (p["encoder_weight"] @ x[c] + p["encoder_bias"]).clamp(min=0)
        sigma = torch.log1p(torch.exp(p["deviation_weight"] @ hidden + p["deviation_bias"]))
        z = p["mean_weight"] @ hidden + p["mean_bias"] + sigma * draws[c, :4]
        weight = p["last_weight"] + torch.log1p(torch.exp(p["last_deviation"])) * draws[c, 4:].view(CLASSES, 4)
        torch.testing.assert_close(out.logits[c], weight @ z, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out.latent[c], z, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out.last_weight[c], weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_divergence_is_that_from_a_standard_normal(kind: str, head: str) -> None:
    model = adversary(kind, head)
    x, _, draws, _ = block(model, soft=False)
    p = parameters_of(model, copies=False)
    standard = Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    expected = torch.zeros(C, dtype=torch.float64)
    if kind != "mlp":
        hidden = functional.linear(x, p["encoder_weight"], p["encoder_bias"]).relu()
        mean = functional.linear(hidden, p["mean_weight"], p["mean_bias"])
        deviation = functional.softplus(functional.linear(hidden, p["deviation_weight"], p["deviation_bias"]))
        expected += 0.3 * kl_divergence(Normal(mean, deviation + SMALLEST_DEVIATION), standard).sum(1)
    if "last_deviation" in p:
        centre = p["last_weight"] if head == "weight" else torch.zeros_like(p["last_deviation"])
        blur = functional.softplus(p["last_deviation"])
        expected += 0.2 * kl_divergence(Normal(centre, blur), standard).sum()
    torch.testing.assert_close(model.forward(p, x, draws).divergence, expected, rtol=1e-10, atol=1e-10)


def test_extreme_rows_keep_everything_finite() -> None:
    model = Adversary("dsvae", WIDTH, 2)
    parameters = {name: value.float() for name, value in model.initial(1).items()}
    x = torch.full((2, WIDTH), 1e4)
    x[1] *= -1
    draws, weight = torch.randn((2, model.n_draws), generator=torch.Generator().manual_seed(0)), torch.ones(2)
    into, gradients, entropy, _ = model.gradients(parameters, x, torch.tensor([0, 1]), draws, weight, summed=True)
    for value in (into, entropy, *gradients.values(), model.forward(parameters, x, draws).divergence):
        assert torch.isfinite(value).all()


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_margin_is_the_lead_and_its_slope(kind: str, head: str) -> None:
    model = adversary(kind, head)
    x, target, draws, _ = block(model, soft=False)
    p = parameters_of(model, copies=False)
    lead, slope = model.margin(p, x, target, draws)
    x.requires_grad_()
    logits = model.forward(p, x, draws).logits
    rival = torch.stack(
        [row[[k for k in range(CLASSES) if k != y]].max() for row, y in zip(logits, target, strict=True)]
    )
    expected = logits.gather(1, target.unsqueeze(1)).squeeze(1) - rival
    torch.testing.assert_close(lead, expected)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(slope, gradient.norm(dim=1), rtol=0, atol=1e-10)


def test_initial_parameters_depend_on_the_key_and_draw_little_at_first() -> None:
    model = Adversary("dsvae", 32, 2)
    first, again, other = model.initial(1), model.initial(1), model.initial(2)
    assert {name: tuple(value.shape) for name, value in first.items()} == model.shapes
    for name, value in first.items():
        assert value.dtype == torch.float64
        assert torch.equal(value, again[name])
        if name.endswith("weight"):
            assert not torch.equal(value, other[name])
            bound = math.sqrt(6 / sum(value.shape))
            assert 0.8 * bound < value.abs().max() < bound
    torch.testing.assert_close(functional.softplus(first["last_deviation"]), torch.full((2, 16), 0.1).double())
    assert not torch.equal(first["mean_weight"], first["deviation_weight"])


@pytest.mark.parametrize(
    ("kind", "head", "expected"), [*((k, h, n) for (k, h), n in zip(KINDS, (0, 4, 16, 7, 4), strict=True))]
)
def test_number_of_draws(kind: str, head: str, expected: int) -> None:
    assert adversary(kind, head).n_draws == expected


def test_dsvae_alone_has_no_last_bias() -> None:
    assert [kind for kind, head in KINDS if "last_bias" not in adversary(kind, head).shapes] == ["dsvae"] * 3


@pytest.mark.parametrize("sizes", [{"n_classes": 1}, {"n_classes": 2, "hidden_size": 0}])
def test_sizes_that_make_no_sense_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="at least"):
        Adversary("mlp", 4, **sizes)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ what gradients tell


def matched_label(model: Adversary, p: dict[str, Tensor], x: Tensor, draws: Tensor, observed: Tensor) -> Tensor:
    """Soft label whose last-layer gradient at row x is nearest to the observed one, by a numerical minimiser.

    It is sought among those that add up to 1: only there is softmax cross-entropy's slope ŷ − y.
    """
    free = torch.zeros(CLASSES - 1, dtype=torch.float64, requires_grad=True)
    weight = p["last_weight"].clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [free], max_iter=500, tolerance_grad=1e-14, tolerance_change=1e-18, line_search_fn="strong_wolfe"
    )

    def distance() -> Tensor:
        optimiser.zero_grad()
        label = torch.cat([free, 1 - free.sum().unsqueeze(0)]).unsqueeze(0)
        loss = model.loss({**p, "last_weight": weight}, x, label, draws).sum()
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        value = (gradient - observed).square().sum()
        value.backward(inputs=[free])
        return value

    optimiser.step(distance)  # type: ignore[no-untyped-call]
    return torch.cat([free, 1 - free.sum().unsqueeze(0)]).detach()


@pytest.mark.parametrize("seed", range(4))
def test_equation_7_gives_the_label_gradient_matching_finds(seed: int) -> None:
    model = adversary("dsvae", "none")  # a bias-free last layer, its latent drawn
    p = parameters_of(model, copies=False)
    x, guess = randn(1, WIDTH, seed=20 + seed), randn(1, WIDTH, seed=40 + seed)
    draws, other_draws = randn(1, model.n_draws, seed=60 + seed), randn(1, model.n_draws, seed=80 + seed)
    label = functional.one_hot(torch.tensor(seed % CLASSES), CLASSES).double()
    one = torch.ones(1, dtype=torch.float64)
    observed = model.gradients(p, x, label.unsqueeze(0), draws, one, summed=True)[1]["last_weight"]
    true, dummy = model.forward(p, x, draws), model.forward(p, guess, other_draws)
    z, dummy_z = true.latent[0], dummy.latent[0]
    correction = observed @ dummy_z / dummy_z.square().sum()
    by_equation = dummy.logits[0].softmax(0) - correction
    found = matched_label(model, p, guess, other_draws, observed)
    torch.testing.assert_close(found, by_equation, rtol=0, atol=1e-8)
    # the same, told by how well the latents agree
    ratio = z @ dummy_z / dummy_z.square().sum()
    by_ratio = dummy.logits[0].softmax(0) + ratio * (label - true.logits[0].softmax(0))
    torch.testing.assert_close(by_equation, by_ratio, rtol=0, atol=1e-12)
    # with the client's own latent the dummy label is the label
    torch.testing.assert_close(matched_label(model, p, x, draws, observed), label, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", ["mlp", "vae"])
def test_a_last_bias_tells_the_label_by_its_only_negative_entry(kind: str) -> None:
    model = adversary(kind, "weight")
    x, target, draws, _ = block(model, soft=False)
    ones = torch.ones(C, dtype=torch.float64)
    gradients = model.gradients(parameters_of(model, copies=False), x, target, draws, ones, summed=False)[1]
    negative = gradients["last_bias"] < 0
    assert negative.sum(1).tolist() == [1] * C
    assert torch.equal(negative.double().argmax(1), target)


def test_drawing_weights_leaves_the_last_gradient_a_multiple_of_the_latent() -> None:
    """Why drawing alone does not hide a label from one bare gradient: the rows' inner products keep their signs."""
    model = Adversary("dsvae", WIDTH, CLASSES, 5, 4, beta_weight=0.0)
    x, target, draws, _ = block(model, soft=False)
    ones = torch.ones(C, dtype=torch.float64)
    gradient = model.gradients(parameters_of(model, copies=False), x, target, draws, ones, summed=False)[1][
        "last_weight"
    ]
    gram = gradient @ gradient.mT
    for c in range(C):
        negative = gram[c] < 0
        assert int(negative.sum(1).argmax()) == int(target[c])
