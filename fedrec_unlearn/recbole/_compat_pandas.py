"""Cures for RecBole's data sets on pandas 3, whose copy-on-write and `Series.agg` changed under them.

What the replaced methods return was compared, on ml-100k with all its columns and on small files with gaps, with what
the original ones return on pandas 2.3: equal. Two parts of RecBole stay broken on pandas 3, because no model of this
package reaches them: normalising or discretising `float_seq` columns, and knowledge graphs with `token_seq` columns.
"""

from __future__ import annotations

import functools
import importlib
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def replace_method(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Put a function in the place of a method; the original stays reachable as its `__wrapped__`."""
    original = getattr(owner, name, None)
    if original is not None:
        functools.update_wrapper(replacement, original)
    setattr(owner, name, replacement)


def _chained_fill_is_lost() -> bool:
    import pandas as pd

    frame = pd.DataFrame({"column": [1.0, np.nan]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame["column"].fillna(0.0, inplace=True)
    return bool(frame["column"].isna().any())


def cure_empty_sequences() -> bool:
    """Read an empty cell of a `token_seq` or `float_seq` column as an empty list.

    Without it: pandas 3 drops the effect of `df[field].fillna(value="", inplace=True)`, and loading such a file ends in
    "'float' object has no attribute 'split'". RecBole's data module gets a `pd` whose `read_csv` fills these cells, and
    pandas' warning about the line that no longer matters is silenced while that line runs.
    """
    if not _chained_fill_is_lost():
        return False
    import pandas as pd

    def read_csv(*args: Any, **kwargs: Any) -> Any:
        frame = pd.read_csv(*args, **kwargs)
        for column in frame.columns:
            if str(column).endswith(("token_seq", "float_seq")):
                frame[column] = frame[column].fillna("")
        return frame

    from_recbole: Any = importlib.import_module("recbole.data.dataset.dataset")
    stock_load_feat = from_recbole.Dataset._load_feat

    def load_feat(self: Any, filepath: str, source: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.ChainedAssignmentError)  # type: ignore[attr-defined]
            return stock_load_feat(self, filepath, source)

    facade: Any = types.ModuleType("pandas")
    facade.__dict__.update(vars(pd))
    facade.read_csv = read_csv
    from_recbole.pd = facade
    replace_method(from_recbole.Dataset, "_load_feat", load_feat)
    return True


def cure_fill_nan() -> bool:
    """Fill missing values of features: tokens with 0, numbers with the column's mean, sequences with an empty array.

    Without it: nothing fails, which is worse. pandas 3 drops the effect of `feat[field].fillna(..., inplace=True)`, so
    the [PAD] row of every user and item feature becomes -2**63 when it is cast to an integer, and numbers stay NaN.
    """
    if not _chained_fill_is_lost():
        return False
    from_recbole = importlib.import_module("recbole.data.dataset.dataset")
    kinds = from_recbole.FeatureType

    def fill_nan(self: Any) -> None:
        for name in self.feat_name_list:
            feat = getattr(self, name)
            for field in feat:
                kind, column = self.field2type[field], feat[field]
                if kind == kinds.TOKEN:
                    feat[field] = column.fillna(0)
                elif kind == kinds.FLOAT:
                    feat[field] = column.fillna(column.mean())
                else:
                    empty = np.array([], dtype=np.int64 if kind == kinds.TOKEN_SEQ else np.float64)
                    feat[field] = column.map(lambda cell, empty=empty: empty if isinstance(cell, float) else cell)

    replace_method(from_recbole.Dataset, "_fill_nan", fill_nan)
    return True


def cure_remap() -> bool:
    """Number the tokens of `token_seq` columns (genres, title words) when `Series.agg(len)` counts the whole column.

    Without it: on pandas 3 FM, DeepFM and every other context-aware model end in "Length of values (1) does not match
    length of index (1682)" on ml-100k with its default columns.
    """
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas 2 announces here what pandas 3 does
        counted = pd.Series([np.array(["a", "b"])]).agg(len)
    if not np.isscalar(counted):
        return False
    from_recbole = importlib.import_module("recbole.data.dataset.dataset")
    kinds = from_recbole.FeatureType

    def remap(self: Any, remap_list: list[tuple[Any, str, Any]]) -> None:
        if not remap_list:
            return
        tokens, split_point = self._concat_remaped_tokens(remap_list)
        codes, names = pd.factorize(tokens)
        tokens_of_ids = np.array(["[PAD]", *names])
        ids_of_tokens = {token: number for number, token in enumerate(tokens_of_ids)}
        for (feat, field, kind), ids in zip(remap_list, np.split(codes + 1, split_point), strict=True):
            self.field2id_token.setdefault(field, tokens_of_ids)
            self.field2token_id.setdefault(field, ids_of_tokens)
            if kind == kinds.TOKEN:
                feat[field] = ids
            elif kind == kinds.TOKEN_SEQ:
                ends = np.cumsum([len(cell) for cell in feat[field]])
                feat[field] = np.split(ids, ends[:-1])

    replace_method(from_recbole.Dataset, "_remap", remap)
    return True
