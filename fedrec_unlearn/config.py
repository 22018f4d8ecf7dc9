"""Every option of a run: frozen dataclasses, one docstring under each field.

The docstrings are what `fedrec train --help` prints and what `--print-config` writes as comments, so an
option is explained in one place. Values are checked when a section is made; a wrong one raises
`ConfigError` that names the option as a user writes it (``federation.local_epochs``).
Reading YAML files and command-line overrides is `fedrec_unlearn.config_file`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fedrec_unlearn.config_attack import ATTACKERS, KNOWN_ATTACKERS, SURFACES, AttackConfig
from fedrec_unlearn.config_check import need
from fedrec_unlearn.config_secemb import SecEmbConfig
from fedrec_unlearn.config_unlearn import ADVERSARIAL, AFTERWARDS, METHODS, UnlearnConfig

__all__ = [
    "ADVERSARIAL",
    "AFTERWARDS",
    "AGE_BOUNDS",
    "ATTACKERS",
    "KNOWN_ATTACKERS",
    "METHODS",
    "RING_TRANSPORTS",
    "SECTIONS",
    "SURFACES",
    "AttackConfig",
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "FederationConfig",
    "ModelConfig",
    "SecEmbConfig",
    "SplitConfig",
    "UnlearnConfig",
]

RING_TRANSPORTS = frozenset({"secemb", "secagg"})
"""Transports whose servers add whole numbers."""

AGE_BOUNDS = (18, 25, 35, 45, 50, 56)
"""Lower bounds of MovieLens' age groups after the first (under 18); the first group is everything below."""


@dataclass(frozen=True)
class DataConfig:
    """Which interactions and attributes to read, and what to leave out."""

    name: str = "ml-100k"
    """Data set: a card of `datasets/` (ml-100k, ml-1m, yelp2018, gowalla, ..., synthetic), or any name for your own files."""
    dir: str | None = None
    """Folder with the data set's files, or with one folder per data set. Unset: $FEDREC_DATA, then the files the installed recbole package carries (ml-100k), then the download cache."""
    format: Literal["auto", "atomic", "movielens", "adjacency", "csv"] = "auto"
    """Layout of the files. auto: told by the card or by the file names."""
    user_column: str = "user_id"
    """csv: column with the user."""
    item_column: str = "item_id"
    """csv: column with the item."""
    rating_column: str | None = None
    """csv: column with the rating, if there is one."""
    timestamp_column: str | None = None
    """csv: column with the time, if there is one."""
    separator: str = ","
    """csv: field separator."""
    min_user_interactions: int = 0
    """k-core: drop users with fewer interactions, repeatedly together with the items (0: keep all)."""
    min_item_interactions: int = 0
    """k-core: drop items with fewer interactions (0: keep all)."""
    min_rating: float | None = None
    """Keep only interactions rated at least this much (unset: keep all as positive feedback)."""
    item_features: tuple[str, ...] = ()
    """Item columns used as extra fields by FM and DeepFM, for example genre."""
    age_bounds: tuple[int, ...] = AGE_BOUNDS
    """Lower bounds of the age groups after the first, ascending."""

    def __post_init__(self) -> None:
        need(bool(self.name), "data.name", "must not be empty")
        need(len(self.separator) == 1, "data.separator", f"must be one character, not {self.separator!r}")
        need(self.min_user_interactions >= 0, "data.min_user_interactions", "must be 0 or more")
        need(self.min_item_interactions >= 0, "data.min_item_interactions", "must be 0 or more")
        ascending = all(a < b for a, b in zip(self.age_bounds, self.age_bounds[1:], strict=False))
        need(len(self.age_bounds) > 0 and ascending, "data.age_bounds", "must be ascending numbers")


@dataclass(frozen=True)
class SplitConfig:
    """How interactions are divided into train, validation and test."""

    method: Literal["ratio", "leave_one_out", "global_time", "given"] = "ratio"
    """ratio: per user, at random (RecBole's RS); leave_one_out: a user's last item for test, the one before for validation; global_time: everything before two points in time; given: the files' own split."""
    ratios: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of train, validation and test for ratio and global_time. With given and no validation file, the second share of each user's train part is held out."""
    order: Literal["random", "time"] = "random"
    """ratio: shuffle first (random) or keep each user's time order. leave_one_out: take the last by time or a random one."""
    seed: int = 2020
    """Seed of the split, apart from the run's seed so that runs with other seeds share one split."""

    def __post_init__(self) -> None:
        need(all(r >= 0 for r in self.ratios), "split.ratios", "must not be negative")
        need(abs(sum(self.ratios) - 1.0) < 1e-9, "split.ratios", f"must add up to 1, not {sum(self.ratios):g}")
        need(self.ratios[0] > 0, "split.ratios", "the train share must be positive")


@dataclass(frozen=True)
class ModelConfig:
    """The recommender each client trains."""

    name: Literal["mf", "ncf", "fm", "deepfm", "pfedrec"] = "mf"
    """mf: matrix factorisation; ncf: GMF and MLP branches (NeuMF); fm: factorisation machine; deepfm: FM and MLP; pfedrec: no user embedding, a personal score function instead."""
    embedding_dim: int = 64
    """Length of a user's and an item's embedding (per branch for ncf)."""
    hidden_sizes: tuple[int, ...] = (64, 32, 16)
    """Widths of the MLP's hidden layers (ncf, deepfm)."""
    init_std: float = 0.05
    """Standard deviation of the initial embeddings."""

    def __post_init__(self) -> None:
        need(self.embedding_dim >= 1, "model.embedding_dim", "must be at least 1")
        need(len(self.hidden_sizes) >= 1, "model.hidden_sizes", "needs at least one layer")
        need(all(h >= 1 for h in self.hidden_sizes), "model.hidden_sizes", "widths must be at least 1")
        need(self.init_std > 0, "model.init_std", "must be positive")


@dataclass(frozen=True)
class FederationConfig:
    """The rounds: who takes part, what a client does, how the server combines."""

    engine: Literal["vectorised", "reference"] = "vectorised"
    """vectorised: a whole block of clients as tensor operations; reference: one client at a time, for reading and checking."""
    rounds: int = 600
    """Rounds at most (early stopping may end sooner)."""
    clients_per_round: int = 64
    """Clients that take part in a round (0: all)."""
    client_sampling: Literal["permutation", "uniform"] = "permutation"
    """permutation: every client once per pass, in a new random order; uniform: a fresh random subset each round."""
    objective: Literal["bpr", "bce", "mse"] = "bpr"
    """bpr: pairwise ranking loss; bce: pointwise with sampled negatives; mse: predict the rating (reported as RMSE)."""
    num_negatives: int = 1
    """Negative items drawn per positive, once a round (bpr, bce)."""
    local_epochs: int = 1
    """Gradient steps a client takes on all of its data before it uploads."""
    user_learning_rate: float = 5.0
    """Step size of the private user row (SGD on the client's mean loss)."""
    client_learning_rate: float = 1.0
    """Step size of the client's copies of item rows and dense parameters (SGD on the client's mean loss)."""
    l2: float = 0.01
    """Weight decay of the user row and the touched item rows, added to their gradients."""
    client_weighting: Literal["interactions", "uniform"] = "interactions"
    """Weight of a client in the mean: its number of training interactions, or 1."""
    item_aggregation: Literal["mean", "row_mean"] = "mean"
    """mean: divide item updates by the weight of all clients of the round; row_mean: by the weight of those that touched the row."""
    server_optimizer: Literal["adam", "sgd"] = "adam"
    """How the server applies the mean update (FedAdam or FedAvg)."""
    server_learning_rate: float = 0.001
    """Step size of the server (1.0 with sgd and equal client rates is FedAvg)."""
    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the server's Adam moments."""
    adam_epsilon: float = 1e-8
    """Added to the root of Adam's second moment."""
    transport: Literal["plain", "sparse", "secemb", "secagg", "int8", "ternary", "svd", "colr"] = "plain"
    """plain: every client moves the whole item table; sparse: only its rows, whose ids the server sees; secemb: only its rows, and neither of two servers sees which or what; secagg: the whole table in two shares; int8, ternary, svd, colr: the whole table with loss, in the clear. secemb and secagg turn ring mode on."""
    compression_rank: int = 0
    """svd, colr: rank of a client's update (0: a sixteenth of an item row's width)."""
    max_items: int = 0
    """Item rows a client touches in a round at most, negatives included; one with more trains on some of its items, drawn anew each round (0: no limit). Under secemb everybody sends as if it had that many: it is the paper's m'."""
    ring: bool = False
    """Ring mode: compute in float64 and sum client updates as int64 fixed point, so that the sum does not depend on order or partition and engines and block sizes agree bit for bit (docs: federation, ring mode, says how surely)."""
    ring_fraction_bits: int = 20
    """Ring mode: binary digits after the point. Fewer make it less likely that two ways of computing an update round differently."""
    block_mib: float = 0.0
    """Memory for the tensors of one block of clients, MiB (0: chosen by the device)."""
    checkpoint_every: int = 50
    """Rounds between two checkpoints; an interrupted run repeats at most this many."""
    snapshot_every: int = 0
    """Rounds between two snapshots of the private rows, for the attack on a user's trajectory (0: none)."""

    def __post_init__(self) -> None:
        positive = ("rounds", "num_negatives", "local_epochs", "checkpoint_every")
        for name in positive:
            need(getattr(self, name) >= 1, f"federation.{name}", "must be at least 1")
        need(self.clients_per_round >= 0, "federation.clients_per_round", "must be 0 (all) or more")
        for name in ("user_learning_rate", "client_learning_rate", "server_learning_rate"):
            need(getattr(self, name) > 0, f"federation.{name}", "must be positive")
        need(self.l2 >= 0, "federation.l2", "must be 0 or more")
        need(all(0 <= b < 1 for b in self.adam_betas), "federation.adam_betas", "must lie in [0, 1)")
        need(self.adam_epsilon > 0, "federation.adam_epsilon", "must be positive")
        need(self.compression_rank >= 0, "federation.compression_rank", "must be 0 (automatic) or more")
        drawn = self.num_negatives if self.objective != "mse" else 0
        need(
            self.max_items == 0 or self.max_items > drawn,
            "federation.max_items",
            f"must be 0 (no limit) or more than num_negatives ({drawn}), for one positive item and its negatives",
        )
        if self.transport in RING_TRANSPORTS:
            object.__setattr__(self, "ring", True)
        need(8 <= self.ring_fraction_bits <= 40, "federation.ring_fraction_bits", "must lie in 8..40")
        need(self.snapshot_every >= 0, "federation.snapshot_every", "must be 0 (none) or more")
        need(self.block_mib >= 0, "federation.block_mib", "must be 0 (automatic) or more")


@dataclass(frozen=True)
class EvaluationConfig:
    """How recommendations are judged, and when training stops."""

    topk: tuple[int, ...] = (10, 20)
    """Lengths of the recommendation list."""
    metrics: tuple[str, ...] = ("recall", "ndcg", "hr", "mrr", "precision", "map")
    """Ranking metrics."""
    protocol: Literal["full", "sampled"] = "full"
    """full: rank every item the user has not seen; sampled: rank the held-out item among random negatives (for comparison with papers)."""
    sampled_negatives: int = 99
    """Negatives per held-out item under the sampled protocol."""
    every: int = 15
    """Rounds between two evaluations on validation data (0: only at the end)."""
    patience: int = 10
    """Stop after this many evaluations without a better value (0: never)."""
    keep: Literal["best", "last"] = "best"
    """Which round's state is the result: the best by validation, or the last (training then does not stop early)."""
    select_by: str = ""
    """Validation metric that decides which round is kept, for example ndcg@10. Empty: ndcg (else the first metric) at the first list length, rmse under the mse objective."""
    chunk_size: int = 512
    """Users scored at once; results do not depend on it."""

    def __post_init__(self) -> None:
        known = {"recall", "ndcg", "hr", "mrr", "precision", "map"}
        for name in self.metrics:
            need(name in known, "evaluation.metrics", f"unknown metric {name!r}; known: {', '.join(sorted(known))}")
        need(len(self.metrics) > 0, "evaluation.metrics", "needs at least one metric")
        need(len(self.topk) > 0 and all(k >= 1 for k in self.topk), "evaluation.topk", "must be lengths of at least 1")
        need(self.every >= 0, "evaluation.every", "must be 0 or more")
        need(self.patience >= 0, "evaluation.patience", "must be 0 or more")
        need(self.sampled_negatives >= 1, "evaluation.sampled_negatives", "must be at least 1")
        need(self.chunk_size >= 1, "evaluation.chunk_size", "must be at least 1")
        offered = {f"{m}@{length}" for m in self.metrics for length in self.topk} | {"rmse"}
        need(
            self.select_by in offered | {""},
            "evaluation.select_by",
            f"{self.select_by!r} is not computed; one of {', '.join(sorted(offered))}, or empty",
        )

    @property
    def ranking_metric(self) -> str:
        """The ranking metric that decides: `select_by`, or what stands for an empty one."""
        if self.select_by:
            return self.select_by
        return f"{'ndcg' if 'ndcg' in self.metrics else self.metrics[0]}@{self.topk[0]}"


@dataclass(frozen=True)
class Config:
    """All options of a run."""

    seed: int = 2020
    """Seed of everything random in training; the result is a function of the configuration alone."""
    output: str | None = None
    """Run folder to create. Unset: runs/<data>-<model>-<number>."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: int = 1
    """CPU threads for tensor operations (0: torch's default). Rounds are many small operations, which more threads rarely help."""
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)
    secemb: SecEmbConfig = field(default_factory=SecEmbConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    unlearn: UnlearnConfig = field(default_factory=UnlearnConfig)
    attack: AttackConfig = field(default_factory=AttackConfig)

    def __post_init__(self) -> None:
        need(self.threads >= 0, "threads", "must be 0 or more")
        if self.federation.transport == "secemb" and self.secemb.noise_multiplier:
            need(
                self.federation.client_weighting == "uniform" and self.federation.item_aggregation == "mean",
                "secemb.noise_multiplier",
                "needs federation.client_weighting uniform and item_aggregation mean: a sum of weights would tell "
                "about clients what the noise is to hide",
            )
            need(
                not (self.unlearn.attributes and self.unlearn.adversarial),
                "secemb.noise_multiplier",
                "does not go with unlearning during training: an adversary's updates are not clipped; "
                "choose an unlearn.method that works afterwards",
            )
        if self.federation.objective == "mse":
            need(self.evaluation.select_by in ("", "rmse"), "evaluation.select_by", "must be rmse under objective mse")
        else:
            need(self.evaluation.select_by != "rmse", "evaluation.select_by", "rmse needs objective mse")


SECTIONS: Sequence[str] = ("data", "split", "model", "federation", "secemb", "evaluation", "unlearn", "attack")
"""Names of the nested sections of `Config`."""
