#!/usr/bin/env python3
"""Writes tests/train/metrics/data/scalars.tfevents: python3 tools/make_event_goldens.py [FILE]

A TensorBoard event file of scalars as PyPI's tensorboardX (pip install tensorboardX==2.6.5) writes
it: the test compares weft's bytes with these. With FILE, checks that file instead: prints what it
holds, and ends with an error if a record or a checksum is wrong.
"""

import pathlib
import struct
import sys

from tensorboardX.crc32c import crc32c
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import RecordWriter

GOLDEN = pathlib.Path(__file__).parent.parent / "tests/train/metrics/data/scalars.tfevents"
# Step, scalars: a zero, negative and tiny numbers, a tag that is not ASCII, steps of many bytes.
STEPS = [
    (1, {"train/loss": 3.25, "train/lr": 0.0}),
    (300, {"train/loss": -1.5e-8, "eval/löss": 2.0}),
    (1 << 40, {"train/tokens_per_s": 123456.789}),
]


def events():
    yield event_pb2.Event(wall_time=1700000000.25, file_version="brain.Event:2")
    start = event_pb2.Event(wall_time=1700000000.5, step=7)
    start.session_log.status = event_pb2.SessionLog.START
    yield start
    for step, scalars in STEPS:
        event = event_pb2.Event(wall_time=1700000001.0 + step, step=step)
        for tag, number in scalars.items():
            event.summary.value.add(tag=tag, simple_value=number)
        yield event


def write_golden():
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    writer = RecordWriter(str(GOLDEN))
    for event in events():
        writer.write(event.SerializeToString())
    writer.close()


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(data):
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        (length,) = struct.unpack("<Q", head)
        message = data[at + 12:at + 12 + length]
        checks = struct.unpack("<I", data[at + 8:at + 12]) + struct.unpack(
            "<I", data[at + 12 + length:at + 16 + length])
        assert checks == (masked(head), masked(message)), f"wrong checksum at byte {at}"
        yield message
        at += 16 + length


def check_file(path):
    for message in read_records(pathlib.Path(path).read_bytes()):
        print(str(event_pb2.Event.FromString(message)).replace("\n", " "))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check_file(sys.argv[1])
    else:
        write_golden()
