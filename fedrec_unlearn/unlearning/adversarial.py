"""Adversarial unlearning during training: every client adds a classifier of its attribute, its gradient reversed.

The classifier (the adversary, `models.adversary`) is shared and learns from all clients to read the attribute from the
private row. Into the private row its gradient goes with the sign turned and the strength ε_u that the trigger
(`unlearning.trigger`) gives: the row moves to where the adversary fails.

Source: FedAU² (arXiv 2511.22872); Ganin & Lempitsky 2015 for gradient reversal; Ganhör et al. 2022 for its use on
recommenders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec_unlearn.config_unlearn import UnlearnConfig
from fedrec_unlearn.data import Attribute
from fedrec_unlearn.data.types import MISSING
from fedrec_unlearn.errors import ConfigError
from fedrec_unlearn.federation.named_vector import Layout, NamedVector
from fedrec_unlearn.federation.term import TermStep
from fedrec_unlearn.models.adversary import Adversary, Descent, Kind
from fedrec_unlearn.models.adversary_layers import Layers
from fedrec_unlearn.seeds import Purpose, stream_key
from fedrec_unlearn.unlearning.draws import draw_normals
from fedrec_unlearn.unlearning.trigger import binary_trigger, continuous_trigger


def balanced_class_weights(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights n / (K n_y) under which K classes count the same and a user counts 1 on average.

    Args:
        counts: users of each class, shape (classes,). Classes without users are not among the K; their weight is 0.

    Returns:
        float64 (classes,).
    """
    present = counts > 0
    weights = np.zeros(len(counts))
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return weights


class AdversarialTerm:
    """Gradient reversal against one adversary an attribute; a `federation.term.UserTerm`.

    The loss of an adversary is its own (cross-entropy and divergence) times the weight of the client's class. The
    shared parameters follow that loss downhill; the private row gets −ε_u times its gradient, summed over the
    attributes. A client that does not know its class for an attribute takes no part in that attribute's adversary:
    no reversed gradient, a zero update, weight 0.

    Draws belong to (seed, round, local epoch, attribute, user), so neither engine nor block changes them.

    Guarantee: labels stay in this object, which stands for what the clients know of themselves; only sums over clients
    leave it when `secure`. It promises nothing about what an attacker reads from the rows afterwards: that is measured.
    """

    def __init__(
        self,
        config: UnlearnConfig,
        attributes: Sequence[Attribute],
        adversaries: Sequence[Adversary],
        class_counts: Sequence[NDArray[np.int64]],
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.config, self.seed, self.dtype = config, seed, dtype
        self.groups = tuple(attribute.name for attribute in attributes)
        self.secure = config.secure_sums
        self.client_learning_rate = config.client_learning_rate
        self.server_learning_rate = config.server_learning_rate
        self.adversaries = tuple(adversaries)
        self.shapes = {
            f"{group}.{name}": shape
            for group, adversary in zip(self.groups, self.adversaries, strict=True)
            for name, shape in adversary.shapes.items()
        }
        self._layout = Layout.of(self.shapes)
        self._read: tuple[Tensor, list[Layers]] | None = None
        """The last parameters seen and the adversaries' layers in them: those of the server stay where they are."""
        balanced = config.class_weighting == "balanced"
        parts = [np.stack([attribute.labels != MISSING for attribute in attributes], axis=1)]
        for attribute, counts in zip(attributes, class_counts, strict=True):
            parts += _known_facts(attribute, counts, balanced)
        self._facts = torch.from_numpy(np.concatenate(parts, axis=1)).to(device, dtype)
        """What each user knows, looked up at once: for each group whether it knows its class; then `_known_facts`."""
        self._widths = [part.shape[1] for part in parts]

    @classmethod
    def of(
        cls,
        config: UnlearnConfig,
        attributes: Sequence[Attribute],
        width: int,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> AdversarialTerm:
        """The term a configuration asks for.

        Args:
            config: its `epsilon` is used as it is: 0 trains the adversaries and reverses nothing.
            attributes: what to unlearn, with the labels of all users.
            width: length of a private row; all of it is what an attacker would take.
            seed: the run's.
            device, dtype: of the private rows.

        Raises:
            ConfigError: no attribute, one whose users share a single class, or a name with a dot.
        """
        if not attributes:
            raise ConfigError("unlearn.attributes: adversarial unlearning needs at least one, for example gender")
        counts = [np.bincount(a.labels[a.labels != MISSING], minlength=len(a.classes)) for a in attributes]
        for attribute, sizes in zip(attributes, counts, strict=True):
            if "." in attribute.name:
                raise ConfigError(
                    f"unlearn.attributes: {attribute.name!r} holds a dot, which separates an adversary from its "
                    "layers; rename the column"
                )
            if (sizes > 0).sum() < 2:
                known = ", ".join(name for name, size in zip(attribute.classes, sizes, strict=True) if size) or "none"
                raise ConfigError(
                    f"unlearn.attributes: {attribute.name} needs users of at least 2 classes, and there are only those "
                    f"of {known}; with one class there is nothing to infer, leave it out"
                )
        adversaries = [
            Adversary(
                cast(Kind, config.adversary_kind),
                width,
                len(attribute.classes),
                config.hidden_size,
                config.latent_size,
                config.head,
                config.beta_latent,
                config.beta_weight,
            )
            for attribute in attributes
        ]
        return cls(config, attributes, adversaries, counts, seed, device, dtype)

    def initial(self, seed: int) -> dict[str, Tensor]:
        """See `UserTerm.initial`."""
        return {
            f"{group}.{name}": value
            for index, (group, adversary) in enumerate(zip(self.groups, self.adversaries, strict=True))
            for name, value in adversary.initial(stream_key(seed, Purpose.INIT_TERM, index)).items()
        }

    @torch.inference_mode()
    def step(
        self,
        rows: Tensor,
        parameters: Mapping[str, Tensor],
        users: Tensor,
        round_number: int,
        epoch: int,
        *,
        summed: bool,
    ) -> TermStep:
        """See `UserTerm.step`. Not differentiable: what it returns are inference tensors, cheaper to compute."""
        known, *facts = self._facts.index_select(0, users).split_with_sizes(self._widths, 1)
        done: list[Descent] = []
        for index, (adversary, layers) in enumerate(
            zip(self.adversaries, self._layers(parameters, summed), strict=True)
        ):
            key = stream_key(self.seed, Purpose.TERM_DRAWS, round_number, epoch, index)
            draws = draw_normals(key, users, adversary.n_draws, self.dtype)
            one_hot, weight = facts[2 * index : 2 * index + 2]
            found = adversary.descent(layers, rows, one_hot, draws, weight, summed)
            found.into.mul_(self._strength(adversary, layers, rows, one_hot, draws, found.correct))
            if self.config.silent_when_wrong:
                heard = adversary.descent(layers, rows, one_hot, draws, weight * found.correct, summed)
                found = found._replace(gradient=heard.gradient)
            done.append(found)
        row_gradient, gradient, loss, correct = done[0]
        if len(done) > 1:
            for other in done[1:]:
                row_gradient.add_(other.into)
            gradient = torch.cat([found.gradient for found in done], -1)
            loss = torch.cat([found.entropy for found in done], 1)
            correct = torch.cat([found.correct for found in done], 1)
        sends = correct if self.config.silent_when_wrong else known
        return TermStep(row_gradient, NamedVector(self._layout, gradient), loss, correct, known, sends)

    def _layers(self, parameters: Mapping[str, Tensor], summed: bool) -> list[Layers]:
        """What each adversary computes with."""
        if not isinstance(parameters, NamedVector) or parameters.layout != self._layout:
            ordered = {name: parameters[name] for name in self.shapes}
            parameters = NamedVector.of(ordered, None if summed else len(next(iter(ordered.values()))))
        if self._read is not None and self._read[0] is parameters.flat:
            return self._read[1]
        parts = [parameters.flat[..., place] for place in self._layout.groups.values()]
        layers = [adversary.layers(part) for adversary, part in zip(self.adversaries, parts, strict=True)]
        if summed:
            self._read = parameters.flat, layers
        return layers

    def _strength(
        self,
        adversary: Adversary,
        layers: Layers,
        rows: Tensor,
        one_hot: Tensor,
        draws: Tensor,
        correct: Tensor,
    ) -> Tensor | float:
        """−ε_u of each client, (C, 1), or one number for all."""
        config = self.config
        if config.trigger_kind == "always":
            return -config.epsilon
        if config.trigger_kind == "binary":
            return binary_trigger(-config.epsilon, correct)
        lead, slope = adversary.margin(layers, rows, one_hot.argmax(1), draws)
        return -continuous_trigger(config.epsilon, config.trigger_scale, lead, slope).unsqueeze(1)


def _known_facts(
    attribute: Attribute, counts: NDArray[np.int64], balanced: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each user knows: class as one-hot (n_users, K), and its weight (n_users, 1).

    Users who do not know theirs have zeros in both: no loss, never right, no gradient.
    """
    known = attribute.labels != MISSING
    labels = np.where(known, attribute.labels, 0)
    weights = balanced_class_weights(counts)[labels] if balanced else np.ones(len(labels))
    one_hot = np.eye(len(attribute.classes))[labels] * known[:, None]
    return one_hot, (weights * known)[:, None]
