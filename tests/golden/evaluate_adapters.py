#!/usr/bin/env python3
"""Agreement and mean hops of adapters on the held-out text of any prepared data set, with transformers in float32.

    tests/golden/evaluate_adapters.py --model DIR --depths 10,20 --data DIR [DIR ...] [--adapters DIR ...]

Prints a line for no adapters and for each of --adapters, per data set: the share of answer tokens that a depth's exit gives
as the final exit does, and the mean number of rounds a token costs (1 + the first exit that agrees, DECS left out). The data
set need not be the one the adapters were trained on, and nothing of dex computes here: what `dex train` reports of its own
held-out text can be checked against it.
"""
import argparse
from pathlib import Path

import h5py
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def samples_of(directory):
    for path in sorted(Path(directory).glob("held_out-*.h5")):
        with h5py.File(path) as shard:
            tokens, supervised, offsets = (shard[name][:] for name in ("tokens", "supervised", "offsets"))
        for begin, end in zip(offsets[:-1], offsets[1:]):
            yield torch.tensor(tokens[begin:end].astype("int64")), torch.tensor(supervised[begin:end].astype(bool))


def induced(h, adapter, depth, eps):
    if not adapter:
        return h
    part = {name: adapter[f"depth.{depth}.{name}"] for name in
            ("norm.weight", "up.weight", "up.bias", "down.weight", "down.bias", "alpha")}
    unit = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * part["norm.weight"]
    inner = torch.nn.functional.silu(unit @ part["up.weight"].T + part["up.bias"])
    return h + part["alpha"] * (inner @ part["down.weight"].T + part["down.bias"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--depths", required=True)
    parser.add_argument("--data", required=True, nargs="+")
    parser.add_argument("--adapters", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    depths = [int(depth) for depth in options.depths.split(",")]
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    eps = model.config.rms_norm_eps
    sets = {"none": {}} | {path: load_file(Path(path) / "adapter_model.safetensors") for path in options.adapters}
    final = len(model.model.layers)
    for directory in options.data:
        rows, agreed = 0, {name: torch.zeros(len(depths)) for name in sets}
        hops = dict.fromkeys(sets, 0)
        with torch.no_grad():
            for tokens, supervised in samples_of(directory):
                seen = {}
                hooks = [model.model.layers[depth - 1].register_forward_hook(
                    lambda module, given, out, depth=depth: seen.update({depth: out[0] if isinstance(out, tuple) else out}))
                    for depth in [*depths, final]]
                model.model(tokens[None])
                for hook in hooks:
                    hook.remove()
                at = torch.nonzero(supervised)[:, 0] - 1
                at = at[at >= 0]
                best = lambda h: model.lm_head(model.model.norm(h)).argmax(-1)
                answers = {depth: seen[depth].reshape(len(tokens), -1)[at] for depth in seen}
                reference = best(answers[final])
                rows += len(at)
                for name, adapter in sets.items():
                    same = torch.stack([best(induced(answers[depth], adapter, depth, eps)) == reference for depth in depths])
                    agreed[name] += same.sum(1)
                    first = torch.cat([same, torch.ones(1, len(at), dtype=torch.bool)]).int().argmax(0)
                    hops[name] += int((first + 1).sum())
        for name in sets:
            shares = " / ".join(f"{share:.4f}" for share in agreed[name] / rows)
            print(f"{directory}  adapters {name}: {rows} tokens, agreement {shares}, mean hops {hops[name] / rows:.4f}", flush=True)


if __name__ == "__main__":
    main()
