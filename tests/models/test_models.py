"""Each model against its formula, written out once more with loops and `torch.nn` layers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from fedrec_unlearn.config import FederationConfig, ModelConfig
from fedrec_unlearn.errors import ModelError
from fedrec_unlearn.models import Objective, Recommender, make_model, make_objective

USERS, ITEMS, DIM, HIDDEN, FIELDS = 7, 11, 4, (6, 5, 3), (2, 3)
KINDS = ["mf", "ncf", "fm", "deepfm", "pfedrec", "fm+features", "deepfm+features"]


def build(kind: str) -> Recommender:
    name, _, features = kind.partition("+")
    config = ModelConfig(name=name, embedding_dim=DIM, hidden_sizes=HIDDEN)  # type: ignore[arg-type]
    return make_model(config, USERS, ITEMS, FIELDS if features else ())


def draws(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tables(model: Recommender) -> tuple[Tensor, Tensor, dict[str, Tensor], Tensor | None]:
    """Private rows, item rows, dense parameters and item features, all different from their initial values."""
    dense = {name: draws(*shape, seed=10 + k) for k, (name, shape) in enumerate(model.dense_shapes.items())}
    features = None
    if model.feature_fields:
        features = (draws(ITEMS, sum(model.feature_fields), seed=3) > 0).double() * 0.5
    return draws(USERS, model.user_layout.width, seed=1), draws(ITEMS, model.item_layout.width, seed=2), dense, features


def layer(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
    made.weight.data = weight
    if bias is not None:
        made.bias.data = bias
    return made


def mlp(dense: Mapping[str, Tensor]) -> nn.Sequential:
    """The hidden layers on one concatenated input."""
    first = torch.cat([dense["mlp_user_weight"], dense["mlp_item_weight"]], dim=1)
    layers: list[nn.Module] = [layer(first, dense["mlp_0_bias"]), nn.ReLU()]
    for k in range(1, len(HIDDEN)):
        layers += [layer(dense[f"mlp_{k}_weight"], dense[f"mlp_{k}_bias"]), nn.ReLU()]
    return nn.Sequential(*layers)


def factorisation_machine(user: Tensor, item: Tensor, dense: Mapping[str, Tensor], x: Tensor | None) -> Tensor:
    """Rendle 2010, eq. 1, term by term."""
    values, weights, vectors = [1.0, 1.0], [user[DIM], item[DIM]], [user[:DIM], item[:DIM]]
    if x is not None:
        values += x.tolist()
        weights += list(dense["feature_linear"])
        vectors += list(dense["feature_embedding"])
    total = dense["bias"][0].clone()
    for value, weight in zip(values, weights, strict=True):
        total += value * weight
    for a in range(len(values)):
        for b in range(a + 1, len(values)):
            total += sum(vectors[a][f] * vectors[b][f] for f in range(DIM)) * values[a] * values[b]
    return total


def by_formula(kind: str, user: Tensor, item: Tensor, dense: Mapping[str, Tensor], x: Tensor | None) -> Tensor:
    """Score of one user and one item."""
    name = kind.partition("+")[0]
    if name == "mf":
        return torch.stack([a * b for a, b in zip(user, item, strict=True)]).sum()
    if name == "fm":
        return factorisation_machine(user, item, dense, x)
    if name == "pfedrec":
        return layer(user[:DIM].unsqueeze(0), user[DIM:])(item)[0]  # type: ignore[no-any-return]
    if name == "ncf":
        hidden = mlp(dense)(torch.cat([user[DIM:], item[DIM:]]))
        weight = torch.cat([dense["output_gmf_weight"], dense["output_mlp_weight"]]).unsqueeze(0)
        scored: Tensor = layer(weight, dense["output_bias"])(torch.cat([user[:DIM] * item[:DIM], hidden]))[0]
        return scored
    fields = [user[:DIM], item[:DIM]]
    start = 0
    for size in FIELDS if x is not None else ():
        assert x is not None
        chosen = range(start, start + size)
        fields.append(torch.stack([x[k] * dense["feature_embedding"][k] for k in chosen]).sum(0))
        start += size
    deep: Tensor = layer(dense["output_weight"].unsqueeze(0))(mlp(dense)(torch.cat(fields)))[0]
    return factorisation_machine(user, item, dense, x) + deep


@pytest.mark.parametrize("kind", KINDS)
def test_score_is_the_formula_for_every_pair(kind: str) -> None:
    model = build(kind)
    users, items, dense, features = tables(model)
    for u in range(USERS):
        found = model.score(users[u], items, dense, features)
        assert found.shape == (ITEMS,)
        for i in range(ITEMS):
            expected = by_formula(kind, users[u], items[i], dense, None if features is None else features[i])
            torch.testing.assert_close(found[i], expected.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_scored_together_have_the_scores_they_have_alone(kind: str) -> None:
    model = build(kind)
    users, items, dense, features = tables(model)
    alone = torch.stack([model.score(row, items, dense, features) for row in users])
    copies = items.expand(USERS, *items.shape)
    block_features = None if features is None else features.expand(USERS, *features.shape)
    torch.testing.assert_close(model.score(users, copies, dense, block_features), alone)
    own = {name: value.expand(USERS, *value.shape) for name, value in dense.items()}
    torch.testing.assert_close(model.score(users, copies, own, block_features), alone)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_with_their_own_dense_parameters_and_rows_are_scored_with_these(kind: str) -> None:
    model = build(kind)
    users, items, dense, features = tables(model)
    copies = items + 0.1 * draws(USERS, *items.shape, seed=20)
    own = {name: value + 0.1 * draws(USERS, *value.shape, seed=21) for name, value in dense.items()}
    block_features = None if features is None else features.expand(USERS, *features.shape)
    together = model.score(users, copies, own, block_features)
    for u in range(USERS):
        mine = {name: value[u] for name, value in own.items()}
        torch.testing.assert_close(together[u], model.score(users[u], copies[u], mine, features))


@pytest.mark.parametrize("kind", KINDS)
def test_towers_computed_once_give_the_scores_of_the_whole_catalogue(kind: str) -> None:
    model = build(kind)
    users, items, dense, features = tables(model)
    user_tower = model.user_tower(model.user_layout.parts(users), dense)
    item_tower = model.item_tower(model.item_layout.parts(items), dense, features)
    alone = torch.stack([model.score(row, items, dense, features) for row in users])
    torch.testing.assert_close(model.interact_all(user_tower, item_tower, dense), alone)


@pytest.mark.parametrize("kind", ["mf", "fm"])
def test_a_score_declared_bilinear_is_an_inner_product_with_the_item_row(kind: str) -> None:
    model = build(kind)
    users, items, dense, _ = tables(model)
    form = model.bilinear
    assert form is not None
    width = model.item_layout.width - form.constant_columns
    left = torch.cat([users[:, :width], torch.ones(USERS, form.constant_columns, dtype=torch.float64)], dim=1)
    offset = users[:, width] + dense["bias"] if form.has_offset else torch.zeros(USERS, dtype=torch.float64)
    expected = left @ items.T + offset.unsqueeze(1)
    found = torch.stack([model.score(row, items, dense) for row in users])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["ncf", "deepfm", "pfedrec", "fm+features", "deepfm+features"])
def test_a_score_without_the_bilinear_way_does_not_claim_to_have_it(kind: str) -> None:
    assert build(kind).bilinear is None


@pytest.mark.parametrize(
    ("kind", "private", "rows", "dense"),
    [
        ("mf", {"user_embedding": 4}, {"item_embedding": 4}, {}),
        ("pfedrec", {"score_weight": 4, "score_bias": 1}, {"item_embedding": 4}, {}),
        ("fm", {"user_embedding": 4, "user_linear": 1}, {"item_embedding": 4, "item_linear": 1}, {"bias": (1,)}),
        (
            "fm+features",
            {"user_embedding": 4, "user_linear": 1},
            {"item_embedding": 4, "item_linear": 1},
            {"bias": (1,), "feature_embedding": (5, 4), "feature_linear": (5,)},
        ),
        (
            "ncf",
            {"user_gmf": 4, "user_mlp": 4},
            {"item_gmf": 4, "item_mlp": 4},
            {
                "mlp_user_weight": (6, 4), "mlp_item_weight": (6, 4), "mlp_0_bias": (6,), "mlp_1_weight": (5, 6),
                "mlp_1_bias": (5,), "mlp_2_weight": (3, 5), "mlp_2_bias": (3,), "output_gmf_weight": (4,),
                "output_mlp_weight": (3,), "output_bias": (1,),
            },
        ),
        (
            "deepfm+features",
            {"user_embedding": 4, "user_linear": 1},
            {"item_embedding": 4, "item_linear": 1},
            {
                "bias": (1,), "feature_embedding": (5, 4), "feature_linear": (5,), "mlp_user_weight": (6, 4),
                "mlp_item_weight": (6, 12), "mlp_0_bias": (6,), "mlp_1_weight": (5, 6), "mlp_1_bias": (5,),
                "mlp_2_weight": (3, 5), "mlp_2_bias": (3,), "output_weight": (3,),
            },
        ),
    ],
)  # fmt: skip
def test_a_model_declares_what_is_private_what_is_a_row_and_what_is_shared(
    kind: str, private: dict[str, int], rows: dict[str, int], dense: dict[str, tuple[int, ...]]
) -> None:
    model = build(kind)
    assert model.user_layout.shapes(USERS) == {name: [USERS, width] for name, width in private.items()}
    assert model.item_layout.shapes(ITEMS) == {name: [ITEMS, width] for name, width in rows.items()}
    assert model.dense_shapes == dense


@pytest.mark.parametrize("kind", KINDS)
def test_initial_rows_depend_on_seed_and_user_alone(kind: str) -> None:
    model = build(kind)
    larger = make_model(
        ModelConfig(name=model.name, embedding_dim=DIM, hidden_sizes=HIDDEN),  # type: ignore[arg-type]
        USERS + 50, ITEMS + 5, model.feature_fields,
    )  # fmt: skip
    assert torch.equal(model.initial_user_rows(4, 0.1), larger.initial_user_rows(4, 0.1)[:USERS])
    assert torch.equal(model.initial_item_rows(4, 0.1), larger.initial_item_rows(4, 0.1)[:ITEMS])
    assert not torch.equal(model.initial_user_rows(4, 0.1), model.initial_user_rows(5, 0.1))
    assert model.initial_user_rows(4, 0.1).dtype == torch.float64


def test_users_and_items_start_from_different_draws_of_the_spread_asked_for() -> None:
    model = make_model(ModelConfig(name="fm", embedding_dim=32), 2000, 2000)
    users, items = model.initial_user_rows(1, 0.05), model.initial_item_rows(1, 0.05)
    assert not torch.equal(users, items)
    for rows, linear in ((users, "user_linear"), (items, "item_linear")):
        layout = model.user_layout if linear == "user_linear" else model.item_layout
        assert not layout.part(rows, linear).any()
        embedding = rows[:, :32]
        # 64,000 draws: four standard errors
        assert float(embedding.std()) == pytest.approx(0.05, rel=4 / (2 * 64_000) ** 0.5)
        assert abs(float(embedding.mean())) < 4 * 0.05 / 64_000**0.5
        assert len(torch.unique(rows[:, 0])) == 2000


def test_personalised_clients_all_start_from_one_score_function_drawn_from_the_seed() -> None:
    model = make_model(ModelConfig(name="pfedrec", embedding_dim=500), USERS, ITEMS)
    rows = model.initial_user_rows(1, 0.05)
    assert rows.shape == (USERS, 501)
    assert torch.equal(rows, rows[:1].expand_as(rows))
    assert not torch.equal(rows, model.initial_user_rows(2, 0.05))
    assert rows[0].all()  # the bias too
    # 501 draws: four standard errors
    assert float(rows[0].std()) == pytest.approx(0.05, rel=4 / (2 * 501) ** 0.5)
    # clients must be able to part: no two may share a row's storage
    rows[0] += 1.0
    assert not torch.equal(rows[0], rows[1])


def test_an_attacker_on_a_personalised_model_sees_the_personal_layer() -> None:
    model = build("pfedrec")
    rows = draws(USERS, 5, seed=1)
    parts = model.user_layout.parts(rows)
    expected = torch.cat([parts["score_weight"], parts["score_bias"]], dim=1)
    assert torch.equal(model.user_representation(rows), expected)


def test_weights_start_glorot_uniform_with_the_fans_of_the_whole_layer() -> None:
    wide = ModelConfig(name="ncf", embedding_dim=60, hidden_sizes=(50, 40))
    model = make_model(wide, USERS, ITEMS)
    dense = model.initial_dense(9, 0.05)
    # the split first layer is one layer of 120 inputs and 50 outputs; the output layer has 60 + 40 inputs
    for names, fans in (
        (("mlp_user_weight", "mlp_item_weight"), 120 + 50),
        (("mlp_1_weight",), 50 + 40),
        (("output_gmf_weight", "output_mlp_weight"), 100 + 1),
    ):
        values = torch.cat([dense[name].flatten() for name in names])
        bound = (6.0 / fans) ** 0.5
        assert float(values.abs().max()) <= bound
        assert float(values.abs().max()) > 0.95 * bound
        # the variance of a uniform law is a third of its squared bound
        assert float(values.var()) == pytest.approx(bound**2 / 3, rel=5 * (0.8 / len(values)) ** 0.5)
    for name in ("mlp_0_bias", "mlp_1_bias", "output_bias"):
        assert not dense[name].any()


@pytest.mark.parametrize("kind", KINDS)
def test_initial_dense_parameters_have_the_declared_shapes(kind: str) -> None:
    model = build(kind)
    dense = model.initial_dense(1, 0.05)
    assert {name: tuple(value.shape) for name, value in dense.items()} == model.dense_shapes
    assert all(value.dtype == torch.float64 for value in dense.values())


def test_item_features_need_a_model_with_feature_fields() -> None:
    with pytest.raises(ModelError, match=r"data.item_features: model 'mf' .* use model.name fm or deepfm"):
        make_model(ModelConfig(name="mf"), USERS, ITEMS, FIELDS)


@pytest.mark.parametrize(("users", "items"), [(0, 5), (3, 1)])
def test_a_model_of_nobody_or_of_one_item_is_refused(users: int, items: int) -> None:
    with pytest.raises(ModelError, match="at least 1 user and 2 items"):
        make_model(ModelConfig(), users, items)


def test_a_part_of_a_row_is_found_by_name_and_a_wrong_name_lists_the_known() -> None:
    model = build("fm")
    rows = draws(USERS, 5, seed=1)
    assert torch.equal(model.user_layout.part(rows, "user_linear"), rows[:, 4:])
    assert torch.equal(model.user_layout.parts(rows)["user_embedding"], rows[:, :4])
    with pytest.raises(ModelError, match="it has user_embedding, user_linear"):
        model.user_layout.part(rows, "user_embeding")


def test_an_attacker_sees_the_private_row() -> None:
    model = build("fm")
    rows = draws(USERS, 5, seed=1)
    assert torch.equal(model.user_representation(rows), rows)


SCORES = torch.tensor([-700.0, -30.0, -2.5, -0.1, 0.0, 0.3, 4.0, 28.0, 650.0], dtype=torch.float64)


def objective(name: str) -> Objective:
    return make_objective(FederationConfig(objective=name))  # type: ignore[arg-type]


def test_bpr_is_the_log_likelihood_of_the_order_and_its_slope_the_derivative() -> None:
    bpr = objective("bpr")
    assert (bpr.pairwise, bpr.needs_negatives, bpr.needs_ratings) == (True, True, False)
    positive = SCORES.clone().requires_grad_()
    negative = SCORES.flip(0)[[2, 0, 1, 3, 5, 4, 8, 6, 7]].clone().requires_grad_()
    value, slope = bpr.pair(positive.detach(), negative.detach())
    expected = -torch.nn.functional.logsigmoid(positive - negative)
    torch.testing.assert_close(value, expected.detach())
    by_autograd = torch.autograd.grad(expected.sum(), [positive, negative])
    torch.testing.assert_close(slope, by_autograd[0])
    torch.testing.assert_close(-slope, by_autograd[1])


def test_bce_is_binary_cross_entropy_with_logits_and_its_slope_the_derivative() -> None:
    bce = objective("bce")
    assert (bce.pairwise, bce.needs_negatives, bce.needs_ratings) == (False, True, False)
    for label in (True, False):
        scores = SCORES.clone().requires_grad_()
        target = torch.full_like(SCORES, float(label))
        expected = torch.nn.functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
        value, slope = bce.point(SCORES, None, label)
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(slope, torch.autograd.grad(expected.sum(), scores)[0])


def test_mse_is_the_squared_error_and_its_slope_the_derivative() -> None:
    mse = objective("mse")
    assert (mse.pairwise, mse.needs_negatives, mse.needs_ratings) == (False, False, True)
    scores = SCORES.clone().requires_grad_()
    target = torch.linspace(-2, 2, len(SCORES), dtype=torch.float64)
    expected = torch.nn.functional.mse_loss(scores, target, reduction="none")
    value, slope = mse.point(SCORES, target, True)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(expected.sum(), scores)[0])


def test_a_clients_loss_is_the_mean_of_its_terms() -> None:
    positive, negative = draws(3, seed=1), draws(2, seed=2)
    partner = torch.tensor([[0, 1, 0], [1, 1, 0]])
    bpr = objective("bpr")
    pairs = [bpr.pair(positive[j], negative[partner[r, j]])[0] for r in range(2) for j in range(3)]
    torch.testing.assert_close(bpr.client_loss(positive, negative, None, partner), torch.stack(pairs).mean())
    bce = objective("bce")
    terms = [bce.point(s, None, True)[0] for s in positive] + [bce.point(s, None, False)[0] for s in negative]
    torch.testing.assert_close(bce.client_loss(positive, negative, None, partner), torch.stack(terms).mean())
    ratings = draws(3, seed=3)
    mse = objective("mse")
    expected = sum((positive[k] - ratings[k]) ** 2 for k in range(3)) / 3
    torch.testing.assert_close(mse.client_loss(positive, negative[:0], ratings, partner[:0]), expected)


@pytest.mark.parametrize("name", ["bpr", "bce", "mse"])
def test_an_objective_says_which_form_it_lacks(name: str) -> None:
    lacking = objective(name)
    form = "point" if lacking.pairwise else "pair"
    given = (SCORES, None, True) if lacking.pairwise else (SCORES, SCORES)
    with pytest.raises(NotImplementedError, match=f"{name} is not"):
        getattr(lacking, form)(*given)
