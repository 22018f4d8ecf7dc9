"""Write the three files of a report, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrec_unlearn.errors import RunError
from fedrec_unlearn.report.export import to_csv, to_json
from fedrec_unlearn.report.figures import figures_of
from fedrec_unlearn.report.page import to_html
from fedrec_unlearn.report.record import RunRecord
from fedrec_unlearn.report.template import need_libraries, write_whole

_RUN_FILES = ("run.json", "metrics.json", "attack.json")


def write_report(records: Sequence[RunRecord], output: Path) -> list[Path]:
    """Write a report on one run, or on several side by side.

    The same records give the same bytes. The HTML file needs no network and no other file.

    Args:
        records: from `read_run`; their order is the order of the report.
        output: a folder (made if it is not there), which gets report.html, report.json and report.csv; or a
            name that ends in .html, beside which the other two get the same name.

    Returns:
        The paths of the HTML, JSON and CSV file.

    Raises:
        RunError: no records, or `output` cannot be written.
        DependencyError: Jinja2 or matplotlib is not installed.
    """
    need_libraries()
    if not records:
        raise RunError("a report needs at least one run; give one or more run folders")
    output = Path(output)
    if output.is_dir() or output.suffix.lower() not in (".html", ".htm"):
        if output.exists() and not output.is_dir():
            raise RunError(f"{output}: is a file; give a folder, or a file name that ends in .html")
        page = output / "report.html"
    else:
        page = output
    paths = [page, page.with_suffix(".json"), page.with_suffix(".csv")]
    if paths[1].name in _RUN_FILES and (page.parent / "run.json").exists():
        raise RunError(f"{page}: {paths[1].name} beside it belongs to the run; give another name, such as report.html")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        runs = figures_of(records)
        contents = [to_html(runs, [path.name for path in paths[1:]]), to_json(runs), to_csv(runs)]
        for path, content in zip(paths, contents, strict=True):
            write_whole(path, content)
    except OSError as error:
        raise RunError(f"{error.filename or page}: cannot be written: {error.strerror or error}") from error
    return paths
