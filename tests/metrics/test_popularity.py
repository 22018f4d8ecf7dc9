"""The popularity baseline."""

import numpy as np
import pytest
import torch

from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics import (
    popularity_pair_scorer,
    popularity_scorer,
    popularity_scores,
    rank_full,
    rank_sampled,
)

torch.set_num_threads(1)


def test_scores_count_interactions_and_cover_items_nobody_has():
    assert popularity_scores(np.array([2, 0, 2, 2, 3]), 6).tolist() == [1, 0, 3, 1, 0, 0]
    assert popularity_scores(np.array([], dtype=np.int64), 2).tolist() == [0, 0]


def test_equally_popular_items_are_recommended_by_id_and_seen_ones_are_left_out():
    scores = popularity_scores(np.array([4, 4, 1, 3, 0]), 6)
    ranked = rank_full(
        popularity_scorer(scores),
        np.array([0, 0, 2]),
        np.array([0, 4]),
        np.array([0, 1, 2]),
        np.array([3, 5]),
        n_items=6,
        k=4,
    )
    assert ranked.items.tolist() == [[4, 0, 1, 3], [1, 3, 2, 5]]


def test_pairs_are_scored_by_the_same_counts():
    scores = popularity_scores(np.array([4, 4, 1, 3, 0]), 6)
    ranks = rank_sampled(popularity_pair_scorer(scores), np.array([0]), np.array([1]), np.array([[0, 2, 4, 5]]))
    assert (ranks.greater.tolist(), ranks.equal.tolist()) == ([1], [1])


def test_ids_outside_the_catalogue_are_refused():
    with pytest.raises(DataError, match=r"run from 0 to 6, outside 0\.\.5"):
        popularity_scores(np.array([0, 6]), 6)
