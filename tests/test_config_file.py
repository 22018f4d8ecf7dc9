from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedrec_unlearn.config import SECTIONS, AttackConfig, Config, DataConfig, FederationConfig, ModelConfig
from fedrec_unlearn.config_file import (
    config_from_dict,
    config_to_dict,
    dump_config,
    load_config,
    option_docs,
    options,
    packaged_configs,
)
from fedrec_unlearn.config_options import ELSEWHERE, options_by_name, parse_text, suggestions
from fedrec_unlearn.errors import ConfigError


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str, name: str = "a.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write


def refused(call: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_no_file_gives_the_defaults() -> None:
    assert load_config(None) == Config()


def test_an_empty_file_and_an_empty_section_give_the_defaults(written: Any) -> None:
    assert load_config(written("")) == Config()
    assert load_config(written("federation:\n  # rounds: 5\n")) == Config()


def test_values_of_a_file_reach_their_options(written: Any) -> None:
    config = load_config(written("seed: 7\nfederation:\n  rounds: 5\nevaluation:\n  topk: [10, 50]\n"))
    assert config.seed == 7
    assert config.federation == FederationConfig(rounds=5)
    assert config.evaluation.topk == (10, 50)


def test_a_dotted_name_is_the_same_option(written: Any) -> None:
    assert load_config(written("federation.rounds: 5\n")).federation.rounds == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("l2: 1e-3", 0.001),  # text under YAML 1.1
        ("l2: 1.0e-3", 0.001),
        ("l2: 1", 1.0),
        ("adam_betas: [0.5, 1e-1]", (0.5, 0.1)),
        ("ring: true", True),
    ],
)
def test_numbers_are_read_as_people_write_them(written: Any, text: str, value: object) -> None:
    name = text.partition(":")[0]
    found = getattr(load_config(written(f"federation:\n  {text}\n")).federation, name)
    assert found == value
    assert type(found) is type(value)


def test_null_unsets_an_optional_option(written: Any) -> None:
    assert load_config(written("output: null\ndata:\n  min_rating: ~\n")) == Config()


# --- mistakes in a file ----------------------------------------------------------------------------------------------


def test_an_unknown_option_is_told_with_file_line_and_the_nearest_name(written: Any) -> None:
    file = written("seed: 1\nfederation:\n  rounds: 5\n  local_epoch: 3\n")
    assert refused(lambda: load_config(file)) == (
        f"{file}:4: unknown option federation.local_epoch; did you mean federation.local_epochs?"
    )


def test_an_option_in_the_wrong_section_is_found_in_its_own(written: Any) -> None:
    assert "did you mean federation.client_learning_rate, " in refused(
        lambda: load_config(written("learning_rate: 0.1\n"))
    )
    assert "did you mean evaluation.topk?" in refused(lambda: load_config(written("model:\n  topk: [5]\n")))


def test_a_mistyped_section_is_suggested(written: Any) -> None:
    message = refused(lambda: load_config(written("federaton.rounds: 3\n")))
    assert "did you mean federation.rounds?" in message


def test_an_option_given_twice_names_both_lines(written: Any) -> None:
    file = written("federation:\n  rounds: 5\n  l2: 0\n  rounds: 6\n")
    assert refused(lambda: load_config(file)) == f"{file}:4: federation.rounds is given twice, first at {file}:2"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("federation: {rounds: true}", "federation.rounds: expected an integer, not true"),
        ("federation: {rounds: 5.0}", "federation.rounds: expected an integer, not the number 5.0"),
        ('federation: {rounds: "5"}', "expected an integer, not the text '5'; write it without quotes: 5"),
        ("federation: {rounds: null}", "federation.rounds: expected an integer, not null"),
        ("federation: {l2: true}", "federation.l2: expected a number, not true"),
        ("federation: {l2: fast}", "federation.l2: expected a number, not the text 'fast'"),
        ("federation: {l2: .nan}", "federation.l2: must be a finite number, not nan"),
        ("federation: {l2: .inf}", "federation.l2: must be a finite number, not inf"),
        ("federation: {ring: 1}", "federation.ring: expected true or false, not the integer 1"),
        ("federation: {engine: vectorized}", "; did you mean vectorised?"),
        ("federation: {engine: [vectorised]}", "expected one of vectorised, reference, not the list"),
        ("data: {name: 100}", "data.name: expected text, not the integer 100; write it in quotes: \"100\""),
        ("data: {name: no}", "data.name: expected text, not false"),
        ("evaluation: {topk: 10}", "expected a list of integers, not the integer 10; write a list: [10]"),
        ("evaluation: {topk: [10, x]}", "evaluation.topk: expected a list of integers, not the list [10, 'x']"),
        ("evaluation: {topk: [true]}", "evaluation.topk: expected a list of integers, not the list [True]"),
        ("attack: {attributes: gender}", "expected a list of texts, not the text 'gender'; write a list: [gender]"),
        ("split: {ratios: [0.8, 0.2]}", "split.ratios: expected a list of 3 numbers, not the list [0.8, 0.2]"),
        ("data: {min_rating: high}", "data.min_rating: expected a number, or null, not the text 'high'"),
        ("federation: [1]", "section federation must hold lines 'option: value', not a list"),
        ("federation: 3", "section federation must hold lines 'option: value', not '3'"),
        ("[1]: 2", "an option's name must be a word, not a list"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_told_with_what_was_expected(written: Any, text: str, problem: str) -> None:
    file = written(f"seed: 3\n{text}\n")
    message = refused(lambda: load_config(file))
    assert message.startswith(f"{file}:2: ")
    assert problem in message


def test_a_value_out_of_range_is_told_with_its_line(written: Any) -> None:
    file = written("federation:\n  l2: 0.0\n  rounds: 0\n")
    assert refused(lambda: load_config(file)) == f"{file}:3: federation.rounds: must be at least 1"


def test_options_that_contradict_each_other_are_refused(written: Any) -> None:
    file = written("federation:\n  objective: mse\nevaluation:\n  select_by: ndcg@10\n")
    assert refused(lambda: load_config(file)).endswith("evaluation.select_by: must be rmse under objective mse")


def test_text_that_is_not_yaml_is_told_with_line_and_column(written: Any) -> None:
    file = written("federation:\n\trounds: 3\n")
    message = refused(lambda: load_config(file))
    assert message.startswith(f"{file}:2:1: not valid YAML: ")


def test_a_file_that_is_not_a_map_is_refused(written: Any) -> None:
    assert "a configuration is made of lines 'option: value', not a list" in refused(
        lambda: load_config(written("- seed\n"))
    )


def test_two_documents_in_a_file_are_refused(written: Any) -> None:
    assert "not valid YAML" in refused(lambda: load_config(written("seed: 1\n---\nseed: 2\n")))


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"seed: 1 # caf\xe9\n")
    assert refused(lambda: load_config(file)) == f"{file}: not UTF-8 text (byte 13); save it as UTF-8"


def test_tags_that_would_run_code_are_refused(written: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"data:\n  name: !!python/object/apply:os.mkdir ['{mark}']\n"
    assert "not valid YAML" in refused(lambda: load_config(written(text)))
    assert not mark.exists()


# --- finding the file ------------------------------------------------------------------------------------------------


def test_a_missing_file_suggests_its_neighbours(written: Any) -> None:
    file = written("", "experiment.yaml")
    missing = file.with_name("experimnet.yaml")
    assert refused(lambda: load_config(missing)) == f"no configuration file {missing}; did you mean {file}?"
    bare = file.with_name("experiment")
    assert refused(lambda: load_config(bare)) == f"no configuration file {bare}; did you mean {file}?"


def test_a_run_folder_given_as_configuration_points_at_the_file_in_it(written: Any) -> None:
    file = written("", "config.yaml")
    assert refused(lambda: load_config(file.parent)) == (
        f"{file.parent} is a folder, not a configuration file; the configuration of that run is {file}"
    )


def test_a_name_finds_the_configuration_that_comes_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert {"demo", "ml-100k-mf"} <= set(packaged_configs())
    assert load_config("demo") == load_config(packaged_configs()["demo"])
    assert "did you mean demo?" in refused(lambda: load_config("dmeo"))


def test_every_packaged_configuration_is_valid() -> None:
    repository = Path(__file__).parent.parent / "configs"
    assert sorted(packaged_configs().values()) == sorted(repository.glob("*.yaml"))
    for file in packaged_configs().values():
        load_config(file)


# --- overrides -------------------------------------------------------------------------------------------------------


def test_overrides_win_over_the_file(written: Any) -> None:
    file = written("federation:\n  rounds: 5\n  l2: 0.5\n")
    for overrides in ({"federation.rounds": 9}, {"federation": {"rounds": 9}}, ["federation.rounds=9"]):
        assert load_config(file, overrides).federation == FederationConfig(rounds=9, l2=0.5)  # type: ignore[arg-type]


def test_an_override_can_mend_a_bad_value_of_the_file(written: Any) -> None:
    assert load_config(written("federation:\n  rounds: 0\n"), ["federation.rounds=1"]).federation.rounds == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("data.name=100", "100"),
        ("data.name=a=b", "a=b"),
        ("data.name= null ", " null "),
        ("data.separator=;", ";"),
        ("data.dir=none", None),
        ("data.dir=/tmp/x", "/tmp/x"),
        ("data.min_rating=null", None),
        ("data.min_rating=3", 3.0),
        ("federation.l2=1e-3", 0.001),
        ("federation.ring=yes", True),
        ("federation.ring=False", False),
        ("evaluation.topk=10, 20", (10, 20)),
        ("evaluation.topk=[20, 10]", (20, 10)),
        ("attack.attributes=gender,age", ("gender", "age")),
        ("attack.attributes=", ()),
        ("seed=-3", -3),
    ],
)
def test_texts_are_read_by_the_type_of_their_option(text: str, value: object) -> None:
    name, _, given_text = text.partition("=")
    found = parse_text(options_by_name()[name], given_text)
    assert found == value
    assert type(found) is type(value)


def test_a_text_reaches_the_configuration() -> None:
    config = load_config(None, ["data.min_rating=3", "evaluation.topk=10,5"])
    assert (config.data.min_rating, config.evaluation.topk) == (3.0, (10, 5))


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["federation.rounds"], "override 'federation.rounds' must be written name=value"),
        (["federation.rouds=3"], "unknown option federation.rouds; did you mean federation.rounds?"),
        (["federation.rounds=many"], "federation.rounds: expected an integer, not the text 'many'"),
        (["federation.rounds=3", "federation.rounds=4"], "federation.rounds is given twice"),
        ({"federation.rounds": "3"}, "federation.rounds: expected an integer, not the text '3'"),
        ({"federation": 3}, "federation is a section: give it a mapping of options, not 3"),
        ("seed=3", "overrides must be a list of texts, not one text: ['seed=3']"),
    ],
)
def test_mistakes_in_overrides_are_told(overrides: Any, problem: str) -> None:
    assert problem in refused(lambda: load_config(None, overrides))


# --- writing ---------------------------------------------------------------------------------------------------------

numbers = st.floats(min_value=1e-300, max_value=1e300)
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
configs = st.builds(
    Config,
    seed=st.integers(),
    output=st.none() | texts,
    data=st.builds(
        DataConfig,
        name=texts | st.sampled_from(["null", "yes", "1e3", "~", "0x10", "a: b", "- x", "#", "2020-01-01"]),
        min_rating=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        item_features=st.lists(texts).map(tuple),
    ),
    model=st.builds(ModelConfig, init_std=numbers, hidden_sizes=st.lists(st.integers(1), min_size=1).map(tuple)),
    federation=st.builds(FederationConfig, l2=numbers, adam_epsilon=numbers, ring=st.booleans()),
    attack=st.builds(AttackConfig, seeds=st.lists(st.integers(), min_size=1).map(tuple)),
)


@given(config=configs, comments=st.booleans())
def test_what_is_written_is_read_back_equal(tmp_path_factory: Any, config: Config, comments: bool) -> None:
    file = tmp_path_factory.mktemp("dump") / "a.yaml"
    file.write_text(dump_config(config, comments), encoding="utf-8")
    assert load_config(file) == config


@given(config=configs)
def test_the_plain_values_are_those_of_yaml_and_are_read_back_equal(config: Config) -> None:
    plain = config_to_dict(config)
    assert yaml.safe_load(yaml.safe_dump(plain)) == plain
    assert config_from_dict(plain) == config


def test_comments_hold_the_docstring_of_every_option() -> None:
    text = dump_config(Config(), comments=True)
    flowing = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
    for name, doc in option_docs().items():
        assert doc in flowing, name
    assert "#" not in dump_config(Config())


# --- the list of options ---------------------------------------------------------------------------------------------


def test_every_field_is_an_option_with_a_docstring() -> None:
    names = [field.name for field in dataclasses.fields(Config) if field.name not in SECTIONS]
    for section in SECTIONS:
        names += [f"{section}.{field.name}" for field in dataclasses.fields(getattr(Config(), section))]
    assert [option.name for option in options()] == names
    assert all(len(option.doc) > 10 for option in options())


def test_an_option_tells_type_default_and_choices() -> None:
    engine = options_by_name()["federation.engine"]
    assert (engine.section, engine.default, engine.choices) == (
        "federation",
        "vectorised",
        ("vectorised", "reference"),
    )
    told = {name: options_by_name()[name].type_name for name in ("seed", "output", "split.ratios", "attack.seeds")}
    assert told == {
        "seed": "an integer",
        "output": "text, or null",
        "split.ratios": "a list of 3 numbers",
        "attack.seeds": "a list of integers",
    }


def test_names_of_other_libraries_lead_to_an_option_and_are_none_themselves() -> None:
    for foreign, ours in ELSEWHERE.items():
        assert suggestions(foreign)[0] == ours
        assert foreign not in options_by_name()


def test_nothing_is_suggested_for_what_resembles_nothing() -> None:
    assert suggestions("xyzzy") == []


def test_docstrings_survive_where_python_drops_them() -> None:
    code = "from fedrec_unlearn.config_file import option_docs; print(all(option_docs().values()))"
    printed = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "True"
