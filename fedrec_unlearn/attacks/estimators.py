"""The scikit-learn classes attackers are built of, where scikit-learn itself has no fitting one.

Imported by `fedrec_unlearn.attacks.attackers` only when an attacker is built, so that importing the package
does not import scikit-learn. All are ordinary scikit-learn estimators: they can be cloned, pickled and put
into one's own pipelines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_sample_weight

FloatArray = NDArray[np.float64]

SPARSE_ROW_LENGTH = 8.0
"""Length of scaled sparse rows: that of a standardised row of 64 features, so that one grid of penalties fits both."""


class FeatureScaling(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Brings features to a scale that penalties and distances expect.

    Dense features are standardised per column. Sparse rows stay sparse and are scaled to one length, since
    dividing a rare item's column by its spread would make it outweigh all others, and a user's activity
    would otherwise decide how strongly a penalty acts on it.
    """

    def fit(self, features: Any, labels: Any = None) -> FeatureScaling:
        """Learn means and spreads of the columns (nothing for sparse features)."""
        self.scaler_ = None if sparse.issparse(features) else StandardScaler().fit(features)
        return self

    def transform(self, features: Any) -> Any:
        """Scale features of shape (n, d); sparse in, sparse out."""
        if self.scaler_ is None:
            return normalize(features) * SPARSE_ROW_LENGTH
        return self.scaler_.transform(features)


class SparseReduction(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Reduces sparse features to their leading directions; passes dense features through.

    Rows are scaled to unit length first, so that directions tell users apart by what they used and not by how much.

    Args:
        n_components: directions kept, fewer where there are not as many users or features.
        random_state: of the randomised decomposition.

    Source: Halko, Martinsson, Tropp 2011 (randomised SVD).
    """

    def __init__(self, n_components: int = 64, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, features: Any, labels: Any = None) -> SparseReduction:
        """Learn the directions (nothing for dense features)."""
        self.svd_ = None
        if sparse.issparse(features):
            rank = max(1, min(self.n_components, min(features.shape) - 1))
            svd = TruncatedSVD(rank, n_iter=3, random_state=self.random_state)
            self.svd_ = svd.fit(normalize(features))
        return self

    def transform(self, features: Any) -> Any:
        """Project features of shape (n, d); the result is dense, shape (n, components) or (n, d)."""
        return features if self.svd_ is None else self.svd_.transform(normalize(features))


class QuantileBins(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Replaces each value by the number of its quantile bin among the training values of its column.

    scikit-learn's histogram trees bin for themselves, but with class weights they spend most of a small fit
    on it (0.3 s for 64 columns); of few distinct values they bin at once.

    Args:
        n_bins: bins of a column, at most 255.
    """

    def __init__(self, n_bins: int = 32) -> None:
        self.n_bins = n_bins

    def fit(self, features: Any, labels: Any = None) -> QuantileBins:
        """Learn the bounds of the bins from features of shape (n, d)."""
        self.bounds_ = np.quantile(features, np.arange(1, self.n_bins) / self.n_bins, axis=0)
        return self

    def transform(self, features: Any) -> FloatArray:
        """Bin numbers as float64, shape (n, d)."""
        values = np.asarray(features, dtype=np.float64)
        binned = np.empty(values.shape)
        for column in range(values.shape[1]):
            binned[:, column] = np.searchsorted(self.bounds_[:, column], values[:, column], side="right")
        return binned


class BalancedMLPClassifier(MLPClassifier):  # type: ignore[misc, unused-ignore]
    """`MLPClassifier` whose loss gives every class the same total weight.

    Weighting the loss is what oversampling does in expectation, without the longer epochs and without
    repeated rows.
    """

    def fit(self, features: Any, labels: Any) -> BalancedMLPClassifier:
        """Fit to features of shape (n, d) and class ids of shape (n,)."""
        weights = compute_sample_weight("balanced", labels)
        super().fit(features, labels, sample_weight=weights)  # type: ignore[call-arg, unused-ignore]
        return self


class BalancedKNeighborsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """k nearest neighbours whose votes are divided by the share of their class among the training users.

    Plain votes estimate P(class | features), so that a class of 7 users can hardly win among 60 neighbours;
    divided by P(class) they are proportional to P(features | class), which is the rule that maximises
    balanced accuracy.

    Args:
        n_neighbors: neighbours that vote; all training users where there are fewer.
        metric: a distance of scikit-learn.
    """

    def __init__(self, n_neighbors: int = 31, metric: str = "cosine") -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

    def fit(self, features: Any, labels: Any) -> BalancedKNeighborsClassifier:
        """Keep the training users, shape (n, d), and their classes, shape (n,)."""
        self.classes_, self.class_of_ = np.unique(labels, return_inverse=True)
        neighbors = min(self.n_neighbors, len(self.class_of_))
        self.search_ = NearestNeighbors(n_neighbors=neighbors, metric=self.metric, algorithm="brute").fit(features)
        return self

    def predict_proba(self, features: Any) -> FloatArray:
        """Class probabilities under equal class shares, shape (n, K)."""
        neighbors = self.class_of_[self.search_.kneighbors(features, return_distance=False)]
        votes = np.stack([(neighbors == c).sum(axis=1) for c in range(len(self.classes_))], axis=1)
        corrected = votes / np.bincount(self.class_of_)
        probabilities: FloatArray = corrected / corrected.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, features: Any) -> NDArray[Any]:
        """Class with the largest corrected vote, shape (n,)."""
        named: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(features), axis=1)]
        return named


class CappedSVC(SVC):  # type: ignore[misc, unused-ignore]
    """`SVC` that learns from a sample of the training users where there are many.

    Args:
        max_rows: users it learns from at most; each class keeps its share up to rounding, and at least one user.
        C, kernel, gamma, class_weight, cache_size, random_state: as for `SVC`; random_state also draws the sample.
    """

    def __init__(
        self,
        max_rows: int = 3000,
        C: float = 1.0,  # noqa: N803, as SVC calls it
        kernel: Any = "rbf",
        gamma: Any = "scale",
        class_weight: Any = None,
        cache_size: float = 200,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            C=C,
            kernel=kernel,
            gamma=gamma,
            class_weight=class_weight,
            cache_size=cache_size,
            random_state=random_state,
        )
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, features: Any, labels: Any, sample_weight: Any = None) -> CappedSVC:
        """Fit to features of shape (n, d) and class ids of shape (n,), or to a sample of them."""
        truth = np.asarray(labels)
        if len(truth) > self.max_rows:
            draws = np.random.default_rng(self.random_state)
            order = draws.permutation(len(truth))
            by_class = order[np.argsort(truth[order], kind="stable")]
            # every so many-th of the users in the order of their classes, and the first of each class
            spread = by_class[np.arange(self.max_rows) * len(truth) // self.max_rows]
            firsts = by_class[np.unique(truth[by_class], return_index=True)[1]]
            sample = np.union1d(spread, firsts)
            weight = None if sample_weight is None else np.asarray(sample_weight)[sample]
            features, truth, sample_weight = features[sample], truth[sample], weight
        super().fit(features, truth, sample_weight)
        return self
