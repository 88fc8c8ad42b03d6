#!/usr/bin/env python3
"""Draw how a training run went: loss per depth, agreement per depth and mean hops over steps.

    launch/scripts/plot_training.py RUN_DIR [--out FILE.png] [--title TEXT]

Reads RUN_DIR/metrics.jsonl, and RUN_DIR/best/best.json where it is. Draws RUN_DIR/training.png. A run that is going on can
be drawn, too.
"""
import argparse
import contextlib
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from picture import save

DPI = 120
COLOURS = ["#2a6f97", "#c8553d", "#588157", "#6d597a", "#e09f3e", "#3d5a80", "#9e2a2b"]
HOPS = {"hops": ("without DECS", "#9aa5b1"), "decs_hops": ("with DECS, as decoding does", "#2a6f97")}


def read_metrics(directory):
    """(training lines, evaluation lines), each in the order of steps; a torn last line is left out."""
    path = directory / "metrics.jsonl"
    steps, evaluations = [], []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"plot_training: error: {path} cannot be read: {error}")
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            sys.exit(f"plot_training: error: {path} holds {line[:60]!r}, which dex train does not write")
        if "loss_by_depth" in record:
            steps.append(record)
        elif "evaluation" in record:
            evaluations.append(record)
    if not steps:
        sys.exit(f"plot_training: error: {path} holds no finished step")
    return steps, evaluations


@contextlib.contextmanager
def refusing_other_lines(*directories):
    """Lines that have not the fields of dex train's end in one line of error."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        names = ", ".join(str(directory / "metrics.jsonl") for directory in directories)
        sys.exit(f"plot_training: error: {names}: a line is not as dex train writes it ({type(error).__name__}: {error})")


def running_mean(values, width):
    """Of the last `width` values at each place, those that are no number left out."""
    parts = [np.asarray(values[max(0, i + 1 - width):i + 1], dtype=float) for i in range(len(values))]
    return [np.nanmean(part) if np.isfinite(part).any() else np.nan for part in parts]


def by_depth(steps, field):
    """{depth: values over steps}; a skipped step has no number."""
    depths = sorted(steps[0][field], key=int)
    return {depth: [np.nan if line[field][depth] is None else line[field][depth] for line in steps] for depth in depths}


def held_out(evaluations, value_of):
    """(steps, values) of the trained adapters, the start being step 0, a line per step."""
    points = {}
    for line in evaluations:
        for name in ("start", "trained"):
            if name in line["evaluation"]:
                points[line["step"]] = value_of(line["evaluation"][name])
    return list(points), list(points.values())


def bare(evaluations):
    return next((line["evaluation"]["none"] for line in evaluations if "none" in line["evaluation"]), None)


def draw_training_values(axes, steps, field, mean_width):
    at = [line["step"] for line in steps]
    for (depth, values), colour in zip(by_depth(steps, field).items(), COLOURS * len(steps)):
        axes.plot(at, values, color=colour, alpha=0.3, linewidth=1)
        axes.plot(at, running_mean(values, mean_width), color=colour, linewidth=2, label=f"depth {depth}")


def draw_agreement(axes, steps, evaluations, mean_width):
    draw_training_values(axes, steps, "agreement", mean_width)
    for k, colour in zip(range(len(steps[0]["agreement"])), COLOURS * 9):
        at, values = held_out(evaluations, lambda scores: scores["agreement"][k])
        axes.plot(at, values, "o--", color=colour, markersize=6, markeredgecolor="white", linewidth=1.2)
    if evaluations:
        axes.plot([], [], "o--", color="#555555", markersize=6, markeredgecolor="white", linewidth=1.2,
                  label="on held-out text")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def draw_hops(axes, evaluations, best_step):
    none = bare(evaluations)
    for field, (name, colour) in HOPS.items():
        at, values = held_out(evaluations, lambda scores: scores[field])
        axes.plot(at, values, "o-", color=colour, linewidth=2, markersize=6, label=name)
        if none:
            axes.axhline(none[field], color=colour, linestyle=":", linewidth=1.5,
                         label=f"no adapters, {name.split(',')[0]}")
        if field == "decs_hops" and best_step in at:
            axes.plot([best_step], [values[at.index(best_step)]], "*", color="#c8553d", markersize=15, zorder=5,
                      label=f"best, step {best_step}: {values[at.index(best_step)]:.3f}")


def draw(directory, path, title):
    steps, evaluations = read_metrics(directory)
    best = directory / "best" / "best.json"
    best_step = json.loads(best.read_text(encoding="utf-8"))["step"] if best.exists() else None
    mean_width = max(1, len(steps) // 10)
    rows = 3 if evaluations else 2
    figure, axes = plt.subplots(rows, 1, figsize=(10, 3.6 * rows), dpi=DPI, sharex=True)
    draw_training_values(axes[0], steps, "loss_by_depth", mean_width)
    axes[0].set_title("Loss per depth: distance from the final depth's distribution", fontsize=11, loc="left")
    axes[0].set_ylabel(r"$\tau^2$ KL (nats per target token)")
    axes[0].set_ylim(bottom=0)
    draw_agreement(axes[1], steps, evaluations, mean_width)
    axes[1].set_title("Agreement per depth: target tokens that the exit already answers as the final depth does",
                      fontsize=11, loc="left")
    axes[1].set_ylabel("agreement (% of target tokens)")
    if evaluations:
        draw_hops(axes[2], evaluations, best_step)
        rows = next(iter(evaluations[-1]["evaluation"].values()))["rows"]
        axes[2].set_title(f"Mean hops on held-out text ({rows:,} tokens): rounds that a token costs, fewer is better",
                          fontsize=11, loc="left")
        axes[2].set_ylabel("mean hops (rounds per token)")
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    for one in axes:
        one.grid(alpha=0.3)
        one.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    trained = f"steps 1 to {steps[-1]['step']}" + (f" (thick lines: mean of {mean_width} steps)" if mean_width > 1 else "")
    figure.suptitle(f"{title}, {trained}", fontsize=13, x=0.01, ha="left")
    figure.tight_layout()
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--title")
    options = parser.parse_args()
    with refusing_other_lines(options.run):
        draw(options.run, options.out or options.run / "training.png", options.title or f"Training run {options.run.resolve().name}")


if __name__ == "__main__":
    main()
