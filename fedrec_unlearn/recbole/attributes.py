"""Sensitive attributes of RecBole's users, read from the files beside RecBole and not through it.

Loaded through RecBole an attribute becomes an input of context-aware models, users without a value are dropped or get
the column's mean, and ages stay numbers. So `<dataset>.user` is read as the rest of this package reads it, and matched
to RecBole's ids by the users' names.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedrec_unlearn.config import AGE_BOUNDS
from fedrec_unlearn.config_unlearn import UnlearnWarning
from fedrec_unlearn.data.atomic import typed_header
from fedrec_unlearn.data.attributes import user_attributes
from fedrec_unlearn.data.side_table import side_table
from fedrec_unlearn.data.text import rows, text_files
from fedrec_unlearn.data.types import Attribute
from fedrec_unlearn.errors import DataError


def read_attributes(config: Any, dataset: Any, names: Sequence[str]) -> list[Attribute]:
    """User attributes as classes, in the federation's numbering.

    Args:
        config: RecBole's configuration; `data_path`, `dataset`, `USER_ID_FIELD` and `field_separator` are read.
        dataset: a RecBole data set, for its users' names.
        names: which attributes.

    Returns:
        one each, labels of shape (n_users,), `MISSING` for users whose value is empty or who are not in the file.

    Raises:
        DataError: no `.user` file, no such column, or fewer than two classes; says what there is.
    """
    if not names:
        return []
    folder, data_name, key = Path(os.path.normpath(config["data_path"])), config["dataset"], config["USER_ID_FIELD"]
    file = text_files(folder, data_name).get(f"{data_name}.user")
    wanted = ", ".join(names)
    if file is None:
        raise DataError(
            f"sensitive_fields: {wanted}: there is no {data_name}.user in {folder}, so nothing is known of users; put "
            f"a file there with a column {key}:token and one for each attribute, such as gender:token"
        )
    types = typed_header(file)
    if key not in types:
        raise DataError(f"{file.at(1)}: no column {key!r} with the users, only {', '.join(types)}; set USER_ID_FIELD")
    users = np.asarray(dataset.field2id_token[dataset.uid_field])[1:].astype(str)
    table = side_table(file, islice(rows(file, "\t"), 1, None), list(types), key, users)
    others = [name for name in types if name != key]
    found = user_attributes(table, AGE_BOUNDS, names)
    for name in names:
        if name not in others:
            raise DataError(
                f"sensitive_fields: {file.path} has no column {name!r}; its columns are {', '.join(others) or 'none'}"
            )
        classes = found[name].classes if name in found else ()
        if len(classes) < 2:
            what = f"all users are {classes[0]!r}" if classes else "no user of this data set has a value"
            raise DataError(f"sensitive_fields: {name} of {file.path}: {what}; there is nothing to infer or unlearn")
    return [found[name] for name in names]


def warn_if_input(model: Any, names: Sequence[str]) -> list[str]:
    """Warn of attributes that the model also gets as an input.

    Args:
        model: a RecBole model.
        names: sensitive attributes.

    Returns:
        those that are inputs.

    Warns:
        UnlearnWarning: one is; what a model is given stays in what it computes and sends.
    """
    kinds = ("token", "float", "token_seq", "float_seq")
    inputs = {field for kind in kinds for field in getattr(model, f"{kind}_field_names", [])}
    given = [name for name in names if name in inputs]
    if given:
        fields = ", ".join(given)
        warnings.warn(
            f"{fields}: LOADED AS A MODEL INPUT. {type(model).__name__} is given what is to be kept secret: its rows "
            "in the shared tables move only for users of that class, so a client's update tells it, and unlearning it "
            f"from the private rows promises nothing. Leave {fields} out of load_col.user; sensitive_fields reads it "
            "from the file by itself",
            UnlearnWarning,
            stacklevel=2,
        )
    return given
