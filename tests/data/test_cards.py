import os
from pathlib import Path

import pytest
import yaml

from fedrec_unlearn.data import cards
from fedrec_unlearn.data.cards import card_names, datasets_folder, read_card
from fedrec_unlearn.errors import DataError

NAMES = ("amazon-book", "gowalla", "ml-100k", "ml-10m", "ml-1m", "ml-25m", "synthetic", "yelp2018")

MADE_UP = {
    "name": "made-up",
    "title": "A made-up set",
    "home": "https://example.org/",
    "licence": "none",
    "redistributable": False,
    "citation": "nobody",
    "format": "csv",
    "files": [
        {
            "name": "made-up.zip",
            "urls": ["https://example.org/made-up.zip"],
            "bytes": None,
            "md5": None,
            "sha256": "0" * 64,
            "checksum_source": "invented",
            "archive_root": "made-up",
            "members": ["ratings.csv"],
        }
    ],
    "schema": {"ratings.csv": "user,item"},
    "attributes": {},
    "item_features": {},
    "sizes": {"users": 1, "items": 2, "interactions": 2},
    "notes": "nothing",
}


def changed(*path, value=None, drop=False) -> dict:
    """The made-up card with one value set, added or dropped."""
    card = yaml.safe_load(yaml.safe_dump(MADE_UP))
    place = card
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return card


def read(folder: Path, card: dict | str, name: str = "made-up"):
    (folder / f"{name}.yaml").write_text(card if isinstance(card, str) else yaml.safe_dump(card))
    return read_card(name, folder)


def test_all_cards_of_the_package_are_readable_and_complete():
    assert card_names() == NAMES
    for name in NAMES:
        card = read_card(name)
        assert card.home.startswith("https://")
        assert all(url.startswith("https://") for file in card.files for url in file.urls)
        assert all(file.verifiable for file in card.files)
        assert bool(card.files) != (name == "synthetic")
        assert card.redistributable == (name == "synthetic")


def test_no_file_of_a_data_set_that_may_not_be_passed_on_is_shipped():
    shipped = {
        path.relative_to(datasets_folder()).as_posix() for path in datasets_folder().rglob("*") if path.is_file()
    }
    synthetic = {"synthetic/synthetic.inter", "synthetic/synthetic.user", "synthetic/synthetic.item"}
    assert shipped == {"README.md", *(f"{name}.yaml" for name in NAMES), *synthetic}


def test_cards_are_found_in_an_installed_package_and_beside_one_in_a_checkout(tmp_path, monkeypatch):
    package = tmp_path / "fedrec_unlearn"
    monkeypatch.setattr(cards, "__file__", str(package / "data" / "cards.py"))
    with pytest.raises(DataError, match="install the package again"):
        datasets_folder()
    for folder in (tmp_path / "datasets", package / "datasets"):  # the second is looked at first
        folder.mkdir(parents=True)
        (folder / "synthetic.yaml").touch()
        assert datasets_folder() == folder


def test_values_reach_the_card(tmp_path):
    card = read(tmp_path, MADE_UP)
    assert (card.format, card.sizes.items, card.schema) == ("csv", 2, {"ratings.csv": "user,item"})
    (file,) = card.files
    assert (file.bytes, file.md5, file.sha256, file.members) == (None, None, "0" * 64, ("ratings.csv",))
    assert file.verifiable
    assert not read(tmp_path, changed("files", 0, "sha256")).files[0].verifiable


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (changed("licens", value="x"), r"made-up\.yaml: unknown key 'licens'; did you mean 'licence'"),
        (changed("files", 0, "sha265", value=None), r"unknown key 'files\[0\]\.sha265'; did you mean 'sha256'"),
        (changed("sizes", "ratings", value=3), r"unknown key 'sizes\.ratings'"),
        (changed("citation", drop=True), "key citation is missing"),
        (changed("files", 0, "bytes", drop=True), r"key files\[0\]\.bytes is missing"),
        (changed("format", value="parquet"), "format must be one of atomic, movielens, adjacency, csv"),
        (changed("redistributable", value="no"), "redistributable must be true or false"),
        (changed("files", 0, "bytes", value=True), "bytes must be a positive whole number"),
        (changed("files", 0, "md5", value="ABC"), "md5 must be 32 hexadecimal digits"),
        (changed("files", 0, "sha256", value=1234), "sha256 must be 64 hexadecimal digits"),
        (changed("files", 0, "name", value="../x.zip"), "name must be a plain file name"),
        (changed("files", 0, "members", value=["../../etc/passwd"]), "members must be a list of file names"),
        (changed("files", 0, "members", value=["/etc/passwd"]), "members must be a list of file names"),
        (changed("files", 0, "members", value=[]), "archive_root and members go together"),
        (changed("files", 0, "urls", value=[]), "urls must be a list of addresses"),
        (changed("sizes", value=[1, 2]), "sizes must be a mapping"),
        (changed("name", value="other"), "make the two agree"),
        ("name: a\nname: b\n", "key name is given twice"),
        ("- a\n", "the file must be a mapping"),
        ("name: [", "not readable as YAML"),
        ("name: !!python/object/apply:os.getcwd []\n", "not readable as YAML"),
    ],
)
def test_a_malformed_card_is_refused_with_file_and_key(tmp_path, card, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, card)


def test_an_unknown_data_set_suggests_the_nearest_and_the_way_for_own_files():
    with pytest.raises(DataError, match=r"did you mean 'ml-100k'\?.*data\.dir and data\.format"):
        read_card("ml100k")


def test_sizes_agree_with_the_files_of_ml_100k():
    folder = Path(os.environ.get("FEDREC_DATA", "/nonexistent")) / "ml-100k-recbole"
    if not (folder / "ml-100k.inter.gz").exists():
        pytest.skip("FEDREC_DATA holds no ml-100k-recbole/ml-100k.inter.gz")
    import gzip

    with gzip.open(folder / "ml-100k.inter.gz", "rt") as lines:
        rows = [line.split("\t")[:2] for line in lines][1:]
    sizes = read_card("ml-100k").sizes
    assert (len({r[0] for r in rows}), len({r[1] for r in rows}), len(rows)) == (
        sizes.users,
        sizes.items,
        sizes.interactions,
    )


def test_sizes_and_checksum_agree_with_the_files_of_gowalla():
    import gzip
    import hashlib

    folder = Path(os.environ.get("FEDREC_DATA", "/nonexistent")) / "gowalla"
    if not (folder / "test.txt.gz").exists():
        pytest.skip("FEDREC_DATA holds no gowalla/test.txt.gz")
    card = read_card("gowalla")
    published = card.files[1]
    content = gzip.decompress((folder / "test.txt.gz").read_bytes())
    assert len(content) == published.bytes
    assert hashlib.md5(content).hexdigest() == published.md5
    assert hashlib.sha256(content).hexdigest() == published.sha256
    users, items, pairs = set(), set(), 0
    for name in ("train.txt.gz", "valid.txt.gz", "test.txt.gz"):
        with gzip.open(folder / name, "rt") as lines:
            for line in lines:
                user, *own = line.split()
                users.add(user)
                items.update(own)
                pairs += len(own)
    assert (len(users), len(items), pairs) == (card.sizes.users, card.sizes.items, card.sizes.interactions)
