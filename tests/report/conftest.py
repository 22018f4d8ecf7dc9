"""Run folders made up from seeds, and a browser to look at pages with."""

from __future__ import annotations

import base64
import csv
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedrec_unlearn.report import Users

CLASSES = {"gender": ("F", "M"), "age": ("under 25", "25 to 44", "45 and over")}
ATTACKERS = ("logistic", "mlp", "boosted_trees", "knn")

MakeRun = Callable[..., Path]


def _estimate(rng: np.random.Generator, mean: float) -> dict[str, Any]:
    per_seed = (mean + rng.normal(0, 0.01, 3)).tolist()
    value, std = float(np.mean(per_seed)), float(np.std(per_seed, ddof=1))
    half = 4.303 * std / 3**0.5
    return {
        "mean": value,
        "std": std,
        "low": value - half,
        "high": value + half,
        "per_seed": per_seed,
        "fold_std": 0.02,
    }


def _attack(rng: np.random.Generator) -> dict[str, Any]:
    results = []
    for attribute, classes in CLASSES.items():
        counts = rng.integers(60, 400, len(classes)).tolist()
        for attacker in ATTACKERS:
            chance = 1 / len(classes)
            estimates = {
                name: _estimate(rng, chance + float(rng.uniform(0.0, 0.3)))
                for name in ("balanced_accuracy", "macro_f1", "auc", "accuracy")
            }
            results.append(
                {"attribute": attribute, "surface": "user_embedding", "attacker": attacker, "classes": list(classes)}
                | {"counts": counts, "n_users": sum(counts), "n_missing": 3, "chance": chance}
                | {"majority": max(counts) / sum(counts), "parameters": {"C": {"1": 15}}}
                | estimates
            )
    config = {"folds": 5, "inner_folds": 3, "seeds": [0, 1, 2]}
    return {"format": 1, "created": "2026-02-01T09:30:00+00:00", "seconds": 41.5, "config": config, "results": results}


def _events(rng: np.random.Generator, rounds: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    best = 0.0
    for number in range(1, rounds + 1):
        size = int(rng.integers(400_000, 460_000)) * 64
        events.append(
            {"event": "round", "round": number, "clients": 64, "interactions": int(rng.integers(4000, 6000))}
            | {"loss": 0.3 + 0.4 * float(np.exp(-number / 60)) + float(rng.normal(0, 0.012))}
            | {"seconds": float(rng.uniform(0.009, 0.014)), "bytes_up": size, "bytes_down": 2 * size}
        )
        if number % 15 == 0:
            value = 0.3 * (1 - float(np.exp(-number / 70))) + float(rng.normal(0, 0.004))
            metrics = {"ndcg@10/full": value, "recall@10/full": 0.8 * value}
            events.append(
                {"event": "evaluation", "round": number, "part": "valid", "metrics": metrics}
                | {"best": value > best, "seconds": 0.09}
            )
            best = max(best, value)
    return events


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run folder; keywords replace fields of run.json, and None leaves a file out."""

    def make(
        folder: str = "run-a",
        *,
        seed: int = 1,
        rounds: int = 300,
        metrics: bool = True,
        attack: bool | dict[str, Any] = True,
        config: dict[str, Any] | None = None,
        **run: Any,
    ) -> Path:
        rng = np.random.default_rng(seed)
        path = tmp_path / folder
        path.mkdir()
        events = _events(rng, rounds)
        evaluated = [e for e in events if e["event"] == "evaluation"]
        best = max(evaluated, key=lambda e: e["metrics"]["ndcg@10/full"])["round"] if evaluated else None
        options: dict[str, Any] = {
            "seed": seed,
            "data": {"name": "made-up", "dir": None},
            "model": {"name": "mf", "embedding_dim": 64},
            "federation": {"rounds": 600, "clients_per_round": 64, "objective": "bpr", "transport": "sparse"},
            "evaluation": {"select_by": "ndcg@10", "topk": [10, 20]},
        }
        content = {
            "format": 1,
            "status": "finished",
            "name": folder,
            "version": "0.1.0",
            "created": "2026-01-31T12:00:00+00:00",
            "device": "cpu",
            "seed": seed,
            "rounds_done": rounds,
            "best_round": best,
            "stopped_early": True,
            "train_seconds": float(rng.uniform(10, 20)),
            "peak_memory_mib": float(rng.uniform(300, 500)),
            "data": {
                "name": "made-up",
                "n_users": 943,
                "n_items": 1682,
                "n_train": 80808,
                "n_valid": 9596,
                "n_test": 9590,
            },
            "model": {"name": "mf", "private": {"user_embedding": [943, 64]}, "item_rows": {}, "dense": {}},
        } | run
        (path / "run.json").write_text(json.dumps(content))
        (path / "config.yaml").write_text(yaml.safe_dump(options | (config or {}), sort_keys=False))
        if events:
            (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        if metrics:
            names = ("ndcg@10/full", "recall@10/full", "hr@10/full", "ndcg@10/99neg")
            parts = {
                part: dict(zip(names, rng.uniform(0.1, 0.4, 4).tolist(), strict=True)) for part in ("valid", "test")
            }
            parts["popularity"] = dict(zip(names, rng.uniform(0.05, 0.1, 4).tolist(), strict=True))
            written = {"best_round": best, "selected_by": "ndcg@10/full", **parts}
            (path / "metrics.json").write_text(json.dumps(written))
        if attack:
            (path / "attack.json").write_text(json.dumps(attack if isinstance(attack, dict) else _attack(rng)))
        return path

    return make


Attacked = Callable[..., dict[str, Any]]

COUNTS = {"gender": [273, 670], "age": [234, 504, 205]}


@pytest.fixture
def attacked() -> Attacked:
    """An entry of attack.json with a given balanced accuracy; `half` is half the width of its interval."""

    def entry(
        attribute: str, mean: float, surface: str = "user_embedding", attacker: str = "mlp", half: float | None = 0.005
    ) -> dict[str, Any]:
        classes, counts = list(CLASSES[attribute]), COUNTS[attribute]
        low, high = (None, None) if half is None else (mean - half, mean + half)
        return {
            "attribute": attribute,
            "surface": surface,
            "attacker": attacker,
            "classes": classes,
            "counts": counts,
            "chance": 1 / len(classes),
            "majority": max(counts) / sum(counts),
            "balanced_accuracy": {"mean": mean, "low": low, "high": high},
        }

    return entry


@pytest.fixture
def make_unlearned(make_run: MakeRun) -> MakeRun:
    """Write the folder of a run that has unlearned gender; keywords as those of `make_run`, and fields of `unlearn`."""

    def make(
        folder: str = "after",
        *,
        results: list[dict[str, Any]] | None = None,
        before: list[dict[str, Any]] | None = None,
        ndcg: tuple[float | None, float] = (0.30, 0.29),
        unlearn: dict[str, Any] | None = None,
        federation: dict[str, Any] | None = None,
        adversary: dict[str, list[float]] | None = None,
        attack_config: dict[str, Any] | None = None,
        **more: Any,
    ) -> Path:
        told = {"method": "moments", "attributes": ["gender"], "epsilon": None, "chosen": False, "source": "base"}
        told |= {"secure_sums": True, "seconds": 0.25, "bytes_up": 943_000, "bytes_down": 1_886_000}
        told |= {"known": {"gender": 943}, "missing": {"gender": 0}, "pooled_rows": False} | (unlearn or {})
        attack: dict[str, Any] = {"format": 1, "seconds": 2.0, "config": attack_config or {}, "results": results or []}
        if before is not None:
            attack["before"] = before
        options = {"rounds": 600, "transport": "plain", "snapshot_every": 0} | (federation or {})
        path = make_run(
            folder,
            attack=attack if results is not None else False,
            unlearn=told,
            **{"config": {"federation": options}, "rounds": 40, **more},
        )
        metrics = {"best_round": 30, "selected_by": "ndcg@10/full", "test": {"ndcg@10/full": ndcg[1]}}
        if ndcg[0] is not None:
            metrics["before"] = {"ndcg@10/full": ndcg[0]}
        (path / "metrics.json").write_text(json.dumps(metrics))
        if adversary is not None:
            lines = (path / "events.jsonl").read_text().splitlines()
            events = [json.loads(line) for line in lines]
            for event in events:
                if event["event"] == "round":
                    event["adversary"] = {
                        name: {"clients": 64.0, "loss": 0.7, "accuracy": values[(event["round"] - 1) % len(values)]}
                        for name, values in adversary.items()
                    }
            (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        return path

    return make


@pytest.fixture
def make_users() -> Callable[..., Users]:
    """Embeddings in which gender shows, drawn by a seed."""

    def make(n_users: int = 943, seed: int = 3, names: dict[str, tuple[str, ...]] | None = None) -> Users:
        rng = np.random.default_rng(seed)
        attributes = {}
        for attribute, classes in (names or CLASSES).items():
            labels = rng.integers(0, len(classes), n_users)
            labels[rng.random(n_users) < 0.01] = -1
            attributes[attribute] = (classes, labels)
        representation = rng.normal(size=(n_users, 16)) * np.linspace(2.0, 0.5, 16)
        representation[:, 0] += 2.0 * next(iter(attributes.values()))[1]
        ids = np.array([f"user-{k}" for k in range(n_users)])
        return Users(ids, representation.astype(np.float32), attributes)

    return make


VOID = {"meta", "link", "input", "br"}


@pytest.fixture
def sweep_content() -> dict[str, Any]:
    """Content of a sweep.json in which ε 1 and 3 are over-shoot."""
    points = []
    for epsilon, distance, valid in (
        (0.0, 0.18, 0.300),
        (0.03, 0.05, 0.298),
        (0.1, -0.03, 0.295),
        (1.0, 0.25, 0.250),
        (3.0, -0.36, 0.200),
    ):
        attack = [
            {"attribute": "gender", "attacker": name, "balanced_accuracy": 0.5 + share * distance, "chance": 0.5}
            for name, share in (("logistic", 0.8), ("mlp", 1.0), ("knn", -0.5))
        ]
        run = f"epsilon-{epsilon:g}" if epsilon else "none"
        judged = {"valid": valid, "n_selection": 471, "attack": attack, "worst": {"gender": abs(distance)}}
        points.append({"epsilon": epsilon, "run": run, "select_by": "ndcg@10/full", **judged})
    return {
        "format": 1,
        "created": "2026-02-01T09:30:00+00:00",
        "method": "fedau2",
        "attributes": ["gender"],
        "selection_share": 0.5,
        "tolerance": 0.03,
        "select_by": "ndcg@10/full",
        "points": points,
        "chosen": 0.1,
        "overshoot": [1.0, 3.0],
        "reason": "unlearn.epsilon 0.1: the worst of 3 fresh attackers is 0.030 from guessing",
    }


_ARMS: tuple[tuple[str, str, list[str], str, float | None, float, float, float], ...] = (
    # name, label, unlearns, method, epsilon, distance for gender, distance for age, kept
    ("none", "no unlearning", [], "none", None, 0.18, 0.26, 1.0),
    ("fedau2-gender", "FedAU², ε 0.1", ["gender"], "fedau2", 0.1, 0.04, 0.265, 0.96),
    ("moments-gender", "moment transport", ["gender"], "moments", None, -0.03, 0.22, 0.985),
    ("u2u-gender", "U2U matching", ["gender"], "u2u", None, 0.08, 0.25, 0.97),
    ("local_dp-gender", "local DP", ["gender"], "local_dp", None, 0.01, 0.02, 0.4),
    ("moments-both", "moment transport", ["gender", "age"], "moments", None, 0.045, 0.06, 0.95),
    ("grl-1", "gradient reversal, ε 0.1", ["gender"], "grl", 0.1, 0.06, 0.26, 0.97),
    ("grl-2", "gradient reversal, ε 1", ["gender"], "grl", 1.0, 0.30, 0.26, 0.90),
)


@pytest.fixture
def study_content() -> dict[str, Any]:
    """Content of a bench.json with two attributes, five arms and the baseline, and an ablation of two strengths."""
    attributes = {
        "gender": {"classes": ["F", "M"], "counts": [273, 670], "chance": 0.5, "majority": 0.71},
        "age": {"classes": list(CLASSES["age"]), "counts": [234, 504, 205], "chance": 1 / 3, "majority": 0.53},
    }
    rows: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    for name, label, unlearns, method, epsilon, *distances, kept in _ARMS:
        group = "ablation" if name.startswith("grl") else "table"
        about = {"arm": name, "label": label, "group": group, "unlearns": unlearns, "method": method}
        about["epsilon"] = epsilon  # type: ignore[assignment]
        rows += [
            {**about, "seed": seed, "pooled_rows": method == "u2u", "metrics": {}, "seconds": 5.0 + seed, "attack": []}
            for seed in (0, 1, 2)
        ]
        utility = {
            metric: {"mean": share * 0.3, "ratio": share, "low": share - 0.004, "high": share + 0.004}
            for metric, share in (("ndcg@10/full", kept - 0.01), ("ndcg@10/99neg", kept), ("hr@10/full", kept))
        }
        surfaces = [("user_embedding", 1.0)] + ([("trajectory", 2.0)] if group == "table" else [])
        for attribute, distance in zip(("gender", "age"), distances, strict=True):
            chance = attributes[attribute]["chance"]
            assert isinstance(chance, float)
            for surface, times in surfaces:
                means = {"logistic": chance + 0.8 * times * distance, "mlp": chance + times * distance}
                means["knn"] = chance - 0.2 * times * distance
                attackers = {k: {"mean": m, "low": m - 0.006, "high": m + 0.006} for k, m in means.items()}
                worst = {"attacker": "mlp", **attackers["mlp"], "distance": abs(times * distance)}
                found = {"attribute": attribute, "surface": surface, "attackers": attackers, "worst": worst}
                summary.append({**about, **found, "utility": utility})
    inversion = [
        {"attribute": "gender", "adversary": "dsvae", "head": "weight", "stage": "initial", "n": 210, "classes": 2}
        | {"defence": defence, "attack": attack, "accuracy": accuracy, "chance": 0.5, "seeds": [0]}
        | {"low": accuracy - 0.05, "high": accuracy + 0.05}
        for defence, found in (("none", (0.52, 0.99)), ("secure_aggregation", (0.49, 0.51)))
        for attack, accuracy in zip(("dlg", "exact"), found, strict=True)
    ]
    targets = [
        {"aim": "FedAU² hides gender", "must": "gender: at most 0.55", "measured": "0.540 (FedAU²)", "met": True},
        {"aim": "snapshots tell no more", "must": "at most 0.20", "measured": "0.250 (FedAU²)", "met": False},
    ]
    return {
        "format": 1,
        "paper": "fedau2",
        "study": "fedau2_made-up",
        "title": "FedAU² on made-up data",
        "quick": False,
        "created": "2026-02-01T09:30:00+00:00",
        "seeds": [0, 1, 2],
        "utility": ["ndcg@10/full", "ndcg@10/99neg", "hr@10/full"],
        "baseline": "none",
        "attributes": attributes,
        "rows": rows,
        "summary": summary,
        "inversion": inversion,
        "targets": targets,
    }


class Page(HTMLParser):
    """Tables as rows of cells, `data` values of each cell, ids, tags and attributes; checks that tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, list[float]]]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self._caption = ""
        self._cell: tuple[list[str], list[float]] | None = None
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.tables[self._caption].append([])
        elif tag in ("td", "th"):
            self._cell = ([], [])
        elif tag == "data" and self._cell is not None:
            self._cell[1].append(float(values["value"] or "nan"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "caption":
            self.tables[self._caption] = []
        elif tag in ("td", "th") and self._cell is not None:
            self.tables[self._caption][-1].append(("".join(self._cell[0]).strip(), self._cell[1]))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("style", "script"):
            return
        self.text += data
        if self._cell is not None:
            self._cell[0].append(data)
        elif "caption" in self._open:
            self._caption += data

    def table(self, start: str) -> list[list[tuple[str, list[float]]]]:
        return next(rows for caption, rows in self.tables.items() if caption.startswith(start))


@pytest.fixture
def read_page() -> Callable[[str], Page]:
    """Parse a page."""
    return Page


@pytest.fixture
def written() -> Callable[[list[Path]], tuple[Page, dict[str, Any], list[dict[str, str]]]]:
    """Read the three files of a report."""

    def read(paths: list[Path]) -> tuple[Page, dict[str, Any], list[dict[str, str]]]:
        page, content, table = paths
        with table.open(newline="") as file:
            return Page(page.read_text()), json.loads(content.read_text()), list(csv.DictReader(file))

    return read


class Browser:
    """Headless Chromium over its debugging pipe: JSON messages, each ended by a zero byte."""

    def __init__(self, binary: str, profile: Path) -> None:
        read_by_browser, write = os.pipe()
        read, written_by_browser = os.pipe()
        # the browser wants the pipes as descriptors 3 and 4, so none of ours may be in the way
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (read_by_browser, written_by_browser)]

        def place() -> None:
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self.process = subprocess.Popen(
            [
                binary,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=place,
        )
        for fd in (read_by_browser, written_by_browser, *theirs):
            os.close(fd)
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has closed its pipe")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        content: dict[str, Any] = json.loads(message)
        return content

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its result; events that come in between are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            content = self._receive()
            if content.get("id") == self._number:
                if "error" in content:
                    raise RuntimeError(f"{method}: {content['error']['message']}")
                result: dict[str, Any] = content["result"]
                return result
            self.events.append(content)

    def open(self, page: Path, *, width: int, height: int, dark: bool = False, scripts: bool = True) -> None:
        """Show a page and wait until it has loaded; events of pages before are forgotten."""
        self.call("Page.navigate", url="about:blank")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page; works with the page's own scripts switched off."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = {"ArrowRight": (39, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def problems(self) -> list[str]:
        """Uncaught exceptions, console errors and browser-reported errors since the page was opened."""
        found = []
        for event in self.events:
            method, told = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"].get("text")))
            elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
                found.append(f"console: {told['args']}")
            elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(told["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser, kindly and, if that does not help, at once."""
        self._session = None
        for end in (self.process.terminate, self.process.kill):
            end()
            try:
                self.process.wait(timeout=10)
                break
            except subprocess.TimeoutExpired:
                continue
        os.close(self._write)
        os.close(self._read)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser shared by all tests; skips them where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next((found for name in names if (found := shutil.which(name))), None)
    if binary is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is installed")
    opened = Browser(binary, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
