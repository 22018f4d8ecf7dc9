"""Where a data set is looked for, which layout it is taken for, and what the filters leave."""

import os
import subprocess
import sys
import warnings
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fedrec_unlearn.config import DataConfig
from fedrec_unlearn.data import load_dataset
from fedrec_unlearn.data.places import detect_layout, find_files
from fedrec_unlearn.data.text import text_files
from fedrec_unlearn.data.types import MISSING, Dataset
from fedrec_unlearn.errors import DataError

INTER = "user_id:token\titem_id:token\trating:float\n"
REAL = os.environ.get("FEDREC_DATA")


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDREC_DATA", raising=False)
    monkeypatch.setenv("FEDREC_CACHE", str(tmp_path / "cache"))


def atomic(folder: Path, name: str, rows: str = "a\tx\t1\nb\ty\t5\nb\tx\t4\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.inter").write_text(INTER + rows)
    return folder


def triples(data: Dataset) -> list[tuple[str, str, float]]:
    assert data.rating is not None
    return [
        (str(data.user_tokens[u]), str(data.item_tokens[i]), float(r))
        for u, i, r in zip(data.user, data.item, data.rating, strict=True)
    ]


def test_the_folder_may_be_the_data_sets_own_or_one_that_holds_it(tmp_path: Path) -> None:
    own = atomic(tmp_path / "mine", "mine")
    for folder in (own, tmp_path):
        found = find_files(DataConfig(name="mine", dir=str(folder)))
        assert (found.place, found.layout) == (own, "atomic")


def test_a_folder_of_recbole_files_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    recbole = atomic(tmp_path / "mine-recbole", "mine")
    assert find_files(DataConfig(name="mine", dir=str(tmp_path))).place == recbole
    own = atomic(tmp_path / "mine", "mine")
    assert find_files(DataConfig(name="mine", dir=str(tmp_path))).place == own


def test_the_home_folder_may_be_abbreviated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    atomic(tmp_path / "data" / "mine", "mine")
    assert find_files(DataConfig(name="mine", dir="~/data")).place == tmp_path / "data" / "mine"


def test_the_folder_given_comes_before_the_environment_and_that_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = atomic(tmp_path / "cache" / "mine", "mine")
    assert find_files(DataConfig(name="mine")).place == cached
    environment = atomic(tmp_path / "environment" / "mine", "mine")
    monkeypatch.setenv("FEDREC_DATA", str(environment.parent))
    assert find_files(DataConfig(name="mine")).place == environment
    given = atomic(tmp_path / "given", "mine")
    assert find_files(DataConfig(name="mine", dir=str(given))).place == given


def test_a_folder_given_that_lacks_the_data_set_is_not_made_up_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic(tmp_path / "environment" / "mine", "mine")
    monkeypatch.setenv("FEDREC_DATA", str(tmp_path / "environment"))
    (tmp_path / "given").mkdir()
    with pytest.raises(DataError, match=r"'mine' was not found.*\n.*given \(data\.dir\): is empty"):
        find_files(DataConfig(name="mine", dir=str(tmp_path / "given")))
    with pytest.raises(DataError, match=r"data\.dir: .*absent does not exist; give the folder with the files of mine"):
        find_files(DataConfig(name="mine", dir=str(tmp_path / "absent")))


def test_the_environment_may_name_the_data_sets_own_folder_but_not_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = atomic(tmp_path / "mine", "mine")
    monkeypatch.setenv("FEDREC_DATA", str(own))
    assert find_files(DataConfig(name="mine")).place == own
    with pytest.raises(DataError, match=r"'other' was not found[\s\S]*mine \(\$FEDREC_DATA\): no folder other"):
        find_files(DataConfig(name="other"))


def test_a_folder_called_after_another_known_data_set_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "gowalla"
    folder.mkdir()
    (folder / "train.txt").write_text("0 1\n")
    with pytest.raises(
        DataError, match=r"gowalla: this is the folder of gowalla, but data\.name is 'yelp2018'; set data\.name"
    ):
        find_files(DataConfig(name="yelp2018", dir=str(folder)))
    assert find_files(DataConfig(name="my-part-of-gowalla", dir=str(folder))).layout == "adjacency"


def test_what_is_missing_is_told_with_all_places_and_commands() -> None:
    with pytest.raises(DataError) as error:
        load_dataset(DataConfig(name="ml-1m"))
    for part in ("'ml-1m' was not found", "$FEDREC_DATA: not set", "(download cache): does not exist",
                 "fedrec download ml-1m", "--data-dir FOLDER", "a folder ml-1m with them", "ml-1m.inter"):  # fmt: skip
        assert part in str(error.value)
    assert "pip install" not in str(error.value)


def test_without_recbole_ml_100k_is_told_to_come_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedrec_unlearn.data.places.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"recbole package: not installed[\s\S]*pip install --no-deps recbole==1\.2\.1"):
        load_dataset(DataConfig(name="ml-100k"))


@pytest.mark.skipif(find_spec("recbole") is None, reason="recbole is not installed")
def test_ml_100k_comes_from_the_recbole_package_without_importing_it() -> None:
    program = (
        "import sys; from fedrec_unlearn.config import DataConfig; from fedrec_unlearn.data import load_dataset; "
        "data = load_dataset(DataConfig()); "
        "print(data.n_users, data.n_items, data.n_interactions, 'recbole' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["943", "1682", "100000", "False"]


def test_the_synthetic_set_comes_with_the_package() -> None:
    data = load_dataset(DataConfig(name="synthetic"))
    assert data.n_interactions > 0
    assert data.attributes
    for attribute in data.attributes.values():
        assert set(np.unique(attribute.labels)) - {MISSING} == set(range(len(attribute.classes)))


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (["x.inter", "train.txt"], "atomic"),
        (["u.data", "u.user"], "movielens"),
        (["ratings.dat"], "movielens"),
        (["train.txt", "u.user"], "adjacency"),
        (["test.txt"], "adjacency"),
        (["mine.csv", "other.csv"], "csv"),
        (["log.csv", "users.csv"], "csv"),
        (["a.csv", "b.csv"], None),
        (["README"], None),
        ([], None),
    ],
)
def test_the_layout_is_told_by_the_file_names(tmp_path: Path, names: list[str], layout: str | None) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    assert detect_layout(text_files(tmp_path, "mine"), "mine") == layout


def test_ratings_csv_is_movielens_or_your_own_by_its_header(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,2,3\n")
    assert detect_layout(text_files(tmp_path, "mine"), "mine") == "movielens"
    (tmp_path / "ratings.csv").write_text("user_id,item_id,rating\n1,2,3\n")
    assert detect_layout(text_files(tmp_path, "mine"), "mine") == "csv"


def test_a_layout_asked_for_is_used_whatever_else_is_there(tmp_path: Path) -> None:
    atomic(tmp_path / "mine", "mine")
    (tmp_path / "mine" / "mine.csv").write_text("user_id,item_id\nz,q\n")
    assert load_dataset(DataConfig(name="mine", dir=str(tmp_path), format="csv")).user_tokens.tolist() == ["z"]


def test_low_ratings_go_and_users_and_items_are_numbered_anew(tmp_path: Path) -> None:
    atomic(tmp_path / "mine", "mine", "a\tx\t1\nb\ty\t5\nc\tz\t3.5\nb\tx\t4\n")
    data = load_dataset(DataConfig(name="mine", dir=str(tmp_path), min_rating=3.5))
    assert triples(data) == [("b", "y", 5), ("c", "z", 3.5), ("b", "x", 4)]
    assert data.user_tokens.tolist() == ["b", "c"]
    assert data.item_tokens.tolist() == ["y", "z", "x"]


def test_the_core_is_taken_after_low_ratings_went(tmp_path: Path) -> None:
    rows = "a\tx\t5\na\ty\t1\nb\tx\t5\nb\ty\t5\nc\tx\t5\nc\ty\t5\n"
    atomic(tmp_path / "mine", "mine", rows)
    data = load_dataset(
        DataConfig(name="mine", dir=str(tmp_path), min_rating=2, min_user_interactions=2, min_item_interactions=2)
    )
    assert triples(data) == [("b", "x", 5), ("b", "y", 5), ("c", "x", 5), ("c", "y", 5)]


def test_attributes_and_features_follow_their_users_and_items_through_the_filters(tmp_path: Path) -> None:
    folder = atomic(tmp_path / "mine", "mine", "".join(f"u{k}\ti{k % 5}\t{k % 4}\n" for k in range(20)))
    (folder / "mine.user").write_text("user_id:token\tjob:token\n" + "".join(f"u{k}\tj{k % 4}\n" for k in range(20)))
    (folder / "mine.item").write_text(
        "item_id:token\tgenre:token_seq\n" + "".join(f"i{k}\t{' '.join(f'g{j}' for j in range(k))}\n" for k in range(5))
    )
    data = load_dataset(DataConfig(name="mine", dir=str(tmp_path), min_rating=2, item_features=("genre",)))
    job = data.attributes["job"]
    assert job.classes == ("j2", "j3")
    assert [job.classes[k] for k in job.labels] == [f"j{int(token[1:]) % 4}" for token in data.user_tokens]
    genre = data.item_features["genre"]
    for number, token in enumerate(data.item_tokens):
        own = [genre.values[k] for k in genre.indices[genre.indptr[number] : genre.indptr[number + 1]]]
        assert own == [f"g{j}" for j in range(int(token[1:]))]


@pytest.mark.parametrize(
    ("options", "attributes", "message"),
    [
        ({"min_rating": 6}, (), r"data\.min_rating: no interaction is rated 6 or more; the highest rating is 5"),
        ({"min_user_interactions": 9}, (), r"no interaction is left with at least 9 per user"),
        (
            {"item_features": ("genre",)},
            (),
            r"data\.item_features: data set 'mine' has no 'genre'; it has no item feature",
        ),
        ({}, ("gender",), r"mine: data set 'mine' has no user attribute 'gender'; it has none at all"),
    ],
)
def test_filters_and_columns_that_leave_nothing_are_told(
    tmp_path: Path, options: dict[str, object], attributes: tuple[str, ...], message: str
) -> None:
    atomic(tmp_path / "mine", "mine")
    with pytest.raises(DataError, match=message):
        load_dataset(DataConfig(name="mine", dir=str(tmp_path), **options), attributes)  # type: ignore[arg-type]


def test_min_rating_needs_ratings(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("user_id,item_id,stars\na,x,3\n")
    with pytest.raises(DataError, match=r"data\.min_rating: .* was read without ratings; set data\.rating_column"):
        load_dataset(DataConfig(name="mine", dir=str(tmp_path), min_rating=3))


def test_a_folder_of_something_else_is_told_with_its_contents(tmp_path: Path) -> None:
    (tmp_path / "mine.inter").mkdir()
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(DataError, match=r"no files of a known layout and no folder mine, only notes\.md, mine\.inter/"):
        load_dataset(DataConfig(name="mine", dir=str(tmp_path)))
    with pytest.raises(DataError, match=r"data\.dir: .*notes\.md is a file; give the folder it lies in"):
        load_dataset(DataConfig(name="mine", dir=str(tmp_path / "notes.md")))


def test_the_folder_given_may_be_the_downloaded_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "any.zip", "w") as archive:
        archive.writestr("mine/mine.inter", INTER + "a\tx\t1\n")
    assert triples(load_dataset(DataConfig(name="mine", dir=str(tmp_path / "any.zip")))) == [("a", "x", 1)]


@pytest.mark.skipif(REAL is None, reason="FEDREC_DATA is not set")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ml-100k", (943, 1_682, 100_000)),
        ("ml-1m", (6_040, 3_706, 1_000_209)),
        ("gowalla", (29_858, 40_981, 1_027_370)),
        ("ml-latest-small-2016", (671, 9_066, 100_004)),
        ("taobao-nfa", (33_932, 24_400, 281_831)),
        ("yelp-nfa", (33_078, 25_720, 654_054)),
        ("yelp2018-partial", (13_455, 37_878, 776_821)),
    ],
)
def test_real_data_sets_are_found_by_name(
    name: str, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REAL is not None
    if not Path(REAL, name).is_dir():
        pytest.skip(f"FEDREC_DATA does not hold {name}")
    monkeypatch.setenv("FEDREC_DATA", REAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load_dataset(DataConfig(name=name))
    assert (data.n_users, data.n_items, data.n_interactions) == sizes
    # the contract of Dataset: numbered by first appearance
    for ids, size in ((data.user, data.n_users), (data.item, data.n_items)):
        first = np.unique(ids, return_index=True)[1]
        assert len(first) == size
        assert np.all(np.diff(first) > 0)
