"""Checks that say what they found, and the exit code at the end."""

import sys

failed = False


def check(text, actual, wanted):
    global failed
    same = actual == wanted
    print(f"{'ok   ' if same else 'FAIL '} {text}: {actual}{'' if same else f', not {wanted}'}")
    failed |= not same


def end():
    sys.exit(failed)
