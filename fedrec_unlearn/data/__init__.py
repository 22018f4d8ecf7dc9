"""Users, items and attributes: found, read, filtered, split into train, validation and test."""

from fedrec_unlearn.data.attributes import age_groups, categorical
from fedrec_unlearn.data.cards import Card, card_names, read_card
from fedrec_unlearn.data.download import cache_folder
from fedrec_unlearn.data.download import download as download_dataset  # under its own name it would hide its module
from fedrec_unlearn.data.kcore import k_core
from fedrec_unlearn.data.load import load_dataset
from fedrec_unlearn.data.splits import make_split
from fedrec_unlearn.data.text import DataWarning
from fedrec_unlearn.data.types import MISSING, Attribute, Dataset, ItemFeature, Split, UserItems

__all__ = [
    "MISSING",
    "Attribute",
    "Card",
    "DataWarning",
    "Dataset",
    "ItemFeature",
    "Split",
    "UserItems",
    "age_groups",
    "cache_folder",
    "card_names",
    "categorical",
    "download_dataset",
    "k_core",
    "load_dataset",
    "make_split",
    "read_card",
]
