import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional

from fedrec_unlearn.attacks.gradient_inversion import (
    ATTACKS,
    DEFENCES,
    Defence,
    Observation,
    Population,
    Target,
    bias_sign,
    exact,
    gram,
    invert_gradients,
    match_gradients,
    matched_label,
    observe,
    response_accuracy,
    row_sum,
    wilson_interval,
)
from fedrec_unlearn.attacks.gradient_inversion.analytic import loss_weight
from fedrec_unlearn.attacks.gradient_inversion.observation import hidden_layer, label_gradient, last_weights
from fedrec_unlearn.errors import AttackError
from fedrec_unlearn.models.adversary import Adversary

WIDTH = 12
KINDS = [("mlp", "none"), ("vae", "none"), ("dsvae", "weight"), ("dsvae", "logit"), ("dsvae", "none")]


def population(n_classes, size=300, seed=0):
    draws = np.random.default_rng(seed)
    labels = draws.permutation(np.arange(size) % n_classes)
    return draws.normal(size=(size, WIDTH)), labels


def seen_by_autograd(kind, head, n_classes, n=60, weights=None, seed=0):
    """Gradients as autograd computes them from the loss, one client at a time, and what the attacker does not know."""
    adversary = Adversary(kind, WIDTH, n_classes, hidden_size=8, latent_size=6, head=head)
    known = {name: 1.5 * tensor for name, tensor in adversary.initial(7).items()}
    rows, labels = population(n_classes, n, seed)
    draws = np.random.default_rng(seed + 1).standard_normal((n, adversary.n_draws))
    x, y, noise = torch.from_numpy(rows), torch.from_numpy(labels), torch.from_numpy(draws)
    weight = torch.ones(n_classes, dtype=torch.float64) if weights is None else torch.tensor(weights).double()
    gradients = {name: [] for name in known}
    for client in range(n):
        own = {name: tensor.clone().requires_grad_() for name, tensor in known.items()}
        one = slice(client, client + 1)
        loss = adversary.loss(own, x[one], y[one], noise[one]).sum() * weight[y[client]]
        for name, gradient in zip(own, torch.autograd.grad(loss, list(own.values())), strict=True):
            gradients[name].append(gradient)
    seen = Observation(adversary, known, {name: torch.stack(parts) for name, parts in gradients.items()}, weight)
    return seen, x, y, noise


def alive(seen, y):
    """Clients whose hidden layer is not all zero; of the others an mlp shows nothing but its bias."""
    kept = seen.gradients["last_weight"].flatten(1).any(dim=1)
    gradients = {name: gradient[kept] for name, gradient in seen.gradients.items()}
    assert int(kept.sum()) > 0.9 * len(y)
    return Observation(seen.adversary, seen.parameters, gradients, seen.class_weights), y[kept]


def share_right(named, truth):
    return float((named == truth).double().mean())


def test_matching_a_bias_free_last_layer_gives_the_label_up_to_the_latents_agreement():
    seen, x, y, noise = seen_by_autograd("dsvae", "weight", 4)
    out = seen.adversary.forward(seen.parameters, x, noise)
    own, truth = out.logits.softmax(1), functional.one_hot(y, 4).double()
    rows = label_gradient(seen, torch.ones(60))
    torch.testing.assert_close(matched_label(rows, out.latent, own), truth)

    draws = np.random.default_rng(3)
    other, predicted = torch.from_numpy(draws.normal(size=(60, 6))), torch.from_numpy(draws.dirichlet(np.ones(4), 60))
    found = matched_label(rows, other, predicted)
    agreement = (out.latent * other).sum(1, keepdim=True) / (other * other).sum(1, keepdim=True)
    torch.testing.assert_close(found, predicted + agreement * (truth - own))
    # the same out of a solver that knows nothing of the closed form: min over y* of ‖(ŷ' − y*) z'ᵀ − ∇W‖
    for client in range(5):
        solved = np.linalg.lstsq(other[client, :, None].numpy(), rows[client].T.numpy(), rcond=None)[0][0]
        np.testing.assert_allclose(found[client], predicted[client].numpy() - solved, atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_a_single_clients_gradient_gives_its_label_away_whatever_is_drawn(kind, head, n_classes):
    seen, y = alive(*seen_by_autograd(kind, head, n_classes)[:3:2])
    assert share_right(exact(seen), y) == 1.0
    if n_classes > 2:
        assert share_right(gram(seen), y) == 1.0
    else:
        assert share_right(gram(seen), y) > 0.7


@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_class_weights_do_not_hide_the_label(kind, head):
    weights = [0.4, 2.5, 1.0]
    seen, y = alive(*seen_by_autograd(kind, head, 3, weights=weights)[:3:2])
    assert share_right(exact(seen), y) == 1.0
    assert share_right(gram(seen), y) == 1.0


def test_the_divergence_of_drawn_weights_tells_a_clients_loss_weight_and_with_it_the_class():
    seen, _, y, _ = seen_by_autograd("dsvae", "weight", 3, weights=[0.4, 2.5, 1.0])
    torch.testing.assert_close(loss_weight(seen), seen.class_weights[y])


def test_everything_a_client_drew_can_be_solved_for():
    seen, x, _, noise = seen_by_autograd("dsvae", "weight", 3)
    out, known = seen.adversary.forward(seen.parameters, x, noise), seen.parameters
    torch.testing.assert_close(
        hidden_layer(seen), functional.linear(x, known["encoder_weight"], known["encoder_bias"]).relu()
    )
    ones = torch.ones(60, dtype=torch.float64)
    torch.testing.assert_close(last_weights(seen, label_gradient(seen, ones), ones), out.last_weight)


def test_a_last_bias_and_non_negative_features_give_the_label_away_to_a_glance():
    seen, y = alive(*seen_by_autograd("mlp", "none", 5)[:3:2])
    assert share_right(bias_sign(seen), y) == share_right(row_sum(seen), y) == 1.0
    with pytest.raises(AttackError, match="without bias"):
        bias_sign(seen_by_autograd("dsvae", "weight", 5)[0])


def test_row_sums_of_a_drawn_latent_are_right_as_often_as_its_sum_is_positive():
    for n_classes in (2, 7):
        seen, x, y, noise = seen_by_autograd("dsvae", "none", n_classes, n=400)
        latent = seen.adversary.forward(seen.parameters, x, noise).latent
        assert torch.equal(row_sum(seen) == y, latent.sum(1) > 0)
        assert abs(share_right(row_sum(seen), y) - 0.5) < 0.1


def test_a_gradient_that_vanished_is_that_of_a_client_already_named_right():
    seen, _, _, _ = seen_by_autograd("dsvae", "none", 2)
    nothing = {name: torch.zeros_like(tensor) for name, tensor in seen.gradients.items()}
    mean = seen.parameters["mean_bias"]
    named = (seen.parameters["last_weight"] @ mean).argmax()
    nothing["mean_bias"] = (seen.adversary.beta_latent * mean).expand(60, -1)
    still = Observation(seen.adversary, seen.parameters, nothing, seen.class_weights)
    assert (exact(still) == named).all()


def test_a_search_that_starts_at_the_clients_own_values_is_at_its_goal():
    seen, x, y, noise = seen_by_autograd("dsvae", "weight", 3)
    start = 100.0 * functional.one_hot(y, 3).double()
    options = {"learn_noise": True, "steps": 1, "learning_rate": 0.1}
    soft, predicted, distance = match_gradients(seen, x[None], start[None], noise[None], **options)
    assert float(distance.max()) < 1e-20
    torch.testing.assert_close(soft, functional.one_hot(y, 3).double())
    torch.testing.assert_close(predicted, seen.adversary.forward(seen.parameters, x, noise).logits.softmax(1))


def test_a_search_for_one_client_does_not_depend_on_the_others_and_keeps_the_best_restart():
    seen, _, _, _ = seen_by_autograd("dsvae", "weight", 3, n=6)
    draws = torch.Generator().manual_seed(0)
    start = [torch.randn(2, 6, k, generator=draws, dtype=torch.float64) for k in (WIDTH, 3, seen.adversary.n_draws)]
    options = {"learn_noise": True, "steps": 25, "learning_rate": 0.1}
    soft, _, distance = match_gradients(seen, *start, **options)
    alone = Observation(
        seen.adversary, seen.parameters, {k: g[4:5] for k, g in seen.gradients.items()}, seen.class_weights
    )
    soft_alone, _, distance_alone = match_gradients(alone, *(tensor[:, 4:5] for tensor in start), **options)
    torch.testing.assert_close(soft_alone[0], soft[4])
    each = [match_gradients(seen, *(tensor[r : r + 1] for tensor in start), **options)[2] for r in range(2)]
    torch.testing.assert_close(distance, torch.minimum(*each))
    assert float(distance_alone[0]) == pytest.approx(float(distance[4]))


def test_dlg_reads_the_plain_adversary_and_its_residual_reads_the_drawn_one_too():
    generator = np.random.default_rng
    seen, _, y, _ = seen_by_autograd("mlp", "none", 3, n=30)
    assert share_right(ATTACKS["dlg"](seen, generator(0)), y) > 0.8
    seen, _, y, _ = seen_by_autograd("dsvae", "weight", 3, n=30)
    assert share_right(ATTACKS["dlg_residual"](seen, generator(0)), y) > 0.7


def test_randomised_response_keeps_a_label_as_often_as_its_epsilon_says_and_flips_evenly():
    labels = torch.arange(5).repeat(8000)
    reported = Defence("rr", flip_epsilon=1.5).reported(labels, 5, np.random.default_rng(0))
    kept = np.exp(1.5) / (np.exp(1.5) + 4)
    assert response_accuracy(1.5, 5) == pytest.approx(kept)
    counts = np.bincount(((reported - labels) % 5).numpy())
    assert stats.chisquare(counts, 40000 * np.array([kept, *[(1 - kept) / 4] * 4])).pvalue > 0.001


def test_soft_labels_spread_a_share_of_the_label_or_sharpen_it():
    target = Defence("soft", smoothing=0.6).target(torch.tensor([1]), 3, torch.float64)
    np.testing.assert_allclose(target, [[0.2, 0.6, 0.2]])
    np.testing.assert_allclose(
        Defence("sharp", smoothing=-0.3).target(torch.tensor([0]), 2, torch.float64), [[1.15, -0.15]]
    )


def test_what_leaves_a_client_is_pruned_clipped_and_noised():
    draws = np.random.default_rng(0)
    raw = {"a": torch.from_numpy(draws.normal(size=(3, 20, 5))), "b": torch.from_numpy(draws.normal(size=(3, 100)))}
    pruned = Defence("p", kept_share=0.1).released(raw, draws)
    for client in range(3):
        mine = torch.cat([raw["a"][client].flatten(), raw["b"][client]])
        left = torch.cat([pruned["a"][client].flatten(), pruned["b"][client]])
        largest = mine.abs().argsort(descending=True)
        assert torch.equal(left[largest[:20]], mine[largest[:20]])
        assert not left[largest[20:]].any()
    raw["b"][1] /= 1e6
    raw["a"][1] /= 1e6
    clipped = Defence("c", clip=2.0).released(raw, draws)
    length = torch.sqrt((clipped["a"] ** 2).sum((1, 2)) + (clipped["b"] ** 2).sum(1))
    torch.testing.assert_close(length[[0, 2]], torch.tensor([2.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(clipped["a"][1], raw["a"][1])
    noisy = Defence("n", clip=2.0, noise=3.0).released(raw, draws)
    added = torch.cat([(noisy[k] - clipped[k]).flatten() for k in "ab"])
    assert float(added.std()) == pytest.approx(6.0, rel=0.1)


@pytest.mark.parametrize(
    "options",
    [{"smoothing": 1.0}, {"kept_share": 0.0}, {"clip": 0.0}, {"noise": -1.0}, {"members": 0}, {"flip_epsilon": -1.0}],
)
def test_a_defence_out_of_range_is_refused(options):
    with pytest.raises(AttackError, match=f"defence 'mine': {next(iter(options))} must"):
        Defence("mine", **options)


def test_secure_aggregation_shows_the_classes_of_a_group_and_not_who_has_which():
    rows, labels = population(4)
    adversary = Adversary("mlp", WIDTH, 4)
    blank = {name: torch.zeros_like(tensor) for name, tensor in adversary.initial(0).items()}
    seen, truth = observe(
        Population.of(rows, labels, 4),
        Target(adversary, blank),
        Defence("sum", members=5),
        200,
        0,
        torch.ones(4).double(),
    )
    # with all logits zero the mean gradient of the last bias is 1/K minus the share of each class in the group
    held = (0.25 - seen.gradients["last_bias"]) * 5
    torch.testing.assert_close(held, held.round(), atol=1e-5, rtol=0)
    torch.testing.assert_close(held.sum(1), torch.full((200,), 5.0, dtype=torch.float64))
    assert (held.gather(1, truth[:, None]) > 0.5).all()
    # a fellow is of the victim's class one time in four: 1 + 4/4 of 5
    assert float(held.gather(1, truth[:, None]).mean()) == pytest.approx(2.0, abs=0.25)


def test_clients_are_drawn_evenly_over_classes_and_nobody_twice_while_there_are_others():
    rows, labels = population(3)
    labels = np.where(np.arange(300) < 20, -1, labels)
    users, classes = Population.of(rows, labels, 3).victims(100, np.random.default_rng(0))
    assert np.bincount(classes).tolist() == [34, 33, 33]
    assert np.array_equal(labels[users], classes)
    assert len(set(users)) == 100
    many, classes = Population.of(rows, labels, 3).victims(600, np.random.default_rng(0))
    assert np.bincount(many, minlength=300)[20:].max() <= 3
    assert np.array_equal(labels[many], classes)


def target(kind="dsvae", n_classes=2, **options):
    adversary = Adversary(kind, WIDTH, n_classes, **options)
    return Target(adversary, adversary.initial(1))


def test_the_table_shows_what_holds_and_what_does_not():
    rows, labels = population(2)
    found = invert_gradients(
        rows, labels, [target("mlp"), target()], attacks=("bias_sign", "exact"), n=200, seeds=(0, 1, 2)
    )
    table = {(r.adversary, r.defence, r.attack): r for r in found}
    assert len(table) == len(found) == len(DEFENCES) * 3
    assert ("dsvae", "none", "bias_sign") not in table
    for adversary, attack in (("mlp", "bias_sign"), ("mlp", "exact"), ("dsvae", "exact")):
        assert table[adversary, "none", attack].accuracy == 1.0
        kept = table[adversary, "label_rr", attack]
        assert kept.low < response_accuracy(1.0, 2) < kept.high
        # whoever knew the classes of all 64 would be right in 0.55 of the cases
        assert table[adversary, "secure_aggregation", attack].low < 0.55
        assert abs(table[adversary, "secure_aggregation", attack].accuracy - 0.5) < 0.1
    result = table["dsvae", "none", "exact"]
    assert (result.n, result.classes, result.chance, result.seeds) == (200, 2, 0.5, (0, 1, 2))
    assert (result.head, result.stage, result.distance_from_chance) == ("weight", "initial", 0.5)


def test_results_can_be_written_as_json():
    rows, labels = population(2)
    [result] = invert_gradients(rows, labels, [target()], defences=DEFENCES[:1], attacks=("gram",), n=10)
    told = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert told["attack"] == "gram"
    assert told["seeds"] == [0]
    assert set(told) == {
        "adversary", "head", "stage", "defence", "attack", "n", "classes", "accuracy", "chance", "low", "high", "seeds",
        "distance_from_chance",
    }  # fmt: skip


def test_a_result_depends_on_its_own_attack_defence_and_target_alone():
    rows, labels = population(3)
    options = {"n": 30, "seeds": (4,)}
    quick = {"gram": ATTACKS["gram"], "dice": lambda seen, draws: torch.from_numpy(draws.integers(0, 3, seen.n))}
    together = invert_gradients(rows, labels, [target("mlp", 3), target("dsvae", 3)], attacks=quick, **options)
    for result in together:
        [alone] = invert_gradients(
            rows,
            labels,
            [target(result.adversary, 3)],
            defences=[d for d in DEFENCES if d.name == result.defence],
            attacks={result.attack: quick[result.attack]},
            **options,
        )
        assert alone == result


def test_naming_one_class_for_all_reaches_exactly_chance():
    rows, labels = population(3)
    calls = []
    [result] = invert_gradients(
        rows,
        labels,
        [target(n_classes=3)],
        defences=DEFENCES[:1],
        attacks={"always": lambda seen, draws: torch.zeros(seen.n, dtype=torch.int64)},
        n=90,
        seeds=(0, 1),
        progress=lambda *told: calls.append(told),
    )
    assert result.accuracy == pytest.approx(1 / 3)
    assert result.distance_from_chance == pytest.approx(0.0)
    assert calls == [(1, 2, "always on dsvae under none"), (2, 2, "always on dsvae under none")]


@pytest.mark.parametrize(("right", "trials"), [(0, 10), (10, 10), (37, 210), (105, 210)])
def test_intervals_are_wilsons(right, trials):
    expected = stats.binomtest(right, trials).proportion_ci(method="wilson")
    assert wilson_interval(right, trials) == pytest.approx((expected.low, expected.high))


def test_what_cannot_be_attacked_is_refused_before_it_is():
    rows, labels = population(2)
    with pytest.raises(AttackError, match="'dgl'; did you mean 'dlg'"):
        invert_gradients(rows, labels, [target()], attacks=("dgl",))
    with pytest.raises(AttackError, match="no user has class 2 of 3"):
        invert_gradients(rows, labels, [target(n_classes=3)])
    with pytest.raises(AttackError, match="rows of width 12, the rows have 11"):
        invert_gradients(rows[:, :11], labels, [target()])
    with pytest.raises(AttackError, match=r"one width, not \[\(2, 12\), \(3, 12\)\]"):
        invert_gradients(rows, labels, [target(), target(n_classes=3)])
    with pytest.raises(AttackError, match="do not fit together"):
        invert_gradients(rows, labels[:5], [target()])
    with pytest.raises(AttackError, match="n is 1"):
        invert_gradients(rows, labels, [target()], n=1)
    with pytest.raises(AttackError, match="seeds must be distinct"):
        invert_gradients(rows, labels, [target()], seeds=(1, 1))
    with pytest.raises(AttackError, match="2 positive numbers"):
        invert_gradients(rows, labels, [target()], class_weights=(1.0, 0.0))
    with pytest.raises(AttackError, match="NaN or infinite"):
        invert_gradients(np.full_like(rows, np.nan), labels, [target()])
