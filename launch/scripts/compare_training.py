#!/usr/bin/env python3
"""Draw several training runs side by side, over the tokens that each has seen: loss, held-out agreement, mean hops.

    launch/scripts/compare_training.py RUN_DIR RUN_DIR... --out FILE.png [--title TEXT]

Reads the metrics.jsonl of each. Runs are named by their directories.
"""
import argparse
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import PercentFormatter

from picture import save
from plot_training import COLOURS, DPI, bare, held_out, read_metrics, refusing_other_lines, running_mean

DEPTH_STYLES = ["-", "--", ":", "-."]


class Run:
    def __init__(self, directory):
        self.name = directory.resolve().name
        self.steps, self.evaluations = read_metrics(directory)
        self.seen = {0: 0}  # step -> thousands of tokens until then
        for line in self.steps:
            self.seen[line["step"]] = self.seen[max(self.seen)] + line["tokens"] / 1000

    def trained(self, value_of):
        """(thousands of tokens, values) on held-out text."""
        at, values = held_out(self.evaluations, value_of)
        return [self.seen[step] for step in at], values


def draw_loss(axes, runs):
    for run, colour in zip(runs, COLOURS * len(runs)):
        at = [run.seen[line["step"]] for line in run.steps]
        loss = [np.nan if line["loss"] is None else line["loss"] for line in run.steps]
        axes.plot(at, loss, color=colour, alpha=0.25, linewidth=1)
        axes.plot(at, running_mean(loss, max(1, len(loss) // 10)), color=colour, linewidth=2, label=run.name)
    axes.set_ylim(bottom=0)


def draw_agreement(axes, runs):
    for run, colour in zip(runs, COLOURS * len(runs)):
        depths = sorted(run.steps[0]["agreement"], key=int)
        for k, (depth, style) in enumerate(zip(depths, DEPTH_STYLES * len(depths))):
            at, values = run.trained(lambda scores: scores["agreement"][k])
            axes.plot(at, values, "o", linestyle=style, color=colour, markersize=5, label=f"{run.name}, depth {depth}")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylim(bottom=0)


def draw_hops(axes, runs):
    for run, colour in zip(runs, COLOURS * len(runs)):
        axes.plot(*run.trained(lambda scores: scores["decs_hops"]), "o-", color=colour, markersize=5, linewidth=2, label=run.name)
    none = [bare(run.evaluations) for run in runs]
    levels = [scores["decs_hops"] for scores in none if scores]
    if len(levels) == len(runs) and len(set(levels)) == 1:
        axes.axhline(levels[0], color="#555555", linestyle=":", linewidth=1.5, label="no adapters")
        return
    for run, scores, colour in zip(runs, none, COLOURS * len(runs)):
        if scores:
            axes.axhline(scores["decs_hops"], color=colour, linestyle=":", linewidth=1.5, label=f"{run.name}, no adapters")


def draw(runs, path, title):
    figure, axes = plt.subplots(3, 1, figsize=(10, 10.8), dpi=DPI, sharex=True)
    draw_loss(axes[0], runs)
    axes[0].set_title("Loss, the mean of all depths (thick: running mean of a tenth of the run)", fontsize=11, loc="left")
    axes[0].set_ylabel(r"$\tau^2$ KL (nats per target token)")
    draw_agreement(axes[1], runs)
    axes[1].set_title("Agreement on held-out text: tokens that the exit already answers as the final depth does", fontsize=11,
                      loc="left")
    axes[1].set_ylabel("agreement (% of target tokens)")
    draw_hops(axes[2], runs)
    axes[2].set_title("Mean hops on held-out text, with DECS: rounds that a token costs, fewer is better", fontsize=11, loc="left")
    axes[2].set_ylabel("mean hops (rounds per token)")
    axes[2].set_xlabel("tokens trained on (thousands)")
    for one in axes:
        one.grid(alpha=0.3)
        one.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    figure.tight_layout()
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--title")
    options = parser.parse_args()
    if len({directory.resolve() for directory in options.runs}) < len(options.runs):
        parser.error("a run stands twice")
    with refusing_other_lines(*options.runs):
        runs = [Run(directory) for directory in options.runs]
        if len({run.name for run in runs}) < len(runs):
            for run, directory in zip(runs, options.runs):
                run.name = str(directory)
        draw(runs, options.out, options.title or "Training runs " + ", ".join(run.name for run in runs))


if __name__ == "__main__":
    main()
