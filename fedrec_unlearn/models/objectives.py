"""Training objectives on scores: BPR, binary cross-entropy, squared error of the rating.

Each objective says the same thing twice: `client_loss` as plain autograd code (the reference engine), and
`pair` or `point` as value and slope per pair or item in closed form (the vectorised engine).
A test holds the two together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from fedrec_unlearn.config import FederationConfig


class Objective(ABC):
    """A client's loss as a mean over its pairs or items."""

    name: str
    pairwise: bool
    """Whether the loss compares a positive with a negative item."""
    needs_negatives: bool
    needs_ratings: bool

    @abstractmethod
    def client_loss(self, positive: Tensor, negative: Tensor, ratings: Tensor | None, partner: Tensor) -> Tensor:
        """Loss of one client, a scalar.

        Args:
            positive: scores of the client's n items, shape (n,).
            negative: scores of its k drawn negatives, shape (k,).
            ratings: centred ratings, shape (n,), or None.
            partner: shape (r, n), which negative each positive is compared with.
        """

    def pair(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of each pair and its slope in the positive's score (the negative's is the opposite)."""
        raise NotImplementedError(f"{self.name} is not pairwise")

    def point(self, score: Tensor, target: Tensor | None, positive: bool) -> tuple[Tensor, Tensor]:
        """Loss of each item and its slope in the score.

        Args:
            score: shape (n,).
            target: centred ratings, shape (n,), where the objective needs them.
            positive: whether these are the client's own items or its drawn negatives.
        """
        raise NotImplementedError(f"{self.name} is not pointwise")


class BPR(Objective):
    """−log σ(s⁺ − s⁻), mean over pairs (Rendle et al. 2009, BPR-Opt without its prior)."""

    name = "bpr"
    pairwise = True
    needs_negatives = True
    needs_ratings = False

    def client_loss(self, positive: Tensor, negative: Tensor, ratings: Tensor | None, partner: Tensor) -> Tensor:
        return F.softplus(negative[partner] - positive).mean()

    def pair(self, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        difference = negative - positive
        return F.softplus(difference), -torch.sigmoid(difference)


class BCE(Objective):
    """Binary cross-entropy with label 1 for the client's items and 0 for its negatives, mean over both."""

    name = "bce"
    pairwise = False
    needs_negatives = True
    needs_ratings = False

    def client_loss(self, positive: Tensor, negative: Tensor, ratings: Tensor | None, partner: Tensor) -> Tensor:
        return (F.softplus(-positive).sum() + F.softplus(negative).sum()) / (len(positive) + len(negative))

    def point(self, score: Tensor, target: Tensor | None, positive: bool) -> tuple[Tensor, Tensor]:
        if positive:
            return F.softplus(-score), -torch.sigmoid(-score)
        return F.softplus(score), torch.sigmoid(score)


class LabelledBCE(Objective):
    """Binary cross-entropy of the client's own items against labels 0 and 1 that come with them; nothing is drawn."""

    name = "labelled_bce"
    pairwise = False
    needs_negatives = False
    needs_ratings = True

    def client_loss(self, positive: Tensor, negative: Tensor, ratings: Tensor | None, partner: Tensor) -> Tensor:
        assert ratings is not None
        return (F.softplus(positive) - ratings * positive).mean()

    def point(self, score: Tensor, target: Tensor | None, positive: bool) -> tuple[Tensor, Tensor]:
        assert target is not None
        return F.softplus(score) - target * score, torch.sigmoid(score) - target


class MSE(Objective):
    """Squared error of the score against the rating less the mean training rating."""

    name = "mse"
    pairwise = False
    needs_negatives = False
    needs_ratings = True

    def client_loss(self, positive: Tensor, negative: Tensor, ratings: Tensor | None, partner: Tensor) -> Tensor:
        assert ratings is not None
        return (positive - ratings).square().mean()

    def point(self, score: Tensor, target: Tensor | None, positive: bool) -> tuple[Tensor, Tensor]:
        assert target is not None
        error = score - target
        return error.square(), 2.0 * error


def make_objective(config: FederationConfig) -> Objective:
    """The objective a configuration names."""
    kinds: dict[str, type[BPR] | type[BCE] | type[MSE]] = {"bpr": BPR, "bce": BCE, "mse": MSE}
    return kinds[config.objective]()
