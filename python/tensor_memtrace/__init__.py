"""Memory snapshots of PyTorch, and memtrace's page of them in a notebook. torch.cuda.memory records; memtrace reads."""

import base64
import os
import subprocess
import sysconfig


def dump(path="snapshot.pickle"):
    """Writes what torch.cuda.memory._record_memory_history() has recorded so far. Returns the file's name."""
    import torch

    torch.cuda.memory._dump_snapshot(path)
    return path


def page(snapshot):
    """The offline page of a snapshot or capture, as HTML. It needs no network."""
    program = os.path.join(sysconfig.get_path("scripts"), "memtrace")
    made = subprocess.run([program, "view", snapshot, "-o", "-"], stdout=subprocess.PIPE, check=True)
    return made.stdout


def show(snapshot=None, height=800):
    """Shows the page in a notebook: of a file, or of what PyTorch has recorded so far."""
    from IPython.display import IFrame

    # A data URL: wherever the notebook's server runs, it need not find a file, and the page has no access to the notebook.
    html = page(dump() if snapshot is None else snapshot)
    return IFrame("data:text/html;base64," + base64.b64encode(html).decode(), "100%", height)
