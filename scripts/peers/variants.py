"""The profilers, each with its command, environment and output files."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import machine, outputs

FOLDERS = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]


@dataclass(frozen=True)
class Variant:
    """One row of the table. `wrap`, `env` and `arguments` get the path that the names of output files begin with."""

    name: str
    program: str = "plain"
    base: str = "plain"
    arguments: Callable = lambda out: []
    wrap: Callable = lambda out: []
    env: Callable = lambda out: {}
    read: Callable | None = None
    # Pattern of output files, after the path.
    files: str = ""
    # Environment of a separate run for reading, because its dumps would be timed.
    read_env: Callable | None = None
    small: bool = False
    missing: str | None = None


def memtrace(name, record):
    return Variant(f"memtrace, {name}", "under-memtrace", arguments=lambda out: ["--record", record, "--out", f"{out}.pickle"])


def all_memtrace():
    # 1 KiB is the default.
    modes = [("installed, nothing recorded", "off"), ("counters only", "counters"), (">= 1 KiB", "1KiB"), ("sampled", "sampled"), ("every allocation", "0")]
    return [memtrace(name, record) for name, record in modes]


def preloaded():
    def variant(name, size):
        # As `cargo memtrace run` does: the process whose parent is named records from its beginning.
        return Variant(f"memtrace preloaded, {name}", env=lambda out: {
            "LD_PRELOAD": str(machine.program("libmemtrace_preload.so")), "MEMTRACE_RUN": str(os.getpid()),
            "MEMTRACE_OUT": f"{out}.memtrace", "MEMTRACE_MIN_SIZE": size})
    return [variant(">= 1 KiB", "1KiB"), variant("every allocation", "0")]


def library(name, *folders):
    places = (Path(folder) / name for folder in (*folders, *FOLDERS))
    return next((str(place) for place in places if place.exists()), None)


def heaptrack():
    tool = shutil.which("heaptrack")
    near = Path(tool).resolve().parents[1] / "lib/heaptrack" if tool else Path("/")
    preload = library("libheaptrack_preload.so", near, *(f"{folder}/heaptrack" for folder in FOLDERS))
    # If its GUI is installed, heaptrack opens it after every run, unless it knows --record-only.
    usage = subprocess.run([tool, "--help"], capture_output=True, text=True).stdout if tool else ""
    quiet = ["--record-only"] if "--record-only" in usage else []
    window = tool and not quiet and (Path(tool).parent / "heaptrack_gui").exists()
    why = "heaptrack" if not tool else "a heaptrack with --record-only" if window else None
    return [
        Variant("heaptrack", wrap=lambda out: [tool, *quiet, "-o", str(out)], read=outputs.heaptrack, missing=why),
        Variant("heaptrack, its preload alone", missing=None if preload else "libheaptrack_preload.so",
                env=lambda out: {"LD_PRELOAD": preload, "DUMP_HEAPTRACK_OUTPUT": f"{out}.raw"}),
    ]


def dhat(problem):
    def variant(name, record):
        return Variant(name, "under-dhat", arguments=lambda out: ["--record", record, "--out", f"{out}.json"],
                       read=outputs.dhat, missing=problem)
    return [variant("dhat-rs, ten frames (default)", "ten"), variant("dhat-rs, whole stacks", "full")]


def jemalloc(problem):
    alone = "jemalloc, not profiling"
    def variant(name, base, options, read=None):
        def env(more):
            return lambda out: {"_RJEM_MALLOC_CONF": f"{options}{more},prof_prefix:{out}" if options else ""}
        # jemalloc shows a peak only through dumps at each new one.
        return Variant(name, "under-jemalloc", base, env=env(""), read=read, read_env=env(",prof_gdump:true"),
                       files="*.heap", missing=problem)
    return [
        variant(alone, "plain", ""),
        variant("jemalloc, a sample every 512 KiB", alone, "prof:true,prof_final:true,lg_prof_sample:19", outputs.heap_profiles),
        variant("jemalloc, every allocation", alone, "prof:true,prof_final:true,lg_prof_sample:0"),
    ]


def gperftools():
    tcmalloc = library("libtcmalloc.so") or library("libtcmalloc.so.4")
    alone = "tcmalloc, not profiling"
    missing = None if tcmalloc else "libtcmalloc.so of gperftools"
    return [
        Variant(alone, env=lambda out: {"LD_PRELOAD": tcmalloc}, missing=missing),
        Variant("gperftools, HEAPPROFILE", base=alone, env=lambda out: {"LD_PRELOAD": tcmalloc, "HEAPPROFILE": str(out)},
                read=outputs.heap_profiles, files="*.heap", missing=missing),
    ]


def valgrind():
    tool = shutil.which("valgrind")
    missing = None if tool else "valgrind"
    def wrap(name, file):
        return lambda out: [tool, "-q", f"--tool={name}", "--fullpath-after=", f"--{file}={out}.{name}"]
    more = {"base": "plain, small", "small": True, "missing": missing}
    return [
        Variant("plain, small", base="plain, small", small=True, missing=missing),
        Variant("Valgrind's DHAT, small", wrap=wrap("dhat", "dhat-out-file"), read=outputs.dhat, **more),
        Variant("Valgrind's Massif, small", wrap=wrap("massif", "massif-out-file"), read=outputs.massif, **more),
    ]


def bookkeeping():
    """The least that any exact recorder in the process must do; the program's header says what."""
    return Variant("a table and a log alone", "bookkeeping")


def every(problems):
    """All variants; those that could not be built have the problem in `missing`."""
    built = [*dhat(problems.get("dhat")), *jemalloc(problems.get("jemalloc"))]
    return [Variant("plain"), bookkeeping(), *all_memtrace(), *preloaded(), *heaptrack(), *built, *gperftools(), *valgrind()]


def environment(variant, out, extra=None):
    # The number of threads changes the allocations.
    return {**os.environ, "RAYON_NUM_THREADS": "2", **(extra or variant.env)(out)}
