#!/usr/bin/env python3
"""Draw what `dex ead` measured.

    launch/scripts/plot_ead.py RUN_DIR... --out DIR [--model NAME]

Each RUN_DIR holds ead.json:
  label        what distinguishes the run in a legend, such as "no adapters"
  model        name of the model, where --model gives none
  num_layers   L, the full depth
  depths       the depths asked, ascending, the last one L
  first        per generated token, the first match: smallest asked depth whose candidate is the final token
  stable       per generated token, the stable EAD: smallest asked depth from which on every candidate is
  map          one text of those: {"name": its prompt's name, "tokens": [text, ...],
               "matched": [[0 or 1 per depth] per token], "stable": [depth per token]}
Pictures: DIR/ead_map.png (depth x position, of the last run) and DIR/ead_share.png (all runs).
"""
import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from picture import save

DPI = 120
WIDTH = 1200 / DPI  # inches
MOST_POSITIONS = 64  # more columns are not legible at that width

NOT_MATCHED, MATCHED, STABLE = 0, 1, 2
MAP_COLOURS = ["#eceff1", "#f4b860", "#2a6f97"]
MAP_MEANINGS = ["other token", "the final token, but a deeper depth changes it", "the final token, from here on"]
RUN_COLOURS = ["#9aa5b1", "#2a6f97", "#c8553d", "#588157", "#6d597a"]


def read_run(directory):
    path = directory / "ead.json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        missing = {"label", "model", "num_layers", "depths", "first", "stable", "map"} - run.keys()
    except (OSError, ValueError) as error:
        sys.exit(f"plot_ead: error: {path} cannot be read: {error}")
    if missing:
        sys.exit(f"plot_ead: error: {path} lacks {', '.join(sorted(missing))}")
    return run


def cell_states(matched, stable, depths):
    """(depth, position): NOT_MATCHED, MATCHED or STABLE."""
    matched = np.asarray(matched, dtype=int).T
    is_stable = np.asarray(depths)[:, None] >= np.asarray(stable)[None, :]
    return np.where(is_stable, STABLE, np.where(matched == 1, MATCHED, NOT_MATCHED))


def printable(token):
    text = token.replace("\n", "\\n").replace("\t", "\\t").replace("$", "\\$").strip(" ")
    return text if text else "(space)"


def draw_map(run, path):
    text, depths = run["map"], run["depths"]
    count = min(len(text["tokens"]), MOST_POSITIONS)
    states = cell_states(text["matched"][:count], text["stable"][:count], depths)
    rows = len(depths)

    figure, axes = plt.subplots(figsize=(WIDTH, 3.2 + min(rows, 32) * (0.13 if rows > 8 else 0.45)), dpi=DPI)
    axes.pcolormesh(np.arange(count + 1) - 0.5, np.arange(rows + 1) - 0.5, states, cmap=ListedColormap(MAP_COLOURS),
                    vmin=NOT_MATCHED, vmax=STABLE, edgecolors="white", linewidth=0.6)
    row_of = {depth: row for row, depth in enumerate(depths)}
    axes.stairs([row_of[depth] - 0.5 for depth in text["stable"][:count]], np.arange(count + 1) - 0.5, baseline=None,
                color="black", linewidth=1.6)

    shown = range(rows) if rows <= 12 else [row for row in range(rows) if depths[row] % 5 == 0 or row == 0]
    axes.set_yticks(list(shown), [str(depths[row]) for row in shown])
    axes.set_xticks(range(count), [printable(token) for token in text["tokens"][:count]], rotation=90, fontsize=8)
    axes.set_ylabel("depth (layers)")
    axes.set_xlabel(f"position: generated token 1 to {count}")
    axes.set_title(f"{run['model']}, {run['label']}: which depth already answers the final token\n"
                   f"prompt \"{text['name']}\"", fontsize=12)
    legend = [Patch(facecolor=colour, edgecolor="#b0b8c0", label=meaning)
              for colour, meaning in zip(MAP_COLOURS, MAP_MEANINGS)]
    legend.append(Line2D([], [], color="black", linewidth=1.6, label="stable EAD"))
    figure.legend(handles=legend, loc="lower center", ncols=len(legend), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    save(figure, path)


def cumulative_share(ead, depths):
    """Percentage of tokens whose earliest depth is at most each depth."""
    ead = np.asarray(ead)
    return [100.0 * np.mean(ead <= depth) for depth in depths]


def draw_share(runs, path):
    figure, axes = plt.subplots(figsize=(WIDTH, 6), dpi=DPI)
    for run, colour in zip(runs, RUN_COLOURS * len(runs)):
        for kind, line in (("stable", "-"), ("first", ":")):
            share = cumulative_share(run[kind], run["depths"])
            name = "stable EAD" if kind == "stable" else "first match"
            axes.step([0, *run["depths"]], [0, *share], where="post", color=colour, linestyle=line, linewidth=2.2,
                      label=f"{run['label']}: {name}, mean {np.mean(run[kind]):.1f} layers")
            if kind == "stable" and len(run["depths"]) <= 8:
                axes.plot(run["depths"], share, "o", color=colour, markersize=5)
                for depth, percent in list(zip(run["depths"], share))[:-1]:
                    axes.annotate(f"{percent:.0f} %", (depth, percent), textcoords="offset points", xytext=(6, -15),
                                  color=colour, fontsize=10, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    layers = max(run["num_layers"] for run in runs)
    axes.set_xlim(0, layers * 1.02)
    axes.set_ylim(0, 103)
    axes.set_xlabel("depth (layers)")
    axes.set_ylabel("generated tokens ready at this depth (%)")
    counts = sorted({len(run["stable"]) for run in runs})
    axes.set_title(f"{runs[-1]['model']}: share of tokens ready per depth "
                   f"({' and '.join(f'{count:,}' for count in counts)} generated tokens)", fontsize=12)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=10)
    figure.tight_layout()
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", help="name of the model in the titles")
    arguments = parser.parse_args()
    runs = [read_run(directory) for directory in arguments.runs]
    for run in runs:
        run["model"] = arguments.model or run["model"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw_map(runs[-1], arguments.out / "ead_map.png")
    draw_share(runs, arguments.out / "ead_share.png")


if __name__ == "__main__":
    main()
