"""Reads the peak from other profilers' files: (bytes, bytes with a frame of the program, or None)."""

import json
import math
import re
import subprocess

# Files of the program, as in benches/peers/programs/under-memtrace.rs.
USER = re.compile(r"examples/resnet/|examples/llama/|user_code/")


def dhat(files, program):
    """dhat-rs and Valgrind's DHAT write the same JSON; `gb` is a stack's bytes at the peak."""
    data = json.loads(files[0].read_text())
    user = [bool(USER.search(frame)) for frame in data["ftbl"]]
    peak = sum(point["gb"] for point in data["pps"])
    return peak, sum(point["gb"] for point in data["pps"] if any(user[frame] for frame in point["fs"]))


def massif(files, program):
    """The tree at the peak, whose leaves add up to it. Small leaves are combined, without a source line."""
    tree = files[0].read_text().split("heap_tree=peak\n", 1)[1].split("#-----------", 1)[0]
    user, above = 0, []
    for line in tree.splitlines():
        indent, children, size, place = re.match(r"( *)n(\d+): (\d+) (.*)", line).groups()
        above = above[: len(indent)] + [bool(USER.search(place))]
        user += int(size) if children == "0" and any(above) else 0
        peak = int(size) if not indent else peak
    return peak, user


def heaptrack(files, program):
    """Replays the compressed log of events, which are lines of hexadecimal numbers."""
    unpack = ["zstd", "-dc"] if files[0].suffix == ".zst" else ["gzip", "-dc"]
    lines = subprocess.run([*unpack, files[0]], capture_output=True, check=True, text=True).stdout.splitlines()
    tables, live = HeaptrackTables(), LiveBlocks()
    for line in lines:
        kind = line[:1]
        if kind in ("+", "-"):
            block = int(line[2:], 16)
            (live.add if kind == "+" else live.remove)(block, tables.sizes[block])
        else:
            tables.read(kind, line)
    live.keep_peak()
    held = {block: tables.sizes[block] * count for block, count in live.at_peak.items()}
    return live.peak, sum(size for block, size in held.items() if tables.user[tables.traces[block]])


class LiveBlocks:
    """Number of live blocks of each kind, now and at the peak."""

    def __init__(self):
        self.bytes = self.peak = 0
        self.counts, self.at_peak, self.changed = {}, {}, set()

    def add(self, block, size):
        self.counts[block] = self.counts.get(block, 0) + 1
        self.bytes += size
        self.changed.add(block)

    def remove(self, block, size):
        self.keep_peak()
        self.counts[block] = self.counts.get(block, 0) - 1
        self.bytes -= size
        self.changed.add(block)

    def keep_peak(self):
        """Updates the peak's counts, before a free or at the end, with the changes since the last peak."""
        if self.bytes > self.peak:
            self.at_peak.update((block, self.counts[block]) for block in self.changed)
            self.changed.clear()
            self.peak = self.bytes


class HeaptrackTables:
    """Strings, code addresses, traces and kinds of blocks; all but kinds are numbered from 1."""

    def __init__(self):
        self.user_string, self.user_address, self.user = [False], [False], [False]
        self.sizes, self.traces = [], []

    def read(self, kind, line):
        if kind == "s":
            self.user_string.append(bool(USER.search(line)))
        elif kind == "i":
            # Address, module, then function, file and line of each function inlined there.
            files = line.split()[4::3]
            self.user_address.append(any(self.user_string[int(file, 16)] for file in files))
        elif kind == "t":
            address, parent = (int(number, 16) for number in line.split()[1:3])
            self.user.append(self.user_address[address] or self.user[parent])
        elif kind == "a":
            size, trace = (int(number, 16) for number in line.split()[1:3])
            self.sizes.append(size)
            self.traces.append(trace)


def heap_profiles(files, program):
    """Stacks in the format of jemalloc and gperftools, from the largest of several files."""
    stacks = max((held_by_stack(file.read_text()) for file in files), key=lambda held: sum(held.values()))
    base = mapped_at(files[0].read_text(), program)
    user = user_addresses({address for stack in stacks for address in stack}, base, program)
    return sum(stacks.values()), sum(size for stack, size in stacks.items() if any(a in user for a in stack))


def held_by_stack(text):
    """Bytes by stack. In jemalloc's format each stack precedes its numbers, which are of samples."""
    if not text.startswith("heap_v2/"):
        rows = re.findall(r"^ *\d+: +(\d+) \[.*\] @ (.*)$", text, re.MULTILINE)
        return add_up((stack, int(size)) for size, stack in rows)
    every = int(text[len("heap_v2/") :].split("\n", 1)[0])
    rows = re.findall(r"^@ (.*)\n +t\*: (\d+): (\d+) ", text, re.MULTILINE)
    return add_up((stack, unsampled(int(count), int(size), every)) for stack, count, size in rows)


def add_up(rows):
    held = {}
    for stack, size in rows:
        # The call precedes its return address.
        key = tuple(int(address, 16) - 1 for address in stack.split())
        held[key] = held.get(key, 0) + size
    return held


def unsampled(count, size, every):
    """Poisson sampling: a block of n bytes is sampled with probability 1 - exp(-n / every)."""
    return round(size / -math.expm1(-size / count / every)) if count else 0


def mapped_at(text, program):
    """Start address of the program's mapping."""
    starts = [line.split("-")[0] for line in text.splitlines() if line.endswith(str(program))]
    return int(starts[0], 16) if starts else 0


def user_addresses(addresses, base, program):
    """Addresses with a line of the program, directly or through inlining."""
    offsets = {hex(address - base): address for address in addresses if address >= base}
    asked = subprocess.run(["addr2line", "-a", "-i", "-e", program], input="\n".join(offsets), capture_output=True,
                           check=True, text=True).stdout
    found, at = set(), None
    for line in asked.splitlines():
        if line.startswith("0x"):
            at = offsets.get(hex(int(line, 16)))
        elif USER.search(line):
            found.add(at)
    return found
