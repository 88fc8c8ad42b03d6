#!/usr/bin/env python3
"""Reads TensorBoard event files without TensorBoard and compares them with the metrics.jsonl beside them.

    read_events.py RUN_DIR

Checks every length and checksum. Exit code 1 when a scalar of metrics.jsonl is absent or another.
"""
import json
import struct
import sys
from pathlib import Path


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8]), "checksum of a length"
        body = data[12:12 + length]
        assert len(body) == length and struct.unpack("<I", data[12 + length:16 + length])[0] == masked(body), "checksum of a record"
        yield body
        data = data[16 + length:]


def varint(data):
    value = shift = 0
    for used, byte in enumerate(data, 1):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[used:]
    raise ValueError("cut")


def fields(data):
    while data:
        key, data = varint(data)
        kind = key & 7
        if kind == 0:
            value, data = varint(data)
        else:
            size, data = (8, data) if kind == 1 else (4, data) if kind == 5 else varint(data)
            value, data = data[:size], data[size:]
        yield key >> 3, value


def scalars(directory):
    """{(step, tag): value}, as a reader sees them after all restarts."""
    seen = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for record in records(path.read_bytes()):
            event = dict(fields(record))
            step = event.get(2, 0)
            if 7 in event:  # a start: what older files say of this step and later ones does not count
                seen = {key: value for key, value in seen.items() if key[0] < step}
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                part = dict(fields(value))
                seen[step, part[1].decode()] = struct.unpack("<f", part[2])[0]
    return seen


def wanted(value, tag=""):
    if isinstance(value, dict) or isinstance(value, list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from wanted(part, f"{tag}/{key}" if tag else str(key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield tag, value


def main():
    run = Path(sys.argv[1])
    seen = scalars(run / "tensorboard")
    wrong = total = 0
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        step = record.pop("step")
        for tag, value in wanted(record):
            total += 1
            if abs(seen.pop((step, tag), float("inf")) - value) > 1e-6 * abs(value):
                wrong += 1
                print(f"step {step}: {tag} is absent or not {value}")
    print(json.dumps({"scalars": total, "wrong": wrong, "more_than_metrics": len(seen)}))
    return 0 if total and not wrong and not seen else 1


if __name__ == "__main__":
    sys.exit(main())
