"""Methods of attribute unlearning in words: what each is called, what it does, and what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Method:
    """A way to unlearn an attribute."""

    name: str
    words: str
    """What it does, in a sentence or two."""
    during: bool = False
    """Works in training, by an adversary on every client."""
    afterwards: bool = False
    """Changes the private rows once, after training."""
    sums: str = ""
    """What clients send for it; empty where they send nothing."""
    reveals: str = ""
    """What one client's message tells when it travels in the clear."""
    remedy: str = ""
    """What to change where more can be told than before."""


_ADVERSARY = Method(
    "",
    "",
    during=True,
    sums="the updates of the adversary",
    reveals="from a single client's update its label can be solved for, also where reconstruction by gradient "
    "descent fails",
    remedy="choose a smaller unlearn.epsilon, or let fedrec sweep choose it by fresh attackers",
)
_MATCHING = Method(
    "", "", afterwards=True, remedy="take more unlearn.matching_steps, or a larger unlearn.matching_weight"
)
_TRANSPORT = (
    "after training one sum over the users gives mean and covariance of each class, and every user moves its "
    "embedding so that all classes have the same ones"
)
_REVERSAL = (
    "in training every client teaches a small adversary its attribute and pushes its embedding against what the "
    "adversary learns (gradient reversal)"
)

METHODS: dict[str, Method] = {
    "grl": replace(_ADVERSARY, name="gradient reversal", words=_REVERSAL),
    "grl_sut": replace(
        _ADVERSARY,
        name="gradient reversal with trigger",
        words=f"{_REVERSAL}, but only while the adversary is right",
    ),
    "fedau2": replace(
        _ADVERSARY,
        name="FedAU²",
        words=f"{_REVERSAL}, but only while the adversary is right; the adversary draws its latent code and its last "
        "layer anew in every step, which hinders the reconstruction of labels from its updates",
    ),
    "moments": Method(
        "moment transport",
        _TRANSPORT,
        afterwards=True,
        sums="the sums over classes",
        reveals="the class whose numbers are not zero is the client's label",
        remedy="sum the moments of a smaller part of the users (unlearn.moment_share) or raise unlearn.shrinkage",
    ),
    "fedau2_moments": Method(
        "FedAU² and moment transport",
        f"FedAU²: {_REVERSAL}; then moment transport: {_TRANSPORT}",
        during=True,
        afterwards=True,
        sums="the updates of the adversary and the sums over classes",
        reveals="a single update of the adversary gives the client's label, and so does the class whose numbers are "
        "not zero",
        remedy="choose a smaller unlearn.epsilon or a smaller unlearn.moment_share",
    ),
    "u2u": replace(
        _MATCHING,
        name="distribution matching of users",
        words="after training the embeddings of all users are moved until those of one class are distributed like "
        "those of another",
    ),
    "d2d": replace(
        _MATCHING,
        name="distribution matching of classes",
        words="after training the embeddings of all users are moved until the distributions of the classes agree",
    ),
    "leace": Method(
        "linear erasure",
        "after training one sum over the users gives the directions in which classes differ on average, and every "
        "user removes them from its embedding; what is not linear stays",
        afterwards=True,
        sums="the sums over classes",
        reveals="the class whose numbers are not zero is the client's label",
        remedy="lower unlearn.shrinkage, or take moment transport, which equalises covariances too",
    ),
    "local_dp": Method(
        "local differential privacy",
        "after training every user clips its embedding and adds Gaussian noise to it, alone and whatever the attribute",
        afterwards=True,
        remedy="lower unlearn.dp_epsilon",
    ),
}
"""Method, as in run.json -> what it is; in the order of the configuration."""


def method_of(name: str) -> Method:
    """A method by its name in run.json; one that is not known is called by that name."""
    return METHODS.get(name, Method(name, "a method that this report does not know"))
