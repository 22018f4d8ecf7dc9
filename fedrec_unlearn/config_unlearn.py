"""The options of attribute unlearning; a section of `fedrec_unlearn.config`, in a file of its own for its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrec_unlearn.config_check import need


class UnlearnWarning(UserWarning):
    """Unlearning is carried out, but not for everyone it was asked for, or with a strength that does harm."""


METHODS = (
    "none",
    "grl",
    "grl_sut",
    "fedau2",
    "moments",
    "fedau2_moments",
    "u2u",
    "d2d",
    "leace",
    "local_dp",
)
"""Ways to unlearn an attribute, in the order reports list them."""

ADVERSARIAL = frozenset({"grl", "grl_sut", "fedau2", "fedau2_moments"})
"""Methods that work during training, by a term in every client's loss."""

AFTERWARDS = frozenset({"moments", "fedau2_moments", "u2u", "d2d", "leace", "local_dp"})
"""Methods that change the private rows once, after training."""


@dataclass(frozen=True)
class UnlearnConfig:
    """Which user attributes to remove from the private rows, and how."""

    attributes: tuple[str, ...] = ()
    """User attributes to unlearn, one or several at once (empty: none)."""
    method: Literal[
        "none", "grl", "grl_sut", "fedau2", "moments", "fedau2_moments", "u2u", "d2d", "leace", "local_dp"
    ] = "none"
    """grl: gradient reversal; grl_sut: with the selective unlearning trigger; fedau2: with the DSVAE adversary too; moments: moment transport after training; fedau2_moments: both; rivals: u2u, d2d (distribution matching, sees all rows), leace (linear erasure), local_dp (clipped rows with Gaussian noise)."""
    epsilon: float = 0.0
    """Strength of the reversed gradient (0: chosen among `epsilons` by fresh attackers on held-out users)."""
    epsilons: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    """Strengths tried when `epsilon` is 0, and by fedrec sweep."""
    selection_share: float = 0.5
    """Share of the users, drawn at random, on whom fresh attackers judge the strengths; the others are left for the final attack (attack.users: audit)."""
    tolerance: float = 0.03
    """A strength is eligible if it keeps at least 1 - tolerance of the validation metric without unlearning."""
    adversary: Literal["auto", "mlp", "vae", "dsvae"] = "auto"
    """The classifier on the other side. auto: dsvae for fedau2, else mlp."""
    trigger: Literal["auto", "always", "binary", "continuous"] = "auto"
    """When the reversed gradient acts. binary: only while the adversary is right; continuous: in proportion to the estimated margin (Eq. 6); auto: binary for grl_sut and fedau2, else always."""
    trigger_scale: float = 1.0
    """continuous: τ, the scale of the estimated margin."""
    head: Literal["weight", "logit", "none"] = "weight"
    """dsvae: what is drawn anew at its output: the last layer's weights, the logits, or nothing."""
    hidden_size: int = 16
    """Width of the adversary's hidden layer."""
    latent_size: int = 16
    """Length of the latent vector (vae, dsvae)."""
    beta_latent: float = 1e-3
    """Weight of the latent's divergence from a standard normal (vae, dsvae)."""
    beta_weight: float = 1e-3
    """Weight of the drawn weights' divergence from a standard normal (dsvae)."""
    class_weighting: Literal["balanced", "none"] = "balanced"
    """balanced: the adversary's loss weighs classes equally. Clients need the sizes of the classes for it, which one secure sum before the first round gives (its bytes are not counted)."""
    client_learning_rate: float = 0.1
    """Step size of a client's copy of the adversary."""
    server_learning_rate: float = 0.01
    """Step size of the server's optimiser for the adversary."""
    silent_when_wrong: bool = False
    """Clients send no adversary update while it misjudges them. Saves bytes, and reveals that it did."""
    secure_sums: bool = True
    """The adversary's updates and the moments travel as additive shares to two servers; off: in the clear."""
    further_rounds: int = 300
    """Rounds of further training when unlearning starts from a trained run (adversarial methods)."""
    moment_share: float = 0.8
    """moments: share of the users, drawn at random, whose moments are summed. All of them would overfit: labels become readable the other way round."""
    moment_order: Literal["damped", "optimal", "mean"] = "damped"
    """moments: damped: means and covariances as far as that is cheap in scores; optimal: optimal transport between Gaussians, all of the difference; mean: means only."""
    transport_ridge: float = 0.015
    """moments: λ of the damped map; larger moves less."""
    shrinkage: float = 0.0
    """moments: a class of n users keeps n / (n + shrinkage · width) of its own covariance, the rest is that within all classes."""
    item_rounds: int = 0
    """moments: rounds after the transport in which item rows are trained on and private rows stand still."""
    matching_steps: int = 100
    """u2u, d2d: gradient steps on the private rows."""
    matching_weight: float = 0.0
    """u2u, d2d: weight of the distance between classes against the term that keeps recommendations (0: by the method)."""
    dp_epsilon: float = 8.0
    """local_dp: ε of the Gaussian mechanism on a clipped private row."""
    dp_delta: float = 1e-5
    """local_dp: δ of the Gaussian mechanism."""

    def __post_init__(self) -> None:
        need(len(set(self.attributes)) == len(self.attributes), "unlearn.attributes", "names an attribute twice")
        need(
            self.method == "none" or len(self.attributes) > 0,
            "unlearn.attributes",
            f"method {self.method} needs at least one attribute, for example gender",
        )
        need(
            self.method != "none" or not self.attributes,
            "unlearn.method",
            f"none leaves {', '.join(self.attributes)} as it is; name a method, for example fedau2 or moments, "
            "or leave unlearn.attributes empty",
        )
        need(self.epsilon >= 0, "unlearn.epsilon", "must be 0 (automatic) or more")
        need(
            len(self.epsilons) > 0 and all(e > 0 for e in self.epsilons), "unlearn.epsilons", "must be positive numbers"
        )
        for name in ("hidden_size", "latent_size", "further_rounds", "matching_steps"):
            need(getattr(self, name) >= 1, f"unlearn.{name}", "must be at least 1")
        for name in ("trigger_scale", "client_learning_rate", "server_learning_rate", "dp_epsilon", "transport_ridge"):
            need(getattr(self, name) > 0, f"unlearn.{name}", "must be positive")
        for name in ("beta_latent", "beta_weight", "item_rounds", "matching_weight", "shrinkage"):
            need(getattr(self, name) >= 0, f"unlearn.{name}", "must be 0 or more")
        need(0 < self.selection_share < 1, "unlearn.selection_share", "must lie in (0, 1)")
        need(0 <= self.tolerance < 1, "unlearn.tolerance", "must lie in [0, 1)")
        need(0 < self.moment_share <= 1, "unlearn.moment_share", "must lie in (0, 1]")
        need(0 < self.dp_delta < 1, "unlearn.dp_delta", "must lie in (0, 1)")

    @property
    def afterwards(self) -> bool:
        """Whether the method changes the private rows after training."""
        return self.method in AFTERWARDS

    @property
    def adversarial(self) -> bool:
        """Whether the method adds a term to the clients' loss."""
        return self.method in ADVERSARIAL

    @property
    def adversary_kind(self) -> str:
        """The adversary in use: `adversary`, or what auto stands for."""
        if self.adversary != "auto":
            return self.adversary
        return "dsvae" if self.method.startswith("fedau2") else "mlp"

    @property
    def trigger_kind(self) -> str:
        """The trigger in use: `trigger`, or what auto stands for."""
        if self.trigger != "auto":
            return self.trigger
        return "always" if self.method == "grl" else "binary"
