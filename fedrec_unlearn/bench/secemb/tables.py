"""A study of transports in tables: bytes, times, the paper's table, a whole round, what rivals lose, m'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedrec_unlearn.bench.secemb.sizes import MEGABYTE
from fedrec_unlearn.bench.tables import ABSENT, StudyTable, csv_text

Content = Mapping[str, Any]

_PER_CLIENT = ("keys", "session", "request", "rows", "update")


def transport_tables(content: Content) -> list[StudyTable]:
    """The tables of bench.json, costs first.

    Args:
        content: of bench.json.
    """
    made = [*cost_tables(content), *round_tables(content)]
    for comparison in content["comparisons"]:
        own = [entry for entry in content["summary"] if entry["comparison"] == comparison["name"]]
        made.append(_comparison_table(comparison, own, len(content["seeds"])))
        if comparison["sweeps"]:
            made.append(_sweep_table(comparison, own))
    if content["targets"]:
        made.append(target_table(content["targets"]))
    return made


def cost_tables(content: Content) -> list[StudyTable]:
    """Bytes, times and the paper's table, of `costs.costs_content`."""
    return [_bytes_table(content), _time_table(content), *_work_table(content), _formula_table(content)]


def _megabytes(size: float) -> str:
    """Three decimals, more for what is small."""
    return f"{size / MEGABYTE:.3f}"


def _bytes_table(content: Content) -> StudyTable:
    rows = []
    for entry in content["costs"]:
        once, whole = entry["client"]["bytes"]["once"], entry["client"]["bytes"]["whole"]
        rows.append(
            (
                f"{entry['catalogue']}, {entry['encoding']}",
                f"{entry['items']:,}",
                f"{entry['max_items']:,}",
                f"{entry['client']['trees']:,} × {entry['client']['slots']:,}",
                _megabytes(once["upload"]),
                _megabytes(whole["upload"]),
                _megabytes(once["download"]),
                _megabytes(once["forwarded"]),
                _megabytes(once["upload"] + once["download"] + once["forwarded"]),
                f"{entry['ratio']:.1f}×",
                f"{entry['ratio_compressed']:.1f}×",
            )
        )
    columns = (
        "catalogue", "items", "m'", "trees × leaves", "upload MB", "with whole keys", "download MB",
        "server 0 to 1 MB", "all MB", "dense sharing / upload", "one share a seed / upload",
    )  # fmt: skip
    note = (
        "Bytes of a client and round as they were made, headers and seals included, in MB of 10^6 bytes; rows of "
        f"{content['width']} numbers of {content['ring_bits']} bits. Upload: to both servers, request and update, with "
        "correction words once, which server 0 forwards."
    )
    return StudyTable("What a client sends", columns, tuple(rows), note=note)


def _time_table(content: Content) -> StudyTable:
    batches = list(dict.fromkeys(int(s["clients"]) for entry in content["costs"] for s in entry["server"]))
    rows = []
    for entry in content["costs"]:
        client = entry["client"]["milliseconds"]
        of = {int(found["clients"]): found["milliseconds"] for found in entry["server"]}
        served = [
            _milliseconds(of[batch][part]) if batch in of else ABSENT
            for part in ("retrieve", "aggregate")
            for batch in batches
        ]
        receive = of[max(of)]["receive"]
        whole = sum(client[name] for name in ("session", "request", "rows", "update"))
        rows.append(
            (
                f"{entry['catalogue']}, {entry['encoding']}",
                _milliseconds(client["keys"]),
                _milliseconds(whole),
                *served,
                _milliseconds(receive),
            )
        )
    columns = (
        "catalogue",
        "client: keys",
        "client: all",
        *(f"{part}, {batch}" for part in ("retrieve", "aggregate") for batch in batches),
        "receive",
    )
    note = (
        "CPU milliseconds of a client and round, one thread, medians. Keys: matching, trees, final correction words; "
        "all: key agreement, request, reading the rows, update, sealing included. Each server: answering requests and "
        "adding up updates in batches of so many clients, and opening what a client sends. Rows and sums were compared "
        "with plain integers, to the last bit."
    )
    return StudyTable("Time of a client, and of each server for a client", columns, tuple(rows), note=note)


def _milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _work_table(content: Content) -> Iterable[StudyTable]:
    known = [entry for entry in content["work"] if entry["both"] is not None]
    if known:
        rows = tuple(
            (e["catalogue"], str(e["clients"]), *(f"{e[part]:.0f}×" for part in ("retrieve", "aggregate", "both")))
            for e in known
        )
        columns = ("catalogue", "clients in a batch", "retrieve", "aggregate", "both")
        yield StudyTable("Server work, the paper's encoding over ours", columns, rows)


def _formula_table(content: Content) -> StudyTable:
    ours = {entry["catalogue"]: entry for entry in content["costs"] if entry["encoding"] == "binned"}
    rows = []
    for line in content["formula"]:
        printed = line["printed"]
        own = ours.get(line["catalogue"])
        rows.append(
            (
                line["catalogue"],
                f"{line['items']:,}",
                f"{line['max_items']:,}",
                f"{line['secfedrec'] / MEGABYTE:.2f}",
                ABSENT if printed is None else f"{printed['secfedrec']:.2f}",
                f"{line['secemb'] / MEGABYTE:.2f}",
                ABSENT if printed is None else f"{printed['secemb']:.2f}",
                f"{line['ratio']:.1f}",
                ABSENT if printed is None else f"{printed['ratio']:.1f}",
                _megabytes(line["dense_compressed"]),
                ABSENT if own is None else _megabytes(own["client"]["bytes"]["once"]["upload"]),
                ABSENT if own is None else f"{own['ratio']:.1f}",
            )
        )
    columns = (
        "catalogue", "items", "m'", "SecFedRec", "printed", "SecEmb", "printed", "ratio", "printed",
        "SecFedRec, a share as its seed", "ours", "ratio",
    )  # fmt: skip
    note = (
        "Upload of a client and round, MB of 10^6 bytes, both servers. SecFedRec 2·m·d·b/8, SecEmb "
        "2·m'·(128·log₂ m + (d + 1)·b)/8; printed: what the paper's table says. Ours: as made, binned, with correction "
        "words once."
    )
    return StudyTable("The paper's table, by its formula", columns, tuple(rows), note=note)


def round_tables(content: Content) -> list[StudyTable]:
    """A whole round by phases, in one process and over HTTPS."""
    made = []
    for found in content["rounds"]:
        remote = found["kind"] == "https round"
        spent = {name: _spent(phase) for name, phase in found["phases"].items()}
        spent["all"] = [sum(each or 0.0 for each in column) for column in zip(*spent.values(), strict=True)]
        rows = [
            (name, *(ABSENT if seconds is None else f"{seconds:.2f}" for seconds in columns))
            for name, columns in spent.items()
        ]
        columns = ("phase", "wall s", "CPU s", *(("server 0 CPU s", "server 1 CPU s") if remote else ()))
        how = "two server processes over HTTPS" if remote else "both servers in one process"
        title = f"A round of {found['clients']} clients at {found['catalogue']}'s size, {how}"
        made.append(StudyTable(title, columns, tuple(rows), note=_round_note(found)))
    return made


def _spent(phase: Mapping[str, Any]) -> list[float | None]:
    return [phase["wall_seconds"], phase["cpu_seconds"], *phase.get("server_cpu_seconds", ())]


def _round_note(found: Mapping[str, Any]) -> str:
    sizes, memory, clients = found["bytes"], found["memory"], found["clients"]
    told = (
        f"{_megabytes(sizes['upload'] / clients)} MB up, {_megabytes(sizes['download'] / clients)} MB down and "
        f"{_megabytes(sizes['forwarded'] / clients)} MB between the servers for each client. "
    )
    if "servers_peak" in memory:
        peaks = " and ".join(ABSENT if peak is None else f"{peak:.0f} MiB" for peak in memory["servers_peak"])
        return told + f"Largest memory: servers {peaks}, clients' process {memory['peak']:.0f} MiB."
    return told + (
        f"Largest memory: {memory['peak']:.0f} MiB, of which {memory['data']:.0f} before the round (table and updates)."
    )


def _comparison_table(comparison: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], seeds: int) -> StudyTable:
    rows = tuple(
        (
            entry["label"],
            _spread(entry["mean"], entry["std"]),
            ABSENT if entry["arm"] == "plain" else _difference(entry["difference"]),
            f"{entry['bytes_up']:,.0f}",
            f"{entry['bytes_down']:,.0f}",
            f"{entry['ratio_plain']:.1f}×",
            ABSENT if entry["ratio_secagg"] is None else f"{entry['ratio_secagg']:.1f}×",
            f"{entry['best_round']:.0f}",
        )
        for entry in entries
    )
    name = comparison["metric"]
    columns = (
        "transport", f"{name}, sd", "less plain, 95 %", "bytes up", "bytes down", "plain / up", "secagg / up",
        "best round",
    )  # fmt: skip
    same = [e["label"] for e in entries if e["same_as_secagg"] and e["transport"] == "secemb"]
    note = (
        f"Test items, mean of {seeds} seed{'s' * (seeds != 1)} and standard deviation; the difference from plain is "
        "taken seed by seed. Bytes of a client and round; secagg's numbers have 64 bits, SecEmb's rows 32."
    )
    if same:
        note += f" To the last digit as secagg, in every seed: {', '.join(same)}."
    return StudyTable(f"What transports cost and lose: {comparison['title']}", columns, rows, note=note)


def _sweep_table(comparison: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> StudyTable:
    own = [entry for entry in entries if entry["transport"] == "secemb"]
    rows = tuple(
        (
            "no limit" if entry["max_items"] == 0 else f"{entry['max_items']}",
            f"{entry['cut']:.1%}",
            _spread(entry["mean"], entry["std"]),
            _difference(entry["difference"]),
            f"{entry['bytes_up']:,.0f}",
            f"{entry['bytes_down']:,.0f}",
            f"{entry['bytes_between']:,.0f}",
            f"{entry['deferred']:.2g}",
        )
        for entry in own
    )
    columns = (
        "m'", "clients cut", f"{comparison['metric']}, sd", "less plain, 95 %", "bytes up", "bytes down",
        "server 0 to 1", "items deferred",
    )  # fmt: skip
    note = (
        f"Without a limit a client touches up to {own[0]['touched_max']:.0f} item rows in a round, nine in ten at most "
        f"{own[0]['touched_p90']:.0f}. A client that touches more than m' trains on some of its items, drawn anew each "
        "round."
    )
    return StudyTable(f"How to choose m': {comparison['title']}", columns, rows, note=note)


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.4f}" if std is None or std != std else f"{mean:.4f} ± {std:.4f}"


def _difference(found: Mapping[str, float | None]) -> str:
    mean, low, high = found["mean"], found["low"], found["high"]
    assert mean is not None
    if low is None or high is None or low != low:
        return f"{mean:+.4f}"
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"


def target_table(targets: Sequence[Mapping[str, Any]]) -> StudyTable:
    """What was aimed at, and by how much it was met or missed."""
    rows = tuple((t["aim"], t["must"], t["measured"], "yes" if t["met"] else "no") for t in targets)
    return StudyTable("Targets", ("aim", "must", "measured", "met"), rows, 4)


def rows_csv(content: Content) -> str:
    """One line for each comparison, arm and seed."""
    return csv_text([{name: value for name, value in row.items() if name != "test"} for row in content["rows"]])


def summary_csv(content: Content) -> str:
    """One line for each comparison and arm."""
    lines = []
    for entry in content["summary"]:
        line = {name: value for name, value in entry.items() if name not in ("per_seed", "difference")}
        lines.append(line | {f"difference_{name}": value for name, value in entry["difference"].items()})
    return csv_text(lines)


def costs_csv(content: Content) -> str:
    """One line for each catalogue, encoding and size of a batch."""
    lines = []
    for entry in content["costs"]:
        line: dict[str, Any] = {name: entry[name] for name in ("catalogue", "items", "max_items", "encoding")}
        line |= {name: entry["client"][name] for name in ("trees", "slots", "depth")}
        for keys, sizes in entry["client"]["bytes"].items():
            line |= {f"bytes_{name}_{keys}": size for name, size in sizes.items()}
        line |= {name: entry[name] for name in ("ratio", "ratio_compressed")}
        line |= {f"client_{name}_ms": entry["client"]["milliseconds"][name] for name in _PER_CLIENT}
        for found in entry["server"]:
            served = {f"server_{name}_ms": value for name, value in found["milliseconds"].items()}
            lines.append({**line, "batch": found["clients"], **served})
    return csv_text(lines)
