"""Errors of predicted ratings against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

from fedrec_unlearn.errors import DataError
from fedrec_unlearn.metrics import mae, rmse


def test_hand_worked_values():
    assert rmse([1.0, 5.0], [4.0, 1.0]) == pytest.approx(np.sqrt((9 + 16) / 2))
    assert mae([1.0, 5.0], [4.0, 1.0]) == pytest.approx(3.5)


def test_values_agree_with_scikit_learn():
    predicted, actual = np.random.default_rng(0).uniform(1, 5, (2, 100))
    assert rmse(predicted, actual) == pytest.approx(root_mean_squared_error(actual, predicted))
    assert mae(predicted, actual) == pytest.approx(mean_absolute_error(actual, predicted))


def test_predicting_the_mean_reaches_the_standard_deviation():
    actual = np.random.default_rng(1).integers(1, 6, 50)
    assert rmse(np.full(50, actual.mean()), actual) == pytest.approx(actual.std())


@pytest.mark.parametrize("function", [rmse, mae])
def test_ratings_that_cannot_be_compared_are_refused(function):
    with pytest.raises(DataError, match=r"not \(2,\) and \(1,\)"):
        function([1.0, 2.0], [1.0])
    with pytest.raises(DataError, match="nothing to compare"):
        function([], [])
    with pytest.raises(DataError, match="NaN or infinite"):
        function([np.nan], [1.0])
