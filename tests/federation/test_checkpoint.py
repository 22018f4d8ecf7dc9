from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.federation.checkpoint import Standing, load_state, save_state
from fedrec_unlearn.federation.engine import make_engine
from fedrec_unlearn.federation.state import RunState, apply_contribution

CPU = torch.device("cpu")


def tensors(state: RunState) -> dict[str, torch.Tensor]:
    return {"private": state.private, **state.server.parameters(), **state.server.moments}


def trained(make_federation: Callable[..., Any], model: str = "mf", **options: Any) -> Any:
    made = make_federation(model, **options)
    for round_number in range(2):
        sums = make_engine(made.work).train_clients(made.state, made.work.eligible()[:5], round_number)
        apply_contribution(made.state.server, sums, made.config.federation)
    return made


@pytest.mark.parametrize("model", ["mf", "ncf", "fm", "deepfm"])
@pytest.mark.parametrize("options", [{}, {"ring": True}, {"server_optimizer": "sgd"}], ids=["adam", "ring", "sgd"])
def test_a_state_comes_back_bit_for_bit(
    make_federation: Callable[..., Any], tmp_path: Path, model: str, options: dict[str, Any]
) -> None:
    made = trained(make_federation, model, **options)
    standing = Standing(0.1 + 0.2, 7, 3, 12.5, 4321)
    save_state(tmp_path / "s.safetensors", made.state, standing)
    state, told = load_state(tmp_path / "s.safetensors", made.work.model, CPU)
    assert told == standing
    assert (state.server.rounds_done, state.server.steps, state.rating_mean) == (2, 2, 3.0)
    assert list(state.server.dense) == list(made.state.server.dense)
    assert tensors(state).keys() == tensors(made.state).keys()
    for name, value in tensors(made.state).items():
        assert torch.equal(tensors(state)[name], value), name
        assert tensors(state)[name].dtype == value.dtype


def test_loaded_tensors_lie_as_torch_places_them(make_federation: Callable[..., Any], tmp_path: Path) -> None:
    # on some processors the last bit of a matrix product depends on it, and with it whether a run resumes exactly
    made = trained(make_federation, "ncf")
    save_state(tmp_path / "s.safetensors", made.state, Standing())
    state, _ = load_state(tmp_path / "s.safetensors", made.work.model, CPU)
    assert {value.data_ptr() % 64 for value in tensors(state).values()} == {0}


def test_what_is_loaded_can_be_trained_on_while_the_file_is_replaced(
    make_federation: Callable[..., Any], tmp_path: Path
) -> None:
    made = trained(make_federation)
    path = tmp_path / "s.safetensors"
    save_state(path, made.state, Standing())
    state, _ = load_state(path, made.work.model, CPU)
    kept = state.server.items.clone()
    state.server.items.add_(1.0)
    again, _ = load_state(path, made.work.model, CPU)
    assert torch.equal(again.server.items, kept)
    save_state(path, state, Standing())
    path.write_bytes(b"")
    assert torch.equal(state.server.items, kept + 1.0)


def test_a_checkpoint_holds_no_pickle_and_says_what_it_is(make_federation: Callable[..., Any], tmp_path: Path) -> None:
    made = trained(make_federation)
    save_state(tmp_path / "s.safetensors", made.state, Standing(best_round=3))
    with safe_open(str(tmp_path / "s.safetensors"), framework="pt") as file:
        header = json.loads(file.metadata()["fedrec"])
        assert set(file.keys()) == {"private", "items", "moment.first.items", "moment.second.items"}
    assert header["rounds_done"] == 2
    assert header["standing"]["best_round"] == 3


@pytest.fixture
def saved(make_federation: Callable[..., Any], tmp_path: Path) -> tuple[Path, Any]:
    made = trained(make_federation, "fm")
    path = tmp_path / "latest.safetensors"
    save_state(path, made.state, Standing())
    return path, made


def test_a_missing_checkpoint_says_so(saved: tuple[Path, Any]) -> None:
    path, made = saved
    path.unlink()
    with pytest.raises(RunError, match=r"latest\.safetensors is missing: .*train again"):
        load_state(path, made.work.model, CPU)


@pytest.mark.parametrize("length", [0, 4, 8, 60, 0.5, 0.999])
def test_a_checkpoint_cut_short_says_it_is_damaged(saved: tuple[Path, Any], length: float) -> None:
    path, made = saved
    content = path.read_bytes()
    path.write_bytes(content[: int(length * len(content)) if isinstance(length, float) else length])
    with pytest.raises(RunError, match=r"latest\.safetensors is damaged .*train again"):
        load_state(path, made.work.model, CPU)


@pytest.mark.parametrize("junk", [b"not a checkpoint at all, but long enough", b"\xff" * 200, b"\0" * 200])
def test_another_file_says_it_is_no_checkpoint(saved: tuple[Path, Any], junk: bytes) -> None:
    path, made = saved
    path.write_bytes(junk)
    with pytest.raises(RunError, match="damaged or not a checkpoint of this package"):
        load_state(path, made.work.model, CPU)


def test_a_folder_in_its_place_is_an_error(saved: tuple[Path, Any]) -> None:
    path, made = saved
    path.unlink()
    path.mkdir()
    with pytest.raises(RunError, match="damaged or not a checkpoint"):
        load_state(path, made.work.model, CPU)


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    with safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()["fedrec"])
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    change(found, header)
    save_file(found, str(path), {"fedrec": json.dumps(header)})


def unset(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(found: dict[str, Any], header: dict[str, Any]) -> None:
        del (found if name in found else header)[name]

    return change


def put(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(found: dict[str, Any], header: dict[str, Any]) -> None:
        (found if isinstance(value, torch.Tensor) else header)[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (put("format", 2), "checkpoint format 2, this version reads 1"),
        (unset("items"), "lacks a part"),
        (unset("private"), "lacks a part"),
        (unset("dense.bias"), "lacks a part"),
        (unset("rounds_done"), "lacks a part"),
        (unset("standing"), "lacks a part"),
        (put("standing", {"no_such_field": 1}), "lacks a part"),
        (put("rounds_done", "many"), "lacks a part"),
        (put("rounds_done", None), "lacks a part"),
        (unset("moment.first.items"), "lacks a part"),
        (put("moment.second.items", torch.zeros(2, 2)), "moment.second.items and items have different shapes"),
        (put("moment.third.items", torch.zeros(2, 2)), "do not fit together"),
        (put("items", torch.zeros(31, 7, dtype=torch.float64)), "do not fit together"),
        (put("private", torch.zeros(18, 7)), r"private has shape \(18, 7\), the model needs \(19, 7\)"),
    ],
)
def test_a_checkpoint_that_lacks_or_contradicts_something_is_refused(
    saved: tuple[Path, Any], change: Callable[[dict[str, Any], dict[str, Any]], None], problem: str
) -> None:
    path, made = saved
    rewrite(path, change)
    with pytest.raises(RunError, match=problem) as told:
        load_state(path, made.work.model, CPU)
    assert str(path) in str(told.value)


def test_the_checkpoint_of_another_model_is_refused(make_federation: Callable[..., Any], tmp_path: Path) -> None:
    made = trained(make_federation, "mf")
    save_state(tmp_path / "s.safetensors", made.state, Standing())
    for other in ("fm", "ncf"):
        with pytest.raises(RunError, match=r"another run's|lacks a part"):
            load_state(tmp_path / "s.safetensors", make_federation(other).work.model, CPU)
