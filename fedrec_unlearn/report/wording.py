"""Names, units and numbers as a reader sees them. Nothing here knows HTML."""

from __future__ import annotations

import math
import re

METRICS = {
    "ndcg": ("NDCG", "how near the top of the list the held-out items stand; 1 is a perfect order"),
    "recall": ("Recall", "share of a user's held-out items that are in the list"),
    "hr": ("Hit rate", "share of users with at least one held-out item in the list"),
    "mrr": ("MRR", "mean of 1 / rank of the first held-out item in the list, 0 if there is none"),
    "precision": ("Precision", "share of the list that is held-out items"),
    "map": ("MAP", "mean average precision of the list"),
    "rmse": ("RMSE", "root mean squared error of predicted ratings; smaller is better"),
}
"""Ranking metric -> (name, what it says)."""

SURFACES = {
    "user_embedding": ("user embedding", "the user embeddings"),
    "update_support": ("updated items", "the ids of the rows a user uploads"),
    "update_values": ("update values", "the values of the rows a user uploads"),
    "decoded_support": ("decoded items", "a user's own items, decoded from the ids of the uploaded rows"),
    "trajectory": ("trajectory", "snapshots of the user embeddings during training"),
    "directions": ("directions", "the directions in which the user embeddings moved during training"),
}
"""Attack surface -> (short name, what the attacker sees, as the object of a sentence)."""

CONTROLS = {"shuffled_labels": ("shuffled labels", "the user embeddings, with the labels dealt out at random")}
"""What is attacked to see that nothing is found; named like a surface, and no leak."""

UPLOADS = ("update_support", "update_values", "decoded_support")
"""Surfaces that a server has under a transport in the clear."""

COURSES = ("trajectory", "directions")
"""Surfaces that need snapshots of training."""

CLEAR_TRANSPORTS = ("plain", "sparse", "int8", "ternary", "svd", "colr")
"""Transports that show the server what each user uploads."""

ATTACKERS = {
    "logistic": "logistic regression",
    "mlp": "MLP",
    "boosted_trees": "boosted trees",
    "knn": "nearest neighbours",
    "svm": "RBF-SVM",
}
"""Attacker -> name."""

FACTS = {
    "data": "Data set",
    "n_users": "Users",
    "n_items": "Items",
    "interactions": "Interactions",
    "model": "Model",
    "embedding_dim": "Embedding length",
    "objective": "Objective",
    "unlearned": "Unlearned",
    "transport": "Transport",
    "engine": "Engine",
    "clients_per_round": "Clients a round",
    "rounds": "Rounds",
    "best_round": "Best round",
    "device": "Device",
    "seed": "Seed",
    "train_seconds": "Training time",
    "peak_memory_mib": "Peak memory",
    "status": "Status",
    "created": "Started",
    "version": "Version",
}
"""What was run -> name, in the order of the page."""

# what XML 1.0 cannot hold, and what would reorder the text around it
_UNPRINTABLE = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\x7f-\x9f]"
)


def printable(text: str) -> str:
    """The text on one line, with characters that cannot be shown replaced by U+FFFD."""
    return " ".join(_UNPRINTABLE.sub("\ufffd", text).split()) or "\ufffd"


def elide(text: str, length: int) -> str:
    """The text, cut with an ellipsis if it is longer than `length`."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def metric_name(metric: str) -> str:
    """`ndcg@10/full` -> `NDCG@10`; a metric that is not known keeps its name."""
    base, _, _protocol = metric.partition("/")
    name, at, length = base.partition("@")
    return f"{METRICS[name][0]}{at}{length}" if name in METRICS else base


def metric_in_full(metric: str) -> str:
    """With its protocol: `ndcg@10/99neg` -> `NDCG@10, 99 negatives`; `ndcg@10/full` -> `NDCG@10, all items`."""
    protocol = metric.partition("/")[2]
    if not protocol:
        return metric_name(metric)
    sampled = re.fullmatch(r"(\d+)neg", protocol)
    words = "all items" if protocol == "full" else f"{sampled[1]} negatives" if sampled else protocol
    return f"{metric_name(metric)}, {words}"


def metric_meaning(metric: str) -> str | None:
    """What a metric says, None if it is not known."""
    return METRICS.get(metric.partition("/")[0].partition("@")[0], (None, None))[1]


def protocol_meaning(metric: str) -> str | None:
    """The evaluation protocol in a metric's name, explained; None without one."""
    protocol = metric.partition("/")[2]
    if protocol == "full":
        return "/full: the list is drawn from all items that the user has not seen in training."
    if sampled := re.fullmatch(r"(\d+)neg", protocol):
        return (
            f"/{protocol}: each held-out item is ranked among {sampled[1]} random items that the user has not seen. "
            "Such values are much higher than under /full and cannot be compared with them."
        )
    return f"/{protocol}: a protocol that this report does not know." if protocol else None


def smaller_is_better(metric: str) -> bool:
    """True for errors, false for scores."""
    return metric.partition("/")[0].partition("@")[0] == "rmse"


def surface_name(surface: str) -> str:
    """Short name of an attack surface."""
    return (SURFACES | CONTROLS).get(surface, (surface, surface))[0]


def surface_seen(surface: str) -> str:
    """What an attacker on this surface sees, as the object of "who sees ..."."""
    return (SURFACES | CONTROLS).get(surface, (surface, surface))[1]


def attacker_name(attacker: str) -> str:
    """Name of an attacker."""
    return ATTACKERS.get(attacker, attacker)


def count(value: float) -> str:
    """`80808` -> `80 808`, with thin spaces that do not break."""
    return f"{value:,.0f}".replace(",", "\u202f")


def decimal(value: float, digits: int = 3) -> str:
    """Fixed number of digits after the point, with a true minus sign; never a negative zero."""
    text = f"{value:.{digits}f}"
    if float(text) == 0.0:
        text = text.lstrip("-")
    return text.replace("-", "\u2212")


def signed(value: float, digits: int = 3) -> str:
    """Like `decimal`, with a plus sign in front of what is positive."""
    text = decimal(value, digits)
    return text if text.startswith("\u2212") or float(text) == 0.0 else f"+{text}"


def percent(share: float) -> str:
    """`0.684` -> `68.4 %`, `0.5` -> `50 %`."""
    return decimal(100.0 * share, 0 if round(100.0 * share, 9).is_integer() else 1) + "\u00a0%"


def bytes_unit(largest: float) -> tuple[float, str]:
    """Bytes in a unit, and the unit, so that `largest` is a number between 1 and 1000."""
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    power = 0
    while power < len(units) - 1 and largest >= 999.5 * 1000.0**power:
        power += 1
    return 1000.0**power, units[power]


def byte_size(value: float) -> str:
    """`430592` -> `431 kB`, three significant digits; decimal units (1 kB = 1000 B)."""
    size, unit = bytes_unit(value)
    scaled = value / size
    digits = 0 if unit == "B" or scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:.{digits}f}\u00a0{unit}"


def duration(seconds: float) -> str:
    """`0.0113` -> `11 ms`, `12.3` -> `12.3 s`, `754` -> `12 min 34 s`, `7262` -> `2 h 1 min`."""
    if seconds < 0.0995:
        milliseconds = 1000.0 * seconds
        return f"{milliseconds:.{0 if milliseconds >= 9.95 or milliseconds == 0 else 1}f}\u00a0ms"
    if seconds < 99.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f}\u00a0s"
    whole = math.floor(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}\u00a0min {whole % 60}\u00a0s"
    minutes = math.floor(seconds / 60.0 + 0.5)
    return f"{minutes // 60}\u00a0h {minutes % 60}\u00a0min"


def moment(iso: str) -> str:
    """`2026-01-31T12:00:00+00:00` -> `2026-01-31 12:00 UTC`; anything else as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)", iso)
    return f"{found[1]} {found[2]} UTC" if found else iso


def points(difference: float) -> str:
    """A difference of shares: `0.012` -> `+1.2 points`."""
    return f"{signed(100.0 * difference, 1)}\u00a0points"


def strength(epsilon: float) -> str:
    """`0.1` -> `0.1`, `1e-05` -> `1e-5`: as a user would write it."""
    return re.sub(r"e([+-])0+(\d)", r"e\1\2", f"{epsilon:g}").replace("e+", "e")


def headed(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def plural(number: int, noun: str, ending: str = "s") -> str:
    """`1 round`, `2 rounds`."""
    return f"{count(number)} {noun}" + ("" if number == 1 else ending)


def listed(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
