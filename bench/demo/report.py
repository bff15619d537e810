"""Everything that the demo prints at its end: whether the rows are comparable, the table, and the
chart.

A row is one run of train.py. Rows are compared only if all epochs have read the same data (checksum
over labels and pixels) and learnt the same from it (loss). A row that reads other data does not
count."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Row:
    """One run of train.py. `epochs` is its output of --json, `origin_operations` has one number for
    each epoch, and `others_cpu` is the share of all cores that other programs used during the
    run."""

    key: str
    name: str
    loader: str
    workers: int
    epochs: list[dict] = field(default_factory=list)
    origin_operations: list[int] | None = None
    hit_rate: float | None = None
    others_cpu: float = 0.0

    def rates(self) -> list[float]:
        return [epoch["samples_per_s"] for epoch in self.epochs]


@dataclass(frozen=True)
class Setting:
    """The machine, mount and files, for the head of the table and the title of the chart."""

    cpu: str
    cores: int
    mount: str
    data: str

    def machine(self) -> str:
        return f"{self.cpu}, {self.cores} cores"


# A row is marked if other programs used more than this share of the cores.
BUSY = 0.1

# The keys of the rows with which every other row is compared.
REFERENCES = {"local": "local", "slow": "slow", "slow8": "slow (many)"}

LOADERS = {"cv2": "cv2.imread", "pil": "PIL"}


def differences(rows: list[Row]) -> list[str]:
    """One line for each epoch in which a row did not see the same data as the first row with the
    same loader."""
    found = []
    first: dict[str, Row] = {}
    for row in rows:
        reference = first.setdefault(row.loader, row)
        for ours, theirs in zip(row.epochs, reference.epochs):
            for what in ("samples", "checksum", "loss"):
                if ours[what] != theirs[what]:
                    found.append(
                        f"epoch {ours['epoch']}, {LOADERS[row.loader]}: {what} {ours[what]}"
                        f" in row \"{row.name}\""
                        f" but {theirs[what]} in row \"{reference.name}\"")
    return found


def table(rows: list[Row], setting: Setting) -> str:
    """Returns the comparison as text, with one block for each loader and one line for each row."""
    lines = [
        f"machine     {setting.machine()}", f"data        {setting.data}",
        f"slow mount  {setting.mount}", ""
    ]
    for loader in dict.fromkeys(row.loader for row in rows):
        lines += _block([row for row in rows if row.loader == loader]) + [""]
    lines.append(
        "x ...: samples/s against the row on the local disk, on the slow mount, and there with"
        " many workers; first / last epoch")
    lines.append(
        "origin ops: lookup, getattr, open, read ... of data files that reached the slow mount, in"
        " each epoch"
    )
    if note := busy_note(rows):
        lines.append(f"*: {note}; run again on a quiet machine")
    return "\n".join(lines)


def busy_note(rows: list[Row]) -> str:
    """The reason why the rows cannot be compared, or an empty string."""
    most = max(row.others_cpu for row in rows)
    if most <= BUSY:
        return ""
    return f"other programs used up to {percent(most)} of the cores meanwhile"


def _block(rows: list[Row]) -> list[str]:
    epochs = max(len(row.epochs) for row in rows)
    references = {row.key: row for row in rows}
    head = [
        f"samples/s (s), {LOADERS[rows[0].loader]}", *(f"epoch {n}" for n in range(1, epochs + 1)),
        *(f"x {words}" for words in REFERENCES.values()), "hit rate", "origin ops"
    ]
    body = [[
        _marked(row), *_speeds(row, epochs), *(_ratios(row, references.get(key))
                                               for key in REFERENCES),
        "-" if row.hit_rate is None else percent(row.hit_rate),
        _operations(row)
    ]
            for row in rows]
    return aligned([head, *body])


def _marked(row: Row) -> str:
    return row.name + (" *" if row.others_cpu > BUSY else "")


def _speeds(row: Row, epochs: int) -> list[str]:
    cells = [f"{epoch['samples_per_s']:.0f} ({epoch['seconds']:.2f})" for epoch in row.epochs]
    return cells + ["-"] * (epochs - len(cells))


def _ratios(row: Row, reference: Row | None) -> str:
    if reference is None or not row.epochs or not reference.epochs:
        return "-"
    ours, theirs = row.rates(), reference.rates()
    return f"{ours[0] / theirs[0]:.2f} / {ours[-1] / theirs[-1]:.2f}"


def _operations(row: Row) -> str:
    return "-" if row.origin_operations is None else " / ".join(
        str(count) for count in row.origin_operations)


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def aligned(cells: list[list[str]]) -> list[str]:
    """Returns the lines of a table. The first column is aligned left, the others right, and a rule
    is under the head."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in cells
    ]
    return [text[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *text[1:]]


def as_json(rows: list[Row], setting: Setting) -> dict:
    return {"setting": asdict(setting), "rows": [asdict(row) for row in rows]}


COLOURS = {"local": "#8c9aa8", "slow": "#d1495b", "slow8": "#eda1a9", "shim": "#1b7f79"}


def draw(rows: list[Row], setting: Setting, path: Path) -> None:
    """Draws grouped bars of samples/s, with one group for each epoch and one panel for each
    loader."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    loaders = list(dict.fromkeys(row.loader for row in rows))
    figure, panels = pyplot.subplots(1, len(loaders), figsize=(2 + 5.4 * len(loaders), 5.4),
                                     sharey=True, squeeze=False)
    for panel, loader in zip(panels[0], loaders):
        _panel(panel, [row for row in rows if row.loader == loader], LOADERS[loader])
    panels[0][0].set_ylabel("samples per second")
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.suptitle("Training from small files", x=0.012, y=0.985, ha="left", fontsize=14,
                    fontweight="bold")
    first = "; ".join(filter(None, [setting.machine(), setting.data, busy_note(rows)]))
    figure.text(0.012, 0.905, f"{first}\nslow mount: {setting.mount}", ha="left", va="center",
                fontsize=9.5, color="#444444")
    figure.legend(handles, names, loc="lower center",
                  ncol=min(4, len(names)) if len(loaders) > 1 else 2, frameon=False)
    figure.tight_layout(rect=(0, 0.07 if len(loaders) > 1 else 0.11, 1, 0.9))
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _panel(panel, rows: list[Row], title: str) -> None:
    epochs = max(len(row.epochs) for row in rows)
    width = 0.82 / len(rows)
    for i, row in enumerate(rows):
        places = [n + (i - (len(rows) - 1) / 2) * width for n in range(len(row.epochs))]
        bars = panel.bar(places, row.rates(), 0.94 * width, color=COLOURS.get(row.key),
                         label=row.name)
        panel.bar_label(bars, fmt="%.0f", padding=2, fontsize=8,
                        fontweight="bold" if row.key == "shim" else None)
    panel.set_xticks(range(epochs), [f"epoch {n + 1}" for n in range(epochs)])
    panel.tick_params(length=0)
    panel.set_title(title, loc="left", fontsize=11)
    panel.margins(y=0.1)
    panel.grid(axis="y", color="#dddddd", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
